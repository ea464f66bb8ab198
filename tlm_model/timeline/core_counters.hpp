// The counter tracks of one core of a timeline: commands queued, use of the matrix units, bytes a
// second of HBM and of the links.
#pragma once

#include <cstdint>
#include <vector>

#include "probe/events.hpp"
#include "timeline/perfetto_file.hpp"

namespace tpu::model {

// A track with one value a cycle, the last one set; written when it changes.
class CounterTrack {
 public:
  CounterTrack() = default;
  explicit CounterTrack(PerfettoFile::Track track) : track_(track) {}

  void set(PerfettoFile& file, uint64_t cycle, double value) {
    if (cycle != cycle_) {
      flush(file);
    }
    cycle_ = cycle;
    value_ = value;
  }
  void flush(PerfettoFile& file) {
    if (track_ != 0 && value_ != written_) {
      file.count(track_, cycle_, value_);
      written_ = value_;
    }
  }
  double value() const { return value_; }

 private:
  PerfettoFile::Track track_ = 0;
  uint64_t cycle_ = 0;
  double value_ = 0;
  double written_ = -1;  // none is less than 0
};

class CoreCounterTracks {
 public:
  struct Numbers {
    uint32_t mxus = 0;
    uint64_t clock_mhz = 0;
    uint64_t mxu_flops = 0;  // most that a matrix unit does in a cycle
  };

  CoreCounterTracks(PerfettoFile& file, PerfettoFile::Track core, int rank, const Numbers& numbers);

  void queued(uint64_t cycle, uint32_t queue, int change) {
    queued_[queue].set(file_, cycle, queued_[queue].value() + change);
  }
  // A matmul starts.
  void matmul(const StartEvent& event);
  // Bytes a cycle, << BandwidthShare::kFraction, that are more or fewer from now on.
  void hbm_read(uint64_t cycle, uint64_t change) { add(hbm_read_, cycle, change); }
  void hbm_write(uint64_t cycle, uint64_t change) { add(hbm_write_, cycle, change); }
  void sent(uint64_t cycle, uint64_t change) { add(sent_, cycle, change); }
  // A step begins or ends: nothing is queued and nothing moves.
  void idle(uint64_t cycle);
  void flush();

 private:
  struct Rate {
    CounterTrack track;
    uint64_t value = 0;  // << kFraction
  };
  struct Unit {
    CounterTrack use;
    uint64_t free_at = 0;  // of the last matmul; 0: none in this step
  };
  void add(Rate& rate, uint64_t cycle, uint64_t change);

  PerfettoFile& file_;
  const Numbers numbers_;
  std::vector<CounterTrack> queued_;  // by queue
  std::vector<Unit> units_;           // by queue
  Rate hbm_read_, hbm_write_, sent_;
};

}  // namespace tpu::model
