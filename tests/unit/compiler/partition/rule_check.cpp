// See rule_check.hpp.
#include "rule_check.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "graph_builder.hpp"
#include "ir/elements.hpp"
#include "ir/verify.hpp"
#include "legalize/legalize.hpp"
#include "legalize/linalg/linalg.hpp"

namespace tpu::compiler::test {
namespace {

using DimFactors = std::vector<std::vector<int>>;
using Parts = std::vector<int64_t>;  // per factor: pieces, or the number of a piece

Tensor random_tensor(const Type& type, std::mt19937& random) {
  std::uniform_int_distribution<int64_t> any(-3, 8);
  std::vector<int64_t> values(static_cast<size_t>(type.count()));
  for (int64_t& v : values) {
    v = any(random);
    v = type.elem == Elem::kI1 ? v & 1 : is_unsigned(type.elem) ? v & 7 : v;
  }
  Tensor t = make_tensor(type);
  is_float(type.elem) ? eval::store_floats({values.begin(), values.end()}, t)
                      : eval::store_ints(values, t);
  return t;
}

std::vector<Tensor> run(const Op& op, const std::vector<Tensor>& in, std::vector<Type> results,
                        Attrs attrs) {
  GraphBuilder b;
  std::vector<Value*> args, out;
  for (const Tensor& t : in) {
    args.push_back(b.arg(t.type));
  }
  Op* made = b.region().append(op.kind, args, std::move(results), std::move(attrs), unknown_loc());
  ValueMap map;
  for (const auto& region : op.regions) {
    clone_region(*region, *made, map);
  }
  for (const auto& r : made->results) {
    out.push_back(r.get());
  }
  Module& m = b.done(out);
  verify(m);
  if (op.kind == Kind::kConvolution || is_matrix_op(op.kind)) {  // not the interpreter's
    expand_linalg(m);
    legalize(m);
    m.number_ops();
    verify(m);
  }
  return interpret(m, {in}, {DotMode::kUnrounded, {}})[0];
}

Tensor combine(Kind reducer, const Tensor& a, Tensor b) {
  if (b.type != a.type) {
    b = to_tensor({a.type, true, std::make_shared<const std::vector<std::byte>>(b.data)});
  }
  GraphBuilder g;
  Value* x = g.arg(a.type);
  Value* y = g.arg(a.type);
  const Module& m = g.done({g.op(reducer, {x, y}, a.type)});
  return interpret(m, {{a, b}})[0][0];
}

// Calls fn(element of the whole, element of the part) for the part of an array at `at`.
template <typename Fn>
void for_each_element(const Type& whole, const DimFactors& dims, const Parts& parts,
                      const Parts& at, Fn&& fn) {
  Dims begin, local;
  for (size_t d = 0; d < dims.size(); ++d) {
    int64_t pieces = 1, piece = 0;
    for (const int f : dims[d]) {
      pieces *= parts[static_cast<size_t>(f)];
      piece = piece * parts[static_cast<size_t>(f)] + at[static_cast<size_t>(f)];
    }
    local.push_back(whole.dims[d] / pieces);
    begin.push_back(piece * local.back());
  }
  const Dims pitch = row_major_strides(whole.dims);
  Dims i(local.size(), 0);
  for (int64_t n = 0; n < Type{whole.elem, local}.count(); ++n) {
    int64_t element = 0;
    for (size_t d = 0; d < i.size(); ++d) {
      element += (begin[d] + i[d]) * pitch[d];
    }
    fn(element, n);
    advance(i, local);
  }
}

Type local_type(Type t, const DimFactors& dims, const Parts& parts) {
  for (size_t d = 0; d < dims.size(); ++d) {
    for (const int f : dims[d]) {
      t.dims[d] /= parts[static_cast<size_t>(f)];
    }
  }
  return t;
}

class Check {
 public:
  Check(const Op& op, std::mt19937& random) : op_(op), rule_(rule_of(op)) {
    for (const Value* v : op.operands) {
      in_.push_back(random_tensor(v->type, random));
    }
    for (const auto& v : op.results) {
      types_.push_back(v->type);
    }
    shapes(rule_.operands, [&](size_t t) { return op.operand_type(t); });
    shapes(rule_.results, [&](size_t t) { return op.type(t); });
  }

  int run_all() {
    if (testing::Test::HasFailure()) {
      return 0;
    }
    whole_ = run(op_, in_, types_, op_.attrs);
    int cuts = 0;
    for (size_t f = 0; f < rule_.factors.size(); ++f) {
      for (const int64_t n : {2, 4}) {
        cuts += try_cut({{f, n}});
      }
      for (size_t g = 0; g < f; ++g) {
        cuts += try_cut({{f, 2}, {g, 2}});
      }
    }
    return cuts;
  }

 private:
  template <typename Fn>
  void shapes(const std::vector<DimFactors>& tensors, Fn&& type) {
    for (size_t t = 0; t < tensors.size(); ++t) {
      ASSERT_EQ(tensors[t].size(), type(t).dims.size()) << print(op_);
      for (size_t d = 0; d < tensors[t].size(); ++d) {
        int64_t size = 1;
        for (const int f : tensors[t][d]) {
          size *= rule_.factors[static_cast<size_t>(f)].size;
        }
        ASSERT_EQ(size, type(t).dims[d]) << print(op_) << to_text(rule_);
      }
    }
  }

