// Ops that are special cases of others: old ones, those of PyTorch and TensorFlow, and ops with
// sizes as operands whose result says them.
//   get_dimension_size %x {dimension=1}              =>   constant 7
//   dynamic_reshape %x, %shape -> f32[6]             =>   reshape %x -> f32[6]
//   einsum %a, %b {"ij,kj->ki"}                      =>   dot_general, transpose
// See import_parts.hpp.
#include <algorithm>
#include <array>
#include <numeric>

#include "import/import_parts.hpp"

namespace tpu::compiler::frontend {
namespace {

constexpr size_t kUnknown = std::string_view::npos;

struct Form {
  std::string_view name;
  size_t operands;
};
constexpr std::array kForms = std::to_array<Form>({
    {"broadcast", 1},
    {"dot", 2},
    {"dynamic_broadcast_in_dim", 2},
    {"dynamic_gather", 3},
    {"dynamic_iota", 1},
    {"dynamic_reshape", 2},
    {"einsum", 2},
    {"get_dimension_size", 1},
    {"torch_index_select", 2},
    {"unary_einsum", 1},
});

// Makes ops for one op of the artifact.
class FormMaker {
 public:
  FormMaker(const OpReader& reader, std::vector<Value*> in, Type out, Region& to)
      : reader_(reader), in_(std::move(in)), out_(std::move(out)), to_(to) {}

  Value* broadcast() {
    DimsAttrs a;
    for (int64_t d = 0; d < rank(0); ++d) {
      a.dims.push_back(out_.rank() - rank(0) + d);
    }
    return make(Kind::kBroadcastInDim, {in_[0]}, out_, a);
  }

  Value* dot() {
    if (rank(0) < 1) {
      reader_.fail("operands of a dot must have a dimension");
    }
    DotAttrs a;
    a.lhs_contract = {rank(0) - 1};
    a.rhs_contract = {0};
    precisions(reader_, a.lhs_precision, a.rhs_precision);
    return make(Kind::kDotGeneral, in_, out_, a);
  }

  Value* dimension_size() {
    const int64_t d = reader_.integer("dimension");
    if (d < 0 || d >= rank(0)) {
      reader_.fail("the operand has " + std::to_string(rank(0)) + " dimensions, none of number " +
                   std::to_string(d));
    }
    const int64_t size = in_[0]->type.dims[static_cast<size_t>(d)];
    return make(Kind::kConstant, {}, out_, ConstantAttrs{make_splat_int(out_, size)});
  }

  // Windows have one element in the dimensions that the result lacks, and its size in the others.
  Value* dynamic_gather() {
    GatherAttrs a = std::get<GatherAttrs>(convert_attrs(Kind::kGather, reader_, {}));
    Dims offsets = a.offset_dims;
    std::sort(offsets.begin(), offsets.end());
    size_t next = 0;
    for (int64_t d = 0; d < rank(0); ++d) {
      const bool gone = has(a.collapsed_slice_dims, d) || has(a.operand_batching_dims, d);
      if (!gone && (next >= offsets.size() || offsets[next] < 0 || offsets[next] >= out_.rank())) {
        reader_.fail("the dimension numbers do not match the operand and the result");
      }
      a.slice_sizes.push_back(gone ? 1 : out_.dims[static_cast<size_t>(offsets[next++])]);
    }
    return make(Kind::kGather, {in_[0], in_[1]}, out_, std::move(a));
  }

  // result[batch.., i.., j..] = operand[batch.., index[batch.., i..], j..] along `dim`.
  Value* index_select() {
    const int64_t dim = from_front(reader_.integer("dim"), rank(0));
    const int64_t batch = from_front(reader_.integer("batch_dims"), rank(1) + 1);
    if (dim < 0 || dim >= rank(0) || batch < 0 || batch > rank(1) || batch > dim) {
      reader_.fail("'dim' and 'batch_dims' do not fit the operands");
    }
    GatherAttrs a;
    a.index_vector_dim = rank(1);
    a.start_index_map = a.collapsed_slice_dims = {dim};
    for (int64_t d = 0; d < rank(0); ++d) {
      const bool one = d < batch || d == dim;
      a.slice_sizes.push_back(one ? 1 : in_[0]->type.dims[static_cast<size_t>(d)]);
      if (d < batch) {
        a.operand_batching_dims.push_back(d);
        a.start_indices_batching_dims.push_back(d);
      } else if (d != dim) {
        a.offset_dims.push_back(d < dim ? d : d - 1 + rank(1) - batch);
      }
    }
    return make(Kind::kGather, in_, out_, std::move(a));
  }

