// Feeder of the Verilated array, see mxu_rtl.hpp.
#include "mxu/mxu_rtl.hpp"

#include <algorithm>
#include <stdexcept>

#include "mxu/mxu_tiles.hpp"
#include "run/assertions.hpp"

namespace tpu::model {
namespace {

// One job on its way through the array, cycle by cycle: weights of a tile enter while the tile
// before streams.
class Feeder {
 public:
  // Tiles are shown in waves with numbers from `first_tile` on. The observer may be empty.
  Feeder(RtlArray& array, const MxuJob& job, uint64_t first_tile,
         const MxuRtlEngine::RowObserver& observer, const MxuPortObserver& ports)
      : array_(array),
        first_tile_(first_tile),
        observer_(observer),
        ports_(ports),
        shape_(array.shape()),
        job_(job),
        tiles_(mxu_tiles(job, shape_)),
        offsets_(mxu_offsets(job)),
        rows_(offsets_.row_lhs.size()),
        pairs_(shape_.rows / 2),
        weight_bits_(size_t{shape_.rows} * shape_.cols),
        weight_words_(size_t{pairs_} * shape_.cols),
        x_bits_(shape_.rows),
        x_words_(pairs_),
        acc_(shape_.cols),
        tiles_per_k_(0) {
    for (const MxuTile& tile : tiles_) {
      tiles_per_k_ = std::max(tiles_per_k_, static_cast<size_t>(tile.n_tile) + 1);
    }
  }

  bool done() const { return collect_.tile == tiles_.size(); }
  size_t tiles() const { return tiles_.size(); }
  size_t loading_tile() const { return load_tile_; }
  size_t collected_tiles() const { return collect_.tile; }
  MxuRtlCycles cycles() const { return {starts_, cycle_}; }
  uint64_t cycle() const { return cycle_; }

  // One clock cycle. `hold` keeps a row back that could enter.
  void step(bool hold) {
    RtlArrayInput in;
    in.tile = first_tile_ + std::min(stream_.tile, tiles_.size() - 1);
    in.op_id = job_.op_id;
    if (!hold && row_may_enter()) {
      enter_row(in);
    }
    if (pair_may_enter()) {
      enter_pair(in);
    }
    if (array_.y_valid()) {
      mxu_store_out(job_, offsets_, tiles_[collect_.tile], collect_.row, array_.y());
      if (observer_) {
        observer_(collect_.tile, collect_.row, array_.y());
      }
      advance(collect_);
    }
    array_.step(in);
    if (ports_) {
      tell_ports(in);
    }
    loaded_ = entered_pairs_;
    ++cycle_;
  }

 private:
  struct Position {
    size_t tile = 0;
    size_t row = 0;
  };

  void advance(Position& position) const {
    if (++position.row == rows_) {
      position.row = 0;
      ++position.tile;
    }
  }

  // What the ports show when the cycle ends: inputs that were taken, and the results that leave.
  void tell_ports(const RtlArrayInput& in) const {
    ports_({.cycle = job_.start_cycle + cycle_,
            .tile = in.tile,
            .op_id = in.op_id,
            .swap = in.x_swap,
            .busy = array_.busy(),
            .w = in.w_valid ? in.w : nullptr,
            .x = in.x_valid ? in.x : nullptr,
            .acc = in.x_valid ? in.acc : nullptr,
            .y = array_.y_valid() ? array_.y() : nullptr});
  }

  // The tile's last weight pair entered in an earlier cycle, and the running value of this row has
  // been stored.
  bool row_may_enter() const {
    const bool weights_there = stream_.row > 0 || (load_tile_ == stream_.tile + 1 && !loading());
    if (stream_.tile == tiles_.size() || !weights_there) {
      return false;
    }
    if (tiles_[stream_.tile].first) {
      return true;
    }
    const size_t before = stream_.tile - tiles_per_k_;
    return collect_.tile > before || (collect_.tile == before && collect_.row > stream_.row);
  }

