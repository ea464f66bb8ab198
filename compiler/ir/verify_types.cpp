// The type rule of each op: shapes and element types of operands and results, ranges of attributes.
#include "ir/verify_types.hpp"

#include <algorithm>
#include <set>

namespace tpu::compiler {
namespace {

class Rule {
 public:
  Rule(const Op& op, const Module& module) : op_(op), module_(module) {}

  void run() {
    if (op_.kind >= Kind::kAbs && op_.kind <= Kind::kBitcastConvert) {
      unary();
    } else if (op_.kind >= Kind::kAdd && op_.kind <= Kind::kXor) {
      binary();
    } else if (is_collective(op_.kind)) {
      collective();
    } else {
      other();
    }
  }

 private:
  void check(bool ok, const std::string& message) const {
    if (!ok) {
      std::string types;
      for (const Value* v : op_.operands) {
        types += (types.empty() ? "" : ", ") + to_string(v->type);
      }
      types = "(" + types + ") ->";
      for (const auto& r : op_.results) {
        types += " " + to_string(r->type);
      }
      throw Error(message + ": " + types, "stablehlo." + std::string(kind_name(op_.kind)), op_.loc);
    }
  }

  const Type& in(size_t i) const { return op_.operand_type(i); }
  const Type& out(size_t i = 0) const { return op_.type(i); }

  void check_result(const Dims& dims, Elem e) const {
    check(out() == Type{e, dims}, "the result must be " + to_string(Type{e, dims}));
  }

  // Dimension numbers: in [0, rank), none twice.
  void check_dims(const Dims& dims, int64_t rank, const char* what) const {
    const std::set<int64_t> set(dims.begin(), dims.end());
    const bool in_range =
        std::all_of(dims.begin(), dims.end(), [&](int64_t d) { return d >= 0 && d < rank; });
    check(in_range && set.size() == dims.size(),
          std::string(what) + " " + to_string(dims) + " are out of range or repeat");
  }

  void check_sizes(std::initializer_list<const Dims*> lists, int64_t size) const {
    for (const Dims* list : lists) {
      check(static_cast<int64_t>(list->size()) == size,
            "an attribute must have " + std::to_string(size) + " entries");
    }
  }

  void unary() const {
    const Elem e = in(0).elem;
    if (op_.kind == Kind::kBitcastConvert) {
      bitcast();
      return;
    }
    check(in(0).dims == out().dims, "operand and result must have one shape");
    switch (op_.kind) {
      case Kind::kConvert:
        return;
      case Kind::kIsFinite:
        check(is_float(e) && out().elem == Elem::kI1, "must take floats and give i1");
        return;
      case Kind::kNot:
        check(!is_float(e), "must take integers or i1");
        break;
      case Kind::kClz:
      case Kind::kPopcnt:
        check(is_integer(e), "must take integers");
        break;
      case Kind::kAbs:
      case Kind::kSign:
      case Kind::kNegate:
        check(is_float(e) || is_integer(e), "must take numbers");
        break;
      default:
        check(is_float(e), "must take floats");
        break;
    }
    check(out().elem == e, "operand and result must have one type");
  }

  void bitcast() const {
    Dims from = in(0).dims;
    Dims to = out().dims;
    const int64_t a = elem_bytes(in(0).elem);
    const int64_t b = elem_bytes(out().elem);
    if (a > b) {
      from.push_back(a / b);
    } else if (b > a) {
      to.push_back(b / a);
    }
    check(from == to, "the shapes do not hold the same bits");
  }

