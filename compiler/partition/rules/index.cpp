// Rules of gather and scatter: windows by records of indices.
#include "partition/rules/rule_builder.hpp"

namespace tpu::compiler {
namespace {

// Where the dimensions of gather's result or scatter's updates come from.
struct WindowDims {
  const Dims& window;            // of the result or updates
  const Dims& gone;              // collapsed or inserted dimensions of the operand
  const Dims& operand_batching;  // in pairs with ..
  const Dims& indices_batching;
  int64_t index_vector_dim;

  // Calls window_dim(dim, operand dim) or record_dim(dim, indices dim, operand dim or -1) for each
  // dimension of the result or updates.
  template <typename Window, typename Record>
  void for_each(int64_t rank, Window&& window_dim, Record&& record_dim) const {
    int64_t operand_dim = 0, record = 0;
    for (int64_t d = 0; d < rank; ++d) {
      if (contains(window, d)) {
        while (contains(gone, operand_dim) || contains(operand_batching, operand_dim)) {
          ++operand_dim;
        }
        window_dim(d, operand_dim++);
        continue;
      }
      const int64_t i = record < index_vector_dim ? record : record + 1;
      ++record;
      const auto it = std::find(indices_batching.begin(), indices_batching.end(), i);
      record_dim(d, i,
                 it == indices_batching.end()
                     ? -1
                     : operand_batching[static_cast<size_t>(it - indices_batching.begin())]);
    }
  }
};

}  // namespace

// Windows of one element along an indexed dimension lie on one core each. What a core does not have
// it gives as zeros, so the sum over cores is the result; of truth values, what any core has.
void gather_rule(RuleBuilder& b) {
  const auto& a = b.op().as<GatherAttrs>();
  for (size_t k = 0; k < a.start_index_map.size(); ++k) {
    const int64_t d = a.start_index_map[k];
    if (a.slice_sizes[static_cast<size_t>(d)] == 1) {
      const int f = b.factor(b.size_in(0, d), FactorKind::kReduce);
      b.in(0, d, f);
      b.address(f, static_cast<int64_t>(k));
    }
  }
  b.set_reducer(b.op().type().elem == Elem::kI1 ? Kind::kOr : Kind::kAdd);
  const WindowDims dims{a.offset_dims, a.collapsed_slice_dims, a.operand_batching_dims,
                        a.start_indices_batching_dims, a.index_vector_dim};
  dims.for_each(
      b.op().type().rank(),
      [&](int64_t o, int64_t operand_dim) {
        if (b.size_out(0, o) == b.size_in(0, operand_dim)) {  // whole windows begin at 0
          b.pair(0, operand_dim, o, b.size_out(0, o));
        }
      },
      [&](int64_t o, int64_t i, int64_t operand_dim) {
        const int f = b.factor(b.size_out(0, o));
        b.in(1, i, f);
        b.out(0, o, f);
        if (operand_dim >= 0) {
          b.in(0, operand_dim, f);
        }
      });
}

// Records that lie on several cores are combined into results of their own: legal for one target
// and a body that combines in any order. A target that is cut along an indexed dimension is updated
// where it lies: records of other parts are out of bounds, which leaves them out.
void scatter_rule(RuleBuilder& b) {
  const auto& a = b.op().as<ScatterAttrs>();
  const size_t n = b.op().results.size();
  const auto reducer = reducer_over_cores(b.op());
  const auto in_targets = [&](int64_t dim, int f) {
    for (size_t t = 0; t < n; ++t) {
      b.in(t, dim, f);
      b.out(t, dim, f);
    }
  };
  const auto in_updates = [&](int64_t dim, int f) {
    for (size_t t = 0; t < n; ++t) {
      b.in(n + 1 + t, dim, f);
    }
  };
  for (size_t k = 0; k < a.scatter_dims_to_operand_dims.size(); ++k) {
    const int64_t d = a.scatter_dims_to_operand_dims[k];
    if (contains(a.inserted_window_dims, d)) {
      const int f = b.factor(b.size_in(0, d));
      in_targets(d, f);
      b.address(f, static_cast<int64_t>(k));
    }
  }
  const WindowDims dims{a.update_window_dims, a.inserted_window_dims, a.input_batching_dims,
                        a.scatter_indices_batching_dims, a.index_vector_dim};
  dims.for_each(
      b.op().operand_type(n + 1).rank(),
      [&](int64_t u, int64_t operand_dim) {
        if (b.size_in(n + 1, u) == b.size_in(0, operand_dim)) {
          const int f = b.factor(b.size_in(n + 1, u));
          in_targets(operand_dim, f);
          in_updates(u, f);
        }
      },
      [&](int64_t u, int64_t i, int64_t operand_dim) {
        const FactorKind kind = operand_dim >= 0 ? FactorKind::kPass
                                : reducer        ? FactorKind::kReduce
                                                 : FactorKind::kBlocked;
        const int f = b.factor(b.size_in(n + 1, u), kind);
        b.in(n, i, f);
        in_updates(u, f);
        if (operand_dim >= 0) {
          in_targets(operand_dim, f);
        }
      });
  if (reducer) {
    b.set_reducer(*reducer);
  }
}

}  // namespace tpu::compiler
