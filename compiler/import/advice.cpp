// See advice.hpp.
#include "import/advice.hpp"

#include <array>
#include <utility>

namespace tpu::compiler::frontend {
namespace {

constexpr std::string_view kOnHost = "compute it on the host and pass the result as an argument";
constexpr std::string_view kNoFeeds =
    "a program talks to the host by jax.debug.print, jax.pure_callback and io_callback alone: use "
    "one of them, or pass arguments and return results";
constexpr std::string_view kOfPython =
    "Python answers (jax.debug.print, jax.pure_callback, io_callback) where JAX runs the program, "
    "by "
    "jax.jit on the plugin: leave them out of what is exported";
constexpr std::string_view kForTpu =
    "the program was exported for CPUs: export it with jax.export.export(f, platforms=['tpu'])";

struct Advice {
  std::string_view name;  // of an op, or the start of a custom call's target
  std::string_view text;
};

constexpr std::array kOps = std::to_array<Advice>({
    {"infeed", kNoFeeds},
    {"outfeed", kNoFeeds},
    {"uniform_dequantize", "use integer types and multiply by the scale"},
    {"uniform_quantize", "use integer types and multiply by the scale"},
});

constexpr std::array kTargets = std::to_array<Advice>({
    {"lapack_", kForTpu},
    {"blas_", kForTpu},
    {"xla_python_", kOfPython},
    {"xla_ffi_python_", kOfPython},
    {"tpu_custom_call",
     "a Pallas kernel for TPUs carries MLIR of the Mosaic compiler, which is not read here: give "
     "pallas_call interpret=True, which runs the kernel on the board as jax.numpy operations; with "
     "Keras call keras.config.disable_flash_attention()"},
    {"CustomSPMDPartitioning",
     "Python says how jax.experimental.custom_partitioning is cut, where JAX compiles the "
     "program, by jax.jit on the plugin: export the function inside of jax.shard_map over all "
     "axes of the mesh, or without custom_partitioning"},
    {"local_xla.sdy.",
     "an XLA of 2024 has written jax.shard_map in a form that is not read: write the module with a "
     "newer JAX, or as StableHLO"},
    {"InspectSharding", "return the array and look at its sharding outside of jax.jit"},
    {"__gpu$xla.gpu.triton", "write the kernel with jax.numpy operations"},
});

}  // namespace

std::string advice_for_op(std::string_view op) {
  for (const Advice& a : kOps) {
    if (a.name == op) {
      return "; " + std::string(a.text);
    }
  }
  return "; rewrite it with supported operations, or " + std::string(kOnHost);
}

std::string advice_for_custom_call(std::string_view target) {
  for (const Advice& a : kTargets) {
    if (target.starts_with(a.name)) {
      return "; " + std::string(a.text);
    }
  }
  return "; use operations of jax.numpy and jax.lax, or " + std::string(kOnHost);
}

}  // namespace tpu::compiler::frontend