  void binary() const {
    const Elem e = in(0).elem;
    check(in(0) == in(1), "the operands must have one type");
    if (op_.kind == Kind::kCompare) {
      check_result(in(0).dims, Elem::kI1);
      return;
    }
    check_result(in(0).dims, e);
    switch (op_.kind) {
      case Kind::kAnd:
      case Kind::kOr:
      case Kind::kXor:
        check(!is_float(e), "must take integers or i1");
        break;
      case Kind::kShiftLeft:
      case Kind::kShiftRightArith:
      case Kind::kShiftRightLogical:
        check(is_integer(e), "must take integers");
        break;
      case Kind::kAtan2:
        check(is_float(e), "must take floats");
        break;
      case Kind::kSubtract:
      case Kind::kDivide:
      case Kind::kRemainder:
      case Kind::kPower:
        check(e != Elem::kI1, "must take numbers");
        break;
      default:
        break;
    }
  }

  void other() const {
    switch (op_.kind) {
      case Kind::kConstant:
        return check(op_.as<ConstantAttrs>().value.type == out(), "value and result differ");
      case Kind::kIota: {
        const int64_t d = op_.as<DimAttrs>().dim;
        check(d >= 0 && d < out().rank() && out().elem != Elem::kI1, "needs a dimension to count");
        return;
      }
      case Kind::kPartitionId:
      case Kind::kReplicaId:
        return check_result({}, Elem::kU32);
      case Kind::kSelect:
        check(in(0).elem == Elem::kI1 && (in(0).is_scalar() || in(0).dims == in(1).dims),
              "the predicate must be i1, scalar or of the operands' shape");
        return check(in(1) == in(2) && in(1) == out(), "both choices and the result must be equal");
      case Kind::kClamp:
        check(in(1) == out(), "operand and result must have one type");
        for (const size_t i : {0u, 2u}) {
          check(in(i) == out() || in(i) == Type{out().elem, {}},
                "the bounds must be scalars or of the operand's type");
        }
        return;
      case Kind::kReduce:
        return reduce();
      case Kind::kWhile:
      case Kind::kIf:
      case Kind::kCase:
        return control();
      case Kind::kCall:
      case Kind::kComposite:
        return call();
      case Kind::kOptimizationBarrier:
        check(op_.operands.size() == op_.results.size(), "needs a result per operand");
        for (size_t i = 0; i < op_.results.size(); ++i) {
          check(in(i) == out(i), "operands and results must be equal");
        }
        return;
      case Kind::kDotGeneral:
        return dot();
      case Kind::kConvolution:
        return convolution();
      case Kind::kReduceWindow:
      case Kind::kSelectAndScatter:
        return window();
      case Kind::kGather:
        return gather();
      case Kind::kScatter:
        return scatter();
      case Kind::kSort:
        return sort();
      default:
        return movement();
    }
  }

  void movement() const {
    switch (op_.kind) {
      case Kind::kBroadcastInDim: {
        const Dims& dims = op_.as<DimsAttrs>().dims;
        check_sizes({&dims}, in(0).rank());
        check_dims(dims, out().rank(), "the dimensions");
        check(in(0).elem == out().elem, "operand and result must have one element type");
        for (size_t i = 0; i < dims.size(); ++i) {
          const int64_t size = in(0).dims[i];
          check(size == 1 || size == out().dims[static_cast<size_t>(dims[i])],
                "operand dimension " + std::to_string(i) + " does not fit the result");
        }
        return;
      }
      case Kind::kReshape:
        return check(in(0).elem == out().elem && in(0).count() == out().count(),
                     "operand and result must have as many elements");
      case Kind::kTranspose: {
        const Dims& p = op_.as<DimsAttrs>().dims;
        check_sizes({&p}, in(0).rank());
        check_dims(p, in(0).rank(), "the dimensions");
        Dims want;
        for (const int64_t d : p) {
          want.push_back(in(0).dims[static_cast<size_t>(d)]);
        }
        return check_result(want, in(0).elem);
      }
      case Kind::kReverse:
        check_dims(op_.as<DimsAttrs>().dims, in(0).rank(), "the dimensions");
        return check(in(0) == out(), "operand and result must have one type");
      case Kind::kSlice:
        return slice();
      case Kind::kPad:
        return pad();
      case Kind::kConcatenate:
        return concatenate();
      case Kind::kDynamicSlice:
      case Kind::kDynamicUpdateSlice:
        return dynamic_slice();
      default:
        return;  // kinds whose results follow no rule that a pass could break
    }
  }