  // Cuts factors in front of a cut one to single elements; false if the rule forbids the cut.
  bool open_minor_factors(Parts& parts) const {
    Parts before;
    do {
      before = parts;
      for (const auto* side : {&rule_.operands, &rule_.results}) {
        for (const DimFactors& dims : *side) {
          for (const auto& list : dims) {
            for (size_t k = 1; k < list.size(); ++k) {
              const auto major = static_cast<size_t>(list[k - 1]);
              if (parts[static_cast<size_t>(list[k])] > 1) {
                parts[major] = rule_.factors[major].size;
              }
            }
          }
        }
      }
    } while (parts != before);
    for (size_t f = 0; f < parts.size(); ++f) {
      const Factor& factor = rule_.factors[f];
      if (parts[f] > 1 && (factor.kind == FactorKind::kBlocked || factor.size % parts[f] != 0)) {
        return false;
      }
    }
    return true;
  }

  int try_cut(const std::map<size_t, int64_t>& wanted) {
    Parts parts(rule_.factors.size(), 1);
    for (const auto& [f, n] : wanted) {
      parts[f] = n;
    }
    const bool legal = open_minor_factors(parts);
    if (!legal || testing::Test::HasFailure()) {
      return 0;
    }
    for (size_t t = 0; t < types_.size(); ++t) {
      made_.push_back(make_tensor(types_[t]));
    }
    Parts at(parts.size(), 0);
    do {
      one_part(parts, at);
    } while (advance(at, parts));
    finish(parts);
    compare(parts);
    made_.clear();
    seen_.clear();
    return 1;
  }

  bool reduces(const Parts& parts) const {
    for (size_t f = 0; f < parts.size(); ++f) {
      if (parts[f] > 1 && rule_.factors[f].kind == FactorKind::kReduce) {
        return true;
      }
    }
    return false;
  }

  std::optional<size_t> late_operand(const Parts& parts) const {
    const auto late = combined_once(op_, rule_.reducer);
    return reduces(parts) && late && !is_identity(rule_.reducer, to_dense(in_[*late]))
               ? late
               : std::nullopt;
  }

  void one_part(const Parts& parts, const Parts& at) {
    std::vector<Tensor> in;
    std::vector<Type> local_in, local_out;
    for (size_t t = 0; t < in_.size(); ++t) {
      local_in.push_back(local_type(in_[t].type, rule_.operands[t], parts));
      in.push_back(make_tensor(local_in.back()));
      for_each_element(in_[t].type, rule_.operands[t], parts, at, [&](int64_t from, int64_t to) {
        eval::copy_element(in_[t], from, in[t], to);
      });
    }
    if (const auto late = late_operand(parts)) {
      in[*late] = to_tensor(identity_of(rule_.reducer, local_in[*late]));
    }
    for (size_t t = 0; t < types_.size(); ++t) {
      local_out.push_back(local_type(types_[t], rule_.results[t], parts));
    }
    const std::set<int64_t> others = address_part(in, parts, at);
    std::vector<Tensor> out = run(op_, in, local_out, local_attrs(op_, local_in, local_out));
    if (op_.kind == Kind::kIota) {
      add_begin(out[0], parts, at);
    }
    if (op_.kind == Kind::kGather) {
      clear_records(out[0], others);
    }
    for (size_t t = 0; t < out.size(); ++t) {
      place(t, out[t], parts, at);
    }
  }

  // Indices of a table that is cut where they address it count from where the part begins. Gives
  // the records that lie in other parts.
  std::set<int64_t> address_part(std::vector<Tensor>& in, const Parts& parts,
                                 const Parts& at) const {
    std::set<int64_t> others;
    for (const IndexedFactor& indexed : rule_.indexed) {
      const auto f = static_cast<size_t>(indexed.factor);
      if (parts[f] == 1) {
        continue;
      }
      const bool gathers = op_.kind == Kind::kGather;
      const auto vector_dim =
          static_cast<size_t>(gathers ? op_.as<GatherAttrs>().index_vector_dim
                                      : op_.as<ScatterAttrs>().index_vector_dim);
      const int64_t size = rule_.factors[f].size, part = size / parts[f];
      Tensor& indices = in[types_.size()];
      std::vector<int64_t> list = eval::load_ints(indices);
      Dims i(indices.type.dims.size(), 0), records = indices.type.dims;
      if (vector_dim < records.size()) {
        records[vector_dim] = 1;
      }
      const Dims pitch = row_major_strides(records);
      for (int64_t& value : list) {
        if (vector_dim == i.size() || i[vector_dim] == indexed.entry) {
          value = (gathers ? std::clamp<int64_t>(value, 0, size - 1) : value) - at[f] * part;
          int64_t record = 0;
          for (size_t d = 0; d < i.size(); ++d) {
            record += d == vector_dim ? 0 : i[d] * pitch[d];
          }
          if (value < 0 || value >= part) {
            others.insert(record);
          }
        }
        advance(i, indices.type.dims);
      }
      eval::store_ints(list, indices);
    }
    return others;
  }

