// The timed machine: runs the image of a core program on the cores of a board for its cycles alone.
// Queues, semaphores, the sequencer's instructions, shared bandwidth and links are those of the
// model (tlm_model/), from the same cost functions (spec/command/); there are no data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "command/links.hpp"
#include "command/transfer_clock.hpp"
#include "program/timed_core.hpp"

namespace tpu::compiler {

// With more cores one is simulated for all, so that time to compile does not grow with them. Their
// partners need not lie alike then: the first chip's are thought to be as far away as any.
inline constexpr size_t kExactCores = 32;

// Which cores are simulated.
enum class GangMode : uint8_t {
  kAll,    // each one
  kFolded  // one for all: its chip's other cores and the other chips do the same at the same time
};

class TimedGang : private TimedFabric {
 public:
  // `code`: what stands behind the header of an image. `cores`: of the board, by partition; all of
  // them in order if one is simulated for all.
  TimedGang(std::span<const std::byte> code, const std::vector<int>& cores,
            const spec::BoardParams& board, GangMode mode);

  // Cycles from a core's start to its end, of the core that takes longest. Empty when more than
  // `most_commands` were issued before the end (another call goes on), or when one core cannot
  // stand for all.
  std::optional<uint64_t> run(uint64_t most_commands);
  uint64_t now() const { return now_ + machine_.front().skipped(); }
  const Work& work() const { return machine_.front().work(); }  // of the first core so far

 private:
  uint64_t route(const TimedCommand& command, uint32_t partition, std::span<const uint32_t> peers,
                 spec::Transfer& transfer) override;
  void start(spec::Transfer& transfer) override;
  uint64_t control_latency(uint32_t partition, uint32_t peer) override;
  TimedCore& peer(uint32_t core) override;
  bool has(uint32_t core) const { return core < partition_.size() && partition_[core] >= 0; }
  uint64_t start_of(uint32_t partition) const;
  bool symmetric(const TimedScalars& scalars, uint8_t peer_reg) override;
  void fold_path(std::span<const uint32_t> peers, spec::Transfer& transfer) const;
  bool step_cores();
  bool step_transfers();

  const std::vector<uint32_t> core_;  // of the board, by partition
  std::vector<int> partition_;        // by core; -1: not of the gang
  const uint32_t cores_per_chip_;
  const GangMode mode_;
  TimedProgram program_;
  spec::TransferClock transfers_;
  const spec::Links links_;
  std::vector<spec::ResourceId> hbm_;    // by chip
  std::vector<spec::ResourceId> local_;  // by core
  std::deque<TimedCore> machine_;
  bool remote_ = false;
  uint64_t now_ = 0;
};

}  // namespace tpu::compiler