  void slice() const {
    const auto& a = op_.as<SliceAttrs>();
    check_sizes({&a.start, &a.limit, &a.stride}, in(0).rank());
    Dims want;
    for (size_t i = 0; i < a.start.size(); ++i) {
      check(a.start[i] >= 0 && a.start[i] <= a.limit[i] && a.limit[i] <= in(0).dims[i] &&
                a.stride[i] >= 1,
            "dimension " + std::to_string(i) + " is cut outside of the operand");
      want.push_back((a.limit[i] - a.start[i] + a.stride[i] - 1) / a.stride[i]);
    }
    check_result(want, in(0).elem);
  }

  void pad() const {
    const auto& a = op_.as<PadAttrs>();
    check_sizes({&a.low, &a.high, &a.interior}, in(0).rank());
    check(in(1) == Type{in(0).elem, {}},
          "the padding value must be a scalar of the operand's type");
    Dims want;
    for (size_t i = 0; i < a.low.size(); ++i) {
      const int64_t n = in(0).dims[i];
      check(a.interior[i] >= 0, "interior padding must not be negative");
      want.push_back(
          std::max<int64_t>(0, a.low[i] + a.high[i] + n + (n > 0 ? (n - 1) * a.interior[i] : 0)));
    }
    check_result(want, in(0).elem);
  }

  void concatenate() const {
    const int64_t dim = op_.as<DimAttrs>().dim;
    check(!op_.operands.empty() && dim >= 0 && dim < in(0).rank(),
          "needs operands and a dimension");
    Dims want = in(0).dims;
    want[static_cast<size_t>(dim)] = 0;
    for (size_t i = 0; i < op_.operands.size(); ++i) {
      Dims rest = in(i).dims;
      check(rest.size() == want.size() && in(i).elem == in(0).elem, "the operands do not fit");
      want[static_cast<size_t>(dim)] += rest[static_cast<size_t>(dim)];
      rest[static_cast<size_t>(dim)] = want[static_cast<size_t>(dim)];
      check(rest == want, "the operands differ in another dimension");
    }
    check_result(want, in(0).elem);
  }

  void dynamic_slice() const {
    const bool update = op_.kind == Kind::kDynamicUpdateSlice;
    const size_t first = update ? 2 : 1;
    check(op_.operands.size() >= first && op_.operands.size() - first == in(0).dims.size(),
          "needs one start index per dimension");
    for (size_t i = first; i < op_.operands.size(); ++i) {
      check(in(i).is_scalar() && is_integer(in(i).elem),
            "the start indices must be integer scalars");
    }
    const Dims& sizes = update ? in(1).dims : op_.as<DimsAttrs>().dims;
    check_sizes({&sizes}, in(0).rank());
    for (size_t i = 0; i < sizes.size(); ++i) {
      check(sizes[i] >= 0 && sizes[i] <= in(0).dims[i], "the slice is larger than the operand");
    }
    check(!update || in(1).elem == in(0).elem, "operand and update must have one element type");
    check_result(update ? in(0).dims : sizes, in(0).elem);
  }

  // Bodies take the element types of the given values, twice if `pairs`, and give them back.
  void check_body(const Region& body, const std::vector<Elem>& elems, size_t copies) const {
    const Op* ret = body.terminator();
    check(body.args.size() == elems.size() * copies, "the body has the wrong number of arguments");
    for (size_t i = 0; i < body.args.size(); ++i) {
      check(body.args[i]->type.is_scalar(), "the body must take scalars");
    }
    check(ret != nullptr && ret->operands.size() == elems.size(),
          "the body returns the wrong number of values");
    for (size_t i = 0; i < elems.size(); ++i) {
      check(ret->operands[i]->type == Type{elems[i], {}}, "the body returns another type");
    }
  }

