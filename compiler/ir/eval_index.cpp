// Gather, scatter and their lowered forms, window by window as their definitions say.
#include <algorithm>

#include "ir/elements.hpp"

namespace tpu::compiler::eval {
namespace {

int64_t count_of(const Dims& dims) { return Type{Elem::kI8, dims}.count(); }

bool contains(const Dims& list, int64_t d) {
  return std::find(list.begin(), list.end(), d) != list.end();
}

// Position number `i` of an array of shape `dims`.
Dims position(const Dims& dims, int64_t i) {
  Dims at(dims.size());
  for (size_t d = dims.size(); d-- > 0;) {
    at[d] = i % dims[d];
    i /= dims[d];
  }
  return at;
}

int64_t offset_of(const Dims& dims, const Dims& at) {
  const Dims pitch = row_major_strides(dims);
  int64_t offset = 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    offset += pitch[d] * at[d];
  }
  return offset;
}

// The index vector of each record and the batching dims' places, in dims of the operand.
struct Starts {
  const Tensor& indices;
  int64_t vector_dim;
  const Dims& map;
  const Dims& operand_batching;
  const Dims& indices_batching;

  Dims records() const {
    Dims dims = indices.type.dims;
    if (vector_dim < indices.type.rank()) {
      dims.erase(dims.begin() + vector_dim);
    }
    return dims;
  }
  // Where the window of the record begins; indices above any dim (unsigned 64-bit) become
  // INT64_MAX.
  Dims start(const Dims& record, size_t rank) const {
    Dims at = record;
    if (vector_dim < indices.type.rank()) {
      at.insert(at.begin() + vector_dim, 0);
    }
    Dims out(rank, 0);
    for (size_t i = 0; i < operand_batching.size(); ++i) {
      out[static_cast<size_t>(operand_batching[i])] = at[static_cast<size_t>(indices_batching[i])];
    }
    for (size_t k = 0; k < map.size(); ++k) {
      if (vector_dim < indices.type.rank()) {
        at[static_cast<size_t>(vector_dim)] = static_cast<int64_t>(k);
      }
      const int64_t v = int_at(indices, static_cast<size_t>(offset_of(indices.type.dims, at)));
      out[static_cast<size_t>(map[k])] = indices.type.elem == Elem::kU64 && v < 0 ? INT64_MAX : v;
    }
    return out;
  }
};

// Windows of scatter and indexed_combine: operand element of element `w` of record `r`, or -1.
struct Updates {
  Dims window;                                          // in dims of the operand
  std::function<std::vector<int64_t>(int64_t)> places;  // of a record's elements; empty: left out
  std::function<int64_t(int64_t, int64_t)> update;      // element of the updates
  int64_t records = 0;
};

std::vector<int64_t> window_places(const Dims& operand, const Dims& window, const Dims& start) {
  std::vector<int64_t> out;
  for (int64_t w = 0; w < count_of(window); ++w) {
    Dims at = position(window, w);
    for (size_t d = 0; d < at.size(); ++d) {
      at[d] += start[d];
    }
    out.push_back(offset_of(operand, at));
  }
  return out;
}

std::vector<int64_t> places_from(const Op& op, const Tensor& list, int64_t record) {
  const Dims& operand = op.operand_type(0).dims;
  const Dims& window = op.as<IndexedAttrs>().window;
  const int64_t first = int_at(list, static_cast<size_t>(record));
  if (first == -1 && op.kind != Kind::kIndexedRead) {
    return {};
  }
  const Dims zero(window.size(), 0);
  std::vector<int64_t> out = window_places(operand, window, zero);
  for (int64_t& p : out) {
    p += first;
    if (p < 0 || p >= count_of(operand)) {
      throw Error("a list value leads outside of the table", source_name(op.kind), op.loc);
    }
  }
  return out;
}

Dims scatter_window(const Op& op) {
  if (op.kind == Kind::kIndexedCombine) {
    return op.as<IndexedAttrs>().window;
  }
  const auto& a = op.as<ScatterAttrs>();
  const Dims& updates = op.operand_type(op.results.size() + 1).dims;
  Dims sorted = a.update_window_dims, window;
  std::sort(sorted.begin(), sorted.end());
  size_t next = 0;
  for (int64_t d = 0; d < op.operand_type(0).rank(); ++d) {
    const bool one = contains(a.inserted_window_dims, d) || contains(a.input_batching_dims, d);
    window.push_back(one ? 1 : updates[static_cast<size_t>(sorted[next++])]);
  }
  return window;
}

Updates indexed_updates(const Op& op, const Tensor& list) {
  Updates u;
  u.window = scatter_window(op);
  u.records = list.type.count();
  const int64_t n = count_of(u.window);
  u.places = [&op, &list](int64_t r) { return places_from(op, list, r); };
  u.update = [n](int64_t r, int64_t w) { return r * n + w; };
  return u;
}

Updates scatter_updates(const Op& op, const Tensor& indices) {
  const auto& a = op.as<ScatterAttrs>();
  Updates u;
  u.window = scatter_window(op);
  const Starts starts{indices, a.index_vector_dim, a.scatter_dims_to_operand_dims,
                      a.input_batching_dims, a.scatter_indices_batching_dims};
  u.records = count_of(starts.records());
  const Dims window = u.window, operand = op.operand_type(0).dims, records = starts.records();
  u.places = [=](int64_t r) -> std::vector<int64_t> {
    const Dims start = starts.start(position(records, r), operand.size());
    for (size_t d = 0; d < operand.size(); ++d) {
      if (start[d] < 0 || start[d] > operand[d] - window[d]) {
        return {};  // partly outside: dropped whole
      }
    }
    return window_places(operand, window, start);
  };
  const Dims updates = op.operand_type(op.results.size() + 1).dims;
  Dims inner;  // window of the updates
  for (size_t d = 0; d < updates.size(); ++d) {
    if (contains(a.update_window_dims, static_cast<int64_t>(d))) {
      inner.push_back(updates[d]);
    }
  }
  u.update = [=, &a](int64_t r, int64_t w) {
    const Dims record = position(records, r), in = position(inner, w);
    Dims at;
    size_t next_record = 0, next_in = 0;
    for (size_t d = 0; d < updates.size(); ++d) {
      at.push_back(contains(a.update_window_dims, static_cast<int64_t>(d)) ? in[next_in++]
                                                                           : record[next_record++]);
    }
    return offset_of(updates, at);
  };
  return u;
}

}  // namespace

