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
    : fast_(std::move(fast)),
      rtl_(std::move(array), [this](const std::string& text) { report_failure(text); }),
      options_(std::move(options)) {
  if (options_.one_in == 0) {
    throw std::runtime_error("mxu: lockstep:1/N: expected N of at least 1, found 0");
  }
}

MxuLockstepCounts MxuLockstepEngine::counts() const {
  const std::lock_guard lock(counts_mutex_);
  return counts_;
}

void MxuLockstepEngine::run_checked(const MxuJob& job, const MxuUpset* upset) {
  const std::lock_guard lock(run_mutex_);
  const std::vector<MxuTile> tiles = mxu_tiles(job, rtl_.shape());
  uint64_t first_ordinal = 0;
  {
    const std::lock_guard counts_lock(counts_mutex_);
    first_ordinal = counts_.tiles_seen;
    counts_.tiles_seen += tiles.size();
    in_job_ = false;
  }
  // The running values that enter must be read before the command overwrites them.
  std::vector<Column> columns = entering(job, tiles, first_ordinal);
  fast_->run(job);
  if (upset != nullptr) {
    mxu_flip(job, *upset);
  }
  if (options_.one_in == 1) {
    check_command(job, tiles, std::move(columns), first_ordinal);
    return;
  }
  for (Column& column : columns) {
    check_column(job, tiles, column.n_tile, first_ordinal, std::move(column.running));
  }
}