  void reduce() const {
    const size_t n = op_.results.size();
    check(n > 0 && op_.operands.size() == 2 * n, "needs an initial value per operand");
    const Dims& dims = op_.as<DimsAttrs>().dims;
    check_dims(dims, in(0).rank(), "the dimensions");
    Dims want;
    for (int64_t d = 0; d < in(0).rank(); ++d) {
      if (std::find(dims.begin(), dims.end(), d) == dims.end()) {
        want.push_back(in(0).dims[static_cast<size_t>(d)]);
      }
    }
    std::vector<Elem> elems;
    for (size_t i = 0; i < n; ++i) {
      check(in(i).dims == in(0).dims && in(n + i) == Type{in(i).elem, {}},
            "operands must have one shape, and initial values must be scalars of their types");
      check(out(i) == Type{in(i).elem, want},
            "result " + std::to_string(i) + " must be " + to_string(Type{in(i).elem, want}));
      elems.push_back(in(i).elem);
    }
    check_body(*op_.regions[0], elems, 2);
  }

  void control() const {
    if (op_.kind != Kind::kWhile) {
      check(in(0) == Type{op_.kind == Kind::kIf ? Elem::kI1 : Elem::kI32, {}},
            "the choice must be a scalar, i1 for if and i32 for case");
      check(!op_.regions.empty(), "needs a branch");
    } else {
      check(op_.operands.size() == op_.results.size(), "needs a result per operand");
    }
    for (size_t r = 0; r < op_.regions.size(); ++r) {
      const Region& region = *op_.regions[r];
      const Op* ret = region.terminator();
      check(ret != nullptr, "a region does not end with a return");
      if (op_.kind == Kind::kWhile) {
        check(region.args.size() == op_.operands.size(), "a region takes the wrong arguments");
        for (size_t i = 0; i < region.args.size(); ++i) {
          check(region.args[i]->type == in(i) && in(i) == out(i),
                "a carried value changes its type");
        }
        if (r == 0) {
          check(ret->operands.size() == 1 && ret->operands[0]->type == Type{Elem::kI1, {}},
                "the condition must return one i1");
          continue;
        }
      } else {
        check(region.args.empty(), "a branch takes no arguments");
      }
      check(ret->operands.size() == op_.results.size(),
            "a region returns the wrong number of values");
      for (size_t i = 0; i < op_.results.size(); ++i) {
        check(ret->operands[i]->type == out(i), "a region returns another type");
      }
    }
  }

  void call() const {
    const std::string& name = op_.as<CallAttrs>().callee;
    const Function* f = module_.find(name);
    check(f != nullptr && f->body.terminator() != nullptr, "the function @" + name + " is missing");
    check(f->body.args.size() == op_.operands.size() && f->results.size() == op_.results.size(),
          "the function @" + name + " takes or returns another number of values");
    for (size_t i = 0; i < op_.operands.size(); ++i) {
      check(f->body.args[i]->type == in(i), "an argument of @" + name + " has another type");
    }
    for (size_t i = 0; i < op_.results.size(); ++i) {
      check(f->body.terminator()->operands.at(i)->type == out(i),
            "a result of @" + name + " has another type");
    }
  }