  void enter_row(RtlArrayInput& in) {
    const MxuTile& tile = tiles_[stream_.tile];
    mxu_pack_row(job_, offsets_, tile, shape_, stream_.row, x_bits_.data());
    for (size_t p = 0; p < pairs_; ++p) {
      x_words_[p] = x_bits_[2 * p] | uint32_t{x_bits_[2 * p + 1]} << 16;
    }
    in.x_valid = true;
    in.x = x_words_.data();
    if (!tile.first || job_.accumulate) {
      mxu_load_out(job_, offsets_, tile, shape_, stream_.row, acc_.data());
      in.acc = acc_.data();
    }
    if (stream_.row == 0) {
      in.x_swap = true;
      starts_.push_back(cycle_);
    }
    advance(stream_);
  }

  bool loading() const { return loaded_ != 0 && loaded_ != pairs_; }

  // Weights go to the shadow chain: they may follow the first row of the tile before at the array's
  // swap gap.
  bool pair_may_enter() const {
    if (loading()) {
      return true;
    }
    if (load_tile_ == tiles_.size() || load_tile_ > starts_.size()) {
      return false;
    }
    return load_tile_ == 0 || cycle_ >= starts_[load_tile_ - 1] + spec::mxu_swap_gap(shape_);
  }

  void enter_pair(RtlArrayInput& in) {
    if (!loading()) {
      mxu_pack_weights(job_, offsets_, tiles_[load_tile_], shape_, weight_bits_.data());
      for (size_t p = 0; p < pairs_; ++p) {
        const uint16_t* even = &weight_bits_[2 * p * shape_.cols];
        for (size_t j = 0; j < shape_.cols; ++j) {
          weight_words_[p * shape_.cols + j] = even[j] | uint32_t{even[shape_.cols + j]} << 16;
        }
      }
      ++load_tile_;
      entered_pairs_ = 0;
    }
    in.w_valid = true;
    in.w = &weight_words_[(pairs_ - 1 - entered_pairs_) * shape_.cols];  // last pair first
    ++entered_pairs_;
  }

