// What the author of a program can do about an op that the compiler does not take.
#pragma once

#include <string>
#include <string_view>

namespace tpu::compiler::frontend {

// Behind a refusal: "; " and the advice. `op` is a StableHLO name.
std::string advice_for_op(std::string_view op);
std::string advice_for_custom_call(std::string_view target);

}  // namespace tpu::compiler::frontend