  void dot() const {
    const auto& a = op_.as<DotAttrs>();
    const auto sides = [&](const Type& t, const Dims& batch, const Dims& contract) {
      Dims all = batch;
      all.insert(all.end(), contract.begin(), contract.end());
      check_dims(all, t.rank(), "the dimensions");
      Dims free;
      for (int64_t d = 0; d < t.rank(); ++d) {
        if (std::find(all.begin(), all.end(), d) == all.end()) {
          free.push_back(t.dims[static_cast<size_t>(d)]);
        }
      }
      return free;
    };
    const Dims m = sides(in(0), a.lhs_batch, a.lhs_contract);
    const Dims n = sides(in(1), a.rhs_batch, a.rhs_contract);
    check(
        a.lhs_batch.size() == a.rhs_batch.size() && a.lhs_contract.size() == a.rhs_contract.size(),
        "both sides must name as many dimensions");
    const auto equal = [&](const Dims& l, const Dims& r) {
      for (size_t i = 0; i < l.size(); ++i) {
        check(in(0).dims[static_cast<size_t>(l[i])] == in(1).dims[static_cast<size_t>(r[i])],
              "the sizes of a pair of dimensions differ");
      }
    };
    equal(a.lhs_batch, a.rhs_batch);
    equal(a.lhs_contract, a.rhs_contract);
    Dims want;
    for (const int64_t d : a.lhs_batch) {
      want.push_back(in(0).dims[static_cast<size_t>(d)]);
    }
    want.insert(want.end(), m.begin(), m.end());
    want.insert(want.end(), n.begin(), n.end());
    check(out().dims == want, "the result must have the shape " + to_string(want));
    check(in(0).elem != Elem::kI1 && in(1).elem != Elem::kI1, "must take numbers");
  }

  // Positions of a window over `n` elements.
  static int64_t positions(int64_t n, int64_t size, int64_t stride, int64_t low, int64_t high,
                           int64_t base, int64_t dilation) {
    const int64_t dilated = n == 0 ? 0 : (n - 1) * base + 1;
    const int64_t reach = size == 0 ? 0 : (size - 1) * dilation + 1;
    const int64_t padded = low + dilated + high;
    return padded < reach || padded <= 0 ? 0 : (padded - reach) / stride + 1;
  }

  void convolution() const {
    const auto& a = op_.as<ConvAttrs>();
    const auto n = static_cast<int64_t>(a.input_spatial.size());
    check_sizes({&a.window_stride, &a.pad_low, &a.pad_high, &a.lhs_dilation, &a.rhs_dilation,
                 &a.kernel_spatial, &a.output_spatial},
                n);
    check(in(0).rank() == n + 2 && in(1).rank() == n + 2 && out().rank() == n + 2 &&
              static_cast<int64_t>(a.window_reversal.size()) == n,
          "the ranks do not fit the dimension numbers");
    const auto numbers = [&](int64_t x, int64_t y, Dims rest) {
      rest.push_back(x);
      rest.push_back(y);
      check_dims(rest, n + 2, "the dimension numbers");
    };
    numbers(a.input_batch, a.input_feature, a.input_spatial);
    numbers(a.kernel_input_feature, a.kernel_output_feature, a.kernel_spatial);
    numbers(a.output_batch, a.output_feature, a.output_spatial);
    const auto size = [](const Type& t, int64_t d) { return t.dims[static_cast<size_t>(d)]; };
    const int64_t batch = size(in(0), a.input_batch);
    const int64_t features = size(in(1), a.kernel_output_feature);
    check(
        a.feature_groups >= 1 && a.batch_groups >= 1 &&
            (a.feature_groups == 1 || a.batch_groups == 1) && batch % a.batch_groups == 0 &&
            features % (a.feature_groups * a.batch_groups) == 0 &&
            size(in(0), a.input_feature) == size(in(1), a.kernel_input_feature) * a.feature_groups,
        "the numbers of channels do not fit the groups");
    check(size(out(), a.output_batch) == batch / a.batch_groups &&
              size(out(), a.output_feature) == features,
          "the result has the wrong batch or number of channels");
    for (size_t i = 0; i < a.input_spatial.size(); ++i) {
      check(a.window_stride[i] >= 1 && a.lhs_dilation[i] >= 1 && a.rhs_dilation[i] >= 1,
            "strides and dilations must be positive");
      check(size(out(), a.output_spatial[i]) ==
                positions(size(in(0), a.input_spatial[i]), size(in(1), a.kernel_spatial[i]),
                          a.window_stride[i], a.pad_low[i], a.pad_high[i], a.lhs_dilation[i],
                          a.rhs_dilation[i]),
            "the result has the wrong size in spatial dimension " + std::to_string(i));
    }
  }

