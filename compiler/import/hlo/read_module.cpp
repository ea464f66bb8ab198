// See read_module.hpp.
#include "import/hlo/read_module.hpp"

#include <algorithm>
#include <string>

#include "import/hlo/read_parts.hpp"
#include "ir/error.hpp"

namespace tpu::compiler::hlo {
namespace {

constexpr size_t kMostInstructions = 2'000'000;
constexpr uint32_t kLastField =
    32;  // of HloModuleProto: what has a larger number is another message

std::string quoted(std::string_view name) { return "'" + std::string(name) + "'"; }

// Positions of operands and called computations. `known`: computations by id, those before.
class Linker {
 public:
  Linker(Computation& computation, const std::unordered_map<int64_t, uint32_t>& known)
      : c_(computation), known_(known) {}

  void run() {
    std::unordered_map<int64_t, uint32_t> ids;
    for (uint32_t i = 0; i < c_.instructions.size(); ++i) {
      Instruction& instruction = c_.instructions[i];
      for (const int64_t id : instruction.operand_ids) {
        const auto at = ids.find(id);
        if (at == ids.end()) {
          fail(instruction, "operand " + std::to_string(instruction.operands.size()) +
                                " is the instruction of id " + std::to_string(id) +
                                ", which does not precede it in the computation");
        }
        instruction.operands.push_back(at->second);
      }
      for (const int64_t id : instruction.called_ids) {
        const auto at = known_.find(id);
        if (at == known_.end()) {
          fail(instruction, "it calls the computation of id " + std::to_string(id) +
                                ", which does not precede its own in the module");
        }
        instruction.called.push_back(at->second);
      }
      if (!ids.emplace(instruction.id, i).second) {
        fail(instruction, "another instruction has its id, " + std::to_string(instruction.id));
      }
      if (instruction.opcode == "parameter") {
        parameter(instruction, i);
      }
    }
    const auto root = ids.find(c_.root_id);
    if (root == ids.end()) {
      throw Error("the HLO module is damaged: computation " + quoted(c_.name) +
                  ": its root is the instruction of id " + std::to_string(c_.root_id) +
                  ", which it does not have");
    }
    c_.root = root->second;
    const auto missing = std::find(c_.parameters.begin(), c_.parameters.end(), kMissing);
    if (missing != c_.parameters.end()) {
      throw Error("the HLO module is damaged: computation " + quoted(c_.name) + ": parameter " +
                  std::to_string(missing - c_.parameters.begin()) + " is missing");
    }
  }

 private:
  static constexpr uint32_t kMissing = 0xffffffff;

  [[noreturn]] void fail(const Instruction& at, const std::string& why) const {
    throw Error("the HLO module is damaged: computation " + quoted(c_.name) + ", instruction " +
                quoted(at.name) + " (" + std::string(at.opcode) + "): " + why);
  }

  void parameter(const Instruction& instruction, uint32_t at) {
    // Every number below exists, so that none exceeds the number of instructions.
    if (instruction.parameter < 0 || instruction.parameter >= std::ssize(c_.instructions)) {
      fail(instruction,
           "the parameter number " + std::to_string(instruction.parameter) + " is impossible");
    }
    const auto number = static_cast<size_t>(instruction.parameter);
    if (c_.parameters.size() <= number) {
      c_.parameters.resize(number + 1, kMissing);
    }
    if (c_.parameters[number] != kMissing) {
      fail(instruction, "another instruction is parameter " + std::to_string(number) + " too");
    }
    c_.parameters[number] = at;
  }

