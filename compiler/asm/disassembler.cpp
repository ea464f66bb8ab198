// Executable to text, generic over the command and instruction tables.
#include "asm/disassembler.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "asm/text.hpp"
#include "exe/code_text.hpp"
#include "tpu/spec/program_image.h"

namespace tpu::compiler {

namespace {

using exe::command_info;
using exe::field_is_zero;
using exe::print_field;
using text::quote;

template <typename Number>
std::string list(const std::vector<Number>& v) {
  std::string out = "[";
  for (size_t i = 0; i < v.size(); ++i) {
    out += (i == 0 ? "" : ",") + std::to_string(v[i]);
  }
  return out + "]";
}

class Disassembler {
 public:
  explicit Disassembler(const exe::ExecutableT& e) : exe_(e) {
    if (e.image.size() < sizeof(header_)) {
      throw Error("the image is shorter than its header");
    }
    std::memcpy(&header_, e.image.data(), sizeof(header_));
    if (header_.header_bytes > e.image.size() || header_.header_bytes % 8 != 0) {
      throw Error("the image header has an invalid length");
    }
    code_ = reinterpret_cast<const std::byte*>(e.image.data()) + header_.header_bytes;
    bytes_ = (e.image.size() - header_.header_bytes) / 8 * 8;
  }

  std::string run() {
    scan();
    tables();
    code();
    programs();
    return std::move(out_);
  }

 private:
  template <typename T>
  T read(size_t at) const {
    if (at > bytes_ || bytes_ - at < sizeof(T)) {
      throw Error("the code ends inside a command or program");
    }
    T v;
    std::memcpy(&v, code_ + at, sizeof(T));
    return v;
  }

  // Finds programs, branch targets and the end of the code.
  void scan() {
    end_ = bytes_;
    for (size_t at = 0; at < end_;) {
      const auto op = static_cast<uint8_t>(code_[at]);
      if (op >= 32) {
        const auto insn = read<spec::ScalarInsn>(at);
        if (op - 32u < spec::kScalarInsns.size() &&
            spec::kScalarInsns[op - 32u].form.find("target") != std::string_view::npos) {
          targets_.insert(insn.imm);
        }
        at += 8;
        continue;
      }
      const auto head = read<spec::CommandHeader>(at);
      const spec::CommandInfo* info = command_info(op);
      if (info == nullptr || head.words == 0) {
        throw Error("word " + std::to_string(at / 8) +
                    " is neither a command nor an instruction (opcode " + std::to_string(op) + ")");
      }
      if (info->opcode == spec::Opcode::kVpuKernel) {
        const auto c = read<spec::VpuKernelCommand>(at);
        if (c.program % 8 != 0 || c.program >= bytes_) {
          throw Error("a vpu_kernel names a program outside of the code");
        }
        programs_[c.program] = "p" + std::to_string(programs_.size());
        end_ = std::min<size_t>(end_, c.program);
      }
      at += size_t{head.words} * 8;
    }
    int number = 0;
    for (auto& [offset, name] : programs_) {
      name = "p" + std::to_string(number++);
    }
  }

  void line(const std::string& s) { out_ += s + "\n"; }

  void tensor(const char* directive, const exe::TensorT& t) {
    const std::vector<uint16_t> owners = exe::owners_of(t), terms = exe::terms_of(t);
    line(std::string(directive) + " " + quote(t.name) + " elem=" + exe::elem_name(t.elem) +
         " global=" + list(t.global_dims) + " local=" + list(t.local_dims) +
         " offsets=" + list(t.offsets) + " replicated=" + (t.replicated ? "1" : "0") +
         " slot=" + std::to_string(t.slot) + " donated_to=" + std::to_string(t.donated_to) +
         (owners.empty()
              ? ""
              : " owned_elements=" + list(t.owned_elements) + " owned_by=" + list(owners)) +
         (terms.empty() ? "" : " terms=" + list(terms)));
  }

