// See plain_form.hpp.
#include "import/plain_form.hpp"

#include <array>
#include <map>
#include <utility>

#include "import/attr_reader.hpp"
#include "import/codes.hpp"
#include "import/raw_builder.hpp"

namespace tpu::compiler::bytecode {
namespace {

namespace sa = stablehlo_attr;

using Ints = std::vector<int64_t>;

// What an attribute of several fields becomes, a property a field: 'i' an integer, 'l' a list.
struct Fields {
  uint32_t code;
  std::vector<std::pair<std::string_view, char>> names;
};

const std::vector<Fields>& field_table() {
  static const std::vector<Fields> table = {
      {sa::kChannelHandle, {{"channel_id", 'i'}, {"channel_type", 'i'}}},
      {sa::kConvDimensions,
       {{"input_batch_dimension", 'i'},
        {"input_feature_dimension", 'i'},
        {"input_spatial_dimensions", 'l'},
        {"kernel_input_feature_dimension", 'i'},
        {"kernel_output_feature_dimension", 'i'},
        {"kernel_spatial_dimensions", 'l'},
        {"output_batch_dimension", 'i'},
        {"output_feature_dimension", 'i'},
        {"output_spatial_dimensions", 'l'}}},
      {sa::kDotDimensions,
       {{"lhs_batching_dimensions", 'l'},
        {"rhs_batching_dimensions", 'l'},
        {"lhs_contracting_dimensions", 'l'},
        {"rhs_contracting_dimensions", 'l'}}},
      {sa::kGatherDimensions,
       {{"offset_dims", 'l'},
        {"collapsed_slice_dims", 'l'},
        {"operand_batching_dims", 'l'},
        {"start_indices_batching_dims", 'l'},
        {"start_index_map", 'l'},
        {"index_vector_dim", 'i'}}},
      {sa::kScatterDimensions,
       {{"update_window_dims", 'l'},
        {"inserted_window_dims", 'l'},
        {"input_batching_dims", 'l'},
        {"scatter_indices_batching_dims", 'l'},
        {"scatter_dims_to_operand_dims", 'l'},
        {"index_vector_dim", 'i'}}},
  };
  return table;
}

// Codes of enumerations in both dialects; the values are the same.
constexpr std::array<std::array<uint32_t, 2>, 7> kEnumerations = {{
    {sa::kCompareDirection, vhlo_attr::kCompareDirection},
    {sa::kCompareType, vhlo_attr::kCompareType},
    {sa::kFftType, vhlo_attr::kFftType},
    {sa::kPrecision, vhlo_attr::kPrecision},
    {sa::kRngAlgorithm, vhlo_attr::kRngAlgorithm},
    {sa::kRngDistribution, vhlo_attr::kRngDistribution},
    {sa::kTranspose, vhlo_attr::kTransposeMode},
}};

// What StableHLO leaves out where VHLO says the default: kOnes and kPairs are as long as the list
// that `like` names.
enum class Default : uint8_t { kZero, kMinusOne, kNoType, kEmptyList, kEmptyText, kOnes, kPairs };
struct Left {
  std::string_view ops;  // with a space behind each
  std::string_view property;
  Default value;
  std::string_view like = {};
};
constexpr std::string_view kConvs = "convolution dynamic_conv ";
constexpr std::string_view kWindows = "reduce_window select_and_scatter ";
constexpr Left kLeft[] = {
    {"all_gather all_reduce reduce_scatter all_to_all collective_permute collective_broadcast "
     "collective_reduce ",
     "channel_id", Default::kZero},
    {"all_gather all_reduce reduce_scatter collective_reduce ", "use_global_device_ids",
     Default::kZero},
    {"collective_broadcast collective_reduce ", "has_dynamic_root", Default::kZero},
    {"cholesky ", "lower", Default::kZero},
    {"compare ", "compare_type", Default::kNoType},
    {kConvs, "window_strides", Default::kOnes, "input_spatial_dimensions"},
    {kConvs, "lhs_dilation", Default::kOnes, "input_spatial_dimensions"},
    {kConvs, "rhs_dilation", Default::kOnes, "input_spatial_dimensions"},
    {kConvs, "window_reversal", Default::kZero, "input_spatial_dimensions"},
    {"convolution ", "padding", Default::kPairs, "input_spatial_dimensions"},
    {"convolution dynamic_conv dot dot_general ", "precision_config", Default::kEmptyList},
    {"custom_call ", "has_side_effect", Default::kZero},
    {"custom_call ", "backend_config", Default::kEmptyText},
    {"custom_call ", "called_computations", Default::kEmptyList},
    {"gather dynamic_gather scatter ", "indices_are_sorted", Default::kZero},
    {"scatter ", "unique_indices", Default::kZero},
    {"recv send ", "is_host_transfer", Default::kZero},
    {kWindows, "window_strides", Default::kOnes, "window_dimensions"},
    {kWindows, "padding", Default::kPairs, "window_dimensions"},
    {"reduce_window ", "base_dilations", Default::kOnes, "window_dimensions"},
    {"reduce_window ", "window_dilations", Default::kOnes, "window_dimensions"},
    {"sort ", "dimension", Default::kMinusOne},
    {"sort ", "is_stable", Default::kZero},
    {"func ", "arg_attrs", Default::kEmptyList},
    {"func ", "res_attrs", Default::kEmptyList},
};

bool names(std::string_view ops, std::string_view op) {
  for (size_t at = ops.find(op); at != std::string_view::npos; at = ops.find(op, at + 1)) {
    if ((at == 0 || ops[at - 1] == ' ') && ops.substr(at + op.size()).starts_with(' ')) {
      return true;
    }
  }
  return false;
}

class Former {
 public:
  explicit Former(RawModule& module) : m_(module), build_(module) {}

