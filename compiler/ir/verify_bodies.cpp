// Type rules of contractions, of ops with bodies (reductions, windows, scatter, sort, control
// flow), of calls and of collectives.
#include <algorithm>
#include <set>

#include "ir/verify_rule.hpp"

namespace tpu::compiler {

void BodyRule::reduce() const {
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
    check(out(i) == Type{in(i).elem, want}, [&] {
      return "result " + std::to_string(i) + " must be " + to_string(Type{in(i).elem, want});
    });
    elems.push_back(in(i).elem);
  }
  check_body(*op_.regions[0], elems, 2);
}

void BodyRule::control() const {
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
        check(region.args[i]->type == in(i) && in(i) == out(i), "a carried value changes its type");
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

void BodyRule::call() const {
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

void BodyRule::dot() const {
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
  check(a.lhs_batch.size() == a.rhs_batch.size() && a.lhs_contract.size() == a.rhs_contract.size(),
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
  check(out().dims == want, [&] { return "the result must have the shape " + to_string(want); });
  check(in(0).elem != Elem::kI1 && in(1).elem != Elem::kI1, "must take numbers");
}

void BodyRule::convolution() const {
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
  check(a.feature_groups >= 1 && a.batch_groups >= 1 &&
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
    check(
        size(out(), a.output_spatial[i]) ==
            positions(size(in(0), a.input_spatial[i]), size(in(1), a.kernel_spatial[i]),
                      a.window_stride[i], a.pad_low[i], a.pad_high[i], a.lhs_dilation[i],
                      a.rhs_dilation[i]),
        [&] { return "the result has the wrong size in spatial dimension " + std::to_string(i); });
  }
}

void BodyRule::fft() const {
  const auto& a = op_.as<FftAttrs>();
  const size_t rank = a.length.size();
  const bool real_in = a.type == FftType::kRfft;
  const bool real_out = a.type == FftType::kIrfft;
  check(rank >= 1 && rank <= 3 && in(0).rank() >= static_cast<int64_t>(rank),
        "must have 1 to 3 lengths, at most one for each dimension");
  check(in(0).elem == (real_in ? Elem::kF32 : Elem::kComplex64), [&] {
    return "must take " + std::string(elem_name(real_in ? Elem::kF32 : Elem::kComplex64));
  });
  Dims want = in(0).dims;
  const size_t first = want.size() - rank;
  for (size_t i = 0; i < rank; ++i) {
    const bool half = i + 1 == rank && real_out;
    const int64_t size = half && a.length[i] > 0 ? a.length[i] / 2 + 1 : a.length[i];
    check(want[first + i] == size, [&] {
      return "dimension " + std::to_string(first + i) + " must have " + std::to_string(size) +
             " elements";
    });
    want[first + i] = a.length[i];
  }
  if (real_in && want.back() > 0) {
    want.back() = want.back() / 2 + 1;
  }
  check_result(want, real_out ? Elem::kF32 : Elem::kComplex64);
}

void BodyRule::window() const {
  const auto& a = op_.as<WindowAttrs>();
  check(!op_.operands.empty(), "must have operands");
  const int64_t rank = in(0).rank();
  check_sizes({&a.size, &a.stride, &a.base_dilation, &a.window_dilation, &a.pad_low, &a.pad_high},
              rank);
  Dims want;
  for (size_t i = 0; i < a.size.size(); ++i) {
    check(
        a.size[i] >= 1 && a.stride[i] >= 1 && a.base_dilation[i] >= 1 && a.window_dilation[i] >= 1,
        "window sizes, strides and dilations must be positive");
    want.push_back(positions(in(0).dims[i], a.size[i], a.stride[i], a.pad_low[i], a.pad_high[i],
                             a.base_dilation[i], a.window_dilation[i]));
  }
  if (op_.kind == Kind::kSelectAndScatter) {
    for (size_t i = 0; i < a.size.size(); ++i) {
      check(a.base_dilation[i] == 1 && a.window_dilation[i] == 1, "dilations must be 1");
    }
    select_body(*op_.regions[0]);
    check(in(1) == Type{in(0).elem, want} && in(2) == Type{in(0).elem, {}} && out() == in(0), [&] {
      return "the source must be " + to_string(Type{in(0).elem, want});
    });
    check_body(*op_.regions[1], {in(0).elem}, 2);
    return;
  }
  const size_t n = op_.results.size();
  check(n > 0 && op_.operands.size() == 2 * n, "needs an initial value per operand");
  std::vector<Elem> elems;
  for (size_t i = 0; i < n; ++i) {
    check(
        in(i).dims == in(0).dims && in(n + i) == Type{in(i).elem, {}} &&
            out(i) == Type{in(i).elem, want},
        [&] { return "result " + std::to_string(i) + " must have the shape " + to_string(want); });
    elems.push_back(in(i).elem);
  }
  check_body(*op_.regions[0], elems, 2);
}

void BodyRule::select_body(const Region& body) const {
  const Type scalar{in(0).elem, {}};
  check(body.args.size() == 2 && body.args[0]->type == scalar && body.args[1]->type == scalar &&
            body.terminator() != nullptr && body.terminator()->operands.size() == 1 &&
            body.terminator()->operands[0]->type == Type{Elem::kI1, {}},
        "the selection must take two elements and return i1");
}

void BodyRule::map() const {
  const Region& body = *op_.regions[0];
  check(!op_.operands.empty() && body.args.size() == op_.operands.size(),
        "the body must take an element of each operand");
  for (size_t i = 0; i < op_.operands.size(); ++i) {
    check(in(i).dims == out().dims && body.args[i]->type == Type{in(i).elem, {}},
          "operands and result must have one shape");
  }
  check(body.terminator() != nullptr && body.terminator()->operands.size() == 1 &&
            body.terminator()->operands[0]->type == Type{out().elem, {}},
        "the body must return an element of the result");
}

// Operands and results beside those of the first one's shape hold a value per feature.
void BodyRule::batch_norm() const {
  const auto& a = op_.as<BatchNormAttrs>();
  check(is_float(in(0).elem), "must take floats");
  check(a.feature_dim >= 0 && a.feature_dim < in(0).rank(), [&] {
    return "the feature dimension " + std::to_string(a.feature_dim) + " is out of range";
  });
  const Type feature{in(0).elem, {in(0).dims[static_cast<size_t>(a.feature_dim)]}};
  const bool grad = op_.kind == Kind::kBatchNormGrad;
  for (size_t i = 1; i < op_.operands.size(); ++i) {
    const Type& want = grad && i == 4 ? in(0) : feature;
    check(in(i) == want,
          [&] { return "operand " + std::to_string(i) + " must be " + to_string(want); });
  }
  for (size_t i = 0; i < op_.results.size(); ++i) {
    const Type& want = i == 0 ? in(0) : feature;
    check(out(i) == want,
          [&] { return "result " + std::to_string(i) + " must be " + to_string(want); });
  }
}

void BodyRule::sort() const {
  const int64_t dim = op_.as<SortAttrs>().dim;
  check(!op_.operands.empty() && op_.operands.size() == op_.results.size(),
        "needs a result per operand");
  check(dim >= 0 && dim < in(0).rank(), "the dimension is out of range");
  for (size_t i = 0; i < op_.operands.size(); ++i) {
    check(in(i).dims == in(0).dims && in(i) == out(i), "the operands must have one shape");
  }
  const Region& body = *op_.regions[0];
  for (size_t i = 0; i < body.args.size(); ++i) {
    check(i / 2 < op_.operands.size() && body.args[i]->type == Type{in(i / 2).elem, {}},
          "the comparator must take two elements of each operand and return i1");
  }
  check(body.args.size() == 2 * op_.operands.size() && body.terminator() != nullptr &&
            body.terminator()->operands.size() == 1 &&
            body.terminator()->operands[0]->type == Type{Elem::kI1, {}},
        "the comparator must take two elements of each operand and return i1");
}

void BodyRule::collective() const {
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
  // What members get has the same shape in a large group and in a small one.
  const bool any_size = op_.kind == Kind::kAllReduce || op_.kind == Kind::kCollectiveBroadcast;
  std::set<int64_t> members;
  check(!a.groups.empty(), "needs a group");
  for (const auto& group : a.groups) {
    check(any_size || group.size() == a.groups[0].size(), [&] {
      return "the groups must have one size, not " + std::to_string(a.groups[0].size()) + " and " +
             std::to_string(group.size()) + ", on which the shape of the result depends";
    });
    for (const int64_t core : group) {
      check(core >= 0 && core < module_.num_cores && members.insert(core).second,
            [&] { return "core " + std::to_string(core) + " does not exist or is in two groups"; });
    }
  }
  check(op_.kind == Kind::kCollectiveBroadcast ||
            static_cast<int64_t>(members.size()) == module_.num_cores,
        [&] {
          return "every core must be in a group; " + std::to_string(members.size()) + " of " +
                 std::to_string(module_.num_cores) +
                 " are: name the others too, each in a group of its own where they take no part";
        });
  check(op_.operands.size() == op_.results.size(), "needs a result per operand");
  const auto group_size = static_cast<int64_t>(a.groups[0].size());
  for (size_t i = 0; i < op_.operands.size(); ++i) {
    Type want = in(i);
    if (op_.kind == Kind::kAllGather || op_.kind == Kind::kReduceScatter ||
        op_.kind == Kind::kAllToAll) {
      check(a.dim >= 0 && a.dim < want.rank(), "the dimension is out of range");
      int64_t& d = want.dims[static_cast<size_t>(a.dim)];
      check(op_.kind == Kind::kAllGather || d % group_size == 0,
            "the size of a group must divide the size of the dimension");
      d = op_.kind == Kind::kAllGather ? d * group_size : d / group_size;
    }
    if (op_.kind == Kind::kAllToAll) {
      check(a.concat_dim >= 0 && a.concat_dim < want.rank() && a.split_count == group_size,
            "the dimension or the number of parts is wrong");
      want.dims[static_cast<size_t>(a.concat_dim)] *= group_size;
    }
    check(out(i) == want, [&] { return "the result must be " + to_string(want); });
    if (op_.kind == Kind::kAllReduce || op_.kind == Kind::kReduceScatter) {
      check_body(*op_.regions[0], {in(i).elem}, 2);
    }
  }
}

}  // namespace tpu::compiler