// The columns that have a tile to be compared.
std::vector<MxuLockstepEngine::Column> MxuLockstepEngine::entering(
    const MxuJob& job, const std::vector<MxuTile>& tiles, uint64_t first_ordinal) const {
  const size_t cols = rtl_.shape().cols;
  const MxuOffsets offsets = mxu_offsets(job);
  std::vector<Column> columns;
  for (size_t i = 0; i < tiles.size(); ++i) {
    const auto same = [&tile = tiles[i]](const Column& column) {
      return column.n_tile == tile.n_tile;
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
    columns.push_back({tiles[i].n_tile, std::move(running)});
  }
  return columns;
}

// Everything of a tile but its running values.
MxuTileData MxuLockstepEngine::tile_data(const MxuJob& job, const MxuOffsets& offsets,
                                         const MxuTile& tile, uint64_t ordinal) const {
  const spec::MxuShape& shape = rtl_.shape();
  MxuTileData data{.shape = shape, .ordinal = ordinal, .rows = offsets.row_lhs.size()};
  data.op_id = job.op_id;
  data.weights.resize(size_t{shape.rows} * shape.cols);
  data.x.resize(data.rows * shape.rows);
  mxu_pack_weights(job, offsets, tile, shape, data.weights.data());
  for (size_t row = 0; row < data.rows; ++row) {
    mxu_pack_row(job, offsets, tile, shape, row, &data.x[row * shape.rows]);
  }
  return data;
}

// All tiles of a command. What differs when they stream is looked for again tile by tile.
void MxuLockstepEngine::check_command(const MxuJob& job, const std::vector<MxuTile>& tiles,
                                      std::vector<Column> columns, uint64_t first_ordinal) {
  std::vector<Column> chained = columns;
  if (stream(job, tiles, chained, first_ordinal)) {
    const MxuOffsets offsets = mxu_offsets(job);
    for (size_t i = tiles.size() - columns.size(); i < tiles.size(); ++i) {
      Column& column = chained[static_cast<size_t>(tiles[i].n_tile)];
      MxuTileData data = tile_data(job, offsets, tiles[i], first_ordinal + i);
      data.running = std::move(column.before);
      check_stored(job, tiles[i], data, column.running, i / columns.size());
    }
    check_cycles(spec::mxu_command_timing(rtl_.shape(), mxu_extent(job)), tiles, first_ordinal);
    const std::lock_guard lock(counts_mutex_);
    counts_.tiles += tiles.size();
    return;
  }
  const uint64_t before = counts().mismatches;
  for (Column& column : columns) {
    check_column(job, tiles, column.n_tile, first_ordinal, std::move(column.running));
  }
  if (counts().mismatches == before) {  // each tile alone is right
    report({.tile = first_ordinal, .whole_command = true, .streamed = true}, {});
  }
}

// The command as one stream through the Verilog, its result beside the memory; every row is
// compared as it leaves. True when all agree; `columns` then hold what the tiles have made.
bool MxuLockstepEngine::stream(const MxuJob& job, const std::vector<MxuTile>& tiles,
                               std::vector<Column>& columns, uint64_t first_ordinal) {
  const size_t cols = rtl_.shape().cols;
  const MxuOffsets offsets = mxu_offsets(job);
  const size_t rows = offsets.row_lhs.size();
  const int64_t row_bytes = job.n() * static_cast<int64_t>(sizeof(float));
  std::vector<uint32_t> out(rows * static_cast<size_t>(job.n()));
  MxuJob beside = job;
  beside.out = reinterpret_cast<uint8_t*>(out.data()) - job.row_begin * row_bytes;
  int64_t inner = row_bytes;
  for (size_t i = job.m_count.size(); i-- > 0;) {
    beside.m_out_stride[i] = inner;
    inner *= job.m_count[i];
  }
  beside.n_out_stride = {job.n_count[1] * static_cast<int64_t>(sizeof(float)), sizeof(float)};
  beside.first_tile = static_cast<int64_t>(first_ordinal);
  const std::vector<MxuTile> dense = mxu_tiles(beside, rtl_.shape());
  const MxuOffsets dense_offsets = mxu_offsets(beside);
  for (size_t i = 0; job.accumulate && i < columns.size(); ++i) {
    for (size_t row = 0; row < rows; ++row) {
      mxu_store_out(beside, dense_offsets, dense[i], row, &columns[i].running[row * cols]);
    }
  }
  bool agreed = true;
  rtl_.run_observed(beside, [&](size_t i, size_t row, const uint32_t* y) {
    Column& column = columns[static_cast<size_t>(tiles[i].n_tile)];
    if (row == 0) {
      MxuTileData data = tile_data(job, offsets, tiles[i], first_ordinal + i);
      data.running = column.running;
      column.running = mxu_run_tile(*fast_, data);
      column.before = std::move(data.running);
    }
    agreed = agreed && std::equal(y, y + tiles[i].cols, &column.running[row * cols]);
  });
  return agreed;
}

// What the Verilog's last run took against the cost formulas; reports the first tile that differs,
// or the end.
void MxuLockstepEngine::check_cycles(const spec::MxuCommandTiming& expected,
                                     const std::vector<MxuTile>& tiles, uint64_t first_ordinal) {
  const MxuRtlCycles measured = rtl_.last_cycles();
  const uint64_t columns = expected.n_tiles;
  const auto mismatch = [&](size_t i, uint64_t rtl_cycle, uint64_t model_cycle) {
    return MxuMismatch{.tile = first_ordinal + i,
                       .k_tile = i / columns,
                       .n_tile = static_cast<uint64_t>(tiles[i].n_tile),
                       .cycles = true,
                       .rtl_cycle = rtl_cycle,
                       .model_cycle = model_cycle};
  };
  for (size_t i = 0; i < tiles.size(); ++i) {
    if (measured.starts[i] != expected.start(i)) {
      return report_cycles(mismatch(i, measured.starts[i], expected.start(i)), "starts");
    }
  }
  if (measured.done_at != expected.done_at) {
    report_cycles(mismatch(tiles.size() - 1, measured.done_at, expected.done_at), "ends");
  }
}

// Follows the tiles that accumulate on each other in one column of tiles; `running` is what entered
// the first.
void MxuLockstepEngine::check_column(const MxuJob& job, const std::vector<MxuTile>& tiles,
                                     int64_t n_tile, uint64_t first_ordinal,
                                     std::vector<uint32_t> running) {
  const spec::MxuShape& shape = rtl_.shape();
  const MxuOffsets offsets = mxu_offsets(job);
  const spec::MxuCommandTiming timing = spec::mxu_command_timing(shape, mxu_extent(job));
  MxuTileData data;
  uint64_t k_tile = 0;
  const MxuTile* last = nullptr;
  bool agreed = true;
  for (size_t i = 0; i < tiles.size(); ++i) {
    const MxuTile& tile = tiles[i];
    if (tile.n_tile != n_tile) {
      continue;
    }
    data = tile_data(job, offsets, tile, first_ordinal + i);
    data.start_cycle = job.start_cycle + timing.start(i) - timing.load;
    data.running = running;
    running = mxu_run_tile(*fast_, data);
    if (sampled(data.ordinal)) {
      const std::vector<uint32_t> rtl = mxu_run_tile(rtl_, data);
      check_cycles(spec::mxu_command_timing(shape, mxu_extent(mxu_tile_job(data, data.running))),
                   {tile}, data.ordinal);
      agreed = agreed && rtl == running;
      compare_tile(data, rtl, running, tile, k_tile);
    }
    ++k_tile;
    last = &tile;
  }
  if (last != nullptr && agreed) {
    check_stored(job, *last, data, running, k_tile - 1);
  }
}

// What the command left in memory against what its tiles made one by one.
void MxuLockstepEngine::check_stored(const MxuJob& job, const MxuTile& last,
                                     const MxuTileData& data, const std::vector<uint32_t>& chained,
                                     uint64_t k_tile) {
  const spec::MxuShape& shape = rtl_.shape();
  const MxuOffsets offsets = mxu_offsets(job);
  std::vector<uint32_t> stored(shape.cols);
  for (size_t row = 0; row < data.rows; ++row) {
    mxu_load_out(job, offsets, last, shape, row, stored.data());
    for (size_t col = 0; col < static_cast<size_t>(last.cols); ++col) {
      const uint32_t made = chained[row * shape.cols + col];
      if (stored[col] != made) {
        report({.tile = data.ordinal,
                .k_tile = k_tile,
                .n_tile = static_cast<uint64_t>(last.n_tile),
                .row = row,
                .col = col,
                .rtl_bits = made,
                .engine_bits = stored[col],
                .whole_command = true},
               {.tile = data, .rtl = chained, .engine = chained});
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

std::string MxuLockstepEngine::mismatch_text() const {
  const std::lock_guard lock(counts_mutex_);
  return first_text_;
}

void MxuLockstepEngine::tell(const MxuMismatch& mismatch) {
  {
    const std::lock_guard lock(counts_mutex_);
    first_text_ = in_job_ ? first_text_ : mismatch.text;
    in_job_ = true;
  }
  if (options_.on_mismatch) {
    options_.on_mismatch(mismatch);
  }
}

uint64_t MxuLockstepEngine::count_mismatch() {
  const std::lock_guard lock(counts_mutex_);
  return ++counts_.mismatches;
}

void MxuLockstepEngine::report_failure(const std::string& text) {
  count_mismatch();
  tell({.text = "mxu: " + text});
}

void MxuLockstepEngine::report_cycles(MxuMismatch mismatch, const char* what) {
  count_mismatch();
  const auto text = [](uint64_t v) { return std::to_string(v); };
  mismatch.text = "mxu lockstep mismatch: tile " + text(mismatch.tile) + " (K tile " +
                  text(mismatch.k_tile) + ", N tile " + text(mismatch.n_tile) + ") " + what +
                  " in cycle " + text(mismatch.rtl_cycle) +
                  " in the Verilog, the cost model says cycle " + text(mismatch.model_cycle);
  tell(mismatch);
}

void MxuLockstepEngine::report(MxuMismatch mismatch, const MxuTileDump& dump) {
  const uint64_t number = count_mismatch();
  std::string replay;
  if (!mismatch.streamed && number <= options_.max_dumps) {
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
  if (mismatch.streamed) {
    mismatch.text = "mxu lockstep mismatch: the command of tile " + text(mismatch.tile) +
                    " differs when its tiles stream through the Verilog one after the other; each "
                    "tile alone agrees";
  } else if (mismatch.whole_command) {
    mismatch.text += ": tile by tile " + hex(mismatch.rtl_bits) + ", whole command by " +
                     fast_->name() + " " + hex(mismatch.engine_bits) + replay;
  } else {
    mismatch.text += ", k " + (mismatch.k < 0 ? "unknown" : text(mismatch.k)) + ": rtl " +
                     hex(mismatch.rtl_bits) + ", " + fast_->name() + " " +
                     hex(mismatch.engine_bits) + replay;
  }
  tell(mismatch);
}

}  // namespace tpu::model