  RtlArray& array_;
  const uint64_t first_tile_;
  const MxuRtlEngine::RowObserver& observer_;
  const MxuPortObserver& ports_;
  const spec::MxuShape& shape_;
  const MxuJob& job_;
  const std::vector<MxuTile> tiles_;
  const MxuOffsets offsets_;
  const size_t rows_;
  const size_t pairs_;
  std::vector<uint16_t> weight_bits_;
  std::vector<uint32_t> weight_words_;
  std::vector<uint16_t> x_bits_;
  std::vector<uint32_t> x_words_, acc_;
  size_t tiles_per_k_;
  size_t load_tile_ = 0;      // tiles whose weights entered or are entering
  size_t entered_pairs_ = 0;  // of tile load_tile_ - 1, this cycle included
  size_t loaded_ = 0;         // of it, up to the cycle before
  Position stream_, collect_;
  std::vector<uint64_t> starts_;
  uint64_t cycle_ = 0;
};

WaveOptions wave_options(const MxuWaveWindow& window) {
  return {.path = window.path,
          .depth = window.depth,
          .clock_hz = window.clock_hz,
          .start_cycle = 0,
          .min_free_bytes = window.min_free_bytes};
}

}  // namespace

MxuRtlEngine::MxuRtlEngine(std::unique_ptr<RtlArray> array, FailureObserver failed)
    : array_(std::move(array)), failed_(std::move(failed)) {}

uint64_t MxuRtlEngine::mismatches() const {
  const std::lock_guard lock(mutex_);
  return failed_jobs_;
}

MxuRtlCycles MxuRtlEngine::last_cycles() const {
  const std::lock_guard lock(mutex_);
  return cycles_;
}

uint64_t MxuRtlEngine::tiles_run() const {
  const std::lock_guard lock(mutex_);
  return tiles_run_;
}

void MxuRtlEngine::set_wave_window(const MxuWaveWindow& window) {
  const std::lock_guard lock(mutex_);
  check_wave_file(wave_options(window));
  end_window();
  wave_error_.clear();
  window_ = window;
}

std::string MxuRtlEngine::wave_trouble() const {
  return wave_error_.empty() ? array_->wave_error() : wave_error_;
}

std::string MxuRtlEngine::wave_error() const {
  const std::lock_guard lock(mutex_);
  return wave_trouble();
}

std::string MxuRtlEngine::finish_waves() {
  const std::lock_guard lock(mutex_);
  if (dumping_) {
    end_window();
  } else if (window_ && wave_trouble().empty()) {
    wave_error_ = "waves: nothing was recorded in " + window_->path + ": of the tiles " +
                  std::to_string(window_->first_tile) + " to " +
                  std::to_string(window_->first_tile + window_->tiles - 1) +
                  " none came; through the Verilog went " + std::to_string(tiles_run_) +
                  " tiles, counted from 0";
  }
  return wave_trouble();
}

void MxuRtlEngine::set_port_observer(MxuPortObserver observer) {
  const std::lock_guard lock(mutex_);
  ports_ = std::move(observer);
}

void MxuRtlEngine::set_bubbles(uint32_t one_in, uint64_t seed) {
  const std::lock_guard lock(mutex_);
  bubble_one_in_ = one_in;
  bubble_state_ = seed | 1;
}

void MxuRtlEngine::begin_window(const MxuJob& job, uint64_t cycle) {
  WaveOptions options = wave_options(*window_);
  options.start_cycle = job.start_cycle + cycle;
  try {
    array_->open_waves(options);
    dumping_ = true;
  } catch (const std::runtime_error& error) {
    wave_error_ = error.what();
    window_.reset();
  }
}

void MxuRtlEngine::end_window() {
  array_->close_waves();
  if (wave_error_.empty()) {
    wave_error_ = array_->wave_error();
  }
  window_.reset();
  dumping_ = false;
}

void MxuRtlEngine::run(const MxuJob& job) { run_observed(job, {}); }

void MxuRtlEngine::run_observed(const MxuJob& job, const RowObserver& observer) {
  const std::lock_guard lock(mutex_);
  const uint64_t first_tile =
      job.first_tile < 0 ? tiles_run_ : static_cast<uint64_t>(job.first_tile);
  Feeder feeder(*array_, job, first_tile, observer, ports_);
  if (dumping_) {
    array_->set_wave_cycle(job.start_cycle);
  }
  rtl::FailedAssertions failures;
  uint64_t failed_at = 0;
  while (!feeder.done()) {
    if (window_ && !dumping_ && tiles_run_ + feeder.loading_tile() >= window_->first_tile) {
      begin_window(job, feeder.cycle());
    }
    bool hold = false;
    if (bubble_one_in_ != 0) {
      bubble_state_ = bubble_state_ * 6364136223846793005u + 1442695040888963407u;
      hold = (bubble_state_ >> 33) % bubble_one_in_ == 0;
    }
    feeder.step(hold);
    if (rtl::FailedAssertions found = rtl::take_failed_assertions()) {
      if (!failures) {
        failures.first = std::move(found.first);
        failed_at = feeder.cycle() - 1;
      }
      failures.count += found.count;
    }
    if (dumping_ && tiles_run_ + feeder.collected_tiles() >= window_->first_tile + window_->tiles) {
      end_window();
    }
  }
  if (ports_) {
    ports_({.cycle = job.start_cycle + feeder.cycle()});
  }
  tiles_run_ += feeder.tiles();
  cycles_ = feeder.cycles();
  if (failures) {
    tell_failures(job, failures, failed_at);
  }
}

void MxuRtlEngine::tell_failures(const MxuJob& job, const rtl::FailedAssertions& failures,
                                 uint64_t cycle) {
  ++failed_jobs_;
  if (failed_) {
    failed_("in cycle " + std::to_string(cycle) + " of the matmul of op " +
            std::to_string(job.op_id) + ": " + failures.text());
  }
}

}  // namespace tpu::model
