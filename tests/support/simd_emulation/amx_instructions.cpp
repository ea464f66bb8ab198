// See amx_instructions.hpp. Compiled for AVX2 and FMA, so that the loops of the dot products are
// vectors.
#include "amx_instructions.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "arith/flush_mode.hpp"

namespace tpu::emulation {
namespace {

constexpr int kTiles = 8;
constexpr int kRows = 16;
constexpr int kRowBytes = 64;

// LDTILECFG's operand.
struct Config {
  uint8_t palette;
  uint8_t start_row;
  uint8_t reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(Config) == 64);

struct TileFile {
  Config config;  // palette 0: no tiles
  alignas(64) uint8_t tile[kTiles][kRows][kRowBytes];
};

TileFile& file() {
  thread_local TileFile tiles{};
  return tiles;
}

void require(bool holds, const char* what) {
  if (!holds) {
    std::fprintf(stderr, "emulated AMX: %s\n", what);
    std::abort();
  }
}

int rows_of(int tile) { return file().config.rows[tile]; }
int row_bytes_of(int tile) { return file().config.row_bytes[tile]; }

void require_tile(int tile) {
  require(tile >= 0 && tile < kTiles, "there are 8 tiles");
  require(file().config.palette != 0, "no tile configuration is loaded");
  require(rows_of(tile) != 0 && row_bytes_of(tile) != 0, "the tile is not configured");
}

float widened(uint16_t bf16) {
  const uint32_t bits = uint32_t{bf16} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// One row of the target: even and odd elements of the pairs are summed apart, then added.
void dot_row(float* target, const uint16_t* left, const uint16_t (*right)[kRowBytes / 2], int pairs,
             int columns) {
  float even[kRowBytes / 4] = {};
  float odd[kRowBytes / 4] = {};
  for (int k = 0; k < pairs; ++k) {
    const float x0 = widened(left[2 * k]);
    const float x1 = widened(left[2 * k + 1]);
    for (int n = 0; n < kRowBytes / 4; ++n) {
      even[n] = __builtin_fmaf(x0, widened(right[k][2 * n]), even[n]);
      odd[n] = __builtin_fmaf(x1, widened(right[k][2 * n + 1]), odd[n]);
    }
  }
  for (int n = 0; n < columns; ++n) {
    target[n] += even[n] + odd[n];
  }
}

}  // namespace

void tile_loadconfig(const void* config) {
  TileFile& tiles = file();
  std::memcpy(&tiles.config, config, sizeof tiles.config);
  require(tiles.config.palette == 1, "palette 1 is the one with 8 tiles");
  require(tiles.config.start_row == 0, "the configuration begins in the middle of a tile");
  for (const uint8_t byte : tiles.config.reserved) {
    require(byte == 0, "reserved bytes of the configuration are not zero");
  }
  for (int t = 0; t < 16; ++t) {
    require((rows_of(t) == 0) == (row_bytes_of(t) == 0), "a tile has rows without bytes");
    require(t < kTiles || rows_of(t) == 0, "there are 8 tiles");
    require(rows_of(t) <= kRows && row_bytes_of(t) <= kRowBytes, "a tile is too large");
  }
  std::memset(tiles.tile, 0, sizeof tiles.tile);
}

void tile_release() { file() = {}; }

bool tiles_in_use() { return file().config.palette != 0; }

void tile_zero(int tile) {
  require_tile(tile);
  std::memset(file().tile[tile], 0, sizeof file().tile[tile]);
}

void tile_loadd(int tile, const void* base, long stride) {
  tile_zero(tile);
  for (int row = 0; row < rows_of(tile); ++row) {
    std::memcpy(file().tile[tile][row], static_cast<const uint8_t*>(base) + row * stride,
                static_cast<size_t>(row_bytes_of(tile)));
  }
}

void tile_stored(int tile, void* base, long stride) {
  require_tile(tile);
  for (int row = 0; row < rows_of(tile); ++row) {
    std::memcpy(static_cast<uint8_t*>(base) + row * stride, file().tile[tile][row],
                static_cast<size_t>(row_bytes_of(tile)));
  }
}

void tile_dpbf16ps(int target, int left, int right) {
  for (const int tile : {target, left, right}) {
    require_tile(tile);
    require(row_bytes_of(tile) % 4 == 0, "rows are not whole pairs");
  }
  require(target != left && target != right && left != right, "operands must be three tiles");
  require(rows_of(target) == rows_of(left) && row_bytes_of(target) == row_bytes_of(right) &&
              row_bytes_of(left) / 4 == rows_of(right),
          "shapes of the operands do not fit");
  const spec::ScopedFlushMode flush;  // MXCSR has no say: to nearest, subnormals are zeros
  TileFile& tiles = file();
  for (int row = 0; row < rows_of(target); ++row) {
    uint16_t x[kRowBytes / 2];
    uint16_t w[kRows][kRowBytes / 2];
    float sum[kRowBytes / 4];
    std::memcpy(x, tiles.tile[left][row], sizeof x);
    std::memcpy(w, tiles.tile[right], sizeof w);
    std::memcpy(sum, tiles.tile[target][row], sizeof sum);
    dot_row(sum, x, w, row_bytes_of(left) / 4, row_bytes_of(target) / 4);
    std::memcpy(tiles.tile[target][row], sum, sizeof sum);
  }
}

}  // namespace tpu::emulation
