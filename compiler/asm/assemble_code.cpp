// Statements of the code, generic over the tables of spec/isa.
#include "asm/assemble_code.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "asm/text.hpp"

namespace tpu::compiler {

namespace {

template <typename Table>
std::vector<std::string_view> names_of(const Table& table) {
  std::vector<std::string_view> names;
  std::transform(table.begin(), table.end(), std::back_inserter(names),
                 [](const auto& entry) { return std::string_view(entry.name); });
  return names;
}

// "name=value"; the value may hold '='.
std::pair<std::string, std::string> key_value(const std::string& word) {
  const size_t at = word.find('=');
  if (at == std::string::npos || at == 0) {
    throw Error("expected field=value, found '" + word + "'");
  }
  return {word.substr(0, at), word.substr(at + 1)};
}

template <typename Fn>  // fn(operand form)
void for_form(std::string_view form, Fn&& fn) {
  while (!form.empty()) {
    const size_t comma = std::min(form.find(','), form.size());
    fn(form.substr(0, comma));
    form.remove_prefix(std::min(comma + 1, form.size()));
  }
}

template <typename Names>
uint32_t name_or_number(const std::string& s, const Names& names, std::string_view what) {
  if (!s.empty() && (s[0] >= '0' && s[0] <= '9')) {
    return static_cast<uint32_t>(text::parse_number(s));
  }
  return static_cast<uint32_t>(text::parse_name(s, names, what));
}

// A core takes no program that uses more registers than its header has.
uint8_t vector_register(const std::string& word, uint16_t registers) {
  const int number = text::parse_register(word, spec::kVpuRegisters);
  if (number >= registers) {
    throw Error("register " + word + ": the program has registers=" + std::to_string(registers) +
                ", from r0 on; it needs .vpu NAME registers=" + std::to_string(number + 1));
  }
  return static_cast<uint8_t>(number);
}

// One operand of a vector instruction of a program with `registers`; `f`: its name in the form of
// the instruction.
void set_operand(spec::VpuInsn& i, std::string_view f, const std::string& w, uint16_t registers) {
  if (f == "a") {
    if (w.empty() || w[0] != 'a') {
      throw Error("expected an access such as a0, found '" + w + "'");
    }
    i.imm = static_cast<uint32_t>(text::parse_range(w.substr(1), 0, UINT32_MAX, "access"));
  } else if (f == "i") {
    i.imm = text::parse_bits(w, "immediate");
  } else if (f == "r") {
    i.imm = name_or_number(w, spec::kVpuReduceNames, "reduction");
  } else if (f == "c") {
    i.imm = name_or_number(w, spec::kVpuCompareNames, "comparison");
  } else if (f == "m") {
    i.rs2 = static_cast<uint8_t>(name_or_number(w, spec::kVpuStoreModeNames, "store mode"));
  } else {
    const uint8_t r = vector_register(w, registers);
    if (f == "rs3") {
      i.imm = r;
    } else {
      (f == "rd" ? i.rd : f == "rs1" ? i.rs1 : i.rs2) = r;
    }
  }
}

}  // namespace

void CodeAssembler::put(const void* data, size_t bytes) {
  const auto* p = static_cast<const std::byte*>(data);
  code_.insert(code_.end(), p, p + bytes);
}

void CodeAssembler::label(const std::string& name) {
  if (!labels_.emplace(name, code_.size() / 8).second) {
    throw Error("label " + name + " is defined twice");
  }
}

void CodeAssembler::statement(const text::Statement& words) {
  const std::string& head = words[0];
  if (head == ".access") {
    access(words);
    return;
  }
  if (head == ".vpu") {
    vector_program(words);
    return;
  }
  const bool is_label = head.back() == ':';
  if ((head == ".end" || is_label) && words.size() > 1) {
    throw Error("'" + words[1] + "' behind '" + head + "': expected it on a separate line");
  }
  if (head == ".end") {
    in_program_ = false;
    return;
  }
  if (in_program_) {
    vector_instruction(words);
    return;
  }
  close_command();
  if (head == ".word") {
    raw_word(words);
  } else if (is_label) {
    label(head.substr(0, head.size() - 1));
  } else if (head.find('.') != std::string::npos) {
    command(words);
  } else {
    scalar(words);
  }
}

void CodeAssembler::raw_word(const text::Statement& words) {
  if (words.size() != 2) {
    throw Error(".word takes one number");
  }
  const auto v = static_cast<uint64_t>(text::parse_number(words[1]));
  const auto* p = reinterpret_cast<const std::byte*>(&v);
  raw_.insert(raw_.end(), p, p + 8);
}

void CodeAssembler::vector_program(const text::Statement& words) {
  close_command();
  if (words.size() != 3 || in_program_) {
    throw Error(".vpu NAME registers=N starts a VPU program; the last one needs .end");
  }
  Program p;
  p.name = words[1];
  const auto [key, value] = key_value(words[2]);
  if (key != "registers") {
    throw Error(".vpu has no operand '" + key + "'; it takes registers=N");
  }
  p.header.registers = static_cast<uint16_t>(text::parse_range(value, 0, spec::kVpuRegisters, key));
  p.after_word = raw_.size();
  programs_.push_back(p);
  in_program_ = true;
  section_ = -1;
  program_place_ = words.place();
}

void CodeAssembler::scalar(const text::Statement& words) {
  const auto info = std::find_if(spec::kScalarInsns.begin(), spec::kScalarInsns.end(),
                                 [&](const auto& i) { return i.name == words[0]; });
  if (info == spec::kScalarInsns.end()) {
    throw Error("unknown instruction '" + words[0] + "'" +
                text::suggestion(words[0], names_of(spec::kScalarInsns)));
  }
  spec::ScalarInsn insn{};
  insn.op = static_cast<uint8_t>(info->op);
  size_t n = 1;
  for_form(info->form, [&](std::string_view f) {
    if (n >= words.size()) {
      throw Error(words[0] + " takes " + std::string(info->form));
    }
    const std::string& w = words[n++];
    if (f == "imm") {
      insn.imm =
          static_cast<int32_t>(text::parse_range(w, INT32_MIN, INT32_MAX, "the 32-bit immediate"));
    } else if (f == "target") {
      branches_.push_back({code_.size() + offsetof(spec::ScalarInsn, imm), w, words.place()});
    } else {
      // The first register field of these two is the number of a semaphore.
      const bool semaphore = f == "rs1" && (info->op == spec::ScalarOp::kSwait ||
                                            info->op == spec::ScalarOp::kSsignal);
      const auto r = static_cast<uint8_t>(text::parse_register(w, semaphore ? 256 : 32));
      (f == "rd" ? insn.rd : f == "rs1" ? insn.rs1 : insn.rs2) = r;
    }
  });
  if (n != words.size()) {
    const std::string& name = words[0];
    throw Error("unexpected operand '" + words[n] + "': " + name + " takes " +
                (info->form.empty() ? "no operands" : std::string(info->form)));
  }
  put(&insn, sizeof insn);
}

void CodeAssembler::command(const text::Statement& words) {
  const size_t dot = words[0].find('.');
  const int queue = text::parse_name(words[0].substr(0, dot), spec::kQueueNames, "queue");
  const std::string name = words[0].substr(dot + 1);
  const auto info = std::find_if(spec::kCommands.begin(), spec::kCommands.end(),
                                 [&](const auto& c) { return c.name == name; });
  if (info == spec::kCommands.end()) {
    throw Error("unknown command '" + name + "'" +
                text::suggestion(name, names_of(spec::kCommands)));
  }
  if (((info->queue_mask >> queue) & 1) == 0) {
    throw Error("queue " + words[0].substr(0, dot) + " does not take " + name);
  }
  std::vector<std::byte> bytes(static_cast<size_t>(info->bytes));
  spec::CommandHeader head{};
  head.opcode = static_cast<uint8_t>(info->opcode);
  head.queue = static_cast<uint8_t>(queue);
  head.words = static_cast<uint8_t>(bytes.size() / 8);
  size_t waits = 0, signals = 0;
  for (size_t i = 1; i < words.size(); ++i) {
    const auto [key, value] = key_value(words[i]);
    if (key == "op") {
      head.op_id = static_cast<uint32_t>(text::parse_range(value, 0, UINT32_MAX, key));
    } else if (key == "flags") {
      head.flags = text::parse_flags(value, info->flags);
    } else if (key == "wait" || key == "signal") {
      if ((key == "wait" ? waits : signals) == 2) {
        throw Error("a command has at most two waits and two signals; use a nop");
      }
      if (key == "wait") {
        head.wait[waits++] = text::parse_wait(value);
      } else {
        head.signal[signals++] = text::parse_signal(value);
      }
    } else if (key == "program" && info->opcode == spec::Opcode::kVpuKernel) {
      if (value.empty() || value[0] != '@') {
        throw Error("program takes the name of a VPU program: program=@NAME");
      }
      uses_.push_back({code_.size() + offsetof(spec::VpuKernelCommand, program), value.substr(1),
                       words.place()});
    } else {
      const auto* f = std::find_if(info->fields, info->fields + info->field_count,
                                   [&, &k = key](const spec::FieldInfo& x) { return x.name == k; });
      if (f == info->fields + info->field_count) {
        std::vector<std::string_view> fields = {"op", "flags", "wait", "signal"};
        std::transform(info->fields, info->fields + info->field_count, std::back_inserter(fields),
                       [](const spec::FieldInfo& x) { return x.name; });
        throw Error(name + " has no field '" + key + "'" + text::suggestion(key, fields));
      }
      text::parse_field(*f, value, bytes.data());
    }
  }
  std::memcpy(bytes.data(), &head, sizeof head);
  if (info->opcode == spec::Opcode::kVpuKernel) {
    open_ = code_.size();
  }
  put(bytes.data(), bytes.size());
}

void CodeAssembler::access(const text::Statement& words) {
  if (open_ == SIZE_MAX) {
    throw Error(".access must follow a vpu_kernel command");
  }
  spec::VpuAccess a{};
  for (size_t i = 1; i < words.size(); ++i) {
    const auto [key, value] = key_value(words[i]);
    if (key == "addr") {
      a.addr = text::parse_address(value);
    } else if (key == "type") {
      a.type = static_cast<uint8_t>(name_or_number(value, spec::kElemNames, "element type"));
    } else {
      const auto* f = std::find_if(text::kAccessFields.begin(), text::kAccessFields.end(),
                                   [&, &k = key](const spec::FieldInfo& x) { return x.name == k; });
      if (f == text::kAccessFields.end()) {
        throw Error(".access has no field '" + key + "'");
      }
      text::parse_field(*f, value, reinterpret_cast<std::byte*>(&a));
    }
  }
  put(&a, sizeof a);
}

// Counts the accesses of the command before.
void CodeAssembler::close_command() {
  if (open_ == SIZE_MAX) {
    return;
  }
  const size_t words = (code_.size() - open_) / 8;
  if (words > 255) {
    throw Error("the vpu_kernel in front of this has too many accesses");
  }
  spec::VpuKernelCommand c;
  std::memcpy(&c, code_.data() + open_, sizeof c);
  c.head.words = static_cast<uint8_t>(words);
  c.accesses = static_cast<uint8_t>((words * 8 - sizeof c) / sizeof(spec::VpuAccess));
  std::memcpy(code_.data() + open_, &c, sizeof c);
  open_ = SIZE_MAX;
}

void CodeAssembler::vector_instruction(const text::Statement& words) {
  Program& p = programs_.back();
  if (words[0].back() == ':') {
    const int s = text::parse_name(words[0].substr(0, words[0].size() - 1), text::kSections, 9,
                                   "section of a VPU program");
    if (s <= section_) {
      throw Error("sections of a VPU program: expected the order pre .. post");
    }
    section_ = s;
    return;
  }
  if (section_ < 0) {
    throw Error("a vector instruction outside of a section (pre:, body:, ..)");
  }
  const auto info = std::find_if(spec::kVpuOps.begin(), spec::kVpuOps.end(),
                                 [&](const auto& o) { return o.name == words[0]; });
  if (info == spec::kVpuOps.end()) {
    throw Error("unknown vector instruction '" + words[0] + "'" +
                text::suggestion(words[0], names_of(spec::kVpuOps)));
  }
  spec::VpuInsn i{};
  i.op = static_cast<uint8_t>(info->op);
  size_t n = 1;
  for_form(info->form, [&](std::string_view f) {
    if (n >= words.size()) {
      throw Error(words[0] + " takes " + std::string(info->form));
    }
    set_operand(i, f, words[n++], p.header.registers);
  });
  if (n != words.size()) {
    const std::string& name = words[0];
    throw Error("unexpected operand '" + words[n] + "': " + name + " takes " +
                (info->form.empty() ? "no operands" : std::string(info->form)));
  }
  uint16_t& length = p.header.section[static_cast<size_t>(section_)];
  if (length == UINT16_MAX) {
    throw Error("a section of a VPU program has at most 65535 instructions");
  }
  p.code.push_back(i);
  ++length;
}

std::vector<std::byte> CodeAssembler::finish() {
  close_command();
  if (in_program_) {
    throw text::PlacedError("the last VPU program has no .end", program_place_);
  }
  for (const Fixup& f : branches_) {
    const auto it = labels_.find(f.name);
    if (it == labels_.end()) {
      throw text::PlacedError("branch to the unknown label " + f.name, f.place);
    }
    const auto target = static_cast<int32_t>(it->second);
    std::memcpy(code_.data() + f.at, &target, sizeof target);
  }
  std::map<std::string, uint32_t> place;
  size_t raw = 0;
  const auto put_raw = [&](size_t until) {
    code_.insert(code_.end(), raw_.begin() + static_cast<ptrdiff_t>(raw),
                 raw_.begin() + static_cast<ptrdiff_t>(until));
    raw = until;
  };
  for (const Program& p : programs_) {
    put_raw(p.after_word);
    if (!place.emplace(p.name, static_cast<uint32_t>(code_.size())).second) {
      throw Error("VPU program " + p.name + " is defined twice");
    }
    put(&p.header, sizeof p.header);
    for (const spec::VpuInsn& i : p.code) {
      put(&i, sizeof i);
    }
  }
  put_raw(raw_.size());
  for (const Fixup& f : uses_) {
    const auto it = place.find(f.name);
    if (it == place.end()) {
      throw text::PlacedError("there is no VPU program " + f.name, f.place);
    }
    std::memcpy(code_.data() + f.at, &it->second, sizeof(uint32_t));
  }
  return std::move(code_);
}

}  // namespace tpu::compiler
