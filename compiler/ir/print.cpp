// Text form of the graph. Values are numbered in program order, so equal graphs print equally.
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "ir/graph.hpp"

namespace tpu::compiler {
namespace {

constexpr int64_t kShownElements = 8;

std::string number_text(const Dense& d, int64_t i) {
  if (is_complex(d.type.elem)) {
    std::array<float, 2> parts{};
    std::memcpy(parts.data(), d.element(i), sizeof parts);
    char text[80];
    std::snprintf(text, sizeof text, "(%.9g,%.9g)", parts[0], parts[1]);
    return text;
  }
  if (!is_float(d.type.elem)) {
    return d.type.elem == Elem::kU64 ? std::to_string(static_cast<uint64_t>(d.as_int(i)))
                                     : std::to_string(d.as_int(i));
  }
  const double v = d.as_double(i);
  if (std::isnan(v)) {
    return "nan";
  }
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", v);
  return text;
}

std::string dense_text(const Dense& d) {
  if (d.splat) {
    return number_text(d, 0);
  }
  const int64_t n = d.type.count();
  std::string s = "[";
  for (int64_t i = 0; i < n && i < kShownElements; ++i) {
    s += (i ? "," : "") + number_text(d, i);
  }
  if (n > kShownElements) {
    // FNV-1a of the bytes: two different constants never print alike by accident.
    uint64_t hash = 0xcbf29ce484222325u;
    for (const std::byte b : *d.data) {
      hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3u;
    }
    char text[24];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
    s += ",... #" + std::string(text);
  }
  return s + "]";
}

// Collects "key=value" pairs; values equal to the default are left out by the callers.
class Fields {
 public:
  void add(const char* key, const std::string& value) {
    text_ += (text_.empty() ? "" : ", ") + std::string(key) + "=" + value;
  }
  void add(const char* key, const Dims& value) { add(key, to_string(value)); }
  void add(const char* key, int64_t value) { add(key, std::to_string(value)); }
  void add_unless_empty(const char* key, const Dims& value) {
    if (!value.empty()) {
      add(key, value);
    }
  }
  std::string text() const { return text_.empty() ? "" : " {" + text_ + "}"; }

 private:
  std::string text_;
};

const char* precision_name(Precision p) {
  return p == Precision::kDefault ? "default" : p == Precision::kHigh ? "high" : "highest";
}

void add_precision(Fields& f, Precision lhs, Precision rhs) {
  if (lhs != Precision::kDefault || rhs != Precision::kDefault) {
    f.add("precision", std::string(precision_name(lhs)) + "/" + precision_name(rhs));
  }
}

// "[{data},{}]"; axes by number where the mesh is not known.
std::string axes_text(const Mesh* mesh, const std::vector<int>& axes) {
  std::string text;
  for (size_t i = 0; i < axes.size(); ++i) {
    text += (i ? "," : "") +
            (mesh ? mesh->axes.at(static_cast<size_t>(axes[i])).name : std::to_string(axes[i]));
  }
  return text;
}

std::string axes_text(const Mesh* mesh, const Sharding& s) {
  std::string text = "[";
  for (size_t d = 0; d < s.dim_axes.size(); ++d) {
    text += (d ? ",{" : "{") + axes_text(mesh, s.dim_axes[d]) + "}";
  }
  text += "]";
  text += s.unreduced.empty() ? "" : " unreduced {" + axes_text(mesh, s.unreduced) + "}";
  return s.order.empty() ? text : text + " on " + to_string(s.order);
}

// "replicated" or the axes; "?" behind dimensions that are open.
std::string wanted_text(const Mesh* mesh, const ShardingAttrs& a) {
  std::string text = a.sharding.is_replicated() ? "replicated" : axes_text(mesh, a.sharding);
  Dims open;
  for (size_t d = 0; d < a.open.size(); ++d) {
    if (a.open[d]) {
      open.push_back(static_cast<int64_t>(d));
    }
  }
  return open.empty() ? text : text + " open" + to_string(open);
}

struct AttrPrinter {
  Fields f;
  const Mesh* mesh = nullptr;  // null: not known

