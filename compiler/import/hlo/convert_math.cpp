// Opcodes of arithmetic: see opcodes.hpp.
#include <array>

#include "import/codes.hpp"
#include "import/hlo/opcodes.hpp"
#include "import/hlo/types.hpp"

namespace tpu::compiler::hlo::math {
namespace {

namespace va = bytecode::vhlo_attr;
namespace vt = bytecode::vhlo_type;
using Property = std::pair<std::string_view, uint32_t>;

Property precision(const Step& step) {
  std::vector<uint32_t> list;
  for (const int64_t p : step.at.precision) {
    list.push_back(step.build().enumeration(va::kPrecision, p));
  }
  return {"precision_config", step.build().array(std::move(list))};
}

// PrecisionConfig.Algorithm: the type of the operands and how many products there are; all sum in
// f32 but the first few.
struct DotAlgorithm {
  uint32_t operands, sum;
  int64_t products;
};
constexpr std::array kAlgorithms = std::to_array<DotAlgorithm>({
    {vt::kNone, vt::kNone, 1},   // none is asked for
    {vt::kF8E5M2, vt::kF32, 1},  // any of 8 bits
    {vt::kF8E5M2, vt::kF32, 1},  // the same, summed fast
    {vt::kF16, vt::kF16, 1},
    {vt::kF16, vt::kF32, 1},
    {vt::kBf16, vt::kBf16, 1},
    {vt::kBf16, vt::kF32, 1},
    {vt::kBf16, vt::kF32, 3},
    {vt::kBf16, vt::kF32, 6},
    {vt::kTf32, vt::kF32, 1},
    {vt::kTf32, vt::kF32, 3},
    {vt::kF32, vt::kF32, 1},
    {vt::kF64, vt::kF64, 1},
    {vt::kBf16, vt::kF32, 9},
});

void algorithm(const Step& step, RawOp& op) {
  const int64_t number = step.at.algorithm;
  if (number == 0) {
    return;
  }
  if (number < 0 || number >= std::ssize(kAlgorithms)) {
    step.fail("the algorithm " + std::to_string(number) + " of its products is not known");
  }
  const DotAlgorithm& a = kAlgorithms[static_cast<size_t>(number)];
  const auto type = [&](uint32_t code) {
    return step.build().of_type(step.build().plain_type(code));
  };
  op.properties.insert(op.properties.end(),
                       {{"lhs_precision_type", type(a.operands)},
                        {"rhs_precision_type", type(a.operands)},
                        {"accumulation_type", type(a.sum)},
                        {"num_primitive_operations", step.build().integer(a.products)}});
}

uint32_t binary(const Step& step, std::string_view vhlo, uint32_t a, uint32_t b,
                const Shape& type) {
  RawOp op = step.op(vhlo);
  op.operands = {a, b};
  return step.add(std::move(op), type);
}

uint32_t converted(const Step& step, uint32_t value, const Shape& type) {
  RawOp op = step.op("convert_v1");
  op.operands = {value};
  return step.add(std::move(op), type);
}

uint32_t splat(const Step& step, int64_t number, const Shape& type) {
  const uint32_t scalar = step.constant({number}, {});
  RawOp wide = step.op("broadcast_in_dim_v1");
  wide.operands = {scalar};
  wide.properties.emplace_back("broadcast_dimensions", step.build().list({}));
  Shape numbers = type;
  numbers.type = primitive::kS64;
  return converted(step, step.add(std::move(wide), numbers), type);
}

}  // namespace

void plain(const Step& step, std::string_view vhlo) { step.finish(vhlo); }

void chlo(const Step& step, std::string_view vhlo) {
  RawOp op = step.with_operands(vhlo);
  op.dialect = bytecode::Dialect::kChlo;
  op.dialect_name = "chlo";
  step.finish(std::move(op));
}

void compare(const Step& step, std::string_view vhlo) {
  constexpr std::array<std::string_view, 6> kDirections = {"EQ", "NE", "GE", "GT", "LE", "LT"};
  constexpr std::array<std::string_view, 5> kTypes = {"", "FLOAT", "TOTALORDER", "SIGNED",
                                                      "UNSIGNED"};
  const auto number = [&](const auto& names, std::string_view name, const char* what) {
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] == name) {
        return static_cast<int64_t>(i);
      }
    }
    step.fail(std::string(what) + " '" + std::string(name) + "' is not known");
  };
  const int64_t element = step.shape(0).type;
  const std::string_view usual = is_floating(element)   ? "FLOAT"
                                 : is_unsigned(element) ? "UNSIGNED"
                                                        : "SIGNED";
  const std::string_view type = step.at.comparison_type.empty() ? usual : step.at.comparison_type;
  RawOp op = step.with_operands(vhlo);
  op.properties = {
      {"comparison_direction",
       step.build().enumeration(va::kCompareDirection,
                                number(kDirections, step.at.direction, "the direction"))},
      {"compare_type",
       step.build().enumeration(va::kCompareType, number(kTypes, type, "the comparison type"))}};
  step.finish(std::move(op));
}

