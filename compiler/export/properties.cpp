// One function for each attribute struct of ir/attrs.hpp; names and forms are those of StableHLO.
#include "export/properties.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <utility>

#include "ir/op_traits.hpp"

namespace tpu::compiler::stablehlo {
namespace {

using Properties = std::vector<std::pair<std::string, std::string>>;

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    text += (i ? ", " : "") + parts[i];
  }
  return text;
}

template <typename Numbers>
std::string list_text(const Numbers& numbers) {
  std::vector<std::string> parts;
  for (const auto n : numbers) {
    parts.push_back(std::to_string(n));
  }
  return "[" + joined(parts) + "]";
}

std::string array_text(const Dims& dims) {
  const std::string list = list_text(dims);
  return "array<i64" + (dims.empty() ? "" : ": " + list.substr(1, list.size() - 2)) + ">";
}

std::string i64_text(int64_t value) { return std::to_string(value) + " : i64"; }
std::string i32_text(int64_t value) { return std::to_string(value) + " : i32"; }
std::string flag_text(bool value) { return value ? "true" : "false"; }

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

std::string enum_text(const std::string& kind, const std::string& value) {
  return "#stablehlo<" + kind + " " + value + ">";
}

// Rows of numbers as a matrix; short rows are filled up with -1.
template <typename Rows>
std::string matrix_text(const Rows& rows, size_t columns) {
  std::vector<std::string> lines;
  for (const auto& row : rows) {
    Dims full(row.begin(), row.end());
    full.resize(columns, -1);
    lines.push_back(list_text(full));
  }
  const std::string contents = lines.empty() || columns == 0 ? "" : "[" + joined(lines) + "]";
  return "dense<" + contents + "> : tensor<" + std::to_string(rows.size()) + "x" +
         std::to_string(columns) + "xi64>";
}

std::string padding_text(const Dims& low, const Dims& high) {
  Groups rows;
  for (size_t d = 0; d < low.size(); ++d) {
    rows.push_back({low[d], high[d]});
  }
  return matrix_text(rows, 2);
}

std::string precision_text(Precision lhs, Precision rhs) {
  const auto one = [](Precision p) {
    const char* name = p == Precision::kDefault ? "DEFAULT"
                       : p == Precision::kHigh  ? "HIGH"
                                                : "HIGHEST";
    return enum_text("precision", name);
  };
  return "[" + one(lhs) + ", " + one(rhs) + "]";
}

// Bytes as they lie in memory; booleans, which MLIR packs, by name.
std::string dense_text(const Dense& dense) {
  std::string contents;
  if (dense.type.elem == Elem::kI1) {
    std::vector<std::string> values;
    for (const std::byte b : *dense.data) {
      values.push_back(flag_text(b != std::byte{0}));
    }
    contents = dense.splat && dense.type.count() > 0 ? values.at(0) : "[" + joined(values) + "]";
    if (!dense.splat && dense.type.rank() != 1) {  // nested lists, or one for a scalar
      size_t next = 0;
      const auto nest = [&](const auto& self, size_t d) -> std::string {
        if (d == dense.type.dims.size()) {
          return values.at(next++);
        }
        std::vector<std::string> parts;
        for (int64_t i = 0; i < dense.type.dims[d]; ++i) {
          parts.push_back(self(self, d + 1));
        }
        return "[" + joined(parts) + "]";
      };
      contents = nest(nest, 0);
    }
  } else {
    contents = "\"0x";
    for (const std::byte b : *dense.data) {
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02X", std::to_integer<unsigned>(b));
      contents += digits;
    }
    contents += "\"";
  }
  return "dense<" + (dense.type.count() == 0 ? "" : contents) + "> : " + type_text(dense.type);
}

// "[b, 0, 1, f]": which dimension is what.
std::string conv_dims(const char* batch, int64_t batch_dim, const char* feature,
                      int64_t feature_dim, const Dims& spatial) {
  std::vector<std::string> names(spatial.size() + 2);
  names.at(static_cast<size_t>(batch_dim)) = batch;
  names.at(static_cast<size_t>(feature_dim)) = feature;
  for (size_t d = 0; d < spatial.size(); ++d) {
    names.at(static_cast<size_t>(spatial[d])) = std::to_string(d);
  }
  return "[" + joined(names) + "]";
}

class Collector {
 public:
  Collector(const Op& op, int64_t channel) : op_(op), channel_(channel) {}

  Properties take() { return std::move(all_); }