  void tables() {
    line(".program " + quote(exe_.name));
    line(".board " + quote(exe_.board_name) + " hash=" + std::to_string(exe_.board_hash) +
         " isa=" + std::to_string(exe_.isa_version));
    line(".partitions " + std::to_string(exe_.partitions) +
         (exe::cores_of(exe_).empty() ? "" : " cores=" + list(exe::cores_of(exe_))));
    for (const auto& s : exe_.slots) {
      line(std::string(".slot ") + exe::EnumNameSlotKind(s->kind) +
           " bytes=" + std::to_string(s->bytes) + " index=" + std::to_string(s->index));
    }
    for (const auto& t : exe_.args) {
      tensor(".arg", *t);
    }
    for (const auto& t : exe_.results) {
      tensor(".result", *t);
    }
    for (const auto& c : exe_.constants) {
      static constexpr char kHex[] = "0123456789abcdef";
      std::string hex;
      for (const uint8_t b : c->data) {
        hex += kHex[b >> 4];
        hex += kHex[b & 15];
      }
      line(".constant hex=" + hex);
    }
    for (const auto& o : exe_.ops) {
      line(".op " + quote(o->name) + " file=" + quote(o->file) +
           " line=" + std::to_string(o->line) + " column=" + std::to_string(o->column) +
           " flops=" + std::to_string(o->flops));
    }
    for (const auto& t : exe_.temporaries) {
      line(std::string(".temporary elem=") + exe::elem_name(t->elem) + " dims=" + list(t->dims) +
           " offset=" + std::to_string(t->offset) + " bytes=" + std::to_string(t->bytes) +
           " from=" + std::to_string(t->from) + " to=" + std::to_string(t->to) +
           " op=" + std::to_string(t->op));
    }
    for (const std::string& n : exe_.notes) {
      line(".note " + quote(n));
    }
    line(".stat estimated_cycles=" + std::to_string(exe_.estimated_cycles) +
         " matmul_flops=" + std::to_string(exe_.matmul_flops) + " vmem_peak_bytes=" +
         std::to_string(exe_.vmem_peak_bytes) + " hbm_bytes=" + std::to_string(exe_.hbm_bytes) +
         " sharded_update_bytes=" + std::to_string(exe_.sharded_update_bytes) +
         " vector_ops=" + std::to_string(exe_.vector_ops) +
         " hbm_read_bytes=" + std::to_string(exe_.hbm_read_bytes) + " hbm_written_bytes=" +
         std::to_string(exe_.hbm_written_bytes) + " link_bytes=" + std::to_string(exe_.link_bytes));
    line(".entry " + std::to_string(header_.entry_word));
  }

  void code() {
    for (size_t at = 0; at < end_;) {
      if (targets_.contains(static_cast<int64_t>(at / 8))) {
        line("L" + std::to_string(at / 8) + ":");
      }
      const auto op = static_cast<uint8_t>(code_[at]);
      if (op >= 32) {
        scalar(at, read<spec::ScalarInsn>(at));
        at += 8;
      } else {
        at += command(at);
      }
    }
  }

  // Errors, traces and waves name statements by their words.
  void statement(size_t at, const std::string& text) {
    line("  " + text + "  ; word " + std::to_string(at / 8));
  }

  void scalar(size_t at, const spec::ScalarInsn& i) {
    if (i.op - 32u >= spec::kScalarInsns.size()) {
      throw Error("unknown scalar opcode " + std::to_string(i.op));
    }
    statement(at, exe::print_scalar(i));
  }

  size_t command(size_t at) {
    const auto head = read<spec::CommandHeader>(at);
    const spec::CommandInfo& info = *command_info(head.opcode);
    if (head.queue >= spec::kQueueCount || size_t{head.words} * 8 > bytes_ - at ||
        size_t{head.words} * 8 < static_cast<size_t>(info.bytes)) {
      throw Error("the command at word " + std::to_string(at / 8) + " has an invalid header");
    }
    const bool vpu = info.opcode == spec::Opcode::kVpuKernel;
    statement(
        at, exe::print_command(code_ + at, info,
                               vpu ? programs_.at(read<spec::VpuKernelCommand>(at).program) : ""));
    if (vpu) {
      accesses(at);
    }
    return size_t{head.words} * 8;
  }