  void operator()(const NoAttrs&) {}
  void operator()(const ConstantAttrs& a) { f.add("value", dense_text(a.value)); }
  void operator()(const DimAttrs& a) { f.add("dim", a.dim); }
  void operator()(const DimsAttrs& a) {
    f.add("dims", a.dims);
    if (a.apart) {
      f.add("apart", 1);
    }
  }
  void operator()(const CompareAttrs& a) {
    static const char* const kDirections[] = {"eq", "ne", "ge", "gt", "le", "lt"};
    f.add("direction", std::string(kDirections[static_cast<size_t>(a.direction)]));
    if (a.type == CompareType::kTotalOrder) {
      f.add("type", std::string("total_order"));
    }
  }
  void operator()(const DotAttrs& a) {
    f.add_unless_empty("lhs_batch", a.lhs_batch);
    f.add_unless_empty("rhs_batch", a.rhs_batch);
    f.add("lhs_contract", a.lhs_contract);
    f.add("rhs_contract", a.rhs_contract);
    add_precision(f, a.lhs_precision, a.rhs_precision);
  }
  void operator()(const SliceAttrs& a) {
    f.add("start", a.start);
    f.add("limit", a.limit);
    f.add("stride", a.stride);
  }
  void operator()(const PadAttrs& a) {
    f.add("low", a.low);
    f.add("high", a.high);
    f.add("interior", a.interior);
  }
  void operator()(const WindowAttrs& a) {
    f.add("size", a.size);
    f.add("stride", a.stride);
    f.add("base_dilation", a.base_dilation);
    f.add("window_dilation", a.window_dilation);
    f.add("pad_low", a.pad_low);
    f.add("pad_high", a.pad_high);
  }
  void operator()(const WindowViewAttrs& a) {
    f.add("size", a.size);
    f.add("stride", a.stride);
    f.add("dilation", a.dilation);
  }
  void operator()(const ConvAttrs& a) {
    f.add("stride", a.window_stride);
    f.add("pad_low", a.pad_low);
    f.add("pad_high", a.pad_high);
    f.add("lhs_dilation", a.lhs_dilation);
    f.add("rhs_dilation", a.rhs_dilation);
    Dims reversal(a.window_reversal.begin(), a.window_reversal.end());
    f.add("reversal", reversal);
    f.add("input_bf", Dims{a.input_batch, a.input_feature});
    f.add("input_spatial", a.input_spatial);
    f.add("kernel_io", Dims{a.kernel_input_feature, a.kernel_output_feature});
    f.add("kernel_spatial", a.kernel_spatial);
    f.add("output_bf", Dims{a.output_batch, a.output_feature});
    f.add("output_spatial", a.output_spatial);
    f.add("feature_groups", a.feature_groups);
    f.add("batch_groups", a.batch_groups);
    add_precision(f, a.lhs_precision, a.rhs_precision);
  }
  void operator()(const FftAttrs& a) {
    static const char* const kTypes[] = {"fft", "ifft", "rfft", "irfft"};
    f.add("type", std::string(kTypes[static_cast<size_t>(a.type)]));
    f.add("length", a.length);
  }
  void operator()(const GatherAttrs& a) {
    f.add("offset_dims", a.offset_dims);
    f.add("collapsed", a.collapsed_slice_dims);
    f.add_unless_empty("operand_batching", a.operand_batching_dims);
    f.add_unless_empty("indices_batching", a.start_indices_batching_dims);
    f.add("map", a.start_index_map);
    f.add("sizes", a.slice_sizes);
    f.add("index_vector_dim", a.index_vector_dim);
  }
  void operator()(const ScatterAttrs& a) {
    f.add("window_dims", a.update_window_dims);
    f.add("inserted", a.inserted_window_dims);
    f.add_unless_empty("input_batching", a.input_batching_dims);
    f.add_unless_empty("indices_batching", a.scatter_indices_batching_dims);
    f.add("map", a.scatter_dims_to_operand_dims);
    f.add("index_vector_dim", a.index_vector_dim);
  }
  void operator()(const IndexedAttrs& a) { f.add("window", a.window); }
  void operator()(const SortAttrs& a) {
    f.add("dim", a.dim);
    f.add("stable", a.stable);
    if (a.equal_ties) {
      f.add("equal_ties", true);
    }
  }
  void operator()(const CollectiveAttrs& a) {
    std::string groups = "[";
    for (size_t i = 0; i < a.groups.size(); ++i) {
      groups += (i ? "," : "") + to_string(a.groups[i]);
    }
    f.add("groups", groups + "]");
    f.add("dim", a.dim);
    if (a.split_count != 0) {
      f.add("concat_dim", a.concat_dim);
      f.add("split_count", a.split_count);
    }
  }
  void operator()(const PermuteAttrs& a) {
    std::string pairs = "[";
    for (size_t i = 0; i < a.pairs.size(); ++i) {
      pairs += (i ? "," : "") + std::to_string(a.pairs[i][0]) + ">" + std::to_string(a.pairs[i][1]);
    }
    f.add("pairs", pairs + "]");
  }
  void operator()(const BatchNormAttrs& a) {
    f.add("epsilon", std::to_string(a.epsilon));
    f.add("feature_dim", a.feature_dim);
  }
  void operator()(const ReducePrecisionAttrs& a) {
    f.add("exponent", a.exponent_bits);
    f.add("mantissa", a.mantissa_bits);
  }
  void operator()(const RngAttrs& a) { f.add("algorithm", a.algorithm); }
  void operator()(const HostAttrs& a) {
    f.add("channel", a.channel);
    if (a.partition >= 0) {
      f.add("partition", a.partition);
    }
    if (a.memory) {
      f.add("memory", a.index ? "index" : "host");
    }
  }
  void operator()(const CholeskyAttrs& a) { f.add("triangle", a.lower ? "lower" : "upper"); }
  void operator()(const TriangularSolveAttrs& a) {
    f.add("side", a.left ? "left" : "right");
    f.add("triangle", a.lower ? "lower" : "upper");
    if (a.transpose) {
      f.add("transpose", "true");
    }
    if (a.unit_diagonal) {
      f.add("unit_diagonal", "true");
    }
  }
  void operator()(const EighAttrs& a) {
    f.add("triangle", a.lower ? "lower" : "upper");
    f.add("sort", a.sort ? "true" : "false");
    f.add("max_sweeps", a.max_sweeps);
    f.add("tolerance", std::to_string(a.tolerance));
  }
  void operator()(const CallAttrs& a) {
    f.add("callee", "@" + a.callee);
    if (!a.composite_name.empty()) {
      f.add("name", a.composite_name);
    }
  }
  void operator()(const CustomCallAttrs& a) { f.add("target", a.target); }
  void operator()(const ShardingAttrs& a) {
    f.add("sharding", wanted_text(mesh, a));
    if (a.group) {
      f.add("group", *a.group);
    }
  }
  void operator()(const ManualAttrs& a) {
    const auto list = [&](const std::vector<ShardingAttrs>& all) {
      std::string text = "(";
      for (size_t i = 0; i < all.size(); ++i) {
        text += (i ? ", " : "") + wanted_text(mesh, all[i]);
      }
      return text + ")";
    };
    f.add("in", list(a.in));
    f.add("out", list(a.out));
    f.add("manual_axes", "[" + axes_text(mesh, a.manual_axes) + "]");
  }
};

std::string attrs_text(const Attrs& attrs, const Mesh* mesh) {
  AttrPrinter printer;
  printer.mesh = mesh;
  std::visit(printer, attrs);
  return printer.f.text();
}

class Printer {
 public:
  explicit Printer(bool with_locations) : with_locations_(with_locations) {}