  void operator()(const NoAttrs&) {}
  void operator()(const ConstantAttrs& a) { add("value", dense_text(a.value)); }
  void operator()(const DimAttrs& a) {
    add(op_.kind == Kind::kIota ? "iota_dimension" : "dimension", i64_text(a.dim));
  }
  void operator()(const DimsAttrs& a) {
    const char* name = op_.kind == Kind::kBroadcastInDim ? "broadcast_dimensions"
                       : op_.kind == Kind::kDynamicSlice ? "slice_sizes"
                       : op_.kind == Kind::kTranspose    ? "permutation"
                                                         : "dimensions";
    add(name, array_text(a.dims));
  }
  void operator()(const CompareAttrs& a) {
    static const char* const kDirections[] = {"EQ", "NE", "GE", "GT", "LE", "LT"};
    static const char* const kTypes[] = {"", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"};
    add("comparison_direction",
        enum_text("comparison_direction", kDirections[static_cast<size_t>(a.direction)]));
    if (a.type != CompareType::kNone) {
      add("compare_type", enum_text("comparison_type", kTypes[static_cast<size_t>(a.type)]));
    }
  }
  void operator()(const DotAttrs& a) {
    add("dot_dimension_numbers",
        "#stablehlo.dot<lhs_batching_dimensions = " + list_text(a.lhs_batch) +
            ", rhs_batching_dimensions = " + list_text(a.rhs_batch) +
            ", lhs_contracting_dimensions = " + list_text(a.lhs_contract) +
            ", rhs_contracting_dimensions = " + list_text(a.rhs_contract) + ">");
    add("precision_config", precision_text(a.lhs_precision, a.rhs_precision));
  }
  void operator()(const SliceAttrs& a) {
    add("start_indices", array_text(a.start));
    add("limit_indices", array_text(a.limit));
    add("strides", array_text(a.stride));
  }
  void operator()(const PadAttrs& a) {
    add("edge_padding_low", array_text(a.low));
    add("edge_padding_high", array_text(a.high));
    add("interior_padding", array_text(a.interior));
  }
  void operator()(const WindowAttrs& a) {
    add("window_dimensions", array_text(a.size));
    add("window_strides", array_text(a.stride));
    if (op_.kind == Kind::kReduceWindow) {
      add("base_dilations", array_text(a.base_dilation));
      add("window_dilations", array_text(a.window_dilation));
    }
    add("padding", padding_text(a.pad_low, a.pad_high));
  }
  void operator()(const ConvAttrs& a) {
    add("dimension_numbers",
        "#stablehlo.conv<" + conv_dims("b", a.input_batch, "f", a.input_feature, a.input_spatial) +
            "x" +
            conv_dims("i", a.kernel_input_feature, "o", a.kernel_output_feature, a.kernel_spatial) +
            "->" + conv_dims("b", a.output_batch, "f", a.output_feature, a.output_spatial) + ">");
    add("window_strides", array_text(a.window_stride));
    add("padding", padding_text(a.pad_low, a.pad_high));
    add("lhs_dilation", array_text(a.lhs_dilation));
    add("rhs_dilation", array_text(a.rhs_dilation));
    std::vector<std::string> reversal;
    for (const bool reversed : a.window_reversal) {
      reversal.push_back(flag_text(reversed));
    }
    add("window_reversal", "array<i1" + (reversal.empty() ? "" : ": " + joined(reversal)) + ">");
    add("feature_group_count", i64_text(a.feature_groups));
    add("batch_group_count", i64_text(a.batch_groups));
    add("precision_config", precision_text(a.lhs_precision, a.rhs_precision));
  }
  void operator()(const GatherAttrs& a) {
    add("dimension_numbers",
        "#stablehlo.gather<offset_dims = " + list_text(a.offset_dims) +
            ", collapsed_slice_dims = " + list_text(a.collapsed_slice_dims) +
            ", operand_batching_dims = " + list_text(a.operand_batching_dims) +
            ", start_indices_batching_dims = " + list_text(a.start_indices_batching_dims) +
            ", start_index_map = " + list_text(a.start_index_map) +
            ", index_vector_dim = " + std::to_string(a.index_vector_dim) + ">");
    add("slice_sizes", array_text(a.slice_sizes));
    add("indices_are_sorted", flag_text(a.indices_are_sorted));
  }
  void operator()(const ScatterAttrs& a) {
    add("scatter_dimension_numbers",
        "#stablehlo.scatter<update_window_dims = " + list_text(a.update_window_dims) +
            ", inserted_window_dims = " + list_text(a.inserted_window_dims) +
            ", input_batching_dims = " + list_text(a.input_batching_dims) +
            ", scatter_indices_batching_dims = " + list_text(a.scatter_indices_batching_dims) +
            ", scatter_dims_to_operand_dims = " + list_text(a.scatter_dims_to_operand_dims) +
            ", index_vector_dim = " + std::to_string(a.index_vector_dim) + ">");
    add("indices_are_sorted", flag_text(a.indices_are_sorted));
    add("unique_indices", flag_text(a.unique_indices));
  }
  void operator()(const SortAttrs& a) {
    add("dimension", i64_text(a.dim));
    add("is_stable", flag_text(a.stable));
  }
  void operator()(const CollectiveAttrs& a) {
    size_t most = 0;
    for (const auto& group : a.groups) {
      most = std::max(most, group.size());
    }
    add("replica_groups", matrix_text(a.groups, most));
    add_channel();
    if (op_.kind == Kind::kAllToAll) {
      add("split_dimension", i64_text(a.dim));
      add("concat_dimension", i64_text(a.concat_dim));
      add("split_count", i64_text(a.split_count));
    } else if (op_.kind != Kind::kCollectiveBroadcast) {
      add("use_global_device_ids", "");
    }
    if (op_.kind == Kind::kAllGather) {
      add("all_gather_dim", i64_text(a.dim));
    } else if (op_.kind == Kind::kReduceScatter) {
      add("scatter_dimension", i64_text(a.dim));
    }
  }
  // The graph has no tokens, which `send` and `recv` of StableHLO need.
  void operator()(const HostAttrs& a) {
    add("backend_config",
        quoted("channel=" + std::to_string(a.channel) + (a.index ? ",index" : "")));
    add("has_side_effect", "true");
  }
  void operator()(const PermuteAttrs& a) {
    add("source_target_pairs", matrix_text(a.pairs, 2));
    add_channel();
  }
  void operator()(const BatchNormAttrs& a) {
    char epsilon[40];
    std::snprintf(epsilon, sizeof epsilon, "%.9e : f32", a.epsilon);
    add("epsilon", epsilon);
    add("feature_index", i64_text(a.feature_dim));
  }
  void operator()(const ReducePrecisionAttrs& a) {
    add("exponent_bits", i32_text(a.exponent_bits));
    add("mantissa_bits", i32_text(a.mantissa_bits));
  }
  void operator()(const RngAttrs& a) {
    const std::string name = op_.kind == Kind::kRng ? "rng_distribution" : "rng_algorithm";
    add(name, enum_text(name, upper(a.algorithm)));
  }
  void operator()(const CholeskyAttrs& a) { add("lower", flag_text(a.lower)); }
  void operator()(const TriangularSolveAttrs& a) {
    add("left_side", flag_text(a.left));
    add("lower", flag_text(a.lower));
    add("unit_diagonal", flag_text(a.unit_diagonal));
    add("transpose_a", enum_text("transpose", a.transpose ? "TRANSPOSE" : "NO_TRANSPOSE"));
  }
  void operator()(const EighAttrs&) {}
  void operator()(const CustomCallAttrs& a) {
    add("call_target_name", quoted(a.target));
    add("backend_config", quoted(a.backend_config));
    add("has_side_effect", flag_text(a.has_side_effect));
  }
  template <typename Other>  // of graphs before or behind: see stablehlo_text.hpp
  void operator()(const Other&) {
    throw Error("this op is not a StableHLO op", std::string(kind_name(op_.kind)), op_.loc);
  }

  void add(const std::string& name, const std::string& value) { all_.emplace_back(name, value); }

 private:
  void add_channel() {
    add("channel_handle",
        "#stablehlo.channel_handle<handle = " + std::to_string(channel_) + ", type = 0>");
  }

  const Op& op_;
  const int64_t channel_;
  Properties all_;
};

// Target of the custom_call that says a kind of our own; null for an op of StableHLO.
const char* target_of(Kind kind) {
  static constexpr KindTable<const char*> kTargets{
      {Kind::kSend, "SendToHost"},
      {Kind::kRecv, "RecvFromHost"},
      {Kind::kErf, "mhlo.erf"},
      {Kind::kQr, "Qr"},
      {Kind::kHouseholderProduct, "ProductOfElementaryHouseholderReflectors"},
      {Kind::kLu, "LuDecomposition"},
      {Kind::kEigh, "Eigh"}};
  return kTargets.find(kind);
}

// Arrays that the program keeps in the host's memory move as XLA says it.
const char* target_of(const Op& op) {
  const auto* host = std::get_if<HostAttrs>(&op.attrs);
  if (host != nullptr && host->memory) {
    return op.kind == Kind::kSend ? "MoveToHost" : "MoveToDevice";
  }
  return target_of(op.kind);
}

}  // namespace