  void run() {
    for (RawAttr& a : m_.attrs) {
      enumeration(a);
    }
    const size_t written = m_.attrs.size();
    for (size_t i = 0; i < written; ++i) {
      array_as_tensor(m_.attrs[i]);
    }
    regions(m_.module);
  }

 private:
  static void enumeration(RawAttr& a) {
    for (const auto& [plain, vhlo] : kEnumerations) {
      if (a.dialect == Dialect::kStablehlo && a.code == plain) {
        a.dialect = Dialect::kVhlo;
        a.code = vhlo;
        return;
      }
    }
  }

  // array<i64: 1, 2> is dense<[1, 2]> in VHLO.
  void array_as_tensor(RawAttr& a) {
    if (a.dialect == Dialect::kBuiltin && a.code == builtin_attr::kDenseArray) {
      a.code = builtin_attr::kDense;
      a.type = build_.tensor_type(a.type, a.ints);
      a.ints.clear();
    }
  }

  void regions(RawOp& op) {
    for (RawRegion& region : op.regions) {
      for (RawOp& inner : region.ops) {
        this->op(inner);
        regions(inner);
      }
    }
  }

  void op(RawOp& op) {
    if (op.dialect != Dialect::kStablehlo && op.dialect != Dialect::kFunc) {
      return;
    }
    std::vector<std::pair<std::string_view, uint32_t>> properties;
    for (const auto& [name, attr] : op.properties) {
      if (!split(attr, properties)) {
        properties.emplace_back(name, attr);
      }
    }
    for (const Left& left : kLeft) {
      if (names(left.ops, op.name) && find(properties, left.property) == kNone) {
        const uint32_t like = left.like.empty() ? kNone : find(properties, left.like);
        properties.emplace_back(left.property, default_value(left.value, like));
      }
    }
    op.properties = std::move(properties);
    op.dialect = Dialect::kVhlo;
    op.name = versioned(op.name);
  }

  static uint32_t find(const std::vector<std::pair<std::string_view, uint32_t>>& properties,
                       std::string_view name) {
    for (const auto& [key, attr] : properties) {
      if (key == name) {
        return attr;
      }
    }
    return kNone;
  }

  std::string_view versioned(std::string_view name) {
    const auto [at, added] = names_.emplace(name, std::string_view());
    if (added) {
      at->second = build_.keep(std::string(name) + "_v1");
    }
    return at->second;
  }

