// sort: the rows along the dimension one by one, by the comparator on single elements. A merge
// sort, since a comparator of the user's need not be an order.
#include <cstring>

#include "ir/lifted_body.hpp"

namespace tpu::compiler::eval {
namespace {

class RowSorter {
 public:
  RowSorter(const Op& op, const Tensors& in, const Env& env)
      : in_(in), body_(op, *op.regions[0], 1, env) {
    for (const Tensor* t : in) {
      scratch_.push_back(make_tensor({t->type.elem, {1}}));
      scratch_.push_back(make_tensor({t->type.elem, {1}}));
    }
  }

  // Stable order of the elements `rows` (places in the operands).
  std::vector<int64_t> sorted(std::vector<int64_t> rows) {
    if (rows.size() < 2) {
      return rows;
    }
    const auto half = rows.begin() + static_cast<ptrdiff_t>(rows.size() / 2);
    const std::vector<int64_t> a = sorted({rows.begin(), half}), b = sorted({half, rows.end()});
    size_t i = 0, j = 0;
    for (int64_t& r : rows) {
      const bool from_b = i == a.size() || (j < b.size() && before(b[j], a[i]));
      r = from_b ? b[j++] : a[i++];
    }
    return rows;
  }

 private:
  bool before(int64_t x, int64_t y) {
    std::vector<const Tensor*> args;
    for (size_t i = 0; i < in_.size(); ++i) {
      const auto size = static_cast<size_t>(elem_bytes(in_[i]->type.elem));
      std::memcpy(scratch_[2 * i].data.data(), in_[i]->data.data() + static_cast<size_t>(x) * size,
                  size);
      std::memcpy(scratch_[2 * i + 1].data.data(),
                  in_[i]->data.data() + static_cast<size_t>(y) * size, size);
    }
    for (const Tensor& t : scratch_) {
      args.push_back(&t);
    }
    return body_.run(args)[0].data[0] != std::byte{0};
  }

  const Tensors& in_;
  LiftedBody body_;
  std::vector<Tensor> scratch_;
};

}  // namespace

std::vector<Tensor> sort(const Op& op, const Tensors& in, const Env& env) {
  const auto dim = static_cast<size_t>(op.as<SortAttrs>().dim);
  const int64_t n = op.type().dims[dim], pitch = row_major_strides(op.type().dims)[dim];
  std::vector<Tensor> out;
  for (size_t i = 0; i < in.size(); ++i) {
    out.push_back(make_tensor(op.type(i)));
  }
  RowSorter sorter(op, in, env);
  for (int64_t start = 0; start < op.type().count(); ++start) {
    if (start / pitch % n != 0) {
      continue;
    }
    std::vector<int64_t> rows;
    for (int64_t k = 0; k < n; ++k) {
      rows.push_back(start + k * pitch);
    }
    const std::vector<int64_t> order = sorter.sorted(rows);
    for (size_t i = 0; i < in.size(); ++i) {
      const auto size = static_cast<size_t>(elem_bytes(op.type(i).elem));
      for (size_t k = 0; k < order.size(); ++k) {
        std::memcpy(out[i].data.data() + static_cast<size_t>(rows[k]) * size,
                    in[i]->data.data() + static_cast<size_t>(order[k]) * size, size);
      }
    }
  }
  return out;
}

}  // namespace tpu::compiler::eval