  void clear_records(Tensor& gathered, const std::set<int64_t>& records) const {
    const Dims& windows = op_.as<GatherAttrs>().offset_dims;
    const auto size = static_cast<size_t>(elem_bytes(gathered.type.elem));
    Dims i(gathered.type.dims.size(), 0);
    for (size_t at = 0; at < gathered.data.size(); at += size) {
      int64_t record = 0;
      for (size_t d = 0; d < i.size(); ++d) {
        if (std::find(windows.begin(), windows.end(), static_cast<int64_t>(d)) == windows.end()) {
          record = record * gathered.type.dims[d] + i[d];
        }
      }
      if (records.contains(record)) {
        std::memset(gathered.data.data() + at, 0, size);
      }
      advance(i, gathered.type.dims);
    }
  }

  void add_begin(Tensor& part, const Parts& parts, const Parts& at) const {
    const auto dim = static_cast<size_t>(op_.as<DimAttrs>().dim);
    int64_t piece = 0;
    for (const int f : rule_.results[0][dim]) {
      piece = piece * parts[static_cast<size_t>(f)] + at[static_cast<size_t>(f)];
    }
    const auto begin = static_cast<double>(piece * part.type.dims[dim]);
    part = combine(Kind::kAdd, part, to_tensor(make_splat(part.type, begin)));
  }

  // The first part of a place is stored, later ones of a reduce factor are combined with it. Where
  // a result lacks a pass factor that is cut (other results have it), all cores have the same.
  void place(size_t t, Tensor part, const Parts& parts, const Parts& at) {
    const DimFactors& dims = rule_.results[t];
    std::set<int> mine;
    std::string where = std::to_string(t);
    for (const auto& list : dims) {
      for (const int f : list) {
        mine.insert(f);
        where += "," + std::to_string(at[static_cast<size_t>(f)]);
      }
    }
    bool copy = false;
    for (size_t f = 0; f < parts.size(); ++f) {
      copy = copy || (at[f] > 0 && rule_.factors[f].kind == FactorKind::kPass &&
                      mine.count(static_cast<int>(f)) == 0);
    }
    if (!seen_.insert(where).second) {
      Tensor before = make_tensor(part.type);
      for_each_element(types_[t], dims, parts, at, [&](int64_t whole, int64_t local) {
        eval::copy_element(made_[t], whole, before, local);
      });
      EXPECT_TRUE(copy ? part.data == before.data : reduces(parts)) << print(op_) << to_text(rule_);
      part = copy ? before : combine(rule_.reducer, before, part);
    }
    for_each_element(types_[t], dims, parts, at, [&](int64_t whole, int64_t local) {
      eval::copy_element(part, local, made_[t], whole);
    });
  }

  void finish(const Parts& parts) {
    if (const auto late = late_operand(parts)) {
      made_[0] = combine(rule_.reducer, made_[0], in_[*late]);
    }
  }

  void compare(const Parts& parts) const {
    for (size_t t = 0; t < made_.size(); ++t) {
      bool equal = true;
      if (is_float(types_[t].elem)) {
        const auto got = eval::load_floats(made_[t]), want = eval::load_floats(whole_[t]);
        for (size_t i = 0; i < got.size(); ++i) {
          equal = equal && (got[i] == want[i] || (got[i] != got[i] && want[i] != want[i]));
        }
      } else {
        equal = made_[t].data == whole_[t].data;
      }
      EXPECT_TRUE(equal) << print(op_) << "by " << to_text(rule_) << " cut in " << to_string(parts);
    }
  }

  const Op& op_;
  const FactorRule rule_;
  std::vector<Tensor> in_, whole_, made_;
  std::vector<Type> types_;
  std::set<std::string> seen_;  // result and piece
};

}  // namespace

std::string to_text(const FactorRule& rule) {
  std::map<int, char> names;
  const auto factor_text = [&](int f) -> std::string {
    const FactorKind kind = rule.factors[static_cast<size_t>(f)].kind;
    if (kind == FactorKind::kBlocked) {
      return "#";
    }
    const auto name = names.emplace(f, static_cast<char>('a' + names.size())).first->second;
    return {kind == FactorKind::kPass ? name : static_cast<char>(name - 'a' + 'A')};
  };
  const auto dims_text = [&](const DimFactors& dims) {
    std::string text;
    for (const auto& list : dims) {
      std::string dim;
      for (const int f : list) {
        dim += (dim.empty() ? "" : "*") + factor_text(f);
      }
      text += (text.empty() ? "" : ",") + (dim.empty() ? "1" : dim);
    }
    return "[" + text + "]";
  };
  std::string text;
  for (const auto& dims : rule.operands) {
    text += dims_text(dims);
  }
  text += " -> ";
  for (const auto& dims : rule.results) {
    text += dims_text(dims);
  }
  return text;
}

int check_rule(const Op& op, std::mt19937& random) { return Check(op, random).run_all(); }

}  // namespace tpu::compiler::test
