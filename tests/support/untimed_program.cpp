// Program words of the untimed machine.
#include <string>

#include "command/rules.hpp"
#include "untimed_state.hpp"

namespace tpu::test {

using spec::ScalarInsn;
using spec::ScalarOp;

namespace {

template <typename T>
T read(const std::vector<uint8_t>& code, size_t at) {
  if (at + sizeof(T) > code.size()) {
    throw UntimedError("the code ends inside a command");
  }
  T out;
  std::memcpy(&out, code.data() + at, sizeof(T));
  return out;
}

void check_rules(const compiler::Command& command, const spec::BoardParams& board, size_t word) {
  const auto check = [&](const spec::Violation& broken) {
    if (broken.detail != 0) {
      throw UntimedError("word " + std::to_string(word) + ": " + broken.text);
    }
  };
  check(spec::violation(command.head(), board));
  for (const spec::VpuAccess& access : command.accesses) {
    check(spec::violation(access));
  }
  const auto check_body = [&](const auto& body) {
    if constexpr (requires { spec::violation(body, board); }) {
      check(spec::violation(body, board));
    } else if constexpr (requires { spec::violation(body); }) {
      check(spec::violation(body));
    }
  };
  std::visit(check_body, command.body);
}

}  // namespace

int UntimedProgram::vpu_program(uint32_t offset) {
  const auto it = program_at.find(offset);
  if (it != program_at.end()) {
    return it->second;
  }
  vpu.push_back(model::VpuProgram::decode(std::as_bytes(std::span(code)), offset));
  compiler::VpuProgram p;
  p.header = read<spec::VpuProgramHeader>(code, offset);
  size_t n = 0;
  for (const uint16_t s : p.header.section) {
    n += s;
  }
  for (size_t i = 0; i < n; ++i) {
    p.code.push_back(read<spec::VpuInsn>(code, offset + sizeof(p.header) + 8 * i));
  }
  listing.programs.push_back(p);
  const int index = static_cast<int>(vpu.size()) - 1;
  program_at[offset] = index;
  return index;
}

UntimedWord UntimedProgram::command_at(size_t word) {
  UntimedWord d;
  const size_t at = word * 8;
  d.command = true;
  switch (static_cast<spec::Opcode>(code[at])) {
    case spec::Opcode::kNop:
      d.body.body = read<spec::NopCommand>(code, at);
      break;
    case spec::Opcode::kMatmul:
      d.body.body = read<spec::MatmulCommand>(code, at);
      break;
    case spec::Opcode::kVpuKernel: {
      const auto c = read<spec::VpuKernelCommand>(code, at);
      d.body.body = c;
      for (size_t i = 0; i < c.accesses; ++i) {
        d.body.accesses.push_back(
            read<spec::VpuAccess>(code, at + sizeof(c) + i * sizeof(spec::VpuAccess)));
      }
      d.body.program = vpu_program(c.program);
      break;
    }
    case spec::Opcode::kTranspose:
      d.body.body = read<spec::TransposeCommand>(code, at);
      break;
    case spec::Opcode::kDma:
      d.body.body = read<spec::DmaCommand>(code, at);
      break;
    case spec::Opcode::kFill:
      d.body.body = read<spec::FillCommand>(code, at);
      break;
    case spec::Opcode::kDmaIndexed:
      d.body.body = read<spec::DmaIndexedCommand>(code, at);
      break;
    default:
      throw UntimedError("unknown opcode " + std::to_string(code[at]));
  }
  return d;
}

void UntimedProgram::decode(const spec::BoardParams& board) {
  for (size_t word = 0;;) {
    if (code.at(word * 8) >= 32) {
      UntimedWord d;
      d.insn = read<ScalarInsn>(code, word * 8);
      words[word] = d;
      if (static_cast<ScalarOp>(d.insn.op) == ScalarOp::kHalt) {
        return;
      }
      ++word;
    } else {
      words[word] = command_at(word);
      check_rules(words[word].body, board, word);
      const int length = words[word].body.head().words;
      if (length == 0) {
        throw UntimedError("a command of 0 words");
      }
      word += static_cast<size_t>(length);
    }
  }
}

}  // namespace tpu::test
