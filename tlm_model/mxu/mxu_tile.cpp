// Single tiles: as a job, as a file, and the search for the step at which two results part.
#include "mxu/mxu_tile.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <span>
#include <stdexcept>
#include <system_error>

#include "file/output_file.hpp"

namespace tpu::model {
namespace {

constexpr char kMagic[8] = {'T', 'P', 'U', 'T', 'I', 'L', 'E', '1'};
constexpr uint64_t kMaxRows = uint64_t{1} << 24;  // of a tile in a file: refuses a corrupt count

template <typename T>
void put(spec::OutputFile& out, const T* data, size_t count) {
  out.add(std::as_bytes(std::span(data, count)));
}

template <typename T>
void get(std::istream& in, T* data, size_t count) {
  in.read(reinterpret_cast<char*>(data), static_cast<std::streamsize>(count * sizeof(T)));
}

template <typename T>
void get_vector(std::istream& in, std::vector<T>& data, size_t count) {
  data.resize(count);
  get(in, data.data(), count);
}

}  // namespace

MxuJob mxu_tile_job(const MxuTileData& tile, std::vector<uint32_t>& running) {
  const int64_t rows = tile.shape.rows;
  const int64_t cols = tile.shape.cols;
  MxuJob job;
  job.lhs = reinterpret_cast<const uint8_t*>(tile.x.data());
  job.rhs = reinterpret_cast<const uint8_t*>(tile.weights.data());
  job.out = reinterpret_cast<uint8_t*>(running.data());
  job.lhs_is_bf16 = true;
  job.rhs_is_bf16 = true;
  job.accumulate = true;
  job.start_cycle = tile.start_cycle;
  job.op_id = tile.op_id;
  job.first_tile = static_cast<int64_t>(tile.ordinal);
  job.m_count[3] = static_cast<int64_t>(tile.rows);
  job.m_lhs_stride[3] = rows * 2;
  job.m_out_stride[3] = cols * 4;
  job.k_count[2] = rows;
  job.k_rhs_stride[2] = cols * 2;
  job.n_count[1] = cols;
  job.n_rhs_stride[1] = 2;
  job.n_out_stride[1] = 4;
  return job;
}

std::vector<uint32_t> mxu_run_tile(MxuEngine& engine, const MxuTileData& tile) {
  std::vector<uint32_t> running = tile.running;
  engine.run(mxu_tile_job(tile, running));
  return running;
}

int mxu_first_differing_k(MxuEngine& a, MxuEngine& b, const MxuTileData& tile, uint64_t row,
                          uint64_t col) {
  const size_t rows = tile.shape.rows;
  const size_t cols = tile.shape.cols;
  MxuTileData prefix{.shape = tile.shape, .ordinal = tile.ordinal, .rows = 1};
  prefix.x.assign(tile.x.begin() + static_cast<ptrdiff_t>(row * rows),
                  tile.x.begin() + static_cast<ptrdiff_t>((row + 1) * rows));
  prefix.running.assign(tile.running.begin() + static_cast<ptrdiff_t>(row * cols),
                        tile.running.begin() + static_cast<ptrdiff_t>((row + 1) * cols));
  prefix.weights.assign(rows * cols, 0);
  const std::vector<uint16_t> x = prefix.x;
  prefix.x.assign(rows, 0);
  for (size_t k = 0; k < rows; ++k) {
    std::copy_n(&tile.weights[k * cols], cols, &prefix.weights[k * cols]);
    prefix.x[k] = x[k];
    if (mxu_run_tile(a, prefix)[col] != mxu_run_tile(b, prefix)[col]) {
      return static_cast<int>(k);
    }
  }
  return -1;
}

void mxu_write_dump(const std::string& path, const MxuTileDump& dump) {
  const MxuTileData& t = dump.tile;
  const uint32_t shape[6] = {t.shape.rows,           t.shape.cols, t.shape.chains(),
                             t.shape.segment_rows(), t.shape.skew, t.shape.load_rows};
  const uint64_t counts[2] = {t.ordinal, t.rows};
  try {
    spec::OutputFile out(path);
    put(out, kMagic, sizeof kMagic);
    put(out, shape, 6);
    put(out, counts, 2);
    put(out, t.weights.data(), t.weights.size());
    put(out, t.x.data(), t.x.size());
    put(out, t.running.data(), t.running.size());
    put(out, dump.rtl.data(), dump.rtl.size());
    put(out, dump.engine.data(), dump.engine.size());
    out.finish();
  } catch (const std::system_error& error) {
    throw std::runtime_error("mxu: cannot write the tile to " + path + ": " +
                             error.code().message());
  }
}

MxuTileDump mxu_read_dump(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    throw std::runtime_error("mxu: cannot read " + path + ": " +
                             std::generic_category().message(errno));
  }
  char magic[sizeof kMagic] = {};
  uint32_t shape[6] = {};
  uint64_t counts[2] = {};
  get(in, magic, sizeof magic);
  get(in, shape, 6);
  get(in, counts, 2);
  if (!in || std::memcmp(magic, kMagic, sizeof kMagic) != 0) {
    throw std::runtime_error(
        "mxu: " + path +
        " is not a tile dump; a lockstep of matrix units writes one, FILE.tile, "
        "of a mismatch");
  }
  MxuTileDump dump;
  MxuTileData& t = dump.tile;
  const auto sums = spec::mxu_sums(shape[2], shape[3], shape[0]);
  t.shape = {.rows = shape[0],
             .cols = shape[1],
             .sums = sums.value_or(spec::MxuSums::kPairs),
             .skew = shape[4],
             .load_rows = shape[5]};
  t.ordinal = counts[0];
  t.rows = counts[1];
  constexpr uint32_t kMaxSide = 1u << 12;
  if (!sums || spec::mxu_shape_error(t.shape) || t.shape.rows > kMaxSide ||
      t.shape.cols > kMaxSide || t.rows == 0 || t.rows > kMaxRows) {
    throw std::runtime_error("mxu: " + path + ": damaged tile: expected an array of at most " +
                             std::to_string(kMaxSide) + "x" + std::to_string(kMaxSide) +
                             " and 1 to " + std::to_string(kMaxRows) + " rows, found " +
                             std::to_string(t.shape.rows) + "x" + std::to_string(t.shape.cols) +
                             " and " + std::to_string(t.rows) + " rows");
  }
  const size_t outputs = t.rows * t.shape.cols;
  get_vector(in, t.weights, size_t{t.shape.rows} * t.shape.cols);
  // The rest grows with the row count: believe it only as far as the file goes.
  const auto here = in.tellg();
  in.seekg(0, std::ios::end);
  const auto rest = static_cast<uint64_t>(in.tellg() - here);
  if (!in || rest != t.rows * t.shape.rows * 2 + outputs * 12) {
    throw std::runtime_error("mxu: " + path +
                             ": damaged tile: the file is truncated or has extra bytes");
  }
  in.seekg(here);
  get_vector(in, t.x, t.rows * t.shape.rows);
  get_vector(in, t.running, outputs);
  get_vector(in, dump.rtl, outputs);
  get_vector(in, dump.engine, outputs);
  if (!in) {
    throw std::runtime_error("mxu: cannot read all of " + path);
  }
  return dump;
}

}  // namespace tpu::model