Tensor gather(const Op& op, const Tensors& operands) {
  const auto& a = op.as<GatherAttrs>();
  const Dims& operand = operands[0]->type.dims;
  const Starts starts{*operands[1], a.index_vector_dim, a.start_index_map, a.operand_batching_dims,
                      a.start_indices_batching_dims};
  Tensor out = make_tensor(op.type());
  Dims offset_sorted = a.offset_dims;
  std::sort(offset_sorted.begin(), offset_sorted.end());
  for (int64_t i = 0; i < op.type().count(); ++i) {
    const Dims at = position(op.type().dims, i);
    Dims record, offset;
    for (size_t d = 0; d < at.size(); ++d) {
      (contains(a.offset_dims, static_cast<int64_t>(d)) ? offset : record).push_back(at[d]);
    }
    Dims from = starts.start(record, operand.size());
    size_t next = 0;
    for (size_t d = 0; d < operand.size(); ++d) {
      const auto dim = static_cast<int64_t>(d);
      if (contains(a.operand_batching_dims, dim)) {
        continue;
      }
      from[d] = std::clamp<int64_t>(from[d], 0, operand[d] - a.slice_sizes[d]);
      if (!contains(a.collapsed_slice_dims, dim)) {
        from[d] += offset[next++];
      }
    }
    copy_element(*operands[0], offset_of(operand, from), out, i);
  }
  return out;
}

Tensor indexed_move(const Op& op, const Tensors& operands) {
  const bool read = op.kind == Kind::kIndexedRead;
  Tensor out = read ? make_tensor(op.type()) : *operands[0];
  const int64_t n = count_of(op.as<IndexedAttrs>().window);
  for (int64_t r = 0; r < operands[1]->type.count(); ++r) {
    const std::vector<int64_t> places = places_from(op, *operands[1], r);
    for (size_t w = 0; w < places.size(); ++w) {
      const int64_t moved = r * n + static_cast<int64_t>(w);
      read ? copy_element(*operands[0], places[w], out, moved)
           : copy_element(*operands[2], moved, out, places[w]);
    }
  }
  return out;
}

int64_t scatter_window_elements(const Op& op) { return count_of(scatter_window(op)); }

std::vector<Tensor> scatter(const Op& op, const Tensors& operands, const CombineBody& body) {
  const size_t n = op.results.size();
  const Updates u = op.kind == Kind::kScatter ? scatter_updates(op, *operands[n])
                                              : indexed_updates(op, *operands[n]);
  std::vector<Tensor> out;
  for (size_t i = 0; i < n; ++i) {
    out.push_back(*operands[i]);
  }
  for (int64_t r = 0; r < u.records; ++r) {
    const std::vector<int64_t> places = u.places(r);
    if (places.empty()) {
      continue;
    }
    const auto count = static_cast<int64_t>(places.size());
    std::vector<Tensor> args;
    for (size_t i = 0; i < 2 * n; ++i) {
      const bool old = i < n;
      args.push_back(make_tensor({operands[i % n]->type.elem, {count}}));
      for (int64_t w = 0; w < count; ++w) {
        old ? copy_element(out[i], places[static_cast<size_t>(w)], args[i], w)
            : copy_element(*operands[n + 1 + i - n], u.update(r, w), args[i], w);
      }
    }
    std::vector<const Tensor*> refs;
    for (const Tensor& t : args) {
      refs.push_back(&t);
    }
    const std::vector<Tensor> made = body(refs);
    for (size_t i = 0; i < n; ++i) {
      for (int64_t w = 0; w < count; ++w) {
        copy_element(made[i], w, out[i], places[static_cast<size_t>(w)]);
      }
    }
  }
  return out;
}

}  // namespace tpu::compiler::eval