  Value* einsum() {
    const std::string text = reader_.text("einsum_config");
    std::string labels[2], result;
    parse(text, labels, result);
    std::string summed;
    for (size_t i = 0; i < in_.size(); ++i) {  // labels of one operand alone
      const std::string& others = labels[1 - i];
      std::string kept;
      Dims gone;
      for (size_t d = 0; d < labels[i].size(); ++d) {
        const char c = labels[i][d];
        if (result.find(c) == kUnknown && others.find(c) == kUnknown) {
          gone.push_back(static_cast<int64_t>(d));
        } else {
          kept += c;
        }
      }
      in_[i] = gone.empty() ? in_[i] : sum(in_[i], gone);
      labels[i] = kept;
    }
    std::string order = labels[0];
    Value* value = in_.size() == 1 ? convert(in_[0], out_.elem) : product(labels, result, order);
    DimsAttrs permutation;
    for (const char c : result) {
      permutation.dims.push_back(static_cast<int64_t>(order.find(c)));
    }
    return make(Kind::kTranspose, {value}, out_, permutation);
  }

  Value* make(Kind kind, std::vector<Value*> in, Type type, Attrs attrs) {
    return to_.append(kind, std::move(in), {std::move(type)}, std::move(attrs), reader_.loc())
        ->result();
  }

 private:
  int64_t rank(size_t i) const { return in_[i]->type.rank(); }
  static int64_t from_front(int64_t at, int64_t rank) { return at < 0 ? at + rank : at; }
  static bool has(const Dims& dims, int64_t d) {
    return std::find(dims.begin(), dims.end(), d) != dims.end();
  }

  // "ij,jk->ik": one letter a dimension.
  void parse(const std::string& text, std::string (&labels)[2], std::string& result) const {
    const size_t arrow = text.find("->");
    const size_t comma = text.find(',');
    const bool two = in_.size() == 2;
    if (arrow == kUnknown || two != (comma != kUnknown && comma < arrow)) {
      reader_.fail("'" + text + "' must be like " + (two ? "'ij,jk->ik'" : "'ij->ji'"));
    }
    labels[0] = text.substr(0, two ? comma : arrow);
    labels[1] = two ? text.substr(comma + 1, arrow - comma - 1) : "";
    result = text.substr(arrow + 2);
    const auto each_once = [&](std::string letters, int64_t rank) {
      std::sort(letters.begin(), letters.end());
      const bool all = std::all_of(letters.begin(), letters.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      });
      return all && std::adjacent_find(letters.begin(), letters.end()) == letters.end() &&
             static_cast<int64_t>(letters.size()) == rank;
    };
    const bool known = std::all_of(result.begin(), result.end(), [&](char c) {
      return labels[0].find(c) != kUnknown || labels[1].find(c) != kUnknown;
    });
    if (!known || !each_once(labels[0], rank(0)) || (two && !each_once(labels[1], rank(1))) ||
        !each_once(result, out_.rank())) {
      reader_.fail("'" + text +
                   "' must name each dimension of an array by another letter, and those of the "
                   "result by letters of the operands; use gather for diagonals");
    }
  }

  Value* convert(Value* x, Elem elem) {
    return x->type.elem == elem ? x : make(Kind::kConvert, {x}, {elem, x->type.dims}, NoAttrs{});
  }