// The upper half of the product, by one of twice the width.
//   mulhi(a, b : u32)  =>  u32(shift_right_logical(u64(a) * u64(b), 32))
void multiply_high(const Step& step, std::string_view) {
  const Shape& type = step.at.shape;
  const int64_t bits = literal_bytes(type.type) * 8;
  constexpr int64_t kWide = 64;
  if (bits == 0 || bits == kWide || is_floating(type.type) || type.type == primitive::kPred) {
    step.refuse();
    return;
  }
  Shape wide = type;
  wide.type = is_unsigned(type.type) ? primitive::kU64 : primitive::kS64;
  const uint32_t right = converted(step, step.value(1), wide);
  const uint32_t left = converted(step, step.value(0), wide);
  const uint32_t product = binary(step, "multiply_v1", left, right, wide);
  const uint32_t high =
      binary(step, "shift_right_logical_v1", product, splat(step, bits, wide), wide);
  step.define(std::vector<uint32_t>{converted(step, high, type)});
}

void reduce_precision(const Step& step, std::string_view vhlo) {
  RawOp op = step.with_operands(vhlo);
  op.properties = {{"exponent_bits", step.build().integer(step.at.exponent_bits)},
                   {"mantissa_bits", step.build().integer(step.at.mantissa_bits)}};
  step.finish(std::move(op));
}

void dot(const Step& step, std::string_view vhlo) {
  if (!step.at.dot || step.at.sparse) {
    step.fail(step.at.sparse ? "a dot of sparse operands is not supported; make them dense"
                             : "dot_dimension_numbers are missing");
  }
  const DotDimensions& d = *step.at.dot;
  RawOp op = step.with_operands(vhlo);
  op.properties = {{"lhs_batching_dimensions", step.build().list(d.lhs_batch)},
                   {"rhs_batching_dimensions", step.build().list(d.rhs_batch)},
                   {"lhs_contracting_dimensions", step.build().list(d.lhs_contract)},
                   {"rhs_contracting_dimensions", step.build().list(d.rhs_contract)},
                   precision(step)};
  algorithm(step, op);
  step.finish(std::move(op));
}

void convolution(const Step& step, std::string_view vhlo) {
  if (!step.at.conv) {
    step.fail("convolution_dimension_numbers are missing");
  }
  const ConvDimensions& d = *step.at.conv;
  const WindowLists w(step.at);
  const auto rank = static_cast<int64_t>(w.size.size());
  auto& build = step.build();
  const auto count = [](int64_t groups) { return groups == 0 ? 1 : groups; };  // old writers: 0
  RawOp op = step.with_operands(vhlo);
  op.properties = {{"window_strides", build.list(w.stride)},
                   {"padding", build.tensor(w.padding, {rank, 2})},
                   {"lhs_dilation", build.list(w.base_dilation)},
                   {"rhs_dilation", build.list(w.window_dilation)},
                   {"window_reversal", build.list(w.reversal)},
                   {"input_batch_dimension", build.integer(d.input_batch)},
                   {"input_feature_dimension", build.integer(d.input_feature)},
                   {"input_spatial_dimensions", build.list(d.input_spatial)},
                   {"kernel_input_feature_dimension", build.integer(d.kernel_input)},
                   {"kernel_output_feature_dimension", build.integer(d.kernel_output)},
                   {"kernel_spatial_dimensions", build.list(d.kernel_spatial)},
                   {"output_batch_dimension", build.integer(d.output_batch)},
                   {"output_feature_dimension", build.integer(d.output_feature)},
                   {"output_spatial_dimensions", build.list(d.output_spatial)},
                   {"feature_group_count", build.integer(count(step.at.feature_groups))},
                   {"batch_group_count", build.integer(count(step.at.batch_groups))},
                   precision(step)};
  step.finish(std::move(op));
}

void fft(const Step& step, std::string_view vhlo) {
  RawOp op = step.with_operands(vhlo);
  op.properties = {{"fft_type", step.build().enumeration(va::kFftType, step.at.fft_type)},
                   {"fft_length", step.build().list(step.at.fft_length)}};
  step.finish(std::move(op));
}

void batch_norm(const Step& step, std::string_view vhlo) {
  RawOp op = step.with_operands(vhlo);
  op.properties = {{"epsilon", step.build().real(step.at.epsilon)},
                   {"feature_index", step.build().integer(step.at.feature_index)}};
  step.finish(std::move(op));
}

void cholesky(const Step& step, std::string_view vhlo) {
  RawOp op = step.with_operands(vhlo);
  op.properties.emplace_back("lower", step.build().integer(step.at.lower));
  step.finish(std::move(op));
}

void triangular_solve(const Step& step, std::string_view vhlo) {
  const TriangularSolve& t = step.at.triangular;
  RawOp op = step.with_operands(vhlo);
  op.properties = {{"left_side", step.build().integer(t.left)},
                   {"lower", step.build().integer(t.lower)},
                   {"unit_diagonal", step.build().integer(t.unit_diagonal)},
                   {"transpose_a", step.build().enumeration(va::kTransposeMode, t.transpose)}};
  step.finish(std::move(op));
}

// The shape is an operand in StableHLO.
void rng(const Step& step, std::string_view vhlo) {
  RawOp op = step.with_operands(vhlo);
  const Ints& dims = step.at.shape.dims;
  op.operands.push_back(step.constant(dims, {std::ssize(dims)}));
  op.properties.emplace_back("rng_distribution",
                             step.build().enumeration(va::kRngDistribution, step.at.distribution));
  step.finish(std::move(op));
}

void rng_bit_generator(const Step& step, std::string_view vhlo) {
  RawOp op = step.with_operands(vhlo);
  op.properties.emplace_back("rng_algorithm",
                             step.build().enumeration(va::kRngAlgorithm, step.at.rng_algorithm));
  step.finish(std::move(op));
}

}  // namespace tpu::compiler::hlo::math
