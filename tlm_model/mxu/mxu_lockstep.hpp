// Lockstep: every command runs on a fast engine, and a sample of its tiles also on the Verilated
// array; the results are compared bit by bit. The command's result is the fast engine's. A sampled
// tile is fed to both alike: operands packed from memory, running values from the tiles before it,
// which the fast engine computes one by one; the chain of all tiles must also equal what the
// command left in memory.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "mxu/mxu_replay.hpp"
#include "mxu/mxu_rtl.hpp"
#include "mxu/mxu_tiles.hpp"

namespace tpu::model {

struct MxuMismatch {
  uint64_t tile = 0;  // ordinal in the life of the engine
  uint64_t k_tile = 0, n_tile = 0, row = 0, col = 0;
  int k = -1;  // first K step of the tile that differs, -1 when a replay does not show it
  uint32_t rtl_bits = 0, engine_bits = 0;
  bool whole_command =
      false;                // tile by tile both agree, but the command as a whole left other bits
  std::string dump_path{};  // operands of the tile; empty when it could not be written
  std::string text{};       // all of it for people, with the command that replays it
};

struct MxuLockstepOptions {
  uint64_t one_in = 1;              // tiles: ordinal mod one_in == 0 is compared
  std::string dump_prefix = "mxu";  // tile dumps are <prefix>-tile<ordinal>.tile
  uint64_t max_dumps = 4;
  // Called for each mismatch, from the thread that runs the job.
  std::function<void(const MxuMismatch&)> on_mismatch;
};

struct MxuLockstepCounts {
  uint64_t tiles_seen = 0;
  uint64_t tiles = 0;  // compared
  uint64_t mismatches = 0;
};

class MxuLockstepEngine final : public MxuEngine {
 public:
  MxuLockstepEngine(std::unique_ptr<MxuEngine> fast, std::unique_ptr<RtlArray> array,
                    MxuLockstepOptions options);

  void run(const MxuJob& job) override;
  const char* name() const override { return "lockstep"; }
  bool splittable() const override { return false; }

  MxuLockstepCounts counts() const;
  // Counts tiles that went through the Verilog, not those of the command.
  void set_wave_window(const MxuWaveWindow& window) { rtl_.set_wave_window(window); }
  std::string wave_error() const { return rtl_.wave_error(); }

 private:
  void check_column(const MxuJob& job, const std::vector<MxuTile>& tiles, int64_t n_tile,
                    uint64_t first_ordinal, std::vector<uint32_t> running);
  bool sampled(uint64_t ordinal) const { return ordinal % options_.one_in == 0; }
  void compare_tile(const MxuTileData& data, const std::vector<uint32_t>& rtl,
                    const std::vector<uint32_t>& fast, const MxuTile& tile, uint64_t k_tile);
  void report(MxuMismatch mismatch, const MxuTileDump& dump);

  const std::unique_ptr<MxuEngine> fast_;
  MxuRtlEngine rtl_;
  const MxuLockstepOptions options_;
  std::mutex run_mutex_;
  mutable std::mutex counts_mutex_;
  MxuLockstepCounts counts_;
};

}  // namespace tpu::model
