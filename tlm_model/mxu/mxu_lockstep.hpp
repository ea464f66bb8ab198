// Lockstep: every command runs on a fast engine, and a sample of its tiles also on the Verilated
// array; the results are compared bit by bit. The command's result is the fast engine's. A sampled
// tile is fed to both alike: operands packed from memory, running values from the tiles before it,
// which the fast engine computes one by one; the chain of all tiles must also equal what the
// command left in memory. Cycles are compared too, with the cost formulas
// (spec/arith/mxu_timing.hpp): where all tiles are compared, the command streams through the array
// as one, and the start of every tile and the end of the command must be those of the formulas;
// else those of each sampled tile alone.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "mxu/mxu_rtl.hpp"
#include "mxu/mxu_tile.hpp"
#include "mxu/mxu_tiles.hpp"

namespace tpu::model {

struct MxuMismatch {
  uint64_t tile = 0;  // ordinal in the life of the engine
  uint64_t k_tile = 0, n_tile = 0, row = 0, col = 0;
  int k = -1;  // first K step of the tile that differs, -1 when a replay does not show it
  uint32_t rtl_bits = 0, engine_bits = 0;
  // Tile by tile both agree, but the command as a whole left other bits (`streamed`: in the
  // Verilog).
  bool whole_command = false;
  bool streamed = false;
  // The bits agree, but the tile's start (or the end of the command) is not that of the formulas.
  bool cycles = false;
  uint64_t rtl_cycle = 0, model_cycle = 0;  // from the start of the command, or of the tile alone
  std::string dump_path{};  // operands of the tile; empty when it could not be written
  std::string text{};       // all of it for people, with the command that replays it
};

struct MxuLockstepOptions {
  uint64_t one_in = 1;              // tiles: ordinal mod one_in == 0 is compared
  std::string dump_prefix = "mxu";  // tile dumps are <prefix>-tile<ordinal>.tile
  uint64_t max_dumps = 4;
  // Called for each mismatch, and for a job in which an assertion of the Verilog failed (with
  // nothing but its text), from the thread that runs the job.
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

  void run(const MxuJob& job) override { run_checked(job, nullptr); }
  // The fast engine is the one whose bits flip.
  void run_upset(const MxuJob& job, const MxuUpset& upset) override { run_checked(job, &upset); }
  const char* name() const override { return "lockstep"; }
  bool splittable() const override { return false; }

  MxuLockstepCounts counts() const;
  uint64_t mismatches() const override { return counts().mismatches; }
  std::string mismatch_text() const override;
  // Counts tiles that went through the Verilog, not those of the command.
  void set_wave_window(const MxuWaveWindow& window) { rtl_.set_wave_window(window); }
  std::string finish_waves() { return rtl_.finish_waves(); }
  void set_port_observer(MxuPortObserver observer) { rtl_.set_port_observer(std::move(observer)); }

 private:
  void run_checked(const MxuJob& job, const MxuUpset* upset);
  // A column of tiles that accumulate on each other, and the running values that enter the first.
  struct Column {
    int64_t n_tile;
    std::vector<uint32_t> running;
    std::vector<uint32_t> before{};  // running values that entered the newest tile
  };

  std::vector<Column> entering(const MxuJob& job, const std::vector<MxuTile>& tiles,
                               uint64_t first_ordinal) const;
  void check_command(const MxuJob& job, const std::vector<MxuTile>& tiles,
                     std::vector<Column> columns, uint64_t first_ordinal);
  bool stream(const MxuJob& job, const std::vector<MxuTile>& tiles, std::vector<Column>& columns,
              uint64_t first_ordinal);
  void check_cycles(const spec::MxuCommandTiming& expected, const std::vector<MxuTile>& tiles,
                    uint64_t first_ordinal);
  void check_stored(const MxuJob& job, const MxuTile& last, const MxuTileData& data,
                    const std::vector<uint32_t>& chained, uint64_t k_tile);
  MxuTileData tile_data(const MxuJob& job, const MxuOffsets& offsets, const MxuTile& tile,
                        uint64_t ordinal) const;
  void check_column(const MxuJob& job, const std::vector<MxuTile>& tiles, int64_t n_tile,
                    uint64_t first_ordinal, std::vector<uint32_t> running);
  bool sampled(uint64_t ordinal) const { return ordinal % options_.one_in == 0; }
  void compare_tile(const MxuTileData& data, const std::vector<uint32_t>& rtl,
                    const std::vector<uint32_t>& fast, const MxuTile& tile, uint64_t k_tile);
  void report(MxuMismatch mismatch, const MxuTileDump& dump);
  void report_failure(const std::string& text);
  void report_cycles(MxuMismatch mismatch, const char* what);
  uint64_t count_mismatch();
  void tell(const MxuMismatch& mismatch);

  const std::unique_ptr<MxuEngine> fast_;
  MxuRtlEngine rtl_;
  const MxuLockstepOptions options_;
  std::mutex run_mutex_;
  mutable std::mutex counts_mutex_;
  MxuLockstepCounts counts_;
  std::string first_text_;  // of the mismatches of the newest job that has one
  bool in_job_ = false;     // it is of the job that runs
};

}  // namespace tpu::model
