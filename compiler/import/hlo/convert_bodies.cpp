// Opcodes that call computations: see opcodes.hpp.
#include <algorithm>
#include <charconv>

#include "import/hlo/opcodes.hpp"

namespace tpu::compiler::hlo::bodies {
namespace {

void finish_with_region(const Step& step, RawOp op) {
  op.regions.push_back(step.region(0));
  step.finish(std::move(op));
}

// What old modules say by "reduction_dim = 1 : i64", and others by "\"reduction_dim\": 1".
void approx_top_k_config(const Step& step, RawOp& op) {
  constexpr std::string_view kKey = "reduction_dim";
  const std::string_view config = step.at.backend_config;
  const size_t at = config.find(kKey);
  const size_t digits =
      at == std::string_view::npos ? at : config.find_first_not_of("\": =", at + kKey.size());
  if (digits == std::string_view::npos) {
    return;
  }
  int64_t dim = 0;
  const auto [end, error] =
      std::from_chars(config.data() + digits, config.data() + config.size(), dim);
  if (error == std::errc()) {
    auto& build = step.build();
    op.dictionary =
        build.dictionary({{"mhlo.backend_config", build.dictionary({{kKey, build.integer(dim)}})}});
  }
}

// Of async-start, the shape of what the computation gives.
const Shape& async_result(const Step& step) {
  constexpr size_t kResult = 1;  // behind the operands
  if (step.at.shape.members.size() <= kResult) {
    step.fail("its shape is " + to_string(step.at.shape) +
              ", expected a tuple of operands and results");
  }
  return step.at.shape.members[kResult];
}

}  // namespace

void map(const Step& step, std::string_view vhlo) {
  RawOp op = step.with_operands(vhlo);
  op.properties.emplace_back("dimensions", step.build().list(step.at.dims));
  finish_with_region(step, std::move(op));
}

void reduce(const Step& step, std::string_view vhlo) {
  RawOp op = step.with_operands(vhlo);
  op.properties.emplace_back("dimensions", step.build().list(step.at.dims));
  finish_with_region(step, std::move(op));
}

void reduce_window(const Step& step, std::string_view vhlo) {
  const WindowLists w(step.at);
  const auto rank = static_cast<int64_t>(w.size.size());
  if (std::find(w.reversal.begin(), w.reversal.end(), 1) != w.reversal.end()) {
    step.fail("a reversed window of a reduce-window is not supported; reverse the operand");
  }
  RawOp op = step.with_operands(vhlo);
  op.properties = {{"window_dimensions", step.build().list(w.size)},
                   {"window_strides", step.build().list(w.stride)},
                   {"base_dilations", step.build().list(w.base_dilation)},
                   {"window_dilations", step.build().list(w.window_dilation)},
                   {"padding", step.build().tensor(w.padding, {rank, 2})}};
  finish_with_region(step, std::move(op));
}

void select_and_scatter(const Step& step, std::string_view vhlo) {
  const WindowLists w(step.at);
  const auto rank = static_cast<int64_t>(w.size.size());
  const auto dilated = [](int64_t n) { return n != 1; };
  if (std::any_of(w.base_dilation.begin(), w.base_dilation.end(), dilated) ||
      std::any_of(w.window_dilation.begin(), w.window_dilation.end(), dilated)) {
    step.fail("dilations of a select-and-scatter are not supported");
  }
  if (std::find(w.reversal.begin(), w.reversal.end(), 1) != w.reversal.end()) {
    step.fail("a reversed window of a select-and-scatter is not supported");
  }
  RawOp op = step.with_operands(vhlo);
  op.properties = {{"window_dimensions", step.build().list(w.size)},
                   {"window_strides", step.build().list(w.stride)},
                   {"padding", step.build().tensor(w.padding, {rank, 2})}};
  op.regions.push_back(step.region(0));
  op.regions.push_back(step.region(1));
  step.finish(std::move(op));
}

void scatter(const Step& step, std::string_view vhlo) {
  if (!step.at.scatter) {
    step.fail("scatter_dimension_numbers are missing");
  }
  const IndexDimensions& d = *step.at.scatter;
  auto& build = step.build();
  RawOp op = step.op(vhlo);
  op.operands = sizes::scatter_operands(step);
  op.properties = {{"update_window_dims", build.list(d.window)},
                   {"inserted_window_dims", build.list(d.collapsed)},
                   {"input_batching_dims", build.list(d.operand_batching)},
                   {"scatter_indices_batching_dims", build.list(d.index_batching)},
                   {"scatter_dims_to_operand_dims", build.list(d.map)},
                   {"index_vector_dim", build.integer(d.index_vector_dim)},
                   {"indices_are_sorted", build.integer(step.at.sorted)},
                   {"unique_indices", build.integer(step.at.unique)}};
  finish_with_region(step, std::move(op));
}

void sort(const Step& step, std::string_view vhlo) {
  RawOp op = step.with_operands(vhlo);
  op.properties = {{"dimension", step.build().integer(step.dim())},
                   {"is_stable", step.build().integer(step.at.stable)}};
  finish_with_region(step, std::move(op));
}

// As the custom call that StableHLO has for it.
void top_k(const Step& step, std::string_view vhlo) {
  auto& build = step.build();
  RawOp op = step.with_operands(vhlo);
  op.properties = {{"call_target_name", build.text("mhlo.topk")},
                   {"backend_config", build.text("")},
                   {"has_side_effect", build.integer(0)},
                   {"called_computations", build.array({})}};
  op.dictionary = build.dictionary(
      {{"mhlo.attributes", build.dictionary({{"k", build.integer(step.at.k)},
                                             {"largest", build.integer(step.at.largest)}})}});
  step.finish(std::move(op));
}

// HLO names the body first.
void loop(const Step& step, std::string_view vhlo) {
  RawOp op = step.with_operands(vhlo);
  op.regions.push_back(step.region(1));
  op.regions.push_back(step.region(0));
  step.finish(std::move(op));
}

// Each branch has an operand of its own; in StableHLO branches see the values around them.
void conditional(const Step& step, std::string_view) {
  const bool of_truth = step.shape(0).type == primitive::kPred;
  if (step.at.called.size() + 1 != step.num_operands()) {
    step.fail(std::to_string(step.at.called.size()) + " branches, expected " +
              std::to_string(step.num_operands() - 1) + ", one for each operand behind the first");
  }
  RawOp op = step.op(of_truth ? "if_v1" : "case_v1");
  op.operands = {step.value(0)};
  for (size_t i = 0; i < step.at.called.size(); ++i) {
    op.regions.push_back(step.converter.bound_region(step.at.called[i], {step.operand(i + 1)},
                                                     step.scope.depth + 1));
  }
  step.finish(std::move(op));
}

void call(const Step& step, std::string_view vhlo) {
  const uint32_t callee = step.called(0);
  const uint32_t name = step.build().text(step.converter.function(callee));
  const auto& attributes = step.at.attributes;
  const auto composite = std::find_if(attributes.begin(), attributes.end(), [](const auto& entry) {
    return entry.first == "composite.name";
  });
  RawOp op = step.with_operands(vhlo);
  if (step.at.composite && composite != attributes.end()) {
    op.name = "composite_v1";
    op.properties = {{"decomposition", name}, {"name", step.build().text(composite->second)}};
  } else {
    op.properties = {{"callee", name}};
  }
  step.finish(std::move(op));
}

void fusion(const Step& step, std::string_view) {
  std::vector<Bundle> arguments;
  for (size_t i = 0; i < step.num_operands(); ++i) {
    arguments.push_back(step.operand(i));
  }
  step.define(step.converter.inlined(step.called(0), std::move(arguments), step.scope.to,
                                     step.scope.depth + 1));
}

void custom_call(const Step& step, std::string_view vhlo) {
  if (shardy_custom_call(step)) {
    return;
  }
  auto& build = step.build();
  std::vector<uint32_t> called;
  for (const uint32_t computation : step.at.called) {
    called.push_back(build.text(step.converter.function(computation)));
  }
  RawOp op = step.with_operands(vhlo);
  op.dictionary = step.dictionary();
  op.properties = {{"call_target_name", build.text(step.at.target)},
                   {"backend_config", build.text(step.at.backend_config)},
                   {"has_side_effect", build.integer(step.at.side_effect)},
                   {"called_computations", build.array(std::move(called))}};
  if (step.at.target == "ApproxTopK") {
    approx_top_k_config(step, op);
  }
  step.finish(std::move(op));
}

// What runs beside others in a schedule is done where it begins.
void async_start(const Step& step, std::string_view) {
  std::vector<Bundle> arguments;
  for (size_t i = 0; i < step.num_operands(); ++i) {
    arguments.push_back(step.operand(i));
  }
  const Bundle made = step.converter.inlined(step.called(0), std::move(arguments), step.scope.to,
                                             step.scope.depth + 1);
  const Shape& result = async_result(step);
  if (!same_arrays(result, *made.shape)) {
    step.fail("its result is " + to_string(result) + ", expected " + to_string(*made.shape));
  }
  step.begin(result, made.leaves);
}

void async_update(const Step& step, std::string_view) {
  const Bundle& before = step.operand(0);
  if (before.done_shape == nullptr) {
    step.fail("its operand is not the beginning of what it continues");
  }
  step.begin(*before.done_shape, before.done);
}

void done(const Step& step, std::string_view) {
  const Bundle& before = step.operand(0);
  if (before.done_shape == nullptr) {
    step.fail("its operand is not the beginning of what it ends");
  }
  step.define(Bundle{before.done_shape, before.done, nullptr});
}

void copy_start(const Step& step, std::string_view) {
  const std::vector<Shape>& members = step.at.shape.members;
  if (members.empty() || !same_arrays(members[0], step.shape(0))) {
    step.fail("its shape is " + to_string(step.at.shape) + ", expected a tuple that begins with " +
              to_string(step.shape(0)));
  }
  step.begin(members[0], step.operand(0).leaves);
}

}  // namespace tpu::compiler::hlo::bodies
