// Printing of single values and of statements.
#include "exe/code_text.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>
#include <stdexcept>

#include "exe/executable.hpp"
#include "tpu/spec/program_image.h"

namespace tpu::exe {
namespace {

using spec::FieldInfo;
using spec::FieldType;

// Of the scalar instructions the first; those below are commands.
constexpr uint8_t kFirstScalar = 32;

std::string print_value(FieldType t, const std::byte* p) {
  if (t == FieldType::kAddr) {
    spec::Addr a;
    std::memcpy(&a, p, sizeof a);
    return print_address(a);
  }
  const size_t bytes = scalar_bytes(t);
  uint64_t v = 0;
  std::memcpy(&v, p, bytes);
  if (is_signed(t)) {
    const auto shift = static_cast<int>(64 - 8 * bytes);
    return std::to_string(static_cast<int64_t>(v << shift) >> shift);
  }
  return std::to_string(v);
}

template <typename T>
T read(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// Bytes of the statement at the begin of `code`; 0: there is none.
size_t statement_bytes(std::span<const std::byte> code) {
  if (code.size() < sizeof(spec::ScalarInsn)) {
    return 0;
  }
  const auto op = static_cast<uint8_t>(code[0]);
  if (op >= kFirstScalar) {
    return op - kFirstScalar < static_cast<int>(spec::kScalarInsns.size())
               ? sizeof(spec::ScalarInsn)
               : 0;
  }
  const spec::CommandInfo* const info = command_info(op);
  if (info == nullptr || code.size() < static_cast<size_t>(info->bytes)) {
    return 0;
  }
  const auto head = read<spec::CommandHeader>(code.data());
  const size_t bytes = size_t{head.words} * 8;
  const bool good = head.queue < spec::kQueueCount && bytes <= code.size() &&
                    bytes >= static_cast<size_t>(info->bytes);
  return good ? bytes : 0;
}

// Where the VPU programs of the code begin, and so its statements end.
struct Programs {
  explicit Programs(std::span<const std::byte> code) : end(code.size()) {
    for (size_t at = 0; at < end;) {
      const size_t bytes = statement_bytes(code.subspan(at));
      if (bytes == 0) {
        end = at;
      } else if (is_vpu_kernel(code.data() + at)) {
        const uint32_t program = read<spec::VpuKernelCommand>(code.data() + at).program;
        begins.insert(program);
        end = std::min<size_t>(end, program);
      }
      at += bytes;
    }
  }

  static bool is_vpu_kernel(const std::byte* base) {
    return static_cast<spec::Opcode>(*base) == spec::Opcode::kVpuKernel;
  }
  // As in a listing.
  std::string name(uint32_t program) const {
    return "p" + std::to_string(std::distance(begins.begin(), begins.find(program)));
  }

  size_t end;
  std::set<uint32_t> begins{};
};

std::string statement_text(const std::byte* base, const Programs& programs) {
  const auto op = static_cast<uint8_t>(*base);
  if (op >= kFirstScalar) {
    return print_scalar(read<spec::ScalarInsn>(base));
  }
  const bool vpu = Programs::is_vpu_kernel(base);
  return print_command(base, *command_info(op),
                       vpu ? programs.name(read<spec::VpuKernelCommand>(base).program) : "");
}

}  // namespace

size_t scalar_bytes(FieldType t) {
  switch (t) {
    case FieldType::kU8:
    case FieldType::kI8:
      return 1;
    case FieldType::kU16:
    case FieldType::kI16:
      return 2;
    case FieldType::kU32:
    case FieldType::kI32:
      return 4;
    case FieldType::kU64:
    case FieldType::kI64:
      return 8;
    case FieldType::kAddr:
      return sizeof(spec::Addr);
    default:
      throw std::logic_error("internal: this field type has no text form");
  }
}

bool is_signed(FieldType t) {
  return t == FieldType::kI8 || t == FieldType::kI16 || t == FieldType::kI32 ||
         t == FieldType::kI64;
}

std::string print_address(const spec::Addr& a) {
  std::string out = a.space < spec::kSpaceCount ? std::string(spec::kSpaceNames[a.space])
                                                : std::to_string(a.space);
  if (a.space == static_cast<uint8_t>(spec::Space::kHbm) || a.slot != 0 || a.slot_reg != 0) {
    out += "[" + std::to_string(a.slot) +
           (a.slot_reg == 0 ? "" : "+r" + std::to_string(a.slot_reg)) + "]";
  }
  out += (a.offset < 0 ? "" : "+") + std::to_string(a.offset);
  if (a.reg != 0) {
    out += "+r" + std::to_string(a.reg);
  }
  return out;
}

bool field_is_zero(const FieldInfo& f, const std::byte* base) {
  const size_t bytes = scalar_bytes(f.type) * static_cast<size_t>(f.count);
  for (size_t i = 0; i < bytes; ++i) {
    if (base[static_cast<size_t>(f.offset) + i] != std::byte{0}) {
      return false;
    }
  }
  return true;
}

std::string print_field(const FieldInfo& f, const std::byte* base) {
  const std::byte* p = base + f.offset;
  if (f.count == 1) {
    return print_value(f.type, p);
  }
  std::string out = "[";
  for (int i = 0; i < f.count; ++i) {
    out += (i == 0 ? "" : ",") +
           print_value(f.type, p + scalar_bytes(f.type) * static_cast<size_t>(i));
  }
  return out + "]";
}

std::string print_flags(uint8_t flags, std::span<const std::string_view> names) {
  std::string out;
  for (size_t bit = 0; bit < names.size(); ++bit) {
    if ((flags >> bit & 1) != 0) {
      out += (out.empty() ? "" : "+") + std::string(names[bit]);
    }
  }
  const unsigned rest = flags & ~((1u << names.size()) - 1);
  return rest == 0 ? out : out + (out.empty() ? "" : "+") + std::to_string(rest);
}

std::string print_wait(const spec::Wait& w) {
  return std::to_string(w.sem) + ":" + std::to_string(w.value) + (w.take() ? ":take" : "");
}

std::string print_signal(const spec::Signal& s) {
  return std::to_string(s.sem) + ":" + std::to_string(s.value) +
         (s.remote() ? ":r" + std::to_string(s.peer_reg) : "");
}

const spec::CommandInfo* command_info(uint8_t opcode) {
  const auto found = std::ranges::find_if(spec::kCommands, [&](const spec::CommandInfo& each) {
    return static_cast<uint8_t>(each.opcode) == opcode;
  });
  return found == spec::kCommands.end() ? nullptr : &*found;
}

std::string print_scalar(const spec::ScalarInsn& insn) {
  const spec::ScalarInfo& info = spec::kScalarInsns.at(static_cast<size_t>(insn.op) - kFirstScalar);
  std::string text(info.name);
  std::string_view form = info.form;
  for (bool first = true; !form.empty(); first = false) {
    const size_t comma = std::min(form.find(','), form.size());
    const std::string_view field = form.substr(0, comma);
    form.remove_prefix(std::min(comma + 1, form.size()));
    text += first ? " " : ", ";
    if (field == "imm") {
      text += std::to_string(insn.imm);
    } else if (field == "target") {
      text += "L" + std::to_string(insn.imm);
    } else {
      text += "r" + std::to_string(field == "rd" ? insn.rd : field == "rs1" ? insn.rs1 : insn.rs2);
    }
  }
  return text;
}

std::string print_command(const std::byte* base, const spec::CommandInfo& info,
                          std::string_view program) {
  const auto head = read<spec::CommandHeader>(base);
  std::string text = std::string(spec::kQueueNames[head.queue]) + "." + std::string(info.name) +
                     " op=" + std::to_string(head.op_id);
  if (head.flags != 0) {
    text += " flags=" + print_flags(head.flags, info.flags);
  }
  for (const spec::Wait& wait : head.wait) {
    text += wait.valid() ? " wait=" + print_wait(wait) : "";
  }
  for (const spec::Signal& signal : head.signal) {
    text += signal.valid() ? " signal=" + print_signal(signal) : "";
  }
  const bool vpu = info.opcode == spec::Opcode::kVpuKernel;
  for (int i = 0; i < info.field_count; ++i) {
    const FieldInfo& field = info.fields[i];
    if (vpu && field.name == "program") {
      text += program.empty() ? "" : " program=@" + std::string(program);
    } else if (!(vpu && field.name == "accesses") && !field_is_zero(field, base)) {
      text += " " + std::string(field.name) + "=" + print_field(field, base);
    }
  }
  return text;
}

std::vector<CodeLine> code_around(const ExecutableT& executable, uint32_t word, size_t around) {
  tpu_program_image_header_t header{};
  const std::span<const std::byte> image = std::as_bytes(std::span(executable.image));
  if (image.size() < sizeof(header)) {
    return {};
  }
  std::memcpy(&header, image.data(), sizeof(header));
  if (header.header_bytes > image.size()) {
    return {};
  }
  const std::span<const std::byte> code = image.subspan(header.header_bytes);
  const Programs programs(code);
  std::vector<CodeLine> lines;
  size_t behind = 0;
  bool met = false;
  for (size_t at = 0; at < programs.end && behind <= around;) {
    const size_t bytes = statement_bytes(code.subspan(at));
    const auto here = static_cast<uint32_t>(at / 8);
    met = met || here == word;
    behind += met ? 1 : 0;
    lines.push_back({here, statement_text(code.data() + at, programs)});
    if (!met && lines.size() > around) {
      lines.erase(lines.begin());
    }
    at += bytes;
  }
  return met ? lines : std::vector<CodeLine>();
}

}  // namespace tpu::exe
