// Type rules of ops that move windows by indices: gather, scatter and their lowered forms.
#include <algorithm>

#include "ir/verify_rule.hpp"

namespace tpu::compiler {
namespace {

// Dims without the ones at the given positions.
Dims without(const Dims& dims, const Dims& positions) {
  Dims out;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (std::find(positions.begin(), positions.end(), static_cast<int64_t>(d)) == positions.end()) {
      out.push_back(dims[d]);
    }
  }
  return out;
}

Dims at_positions(const Dims& dims, Dims positions) {
  Dims out;
  std::sort(positions.begin(), positions.end());
  for (const int64_t p : positions) {
    out.push_back(dims[static_cast<size_t>(p)]);
  }
  return out;
}

}  // namespace

void IndexRule::gather() const {
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
  check_dims(a.start_indices_batching_dims, in(1).rank(), "the batching dimensions");
  const bool implicit = a.index_vector_dim == in(1).rank();
  const int64_t vector_size = implicit ? 1 : in(1).dims[static_cast<size_t>(a.index_vector_dim)];
  check(vector_size == static_cast<int64_t>(a.start_index_map.size()),
        "the index vectors have the wrong length");
  for (size_t i = 0; i < a.slice_sizes.size(); ++i) {
    check(a.slice_sizes[i] >= 0 && a.slice_sizes[i] <= in(0).dims[i],
          "a slice is larger than the operand");
  }
  for (const int64_t d : gone) {
    check(a.slice_sizes[static_cast<size_t>(d)] <= 1, "a collapsed dimension has several elements");
  }
  for (size_t i = 0; i < a.operand_batching_dims.size(); ++i) {
    const int64_t d = a.operand_batching_dims[i], s = a.start_indices_batching_dims[i];
    check(s != a.index_vector_dim &&
              in(0).dims[static_cast<size_t>(d)] == in(1).dims[static_cast<size_t>(s)],
          "a batching dimension differs between operand and indices");
  }
  const Dims batch = implicit ? in(1).dims : without(in(1).dims, {a.index_vector_dim});
  check(out().rank() == static_cast<int64_t>(batch.size() + a.offset_dims.size()) &&
            without(out().dims, a.offset_dims) == batch &&
            at_positions(out().dims, a.offset_dims) == without(a.slice_sizes, gone),
        "the result has the wrong shape");
}

void IndexRule::scatter() const {
  const auto& a = op_.as<ScatterAttrs>();
  const size_t n = op_.results.size();
  check(n > 0 && op_.operands.size() == 2 * n + 1, "needs an update per operand");
  check(is_integer(in(n).elem), "indices must be integers");
  std::vector<Elem> elems;
  for (size_t i = 0; i < n; ++i) {
    check(in(i) == out(i) && in(i).dims == in(0).dims && in(n + 1 + i).elem == in(i).elem &&
              in(n + 1 + i).dims == in(n + 1).dims,
          "operands, updates and results do not fit");
    elems.push_back(in(i).elem);
  }
  Dims gone = a.inserted_window_dims;
  gone.insert(gone.end(), a.input_batching_dims.begin(), a.input_batching_dims.end());
  check_dims(gone, in(0).rank(), "the inserted dimensions");
  check_dims(a.scatter_dims_to_operand_dims, in(0).rank(), "the index map");
  check_dims(a.update_window_dims, in(n + 1).rank(), "the window dimensions");
  check(a.index_vector_dim >= 0 && a.index_vector_dim <= in(n).rank() &&
            a.update_window_dims.size() + gone.size() == in(0).dims.size() &&
            a.input_batching_dims.size() == a.scatter_indices_batching_dims.size(),
        "the dimension numbers do not fit");
  check_dims(a.scatter_indices_batching_dims, in(n).rank(), "the batching dimensions");
  const bool implicit = a.index_vector_dim == in(n).rank();
  check((implicit ? 1 : in(n).dims[static_cast<size_t>(a.index_vector_dim)]) ==
            static_cast<int64_t>(a.scatter_dims_to_operand_dims.size()),
        "the index vectors have the wrong length");
  for (size_t i = 0; i < a.input_batching_dims.size(); ++i) {
    const int64_t d = a.input_batching_dims[i], s = a.scatter_indices_batching_dims[i];
    check(s != a.index_vector_dim &&
              in(0).dims[static_cast<size_t>(d)] == in(n).dims[static_cast<size_t>(s)],
          "a batching dimension differs between operand and indices");
  }
  const Dims batch = implicit ? in(n).dims : without(in(n).dims, {a.index_vector_dim});
  const Dims window = at_positions(in(n + 1).dims, a.update_window_dims);
  const Dims bounds = without(in(0).dims, gone);
  check(without(in(n + 1).dims, a.update_window_dims) == batch, "the updates have the wrong shape");
  for (size_t i = 0; i < window.size(); ++i) {
    check(window[i] <= bounds[i], "an update window is larger than the operand");
  }
  check_body(*op_.regions[0], elems, 2);
}

void IndexRule::indexed() const {
  const auto& a = op_.as<IndexedAttrs>();
  const size_t n = op_.kind == Kind::kIndexedCombine ? op_.results.size() : 1;
  const bool read = op_.kind == Kind::kIndexedRead;
  check(n > 0 && op_.operands.size() == (read ? 2 : 2 * n + 1), "needs an update per operand");
  check(in(n).elem == Elem::kI32, "the list must be i32");
  check_sizes({&a.window}, in(0).rank());
  Dims moved = in(n).dims;
  moved.insert(moved.end(), a.window.begin(), a.window.end());
  for (size_t d = 0; d < a.window.size(); ++d) {
    check(a.window[d] >= 0 && a.window[d] <= in(0).dims[d], "the window is larger than the table");
  }
  if (read) {
    return check_result(moved, in(0).elem);
  }
  std::vector<Elem> elems;
  for (size_t i = 0; i < n; ++i) {
    check(out(i) == in(i) && in(i).dims == in(0).dims && in(n + 1 + i) == Type{in(i).elem, moved},
          "targets, updates and results do not fit");
    elems.push_back(in(i).elem);
  }
  if (op_.kind == Kind::kIndexedCombine) {
    check_body(*op_.regions[0], elems, 2);
  }
}

}  // namespace tpu::compiler
