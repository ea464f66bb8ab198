// What XProf calls the work of an operation: its category, in the words of XLA for TPUs, and the
// type of the framework's operation, which its overview shows as the category. Both follow from the
// name in the op table of an executable. Specification: ToCategory() of XLA's HloInstruction, and
// xla/tsl/profiler/convert/xla_op_utils.h.
#pragma once

#include <string>
#include <string_view>

namespace tpu::model {

// "convolution fusion" of "dot_general+tanh"; names are the kinds of an operation's ops joined by
// "+", or "result N" of a copy to a result.
std::string hlo_category(std::string_view name);

// "dot_general" of "dot_general+tanh": the contraction or exchange, else the last op, whose value
// the operation makes.
std::string op_type(std::string_view name);

}  // namespace tpu::model
