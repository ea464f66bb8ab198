// One tile with its operands as a value and as a file, and the search for the step at which two
// results part. File: little-endian; magic, array shape, counts, then weights, activations, running
// values in, two recorded results.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mxu/mxu_engine.hpp"

namespace tpu::model {

// Operands of one tile as the array takes them: padded to the full array, columns beyond the tile
// +0.
struct MxuTileData {
  spec::MxuShape shape;
  uint64_t ordinal = 0;  // in the life of the engine
  uint64_t rows = 0;     // M
  // Waveforms only, not in files: simulated time at which its weights enter, the operation.
  uint64_t start_cycle = 0;
  uint32_t op_id = 0;
  std::vector<uint16_t> weights{};  // [shape.rows][shape.cols] bf16
  std::vector<uint16_t> x{};        // [rows][shape.rows] bf16
  std::vector<uint32_t> running{};  // [rows][shape.cols] f32 bits that enter
};

// The job that computes a tile in place: `running` must hold tile.running and receives the result.
MxuJob mxu_tile_job(const MxuTileData& tile, std::vector<uint32_t>& running);

// Result bits [rows][cols] of an engine for a tile.
std::vector<uint32_t> mxu_run_tile(MxuEngine& engine, const MxuTileData& tile);

// The first K step whose product makes the results of the two engines differ in this output: both
// replay the row with the first 1, 2, ... rows of weights, the others +0. -1 when every prefix
// agrees (the difference does not repeat).
int mxu_first_differing_k(MxuEngine& a, MxuEngine& b, const MxuTileData& tile, uint64_t row,
                          uint64_t col);

struct MxuTileDump {
  MxuTileData tile;
  std::vector<uint32_t> rtl, engine;  // results that were recorded
};

// Both throw std::runtime_error with the path when the file cannot be written, read or understood.
void mxu_write_dump(const std::string& path, const MxuTileDump& dump);
MxuTileDump mxu_read_dump(const std::string& path);

}  // namespace tpu::model