std::string type_text(const Type& type) {
  std::string text = "tensor<";
  for (const int64_t dim : type.dims) {
    text += std::to_string(dim) + "x";
  }
  return text + std::string(elem_name(type.elem)) + ">";
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte > 0x7e || c == '"' || c == '\\') {
      char escaped[4];
      std::snprintf(escaped, sizeof escaped, "\\%02X", byte);
      result += escaped;
    } else {
      result += c;
    }
  }
  return result + "\"";
}

std::string op_name(Kind kind) {
  return "stablehlo." + (target_of(kind) != nullptr ? "custom_call" : std::string(kind_name(kind)));
}

std::string properties_text(const Op& op, int64_t channel) {
  Collector collector(op, channel);
  std::visit(collector, op.attrs);
  if (const char* target = target_of(op)) {
    collector.add("call_target_name", quoted(target));
  }
  std::vector<std::string> parts;
  for (const auto& [name, value] : collector.take()) {
    parts.push_back(name + (value.empty() ? "" : " = " + value));
  }
  const std::string text = parts.empty() ? "" : " <{" + joined(parts) + "}>";
  // XLA makes its own op of this call.
  return text + (op.kind == Kind::kErf ? " {mhlo.attributes = {}, mhlo.version = 1 : i64}" : "");
}

}  // namespace tpu::compiler::stablehlo
