// Inside of the untimed machine: program, cores, and what they do.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "command/scalar_ops.hpp"
#include "mxu/mxu_scalar.hpp"
#include "program/listing.hpp"
#include "untimed_core.hpp"
#include "vpu/vpu_kernel.hpp"

namespace tpu::test {

inline constexpr int kUntimedQueues = spec::kQueueCount;

// A decoded word of the program: a scalar instruction or a command.
struct UntimedWord {
  bool command = false;
  spec::ScalarInsn insn{};
  compiler::Command body;
};

struct UntimedProgram {
  std::vector<uint8_t> code;
  std::map<size_t, UntimedWord> words;  // by word index
  std::map<uint32_t, int> program_at;
  std::vector<model::VpuProgram> vpu;
  compiler::Listing listing;  // slots and VPU programs, for byte ranges

  // Throws UntimedError for a command that the board would refuse.
  void decode(const spec::BoardParams& board);

 private:
  UntimedWord command_at(size_t word);
  int vpu_program(uint32_t offset);
};

using UntimedClock = std::vector<int>;  // per core and queue: commands known to be done

struct UntimedSemaphore {
  int value = 0;
  std::deque<UntimedClock> signals;  // one per unit
};

struct UntimedAccess {
  compiler::MemRange range;
  int agent;
  int number;
  uint32_t op;
};

struct UntimedCommand {
  const UntimedWord* decoded = nullptr;
  spec::ScalarRegisters regs{};
  UntimedClock issued;  // what the sequencer knew

  // With the slot that its register leads to.
  spec::Addr placed(spec::Addr a) const {
    a.slot = static_cast<uint16_t>(a.slot + regs[a.slot_reg]);
    a.slot_reg = 0;
    return a;
  }
  int64_t address(const spec::Addr& a) const {
    return a.offset + static_cast<int64_t>(regs[a.reg]);
  }
};

struct UntimedCoreState {
  spec::ScalarRegisters regs{};
  size_t pc = 0;
  bool halted = false;
  std::vector<uint8_t> vmem, smem;
  std::vector<std::vector<uint8_t>> slots;
  std::array<std::deque<UntimedCommand>, kUntimedQueues> queue;
  std::array<UntimedSemaphore, 256> sem;
  std::array<int, kUntimedQueues> issued{};
  std::array<UntimedClock, kUntimedQueues> clock;
  UntimedClock sequencer;
  std::map<std::pair<spec::Space, int>, std::vector<UntimedAccess>> past;
  int64_t commands = 0;
};

struct UntimedMachine::State {
  using Core = UntimedCoreState;
  using Queued = UntimedCommand;
  using Clock = UntimedClock;
  using MemRange = compiler::MemRange;

  const exe::ExecutableT& exe;
  const spec::BoardParams board;
  UntimedOptions options;
  UntimedProgram program;
  std::vector<Core> cores;
  std::unique_ptr<model::MxuScalarEngine> mxu;
  std::mt19937 random;

  State(const exe::ExecutableT& e, const spec::BoardParams& b, UntimedOptions o);
  void init(Core& c) const;
  size_t partition_on(uint64_t core) const;  // of the board; throws if none is
  std::vector<uint8_t>& memory(Core& c, const spec::Addr& a);
  uint8_t* at(Core& c, const spec::Addr& a, int64_t offset, int64_t bytes);

  // The sequencer; false: stalled, or over.
  bool step(Core& c);
  bool scalar(Core& c, const spec::ScalarInsn& i);
  void scalar_access(Core& c, const spec::ScalarInsn& i);
  uint8_t* scalar_memory(Core& c, uint64_t address, int64_t bytes);
  void take(UntimedSemaphore& s, int amount, Clock& clock);

  // Queues, and the order of what they touch.
  bool ready(const Core& c, int queue) const;
  void execute(Core& c, int queue);
  void check(Core& c, size_t core, size_t agent, int number, const Queued& q, const Clock& clock);
  void note(Core& c, size_t core, size_t agent, int number, const compiler::Command& command,
            const Clock& clock);
  std::string blocked() const;
  void run();

  // Data.
  void work(Core&, const Queued&, const spec::NopCommand&) {}
  void work(Core& c, const Queued& q, const spec::MatmulCommand& m);
  void work(Core& c, const Queued& q, const spec::VpuKernelCommand& k);
  void work(Core& c, const Queued& q, const spec::TransposeCommand& t);
  void work(Core& c, const Queued& q, const spec::DmaCommand& d);
  void work(Core& c, const Queued& q, const spec::DmaIndexedCommand& d);
  void work(Core& c, const Queued& q, const spec::FillCommand& f);
};

}  // namespace tpu::test
