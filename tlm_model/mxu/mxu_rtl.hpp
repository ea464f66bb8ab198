// Engine on the Verilated array: packs a job's tiles, streams them through the Verilog and counts
// its cycles. The feeder knows the array's handshake rules only (when weights may enter, when a
// running value is there), never the formulas of spec/arith/mxu_timing.hpp; that both agree is what
// the tests of cycles show.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "mxu/mxu_engine.hpp"
#include "mxu/mxu_ports.hpp"
#include "mxu/rtl_array.hpp"

namespace tpu::rtl {
struct FailedAssertions;
}

namespace tpu::model {

// What the array's cycles of one job were, counted from the cycle in which its first weights
// entered.
struct MxuRtlCycles {
  std::vector<uint64_t> starts;  // of each tile: the cycle of its first row
  uint64_t done_at = 0;          // the last result is stored
};

// Dumps the tiles [first_tile, first_tile + tiles) of an engine's life to one FST file, from the
// first tile's weights to the last tile's results. Between jobs no time is dumped; the file is
// complete once the window or the engine ends.
struct MxuWaveWindow {
  std::string path;
  int depth = 1;
  uint64_t clock_hz = 0;
  uint64_t first_tile = 0;
  uint64_t tiles = 1;
  uint64_t min_free_bytes = WaveOptions{}.min_free_bytes;
};

class MxuRtlEngine final : public MxuEngine {
 public:
  // Told of the assertions that failed in a job, once a job and on its thread, with the first.
  using FailureObserver = std::function<void(const std::string& text)>;

  explicit MxuRtlEngine(std::unique_ptr<RtlArray> array, FailureObserver failed = {});

  void run(const MxuJob& job) override;  // one call at a time, others wait
  const char* name() const override { return "rtl"; }
  bool splittable() const override { return false; }
  uint64_t mismatches() const override;  // jobs in which an assertion failed

  // As run(), and tells every row of results as it leaves the array: tile of the job, row, words.
  using RowObserver = std::function<void(size_t tile, size_t row, const uint32_t* y)>;
  void run_observed(const MxuJob& job, const RowObserver& observer);

  const spec::MxuShape& shape() const { return array_->shape(); }
  MxuRtlCycles last_cycles() const;
  uint64_t tiles_run() const;
  // Replaces a window that was set before. Throws std::runtime_error at once if the file cannot be
  // written; a dump that fails later ends alone, no job does, and wave_error() says why.
  void set_wave_window(const MxuWaveWindow& window);
  std::string wave_error() const;
  // Completes the file; wave_error(), or that no tile of the window has come.
  std::string finish_waves();
  // Of all jobs to come; empty: none.
  void set_port_observer(MxuPortObserver observer);
  // Rows enter only in cycles that a seeded generator picks (1 in `one_in` is held back); 0
  // switches it off.
  void set_bubbles(uint32_t one_in, uint64_t seed);

 private:
  void tell_failures(const MxuJob& job, const rtl::FailedAssertions& failures, uint64_t cycle);
  void begin_window(const MxuJob& job, uint64_t cycle);
  void end_window();
  std::string wave_trouble() const;

  mutable std::mutex mutex_;
  const std::unique_ptr<RtlArray> array_;
  const FailureObserver failed_;
  uint64_t failed_jobs_ = 0;
  MxuRtlCycles cycles_;
  uint64_t tiles_run_ = 0;
  std::optional<MxuWaveWindow> window_;
  bool dumping_ = false;
  std::string wave_error_;
  MxuPortObserver ports_;
  uint32_t bubble_one_in_ = 0;
  uint64_t bubble_state_ = 0;
};

}  // namespace tpu::model