  Computation& c_;
  const std::unordered_map<int64_t, uint32_t>& known_;
};

Computation read_computation(Message m, size_t& instructions) {
  Computation c;
  while (m.next()) {
    switch (m.field()) {
      case 1:
        c.name = m.bytes();
        break;
      case 2:
        if (++instructions > kMostInstructions) {
          m.fail("more than " + std::to_string(kMostInstructions) + " instructions");
        }
        try {
          c.instructions.push_back(read_instruction(m.message("HloInstructionProto")));
        } catch (const Error& e) {
          throw Error(e.message() + " (instruction " + std::to_string(c.instructions.size() + 1) +
                      " of computation " + quoted(c.name) + ")");
        }
        break;
      case 5:
        c.id = m.integer();
        break;
      case 6:
        c.root_id = m.integer();
        break;
      default:
        break;
    }
  }
  return c;
}

Alias read_alias(Message m, bool has_result) {
  Alias alias;
  alias.has_result = has_result;
  while (m.next()) {
    const uint32_t field = m.field() + (has_result ? 0 : 1);  // a donor has no result in front
    if (field == 1) {
      m.integers(alias.result);
    } else if (field == 2) {
      alias.argument = m.integer();
    } else if (field == 3) {
      m.integers(alias.argument_index);
    }
  }
  return alias;
}

void read_aliases(Message m, bool have_results, HloModule& to) {
  while (m.next()) {
    if (m.field() == 1) {
      to.aliases.push_back(read_alias(m.message("AliasEntryProto"), have_results));
    }
  }
}

StackFrames read_stack(Message m) {
  StackFrames stack;
  while (m.next()) {
    if (m.field() == 1) {
      stack.files.push_back(m.bytes());
    } else if (m.field() == 2) {
      stack.functions.push_back(m.bytes());
    } else if (m.field() == 3) {
      const auto n = read_numbers<4>(m.message("StackFrameIndexProto.FileLocation"));
      stack.locations.push_back({n[0], n[1], n[2], n[3]});
    } else if (m.field() == 4) {
      const auto n = read_numbers<2>(m.message("StackFrameIndexProto.StackFrame"));
      stack.frames.push_back({n[0], n[1]});
    }
  }
  return stack;
}

HloModule read_module(Message m) {
  HloModule module;
  std::unordered_map<int64_t, uint32_t> computations;
  size_t instructions = 0;
  while (m.next()) {
    switch (m.field()) {
      case 1:
        module.name = m.bytes();
        break;
      case 2:
        module.entry_name = m.bytes();
        break;
      case 3: {
        Computation c = read_computation(m.message("HloComputationProto"), instructions);
        Linker(c, computations).run();
        const auto at = static_cast<uint32_t>(module.computations.size());
        if (!computations.emplace(c.id, at).second) {
          m.fail("two computations have the id " + std::to_string(c.id));
        }
        module.computations.push_back(std::move(c));
        break;
      }
      case 6:
        module.entry_id = m.integer();
        break;
      case 8:
        read_aliases(m.message("HloInputOutputAliasProto"), true, module);
        break;
      case 15: {
        const auto n = read_numbers<2>(m.message("DeviceAssignmentProto"));
        module.replicas = n[0];
        module.partitions = n[1];
        break;
      }
      case 17:
        module.stack = read_stack(m.message("StackFrameIndexProto"));
        break;
      case 18:
        read_aliases(m.message("HloBufferDonorProto"), false, module);
        break;
      case 19:
        module.attributes = read_attributes(m.message("FrontendAttributes"));
        break;
      default:
        break;
    }
  }
  const auto entry = computations.find(module.entry_id);
  if (entry == computations.end()) {
    m.fail("the entry computation is that of id " + std::to_string(module.entry_id) +
           ", which the module does not have");
  }
  module.entry = entry->second;
  return module;
}

// The first field of the bytes; nothing if it is no message or text.
std::optional<std::string_view> first_message(std::string_view bytes) {
  try {
    spec::ProtoReader reader(bytes);
    const auto field = reader.next();
    return field && field->number == 1 && field->wire == spec::kProtoBytes
               ? std::optional(field->bytes)
               : std::nullopt;
  } catch (const spec::ProtoError&) {
    return std::nullopt;
  }
}

// An HloModuleProto has a computation, field 3, behind its names and numbers. What follows may be
// damaged: then its reader says so.
bool begins_as_module(std::string_view bytes) {
  try {
    for (spec::ProtoReader reader(bytes);;) {
      const auto field = reader.next();
      if (!field || field->number > kLastField) {
        return false;
      }
      if (field->number == 3) {
        return field->wire == spec::kProtoBytes;
      }
    }
  } catch (const spec::ProtoError&) {
    return false;
  }
}

struct Found {
  std::string_view module;
  int wrappers = 0;  // messages around it
};

// An HloSnapshot has an HloProto, which has the module. Wrappers have a field 3 of their own.
std::optional<Found> find_module(std::string_view bytes, int wrappers = 0) {
  constexpr int kMostWrappers = 2;
  if (const auto inner = first_message(bytes); inner && wrappers < kMostWrappers) {
    if (const auto found = find_module(*inner, wrappers + 1)) {
      return found;
    }
  }
  return begins_as_module(bytes) ? std::optional(Found{bytes, wrappers}) : std::nullopt;
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// HloModuleProtoWithConfig: how many cores the program is for.
void read_config(std::string_view bytes, HloModule& to) {
  Message m(bytes, "HloModuleProtoWithConfig");
  while (m.next()) {
    if (m.field() != 2) {
      continue;
    }
    Message config = m.message("HloModuleConfigProto");
    while (config.next()) {
      if (config.field() == 4) {
        to.replicas = config.integer();
      } else if (config.field() == 5) {
        to.partitions = config.integer();
      }
    }
  }
}

}  // namespace

bool is_hlo_module(std::span<const std::byte> bytes) {
  return find_module(text_of(bytes)).has_value();
}

HloModule read_hlo_module(std::span<const std::byte> bytes) {
  const Found found = find_module(text_of(bytes)).value_or(Found{text_of(bytes)});
  HloModule module = read_module(Message(found.module, "HloModuleProto"));
  if (found.wrappers == 1) {
    read_config(text_of(bytes), module);
  }
  return module;
}

}  // namespace tpu::compiler::hlo
