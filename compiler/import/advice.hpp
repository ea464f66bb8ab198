// What the author of a program can do about an op that the compiler does not take.
#pragma once

#include <string>
#include <string_view>

namespace tpu::compiler::frontend {

// Against shardings of GSPMD.
inline constexpr std::string_view kUseShardy =
    "export with Shardy (jax.config.update('jax_use_shardy_partitioner', True), JAX's default) and "
    "cut arrays with jax.shard_map";

// Behind a refusal: "; " and the advice. `op` is a StableHLO name.
std::string advice_for_op(std::string_view op);
std::string advice_for_custom_call(std::string_view target);

}  // namespace tpu::compiler::frontend