  void window() const {
    const auto& a = op_.as<WindowAttrs>();
    const int64_t rank = in(0).rank();
    check_sizes({&a.size, &a.stride, &a.base_dilation, &a.window_dilation, &a.pad_low, &a.pad_high},
                rank);
    Dims want;
    for (size_t i = 0; i < a.size.size(); ++i) {
      check(a.size[i] >= 1 && a.stride[i] >= 1 && a.base_dilation[i] >= 1 &&
                a.window_dilation[i] >= 1,
            "window sizes, strides and dilations must be positive");
      want.push_back(positions(in(0).dims[i], a.size[i], a.stride[i], a.pad_low[i], a.pad_high[i],
                               a.base_dilation[i], a.window_dilation[i]));
    }
    if (op_.kind == Kind::kSelectAndScatter) {
      check(in(1) == Type{in(0).elem, want} && in(2) == Type{in(0).elem, {}} && out() == in(0),
            "the source must be " + to_string(Type{in(0).elem, want}));
      check_body(*op_.regions[1], {in(0).elem}, 2);
      return;
    }
    const size_t n = op_.results.size();
    check(n > 0 && op_.operands.size() == 2 * n, "needs an initial value per operand");
    std::vector<Elem> elems;
    for (size_t i = 0; i < n; ++i) {
      check(in(i).dims == in(0).dims && in(n + i) == Type{in(i).elem, {}} &&
                out(i) == Type{in(i).elem, want},
            "result " + std::to_string(i) + " must have the shape " + to_string(want));
      elems.push_back(in(i).elem);
    }
    check_body(*op_.regions[0], elems, 2);
  }

  void gather() const {
    const auto& a = op_.as<GatherAttrs>();
    const int64_t rank = in(0).rank();
    check(is_integer(in(1).elem) && in(0).elem == out().elem, "indices must be integers");
    check_sizes({&a.slice_sizes}, rank);
    Dims gone = a.collapsed_slice_dims;
    gone.insert(gone.end(), a.operand_batching_dims.begin(), a.operand_batching_dims.end());
    check_dims(gone, rank, "the collapsed dimensions");
    check_dims(a.start_index_map, rank, "the index map");
    check_dims(a.offset_dims, out().rank(), "the offset dimensions");
    check(a.index_vector_dim >= 0 && a.index_vector_dim <= in(1).rank() &&
              a.offset_dims.size() + gone.size() == in(0).dims.size() &&
              a.operand_batching_dims.size() == a.start_indices_batching_dims.size(),
          "the dimension numbers do not fit");
    const int64_t vector_size = a.index_vector_dim == in(1).rank()
                                    ? 1
                                    : in(1).dims[static_cast<size_t>(a.index_vector_dim)];
    check(vector_size == static_cast<int64_t>(a.start_index_map.size()),
          "the index vectors have the wrong length");
    for (size_t i = 0; i < a.slice_sizes.size(); ++i) {
      check(a.slice_sizes[i] >= 0 && a.slice_sizes[i] <= in(0).dims[i],
            "a slice is larger than the operand");
    }
    const int64_t batch_rank = in(1).rank() - (a.index_vector_dim < in(1).rank() ? 1 : 0);
    check(out().rank() == batch_rank + static_cast<int64_t>(a.offset_dims.size()),
          "the result has the wrong rank");
  }