  void accesses(size_t at) {
    const auto c = read<spec::VpuKernelCommand>(at);
    for (size_t i = 0; i < c.accesses; ++i) {
      const auto a = read<spec::VpuAccess>(at + sizeof(c) + i * sizeof(spec::VpuAccess));
      std::string s = "  .access addr=" + exe::print_address(a.addr);
      for (const spec::FieldInfo& f : text::kAccessFields) {
        const auto* base = reinterpret_cast<const std::byte*>(&a);
        if (!field_is_zero(f, base)) {
          s += " " + std::string(f.name) + "=" + print_field(f, base);
        }
      }
      s += " type=" + (a.type < spec::kElemCount ? std::string(spec::kElemNames[a.type])
                                                 : std::to_string(a.type));
      line(s);
    }
  }

  void programs() {
    size_t at = end_;
    for (const auto& [offset, name] : programs_) {
      if (offset < at) {
        throw Error("two VPU programs overlap");
      }
      for (; at < offset; at += 8) {
        line("  .word " + std::to_string(read<uint64_t>(at)));
      }
      const auto header = read<spec::VpuProgramHeader>(at);
      line(".vpu " + name + " registers=" + std::to_string(header.registers));
      at += sizeof(header);
      for (size_t s = 0; s < 9; ++s) {
        if (header.section[s] != 0) {
          line(std::string(text::kSections[s]) + ":");
        }
        for (int i = 0; i < header.section[s]; ++i, at += 8) {
          vpu_insn(read<spec::VpuInsn>(at));
        }
      }
      line(".end");
    }
    for (; at < bytes_; at += 8) {
      line("  .word " + std::to_string(read<uint64_t>(at)));
    }
  }

  void vpu_insn(const spec::VpuInsn& i) {
    if (i.op < 1 || i.op > spec::kVpuOps.size()) {
      throw Error("unknown vector opcode " + std::to_string(i.op));
    }
    const spec::VpuOpInfo& info = spec::kVpuOps[i.op - 1u];
    std::string s = "  " + std::string(info.name);
    std::string_view form = info.form;
    const auto named = [&](const auto& names, uint32_t v) {
      return v < names.size() ? std::string(names[v]) : std::to_string(v);
    };
    for (bool first = true; !form.empty(); first = false) {
      const size_t comma = std::min(form.find(','), form.size());
      const std::string_view f = form.substr(0, comma);
      form.remove_prefix(std::min(comma + 1, form.size()));
      s += first ? " " : ", ";
      if (f == "a") {
        s += "a" + std::to_string(i.imm);
      } else if (f == "i") {
        s += std::to_string(i.imm);
      } else if (f == "r") {
        s += named(spec::kVpuReduceNames, i.imm);
      } else if (f == "c") {
        s += named(spec::kVpuCompareNames, i.imm);
      } else if (f == "m") {
        s += named(spec::kVpuStoreModeNames, i.rs2);
      } else {
        s += "r" + std::to_string(f == "rd"    ? i.rd
                                  : f == "rs1" ? i.rs1
                                  : f == "rs2" ? i.rs2
                                               : static_cast<uint8_t>(i.imm));
      }
    }
    line(s);
  }

  const exe::ExecutableT& exe_;
  tpu_program_image_header_t header_{};
  const std::byte* code_ = nullptr;
  size_t bytes_ = 0, end_ = 0;
  std::map<uint32_t, std::string> programs_;
  std::set<int64_t> targets_;
  std::string out_;
};

}  // namespace

std::string disassemble(const exe::ExecutableT& executable) {
  return Disassembler(executable).run();
}

}  // namespace tpu::compiler