  void print_module(const Module& m) {
    mesh_ = &m.mesh;
    out_ << "module @" << m.name << " cores=" << m.num_cores << (m.global ? " global" : "");
    if (!m.mesh.axes.empty()) {
      out_ << " mesh(";
      for (size_t i = 0; i < m.mesh.axes.size(); ++i) {
        out_ << (i ? ", " : "") << m.mesh.axes[i].name << "=" << m.mesh.axes[i].size;
      }
      out_ << ")";
    }
    out_ << "\n";
    print_function(m, *m.main);
    for (const auto& f : m.functions) {
      print_function(m, *f);
    }
  }

  void name_args(const Region& r) {
    for (const auto& arg : r.args) {
      define(arg.get());
    }
  }

  void print_region(const Region& r, int depth) {
    for (const auto& op : r.ops) {
      print_op(*op, depth);
    }
  }

  void print_op(const Op& op, int depth) {
    indent(depth);
    for (size_t i = 0; i < op.results.size(); ++i) {
      out_ << (i ? ", " : "") << define(op.result(i));
    }
    out_ << (op.results.empty() ? "" : " = ") << kind_name(op.kind);
    for (size_t i = 0; i < op.operands.size(); ++i) {
      out_ << (i ? ", " : " ") << name(op.operands[i]);
    }
    out_ << attrs_text(op.attrs, mesh_);
    for (size_t i = 0; i < op.results.size(); ++i) {
      out_ << (i ? ", " : " : ") << to_string(op.type(i));
    }
    if (with_locations_) {
      out_ << "  // " << to_string(*op.loc);
    }
    for (const auto& region : op.regions) {
      out_ << " (";
      print_args(*region);
      out_ << ") {\n";
      print_region(*region, depth + 1);
      indent(depth);
      out_ << "}";
    }
    out_ << "\n";
  }