  void scatter() const {
    const auto& a = op_.as<ScatterAttrs>();
    const size_t n = op_.results.size();
    check(n > 0 && op_.operands.size() == 2 * n + 1, "needs an update per operand");
    check(is_integer(in(n).elem), "indices must be integers");
    std::vector<Elem> elems;
    for (size_t i = 0; i < n; ++i) {
      check(in(i) == out(i) && in(i).dims == in(0).dims && in(n + 1 + i).elem == in(i).elem,
            "operands, updates and results do not fit");
      elems.push_back(in(i).elem);
    }
    Dims gone = a.inserted_window_dims;
    gone.insert(gone.end(), a.input_batching_dims.begin(), a.input_batching_dims.end());
    check_dims(gone, in(0).rank(), "the inserted dimensions");
    check_dims(a.scatter_dims_to_operand_dims, in(0).rank(), "the index map");
    check_dims(a.update_window_dims, in(n + 1).rank(), "the window dimensions");
    check(a.index_vector_dim >= 0 && a.index_vector_dim <= in(n).rank() &&
              a.update_window_dims.size() + gone.size() == in(0).dims.size(),
          "the dimension numbers do not fit");
    check_body(*op_.regions[0], elems, 2);
  }

  void sort() const {
    const int64_t dim = op_.as<SortAttrs>().dim;
    check(!op_.operands.empty() && op_.operands.size() == op_.results.size(),
          "needs a result per operand");
    check(dim >= 0 && dim < in(0).rank(), "the dimension is out of range");
    for (size_t i = 0; i < op_.operands.size(); ++i) {
      check(in(i).dims == in(0).dims && in(i) == out(i), "the operands must have one shape");
    }
    const Region& body = *op_.regions[0];
    check(body.args.size() == 2 * op_.operands.size() && body.terminator() != nullptr &&
              body.terminator()->operands.size() == 1 &&
              body.terminator()->operands[0]->type == Type{Elem::kI1, {}},
          "the comparator must take two elements of each operand and return i1");
  }

  void collective() const {
    if (op_.kind == Kind::kCollectivePermute) {
      std::set<int64_t> sources, targets;
      for (const auto& p : op_.as<PermuteAttrs>().pairs) {
        check(p[0] >= 0 && p[0] < module_.num_cores && p[1] >= 0 && p[1] < module_.num_cores &&
                  sources.insert(p[0]).second && targets.insert(p[1]).second,
              "a pair names a core that does not exist, or names one twice");
      }
      return check(in(0) == out(), "operand and result must have one type");
    }
    const auto& a = op_.as<CollectiveAttrs>();
    std::set<int64_t> members;
    for (const auto& group : a.groups) {
      check(group.size() == a.groups[0].size(), "the groups must have one size");
      for (const int64_t core : group) {
        check(core >= 0 && core < module_.num_cores && members.insert(core).second,
              "core " + std::to_string(core) + " does not exist or is in two groups");
      }
    }
    check(static_cast<int64_t>(members.size()) == module_.num_cores,
          "every core must be in a group");
    check(op_.operands.size() == op_.results.size(), "needs a result per operand");
    const auto group_size = static_cast<int64_t>(a.groups[0].size());
    for (size_t i = 0; i < op_.operands.size(); ++i) {
      Type want = in(i);
      if (op_.kind == Kind::kAllGather || op_.kind == Kind::kReduceScatter ||
          op_.kind == Kind::kAllToAll) {
        check(a.dim >= 0 && a.dim < want.rank(), "the dimension is out of range");
        int64_t& d = want.dims[static_cast<size_t>(a.dim)];
        check(op_.kind == Kind::kAllGather || d % group_size == 0,
              "the dimension cannot be cut into equal parts");
        d = op_.kind == Kind::kAllGather ? d * group_size : d / group_size;
      }
      if (op_.kind == Kind::kAllToAll) {
        check(a.concat_dim >= 0 && a.concat_dim < want.rank() && a.split_count == group_size,
              "the dimension or the number of parts is wrong");
        want.dims[static_cast<size_t>(a.concat_dim)] *= group_size;
      }
      check(out(i) == want, "the result must be " + to_string(want));
      if (op_.kind == Kind::kAllReduce || op_.kind == Kind::kReduceScatter) {
        check_body(*op_.regions[0], {in(i).elem}, 2);
      }
    }
  }

  const Op& op_;
  const Module& module_;
};

}  // namespace

void verify_types(const Op& op, const Module& module) { Rule(op, module).run(); }

}  // namespace tpu::compiler
