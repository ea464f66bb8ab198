// The command listing (level C): engine commands and sequencer instructions of one core program in
// issue order, before semaphores are inserted and addresses of VPU programs are known. Kernel
// lowering appends to it; insert_semaphores orders it; encode turns it into code.
// Every command says which bytes it touches: from its fields, or from a window where an address
// depends on a register.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "exe/executable.hpp"
#include "tpu/spec/isa.hpp"

namespace tpu::compiler {

struct Op;

// Bytes [lo, hi) of a memory; with pitch > 0 only the bytes lo + r * pitch + [0, width).
struct MemRange {
  spec::Space space = spec::Space::kVmem;
  int slot = 0;  // HBM: binding slot; VMEM and SMEM: 0
  int64_t lo = 0, hi = 0;
  int64_t pitch = 0, width = 0;
  bool write = false;
};

// True if both may touch the same byte (read or write is not looked at).
bool ranges_overlap(const MemRange& a, const MemRange& b);

struct VpuProgram {
  spec::VpuProgramHeader header;
  std::vector<spec::VpuInsn> code;
  bool operator==(const VpuProgram&) const = default;
};

// A nop that insert_semaphores puts at the entry or behind the end of a loop (loop_fences.hpp).
enum class Fence : uint8_t {
  kNone,
  kCredit,  // entry: signals what the first iteration takes of the one before
  kEnter,   // entry: waits for commands before the loop
  kLeave,   // end: signals for commands after the loop
  kSettle   // end: takes what the last iteration has signalled
};

struct Command {
  std::variant<spec::NopCommand, spec::MatmulCommand, spec::VpuKernelCommand,
               spec::TransposeCommand, spec::DmaCommand, spec::FillCommand, spec::DmaIndexedCommand>
      body;
  std::vector<spec::VpuAccess> accesses;  // vpu_kernel only
  int program = -1;                       // vpu_kernel: index into Listing::programs
  // Ranges in place of operands whose slot or address depends on a register, and of what other
  // cores do.
  std::vector<MemRange> windows;
  // Indices of commands on another queue that are done when this one starts, by waits that are
  // already in the header (answers of another core).
  std::vector<int> implies;
  Fence fence = Fence::kNone;

  spec::CommandHeader& head();
  const spec::CommandHeader& head() const;
  spec::Queue queue() const { return static_cast<spec::Queue>(head().queue); }
};

// What stands between the straight-line pieces of a listing. Scopes (loop, choice, arm, end) are
// for readers and estimates; they make no code.
struct Control {
  enum class Kind : uint8_t {
    kDrain,   // ends a piece: the sequencer waits until all commands before it are done
    kWait,    // the sequencer waits for command `item`
    kAwait,   // the sequencer waits for all commands before it that use `range`
    kLabel,   // place of `label`; a drain stands before it
    kBranch,  // `insn` with `label` as target; a drain stands before it
    kLoop,    // opens the scope of a loop of `trips` iterations (-1: not known)
    kChoice,  // opens a scope of alternatives, each behind its kArm
    kArm,
    kEnd,  // closes a scope
    kNone  // nothing: the place of a fence that orders nothing
  };
  Kind kind = Kind::kDrain;
  int label = -1;
  int item = -1;
  MemRange range{};  // of kAwait: what the host reads or writes next
  int64_t trips = -1;
  // Of a label or branch: of a loop of one queue whose commands wait for nothing and signal nothing
  // (a drain stands before it, a nop of that queue with its accesses behind it). It is not drained.
  bool tight = false;
  // Of a loop: its engines may stay busy from one iteration to the next. Of a drain: at the entry
  // or the back edge of such a loop. Nothing waits there; semaphores between commands order.
  bool flows = false;
  spec::ScalarInsn insn{};
};

using Item = std::variant<spec::ScalarInsn, Command, Control>;

struct SlotInfo {
  exe::SlotKind kind = exe::SlotKind::scratch;
  uint64_t bytes = 0;
  uint32_t index = 0;
  std::string name;
};

// What instruction `hcall` i stands for: a transfer of HBM with the host.
struct HostCall {
  const Op* op = nullptr;  // send or recv
  uint32_t op_id = 0;
  spec::Addr place{};
  exe::HostStage stage = exe::HostStage::whole;
};

// Items of a listing: enough for a sort of 2^25 elements, and few enough to be compiled in seconds.
inline constexpr size_t kMaxItems = size_t{1} << 20;

struct ListingFull {};  // thrown by Listing::append

struct Listing {
  std::vector<Item> items;
  std::vector<VpuProgram> programs;
  std::vector<SlotInfo> slots;
  std::vector<HostCall> host_calls;

  int add_program(VpuProgram program);
  int append(Command command);  // returns the item index
  void append(spec::ScalarOp op, int rd, int rs1, int rs2, int32_t imm);
  void append(Control control);
  int labels = 0;  // given out

 private:
  void check_room() const;
};

// A command of type T with its header filled in.
template <typename T>
T make_command(spec::Opcode opcode, spec::Queue queue, uint32_t op_id) {
  T c{};
  c.head.opcode = static_cast<uint8_t>(opcode);
  c.head.queue = static_cast<uint8_t>(queue);
  c.head.op_id = op_id;
  return c;
}

// A wait for 1 that takes it, and signals of 1.
spec::Wait taking_wait(int semaphore);
spec::Signal own_signal(int semaphore);
spec::Signal remote_signal(int semaphore, int peer_reg);

// A vector kernel over `count` consecutive elements in blocks of 1,024, along loop 3; accesses and
// program are the caller's.
spec::VpuKernelCommand flat_vpu_kernel(int64_t count, uint32_t op_id);

spec::Addr vmem_addr(int64_t offset);
spec::Addr smem_addr(int64_t offset);
spec::Addr hbm_addr(int slot, int64_t offset);

// One line per item: index, queue, mnemonic, waits, signals. For dumps.
std::string print(const Listing& listing);

// All bytes that a command may read or write on its own core.
std::vector<MemRange> memory_ranges(const Listing& listing, const Command& command);

}  // namespace tpu::compiler