  std::string text() const { return out_.str(); }

 private:
  void indent(int depth) { out_ << std::string(static_cast<size_t>(depth) * 2, ' '); }

  std::string define(const Value* v) {
    std::string n = "%" + std::to_string(names_.size());
    names_[v] = n;
    return n;
  }

  std::string name(const Value* v) const {
    const auto it = names_.find(v);
    return it == names_.end() ? "%?" : it->second;
  }

  void print_args(const Region& r) {
    for (size_t i = 0; i < r.args.size(); ++i) {
      out_ << (i ? ", " : "") << define(r.args[i].get()) << ": " << to_string(r.args[i]->type);
    }
  }

  // Of an argument or result: what the program wants, or what the core has of the whole.
  template <typename Info>
  static std::string sharding_text(const Module& m, const Info& info) {
    if (m.global) {
      return info.wanted ? " sharded " + wanted_text(&m.mesh, *info.wanted) : "";
    }
    return info.sharding.is_replicated()
               ? ""
               : " sharded " + to_string(info.global) + " by " + axes_text(&m.mesh, info.sharding);
  }

  template <typename Info>
  static std::string part_text(const Info& info) {
    return info.part == WordPart::kWhole
               ? ""
               : std::string(info.part == WordPart::kLow ? " low" : " high") + " words of " +
                     std::string(elem_name(info.global.elem));
  }

  void print_function(const Module& m, const Function& f) {
    out_ << "func @" << f.name << "(";
    for (size_t i = 0; i < f.body.args.size(); ++i) {
      const Value* v = f.body.args[i].get();
      out_ << (i ? ",\n    " : "") << define(v) << ": " << to_string(v->type);
      if (i < f.args.size()) {
        const ArgInfo& a = f.args[i];
        out_ << part_text(a) << sharding_text(m, a);
        if (a.alias_result >= 0) {
          out_ << " donated to result " << a.alias_result;
        } else if (a.donated) {
          out_ << " donated";
        }
      }
    }
    out_ << ") {\n";
    print_region(f.body, 1);
    out_ << "}";
    for (size_t i = 0; i < f.results.size(); ++i) {
      const std::string text = part_text(f.results[i]) + sharding_text(m, f.results[i]);
      if (!text.empty()) {
        out_ << "\nresult " << i << text;
      }
    }
    out_ << "\n";
  }

  bool with_locations_;
  const Mesh* mesh_ = nullptr;
  std::ostringstream out_;
  std::unordered_map<const Value*, std::string> names_;
};

}  // namespace

std::string to_string(const Attrs& attrs) { return attrs_text(attrs, nullptr); }

bool attrs_equal(const Attrs& a, const Attrs& b) {
  if (a.index() != b.index()) {
    return false;
  }
  return std::visit(
      [&](const auto& x) {
        using T = std::decay_t<decltype(x)>;
        const T& y = std::get<T>(b);
        if constexpr (std::is_same_v<T, ConstantAttrs>) {
          return x.value.type == y.value.type &&
                 (x.value.splat == y.value.splat ? *x.value.data == *y.value.data
                                                 : x.value.expanded() == y.value.expanded());
        } else {
          return x == y;
        }
      },
      a);
}

std::string print(const Module& module, bool with_locations) {
  Printer p(with_locations);
  p.print_module(module);
  return p.text();
}

std::string print(const Region& region, bool with_locations) {
  Printer p(with_locations);
  p.name_args(region);
  p.print_region(region, 0);
  return p.text();
}

std::string print(const Op& op) {
  Printer p(false);
  p.print_op(op, 0);
  return p.text();
}

}  // namespace tpu::compiler