  Value* sum(Value* x, const Dims& dims) {
    const Type scalar{x->type.elem, {}};
    Type type{x->type.elem, {}};
    for (int64_t d = 0; d < x->type.rank(); ++d) {
      if (!has(dims, d)) {
        type.dims.push_back(x->type.dims[static_cast<size_t>(d)]);
      }
    }
    Value* zero = make(Kind::kConstant, {}, scalar, ConstantAttrs{make_splat_int(scalar, 0)});
    Value* total = make(Kind::kReduce, {x, zero}, type, DimsAttrs{dims});
    add_sum_region(*total->def, scalar, reader_.loc());
    return total;
  }

  // `order`: the letters of what it makes.
  Value* product(const std::string (&labels)[2], const std::string& result, std::string& order) {
    DotAttrs a;
    Type type{out_.elem, {}};
    std::string batch, free;
    Dims batch_dims, free_dims;
    const auto place = [](const std::string& in, char c) {
      return static_cast<int64_t>(in.find(c));
    };
    for (size_t i : {size_t{0}, size_t{1}}) {
      for (const char c : labels[i]) {
        const int64_t own = place(labels[i], c), other = place(labels[1 - i], c);
        const int64_t size = in_[i]->type.dims[static_cast<size_t>(own)];
        if (other < 0) {
          free += c;
          free_dims.push_back(size);
        } else if (i == 0 && result.find(c) != kUnknown) {
          a.lhs_batch.push_back(own);
          a.rhs_batch.push_back(other);
          batch += c;
          batch_dims.push_back(size);
        } else if (i == 0) {
          a.lhs_contract.push_back(own);
          a.rhs_contract.push_back(other);
        }
      }
    }
    order = batch + free;
    type.dims = batch_dims;
    type.dims.insert(type.dims.end(), free_dims.begin(), free_dims.end());
    return make(Kind::kDotGeneral, in_, type, std::move(a));
  }

  const OpReader& reader_;
  std::vector<Value*> in_;
  Type out_;
  Region& to_;
};

}  // namespace

void add_sum_region(Op& reduce, const Type& scalar, const LocRef& loc) {
  Region* body = reduce.add_region();
  Value* a = body->add_arg(scalar);
  Value* b = body->add_arg(scalar);
  Value* both = body->append(Kind::kAdd, {a, b}, {scalar}, NoAttrs{}, loc)->result();
  body->append(Kind::kReturn, {both}, {}, NoAttrs{}, loc);
}

bool is_form(std::string_view name) {
  return std::any_of(kForms.begin(), kForms.end(), [&](const Form& f) { return f.name == name; });
}

const Op* convert_form(const OpReader& reader, const std::string& name,
                       const std::vector<Value*>& operands, Region& to) {
  const RawOp& op = reader.raw();
  const auto form =
      std::find_if(kForms.begin(), kForms.end(), [&](const Form& f) { return f.name == name; });
  if (op.operands.size() != form->operands || op.result_types.size() != 1) {
    reader.fail("wrong number of operands or results: expected " + std::to_string(form->operands) +
                " and 1, found " + std::to_string(op.operands.size()) + " and " +
                std::to_string(op.result_types.size()));
  }
  const Type type = reader.type(op.result_types[0]);
  FormMaker maker(reader, operands, type, to);
  if (name == "dynamic_broadcast_in_dim") {
    return maker
        .make(Kind::kBroadcastInDim, {operands[0]}, type,
              DimsAttrs{reader.dims("broadcast_dimensions")})
        ->def;
  }
  if (name == "dynamic_reshape") {
    return maker.make(Kind::kReshape, {operands[0]}, type, NoAttrs{})->def;
  }
  if (name == "dynamic_iota") {
    return maker.make(Kind::kIota, {}, type, DimAttrs{reader.integer("iota_dimension")})->def;
  }
  return (name == "broadcast"            ? maker.broadcast()
          : name == "dot"                ? maker.dot()
          : name == "get_dimension_size" ? maker.dimension_size()
          : name == "dynamic_gather"     ? maker.dynamic_gather()
          : name == "torch_index_select" ? maker.index_select()
                                         : maker.einsum())
      ->def;
}

}  // namespace tpu::compiler::frontend
