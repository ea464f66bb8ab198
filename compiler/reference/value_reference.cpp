// The graph is made of the artifact up to the pass that keeps values, so that their numbers agree.
#include "reference/value_reference.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "entry/pipeline.hpp"
#include "import/import.hpp"
#include "ir/elements.hpp"
#include "ir/interpreter.hpp"
#include "passes/pass_manager.hpp"

namespace tpu::compiler {
namespace {

std::vector<double> numbers_of(const Tensor& tensor) {
  if (is_float(tensor.type.elem)) {
    const std::vector<float> values = eval::load_floats(tensor);
    return {values.begin(), values.end()};
  }
  const std::vector<int64_t> values = eval::load_ints(tensor);
  return {values.begin(), values.end()};
}

// A NaN is as far off as can be, unless it is expected.
double distance(double made, double expected) {
  if (std::isnan(made) || std::isnan(expected)) {
    return std::isnan(made) == std::isnan(expected) ? 0 : INFINITY;
  }
  return made == expected ? 0 : std::fabs(made - expected);
}

// By element, the largest difference that is none.
std::vector<double> allowed(const Op& op, const std::vector<double>& expected,
                            const std::optional<Tensor>& magnitude, double tolerance) {
  const Elem elem = op.type().elem;
  if (!is_float(elem) || (can_eval(op.kind) && !magnitude)) {
    return std::vector<double>(expected.size(), 0);
  }
  std::vector<double> scale;
  if (magnitude) {
    scale = numbers_of(*magnitude);
  } else {
    double largest = 0;
    for (const double value : expected) {
      largest = std::isfinite(value) ? std::max(largest, std::fabs(value)) : largest;
    }
    scale.assign(expected.size(), largest);
  }
  constexpr double kBf16Step = 1.0 / 128;  // between neighbours, as a part of the larger one
  for (size_t i = 0; i < scale.size(); ++i) {
    const double rounding = elem == Elem::kBf16 ? kBf16Step * std::fabs(expected[i]) : 0;
    const double sum = scale[i] * tolerance + rounding;
    scale[i] = std::isfinite(sum) ? sum : 0;
  }
  return scale;
}

std::optional<ValueDifference> compare(const Op& op, const Tensor& made, const MadeValue& expected,
                                       double tolerance) {
  if (made.data == expected.value->data) {
    return std::nullopt;
  }
  const std::vector<double> a = numbers_of(made);
  const std::vector<double> b = numbers_of(*expected.value);
  const std::vector<double> limits = allowed(op, b, expected.magnitude, tolerance);
  ValueDifference worst;
  double farthest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double off = distance(a[i], b[i]);
    if (off <= limits[i]) {
      continue;
    }
    ++worst.elements;
    if (off > farthest) {
      farthest = off;
      worst.element = static_cast<int64_t>(i);
      worst.made = a[i];
      worst.expected = b[i];
    }
  }
  return worst.elements > 0 ? std::optional(worst) : std::nullopt;
}

}  // namespace

ValueReference::ValueReference(std::span<const std::byte> artifact)
    : module_(import_program(artifact, "")) {
  run_passes(module_, canonical_passes());
  kept_ = describe_kept(module_);
  for (const Value* value : values_to_keep(module_)) {
    numbers_.emplace(value, numbers_.size());
  }
}

ValueChecked ValueReference::check(const std::vector<std::vector<std::byte>>& arguments,
                                   const ValueCheck& how) const {
  std::vector<Tensor> global;
  for (size_t i = 0; i < arguments.size(); ++i) {
    global.push_back({module_.main->args.at(i).global, arguments[i]});
  }
  EvalOptions options;
  options.dots = DotMode::kDouble;
  ValueChecked checked;
  const auto see = [&](size_t core, const Value& value, MadeValue& expected) {
    const auto number = numbers_.find(&value);
    if (number == numbers_.end()) {  // a constant, or without elements
      if (!expected.value) {
        expected.value = make_tensor(value.type);
      }
      return true;
    }
    Tensor made{value.type, how.board(number->second, core)};
    if (!expected.value && core == 0) {
      checked.not_covered.push_back(number->second);
    }
    checked.first =
        expected.value ? compare(*value.def, made, expected, how.tolerance) : std::nullopt;
    if (checked.first) {
      checked.first->value = number->second;
      checked.first->core = core;
      return false;
    }
    expected.value = std::move(made);
    return true;
  };
  interpret(module_, split_arguments(module_, global), options, see);
  return checked;
}

}  // namespace tpu::compiler
