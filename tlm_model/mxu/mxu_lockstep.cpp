// Lockstep of a fast engine and the Verilog, see mxu_lockstep.hpp.
#include "mxu/mxu_lockstep.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <stdexcept>

namespace tpu::model {
namespace {

std::string hex(uint32_t bits) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", bits);
  return text;
}

}  // namespace

MxuLockstepEngine::MxuLockstepEngine(std::unique_ptr<MxuEngine> fast,
                                     std::unique_ptr<RtlArray> array, MxuLockstepOptions options)
    : fast_(std::move(fast)), rtl_(std::move(array)), options_(std::move(options)) {
  if (options_.one_in == 0) {
    throw std::runtime_error("mxu: lockstep:1/N needs N of at least 1");
  }
}

MxuLockstepCounts MxuLockstepEngine::counts() const {
  const std::lock_guard lock(counts_mutex_);
  return counts_;
}

void MxuLockstepEngine::run(const MxuJob& job) {
  const std::lock_guard lock(run_mutex_);
  const std::vector<MxuTile> tiles = mxu_tiles(job, rtl_.shape());
  uint64_t first_ordinal = 0;
  {
    const std::lock_guard counts_lock(counts_mutex_);
    first_ordinal = counts_.tiles_seen;
    counts_.tiles_seen += tiles.size();
  }
  // The running values that enter must be read before the command overwrites them.
  const size_t cols = rtl_.shape().cols;
  const MxuOffsets offsets = mxu_offsets(job);
  std::vector<std::pair<int64_t, std::vector<uint32_t>>> columns;
  for (size_t i = 0; i < tiles.size(); ++i) {
    const auto same = [&tile = tiles[i]](const auto& column) {
      return column.first == tile.n_tile;
    };
    if (!sampled(first_ordinal + i) || std::any_of(columns.begin(), columns.end(), same)) {
      continue;
    }
    std::vector<uint32_t> running(offsets.row_out.size() * cols, 0);
    if (job.accumulate) {
      for (size_t row = 0; row < offsets.row_out.size(); ++row) {
        mxu_load_out(job, offsets, tiles[i], rtl_.shape(), row, &running[row * cols]);
      }
    }
    columns.emplace_back(tiles[i].n_tile, std::move(running));
  }
  fast_->run(job);
  for (auto& [n_tile, running] : columns) {
    check_column(job, tiles, n_tile, first_ordinal, std::move(running));
  }
}

// Follows the tiles that accumulate on each other in one column of tiles; `running` is what entered
// the first.
void MxuLockstepEngine::check_column(const MxuJob& job, const std::vector<MxuTile>& tiles,
                                     int64_t n_tile, uint64_t first_ordinal,
                                     std::vector<uint32_t> running) {
  const spec::MxuShape& shape = rtl_.shape();
  const MxuOffsets offsets = mxu_offsets(job);
  MxuTileData data{.shape = shape, .rows = offsets.row_lhs.size()};
  data.weights.resize(size_t{shape.rows} * shape.cols);
  data.x.resize(data.rows * shape.rows);
  const spec::MxuCommandTiming timing = spec::mxu_command_timing(shape, mxu_extent(job));
  uint64_t k_tile = 0;
  const MxuTile* last = nullptr;
  bool agreed = true;
  for (size_t i = 0; i < tiles.size(); ++i) {
    const MxuTile& tile = tiles[i];
    if (tile.n_tile != n_tile) {
      continue;
    }
    data.ordinal = first_ordinal + i;
    data.start_cycle = job.start_cycle + timing.start(i) - timing.load;
    data.running = running;
    mxu_pack_weights(job, offsets, tile, shape, data.weights.data());
    for (size_t row = 0; row < data.rows; ++row) {
      mxu_pack_row(job, offsets, tile, shape, row, &data.x[row * shape.rows]);
    }
    running = mxu_run_tile(*fast_, data);
    if (sampled(data.ordinal)) {
      const std::vector<uint32_t> rtl = mxu_run_tile(rtl_, data);
      agreed = agreed && rtl == running;
      compare_tile(data, rtl, running, tile, k_tile);
    }
    ++k_tile;
    last = &tile;
  }
  if (last == nullptr || !agreed) {
    return;
  }
  std::vector<uint32_t> stored(shape.cols);
  for (size_t row = 0; row < data.rows; ++row) {
    mxu_load_out(job, offsets, *last, shape, row, stored.data());
    for (size_t col = 0; col < static_cast<size_t>(last->cols); ++col) {
      const uint32_t chained = running[row * shape.cols + col];
      if (stored[col] != chained) {
        report({.tile = data.ordinal,
                .k_tile = k_tile - 1,
                .n_tile = static_cast<uint64_t>(n_tile),
                .row = row,
                .col = col,
                .rtl_bits = chained,
                .engine_bits = stored[col],
                .whole_command = true},
               {.tile = data, .rtl = running, .engine = running});
        return;
      }
    }
  }
}

void MxuLockstepEngine::compare_tile(const MxuTileData& data, const std::vector<uint32_t>& rtl,
                                     const std::vector<uint32_t>& fast, const MxuTile& tile,
                                     uint64_t k_tile) {
  {
    const std::lock_guard lock(counts_mutex_);
    ++counts_.tiles;
  }
  const auto differ = std::mismatch(rtl.begin(), rtl.end(), fast.begin());
  if (differ.first == rtl.end()) {
    return;
  }
  const auto index = static_cast<uint64_t>(differ.first - rtl.begin());
  const uint64_t row = index / data.shape.cols;
  const uint64_t col = index % data.shape.cols;
  report({.tile = data.ordinal,
          .k_tile = k_tile,
          .n_tile = static_cast<uint64_t>(tile.n_tile),
          .row = row,
          .col = col,
          .k = mxu_first_differing_k(rtl_, *fast_, data, row, col),
          .rtl_bits = rtl[index],
          .engine_bits = fast[index]},
         {.tile = data, .rtl = rtl, .engine = fast});
}

void MxuLockstepEngine::report(MxuMismatch mismatch, const MxuTileDump& dump) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(counts_mutex_);
    number = ++counts_.mismatches;
  }
  std::string replay;
  if (number <= options_.max_dumps) {
    const std::string path = std::filesystem::absolute(options_.dump_prefix + "-tile" +
                                                       std::to_string(mismatch.tile) + ".tile");
    try {
      mxu_write_dump(path, dump);
      mismatch.dump_path = path;
      replay = "; replay: tpuboard mxu-replay " + path;
    } catch (const std::runtime_error& error) {
      replay = std::string("; no dump: ") + error.what();
    }
  }
  const auto text = [](auto v) { return std::to_string(v); };
  mismatch.text = "mxu lockstep mismatch: tile " + text(mismatch.tile) + " (K tile " +
                  text(mismatch.k_tile) + ", N tile " + text(mismatch.n_tile) + "), row " +
                  text(mismatch.row) + ", column " + text(mismatch.col);
  if (mismatch.whole_command) {
    mismatch.text += ": tile by tile " + hex(mismatch.rtl_bits) + ", whole command by " +
                     fast_->name() + " " + hex(mismatch.engine_bits) + replay;
  } else {
    mismatch.text += ", k " + (mismatch.k < 0 ? "unknown" : text(mismatch.k)) + ": rtl " +
                     hex(mismatch.rtl_bits) + ", " + fast_->name() + " " +
                     hex(mismatch.engine_bits) + replay;
  }
  if (options_.on_mismatch) {
    options_.on_mismatch(mismatch);
  }
}

}  // namespace tpu::model
