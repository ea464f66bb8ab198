// A core program decoded once: instructions by word, and per engine command everything that does
// not depend on slots or scalar registers (extents of operands, cost, VPU programs), so that
// starting a command is cheap. Immutable and shared by all cores that run the same image. No
// SystemC.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "arith/mxu_shape.hpp"
#include "arith/mxu_timing.hpp"
#include "command/cost.hpp"
#include "command/operands.hpp"
#include "command/stride_pattern.hpp"
#include "core/strided_box.hpp"
#include "mxu/mxu_engine.hpp"
#include "tpu/spec/board_params.hpp"
#include "tpu/spec/isa.hpp"
#include "vpu/vpu_kernel.hpp"

namespace tpu::model {

// An operand of a command and the bytes [low, high) that it touches, relative to the address.
struct Operand {
  spec::Addr address;
  ByteExtent extent;
};

struct MatmulPlan {
  MxuJob job;  // pointers unset
  Operand out, lhs, rhs;
  std::array<spec::StridePattern, 3> bytes;  // of them, relative to their addresses
  bool overwrites = false;                   // all of out's extent, and reads none of it
  spec::MxuCommandTiming timing;
  uint64_t flops = 0;
};

struct VpuPlan {
  const VpuProgram* program = nullptr;
  spec::VpuKernelCommand command;
  std::vector<spec::VpuAccess> accesses;
  bool dynamic = false;              // bases or scalars come from registers
  std::optional<VpuKernel> fixed;    // the kernel, unless dynamic,
  std::vector<VpuFootprint> prints;  // and its footprints()
  spec::CommandCycles cycles;
};

struct TransposePlan {
  TransposeShape shape;
  Operand src, dst;
  std::array<spec::StridePattern, 2> bytes;
  spec::CommandCycles cycles;
};

// dma and fill.
struct DmaPlan {
  StridedBox box;
  Operand src, dst;
  bool is_fill = false;
  bool remote = false;
  uint64_t pattern = 0;
  spec::TransferBytes bytes;
  uint64_t fixed_cycles = 0;  // without what links add
};

// dma_indexed: the window is the box of `transfer`, whose operands are the whole sides.
struct IndexedPlan {
  DmaPlan transfer;
  Operand list;
  ByteExtent window;  // of the indexed side, from where a list value points
  bool scatter = false;
  uint32_t records = 0;
  uint32_t unit = 0;
  int64_t record_stride = 0;
  int64_t span = 0;
};

struct DecodedCommand {
  uint32_t pc = 0;
  uint32_t op_id = 0;
  spec::Opcode opcode{};
  uint8_t queue = 0;
  uint8_t peer_reg = 0;
  bool empty = false;  // a count is 0: nothing to do
  uint32_t bad = 0;    // DETAIL_* of a malformed descriptor: faults at start
  int operands = 0;    // addresses in the order of the struct
  std::array<uint8_t, 24> operand_reg{};
  std::array<uint16_t, spec::kHbmOperands> slot{};     // of operand i, if it is in HBM
  std::array<uint8_t, spec::kHbmOperands> slot_reg{};  // added to it
  std::array<uint8_t, 4> scalar_reg{};
  std::array<spec::Wait, 2> wait{};
  std::array<spec::Signal, 2> signal{};
  std::variant<std::monostate, MatmulPlan, VpuPlan, TransposePlan, DmaPlan, IndexedPlan> plan;
  std::string bad_text;  // last: what is read of each command lies together
};

// One word position that can be reached.
struct ProgramItem {
  enum class Kind : uint8_t { kIllegal, kScalar, kCommand };
  Kind kind = Kind::kIllegal;
  spec::ScalarInsn insn{};
  uint8_t queue = 0;     // of a command
  uint32_t command = 0;  // index
  uint32_t next = 0;     // word behind it
  // Cycles from the start of a command to the start of the next one of its queue, at least.
  uint64_t least_cycles = 1;
};

uint64_t least_cycles(const DecodedCommand& command);

// An image that cannot be run at all; `text` says why.
struct ImageError {
  std::string text;
};

class Program {
 public:
  // `code` starts behind the image header. Never fails: bad instructions and commands fault when
  // they are reached.
  Program(std::vector<std::byte> code, uint32_t entry, uint32_t slots,
          const spec::BoardParams& params);

  // Checks the image header (magic, version, lengths, entry).
  static std::optional<ImageError> check_header(std::span<const std::byte> header);

  uint32_t entry() const { return entry_; }
  uint32_t slots() const { return slots_; }
  // Null when no reachable instruction starts at the word.
  const ProgramItem* item(uint64_t word) const {
    return word < item_of_word_.size() && item_of_word_[word] >= 0
               ? &items_[static_cast<size_t>(item_of_word_[word])]
               : nullptr;
  }
  // The host brings what the sequencer most likely reads behind this command into its caches.
  void prefetch_behind(const ProgramItem& item) const {
    __builtin_prefetch(&item_of_word_[std::min<size_t>(item.next, item_of_word_.size() - 1)]);
    __builtin_prefetch(&item + 1);
    if (item.command + 1 < commands_.size()) {
      const auto* const command = reinterpret_cast<const std::byte*>(&commands_[item.command + 1]);
      for (size_t line = 0; line < 3; ++line) {
        __builtin_prefetch(command + line * 64);
      }
    }
  }
  // The op that the instruction at the word works for, for fault records; OP_NONE: none known.
  uint32_t op_at(uint32_t word) const;
  // Words of the instructions that signal the semaphore, of this core or another, ascending.
  std::span<const uint32_t> signallers(uint32_t semaphore) const {
    const auto found = signallers_.find(semaphore);
    return found != signallers_.end() ? std::span<const uint32_t>(found->second)
                                      : std::span<const uint32_t>();
  }
  const DecodedCommand& command(uint32_t index) const { return commands_[index]; }
  const std::deque<DecodedCommand>& commands() const { return commands_; }
  std::span<const std::byte> code() const { return code_; }

 private:
  friend class ProgramDecoder;

  void find_signallers();

  const std::vector<std::byte> code_;
  const uint32_t entry_;
  const uint32_t slots_;
  std::vector<int32_t> item_of_word_;
  std::vector<ProgramItem> items_;
  std::deque<DecodedCommand> commands_;
  std::map<uint32_t, VpuProgram> vpu_programs_;           // by byte offset
  std::map<uint32_t, std::vector<uint32_t>> signallers_;  // by semaphore
};

}  // namespace tpu::model
