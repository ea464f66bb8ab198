// Public entry of the back half: an optimised graph to an executable for one board.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "ir/graph.hpp"
#include "program/listing.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::compiler {

// Whether the update of replicated state may be cut over the cores (shard_update.hpp). Results have
// the same bits in all modes.
enum class UpdateSharding : uint8_t {
  kAuto,  // where it is legal and the estimate of its traffic says that it is faster
  kOn,    // wherever it is legal; the executable's notes say where it is not
  kOff,
};

struct CodegenOptions {
  UpdateSharding update_sharding = UpdateSharding::kAuto;
  // Called with "kernels" (text of the fused kernels), "memory" (what HBM holds) and "listing"
  // (text of the commands).
  std::function<void(const std::string& stage, const std::string& text)> dump;
};

// Throws Error: an op or type that has no lowering (with its source line), memory that does not
// suffice (with the largest buffers). `module` must be inlined; it is not changed.
exe::ExecutableT compile_graph(const Module& module, const spec::BoardParams& board,
                               const CodegenOptions& options = {});

}  // namespace tpu::compiler
