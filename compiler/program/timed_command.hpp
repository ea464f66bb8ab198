// Commands of an image as the timed machine (timed_gang.hpp) sees them: queue, waits, signals and
// cost, without data. Decoded when they are reached, once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "command/cost.hpp"
#include "tpu/spec/board_params.hpp"
#include "tpu/spec/isa.hpp"

namespace tpu::compiler {

// What a command moves and computes, besides matrix products.
struct Work {
  uint64_t vector_ops = 0;                             // elements, whole blocks
  uint64_t hbm_read_bytes = 0, hbm_written_bytes = 0;  // granules
  uint64_t link_bytes = 0;

  Work& operator+=(const Work& more) {
    vector_ops += more.vector_ops;
    hbm_read_bytes += more.hbm_read_bytes;
    hbm_written_bytes += more.hbm_written_bytes;
    link_bytes += more.link_bytes;
    return *this;
  }
};

struct TimedCommand {
  uint8_t queue = 0;
  bool nop = true;  // or empty: no work, no cost but the signals' way
  bool transfer = false, remote = false;
  bool accumulate = false;  // of a matmul: adds to its output
  std::array<spec::Wait, 2> wait{};
  std::array<spec::Signal, 2> signal{};
  spec::CommandCycles cycles;  // not of transfers

  spec::Addr out{};  // of a matmul; of a transfer: what is written
  spec::ByteExtent out_extent;
  bool matmul = false;
  uint64_t load = 0;  // of a matmul: from its start to its first tile

  bool src_hbm = false, dst_hbm = false;  // of a transfer
  uint64_t bytes = 0, fixed_cycles = 0;
  uint8_t peer_reg = 0;
  Work work;

  bool writes_smem() const {
    return transfer && !remote && out.space == static_cast<uint8_t>(spec::Space::kSmem);
  }
};

class TimedProgram {
 public:
  // `code`: what stands behind the header of an image; must outlive this.
  TimedProgram(std::span<const std::byte> code, const spec::BoardParams& board);

  size_t words() const { return code_.size() / 8; }
  bool is_command(size_t word) const { return std::to_integer<uint8_t>(code_[word * 8]) < 32; }
  spec::ScalarInsn scalar(size_t word) const;
  const TimedCommand& command(size_t word);
  size_t command_words(size_t word) const { return std::to_integer<uint8_t>(code_[word * 8 + 2]); }

 private:
  template <typename T>
  T read(size_t at) const;
  TimedCommand decode(size_t at) const;
  void vpu(size_t at, TimedCommand& out) const;

  const std::span<const std::byte> code_;
  const spec::BoardParams& board_;
  const spec::MxuShape shape_;
  std::deque<TimedCommand> commands_;
  std::vector<int32_t> of_word_;  // index of the command, -1: not reached yet
};

}  // namespace tpu::compiler