  // The fields of the attribute as properties; false: it is one property.
  bool split(uint32_t attr, std::vector<std::pair<std::string_view, uint32_t>>& to) {
    const RawAttr a = m_.attrs[attr];  // a copy: the table grows
    if (a.dialect != Dialect::kStablehlo) {
      return false;
    }
    if (a.code == sa::kDotAlgorithm) {
      dot_algorithm(a, to);
      return true;
    }
    for (const Fields& fields : field_table()) {
      if (fields.code == a.code) {
        size_t at = 0;  // the reader has put the length in front of each list
        for (const auto& [name, form] : fields.names) {
          if (form == 'i') {
            to.emplace_back(name, build_.integer(a.ints[at++]));
          } else {
            const auto begin = a.ints.begin() + static_cast<std::ptrdiff_t>(at) + 1;
            const auto end = begin + a.ints[at];
            at += static_cast<size_t>(a.ints[at]) + 1;
            to.emplace_back(name, build_.list(Ints(begin, end)));
          }
        }
        return true;
      }
    }
    return false;
  }

  // Three types, three counts and a truth.
  void dot_algorithm(const RawAttr& a, std::vector<std::pair<std::string_view, uint32_t>>& to) {
    constexpr std::array<std::string_view, 7> kNames = {
        "lhs_precision_type",          "rhs_precision_type",  "accumulation_type",
        "lhs_component_count",         "rhs_component_count", "num_primitive_operations",
        "allow_imprecise_accumulation"};
    constexpr size_t kTypes = 3;
    for (size_t i = 0; i < kNames.size(); ++i) {
      if (i < kTypes) {
        const uint32_t type = vhlo_float(static_cast<uint32_t>(a.ints[i]));
        to.emplace_back(kNames[i], build_.of_type(type));
      } else {
        to.emplace_back(kNames[i], build_.integer(a.ints[i]));
      }
    }
  }

  // Floats have other codes in VHLO.
  uint32_t vhlo_float(uint32_t type) {
    constexpr std::array<std::array<uint32_t, 2>, 4> kCodes = {{
        {builtin_type::kBf16, vhlo_type::kBf16},
        {builtin_type::kF16, vhlo_type::kF16},
        {builtin_type::kF32, vhlo_type::kF32},
        {builtin_type::kF64, vhlo_type::kF64},
    }};
    const RawType& plain = m_.types[type];
    for (const auto& [builtin, vhlo] : kCodes) {
      if (plain.dialect == Dialect::kBuiltin && plain.code == builtin) {
        return build_.plain_type(vhlo);
      }
    }
    return type;
  }

  uint32_t default_value(Default value, uint32_t like) {
    const int64_t n = like == kNone ? 0 : length(m_.attrs[like]);
    switch (value) {
      case Default::kZero:
        return like == kNone ? build_.integer(0) : build_.list(Ints(static_cast<size_t>(n), 0));
      case Default::kMinusOne:
        return build_.integer(-1);
      case Default::kNoType:
        return build_.enumeration(vhlo_attr::kCompareType, 0);
      case Default::kEmptyList:
        return build_.array({});
      case Default::kEmptyText:
        return build_.text("");
      case Default::kOnes:
        return build_.list(Ints(static_cast<size_t>(n), 1));
      default:
        return build_.tensor(Ints(static_cast<size_t>(n) * 2, 0), {n, 2});
    }
  }

  // Of a list of integers; what is none has the length 0, and its own reader says what is wrong.
  int64_t length(const RawAttr& a) const {
    constexpr int64_t kMost = 1 << 16;
    const bool typed = a.type != kNone && m_.types[a.type].shape.size() == 1;
    const int64_t n = typed ? m_.types[a.type].shape[0] : 0;
    return n < 0 || n > kMost ? 0 : n;
  }

  RawModule& m_;
  RawBuilder build_;
  std::map<std::string_view, std::string_view> names_;
};

}  // namespace

void to_vhlo_form(RawModule& module) {
  for (const RawRegion& region : module.module.regions) {
    for (const RawOp& op : region.ops) {
      if (op.dialect == Dialect::kFunc) {
        Former(module).run();
        return;
      }
    }
  }
}

}  // namespace tpu::compiler::bytecode
