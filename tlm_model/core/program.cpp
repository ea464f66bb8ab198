// Decoder of core programs: follows the control flow from the entry, so that VPU programs and
// constants between the instructions are never taken for code.
#include "core/program.hpp"

#include <algorithm>
#include <cstring>

#include "command/scalar_ops.hpp"
#include "core/program_decoder.hpp"
#include "tpu/spec/program_image.h"
#include "tpu/spec/rings.h"

namespace tpu::model {
namespace {

bool ends_flow(const spec::ScalarInsn& insn) {
  const auto op = static_cast<spec::ScalarOp>(insn.op);
  return op == spec::ScalarOp::kHalt || op == spec::ScalarOp::kJmp;
}

bool has_target(const spec::ScalarInsn& insn) {
  return spec::scalar_class(static_cast<spec::ScalarOp>(insn.op)) == spec::ScalarClass::kBranch;
}

bool is_mark(const spec::ScalarInsn& insn) {
  const auto op = static_cast<spec::ScalarOp>(insn.op);
  return op == spec::ScalarOp::kMarkb || op == spec::ScalarOp::kMarke;
}

}  // namespace

// Transfers share bandwidth, and several are under way: no least time is counted for them.
uint64_t least_cycles(const DecodedCommand& command) {
  uint64_t cycles = 1;
  if (command.bad != 0 || command.empty) {
    return cycles;
  }
  if (const auto* matmul = std::get_if<MatmulPlan>(&command.plan)) {
    cycles = matmul->timing.free_at;
  } else if (const auto* vpu = std::get_if<VpuPlan>(&command.plan)) {
    cycles = vpu->cycles.free_at;
  } else if (const auto* transpose = std::get_if<TransposePlan>(&command.plan)) {
    cycles = transpose->cycles.free_at;
  }
  return cycles;
}

Program::Program(std::vector<std::byte> code, uint32_t entry, uint32_t slots,
                 const spec::BoardParams& params)
    : code_(std::move(code)), entry_(entry), slots_(slots), item_of_word_(code_.size() / 8, -1) {
  ProgramDecoder decoder(*this, params);
  std::vector<uint64_t> open = {entry_};
  while (!open.empty()) {
    uint64_t word = open.back();
    open.pop_back();
    while (word < item_of_word_.size() && item_of_word_[word] < 0) {
      item_of_word_[word] = static_cast<int32_t>(items_.size());
      items_.push_back(decoder.decode_item(static_cast<uint32_t>(word)));
      const ProgramItem& item = items_.back();
      if (item.kind == ProgramItem::Kind::kIllegal) {
        break;
      }
      if (item.kind == ProgramItem::Kind::kScalar) {
        if (has_target(item.insn)) {
          open.push_back(static_cast<uint32_t>(item.insn.imm));
        }
        if (ends_flow(item.insn)) {
          break;
        }
      }
      word = item.next;
    }
  }
  find_signallers();
}

// Reports of waits look for them in programs of 100,000 commands.
void Program::find_signallers() {
  for (uint32_t word = 0; word < item_of_word_.size(); ++word) {
    const ProgramItem* const found = item(word);
    if (found == nullptr) {
      continue;
    }
    if (found->kind == ProgramItem::Kind::kCommand) {
      for (const spec::Signal& signal : commands_[found->command].signal) {
        std::vector<uint32_t>& words = signallers_[signal.sem];
        if (signal.valid() && (words.empty() || words.back() != word)) {
          words.push_back(word);
        }
      }
    } else if (static_cast<spec::ScalarOp>(found->insn.op) == spec::ScalarOp::kSsignal) {
      signallers_[found->insn.rs1].push_back(word);
    }
  }
}

// Scalar instructions carry no op: they belong to the command or mark in front of them, those at
// the head of the program to the one behind.
uint32_t Program::op_at(uint32_t word) const {
  const auto op_of = [this](uint64_t at) -> std::optional<uint32_t> {
    const ProgramItem* found = item(at);
    if (found == nullptr || found->kind == ProgramItem::Kind::kIllegal) {
      return std::nullopt;
    }
    if (found->kind == ProgramItem::Kind::kCommand) {
      return commands_[found->command].op_id;
    }
    return is_mark(found->insn) ? std::optional(static_cast<uint32_t>(found->insn.imm))
                                : std::nullopt;
  };
  if (word >= item_of_word_.size()) {
    return TPU_OP_NONE;
  }
  for (uint64_t at = word + uint64_t{1}; at-- > 0;) {
    if (const auto op = op_of(at); op) {
      return *op;
    }
  }
  for (uint64_t at = word; at < item_of_word_.size(); ++at) {
    if (const auto op = op_of(at); op) {
      return *op;
    }
  }
  return TPU_OP_NONE;
}

std::optional<ImageError> Program::check_header(std::span<const std::byte> bytes) {
  tpu_program_image_header_t header;
  if (bytes.size() < sizeof header) {
    return ImageError{"the program image is shorter than its header"};
  }
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != TPU_PROGRAM_MAGIC) {
    return ImageError{"there is no program image at this address (wrong magic)"};
  }
  if (header.isa_version != spec::kIsaVersion) {
    return ImageError{"the program is for ISA version " + std::to_string(header.isa_version) +
                      ", this core has " + std::to_string(spec::kIsaVersion)};
  }
  if (header.header_bytes != sizeof header || header.code_bytes % 8 != 0 ||
      header.code_bytes == 0 || header.entry_word >= header.code_bytes / 8) {
    return ImageError{"the header of the program image is inconsistent"};
  }
  return std::nullopt;
}

}  // namespace tpu::model
