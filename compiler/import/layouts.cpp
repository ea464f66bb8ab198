// See layouts.hpp.
//   main(x: f32[2,3]) {layout {0,1}}        main(X: f32[3,2])     what lies in memory, dense
//     return f(x)                      =>     x = transpose X
//                                             return f(x)
#include "import/layouts.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "ir/error_kinds.hpp"

namespace tpu::compiler::frontend {
namespace {

Dims inverse(const Dims& order) {
  Dims out(order.size());
  for (size_t k = 0; k < order.size(); ++k) {
    out[static_cast<size_t>(order[k])] = static_cast<int64_t>(k);
  }
  return out;
}

template <typename T>
void reorder(std::vector<T>& entries, const Dims& order) {
  if (entries.size() != order.size()) {  // says nothing of any dimension
    return;
  }
  const std::vector<T> old = entries;
  for (size_t k = 0; k < order.size(); ++k) {
    entries[k] = old[static_cast<size_t>(order[k])];
  }
}

void reorder(Type& global, std::optional<ShardingAttrs>& wanted, const Dims& order) {
  reorder(global.dims, order);
  if (wanted) {
    reorder(wanted->sharding.dim_axes, order);
    reorder(wanted->open, order);
  }
}

}  // namespace

Dims read_layout(std::string_view text, size_t rank) {
  if (text == "default" || text == "auto") {
    return {};
  }
  const auto fail = [&] {
    throw Error("its layout '" + std::string(text) + "' does not name each of its " +
                std::to_string(rank) + " dimensions once, as {1,0} does for two");
  };
  if (text.find(':') != std::string_view::npos) {
    throw Unsupported("its layout '" + std::string(text) +
                          "' has tiles or other marks; arrays are dense in the board's memory: "
                          "leave out `tiling`",
                      "", nullptr);
  }
  if (text.size() < 2 || text.front() != '{' || text.back() != '}') {
    fail();
  }
  Dims order;  // minor to major
  const char* const end = text.data() + text.size() - 1;
  for (const char* at = text.data() + 1; at < end;) {
    int64_t dim = -1;
    const auto [next, error] = std::from_chars(at, end, dim);
    if (error != std::errc() || (next != end && *next != ',') || (next != end && next + 1 == end)) {
      fail();
    }
    order.push_back(dim);
    at = next == end ? end : next + 1;
  }
  std::reverse(order.begin(), order.end());
  Dims in_order(rank);
  std::iota(in_order.begin(), in_order.end(), 0);
  if (!std::is_permutation(order.begin(), order.end(), in_order.begin(), in_order.end())) {
    fail();
  }
  return order == in_order ? Dims{} : order;
}

void lay_out(Function& main) {
  Region& body = main.body;
  for (size_t i = 0; i < main.args.size(); ++i) {
    ArgInfo& info = main.args[i];
    if (info.layout.empty()) {
      continue;
    }
    Value* arg = body.args[i].get();
    Op* turned = body.append(Kind::kTranspose, {arg}, {arg->type}, DimsAttrs{inverse(info.layout)},
                             main.loc);
    replace_all_uses(body, arg, turned->result());
    turned->operands[0] = arg;
    std::rotate(body.ops.begin(), body.ops.end() - 1, body.ops.end());
    reorder(info.global, info.wanted, info.layout);
    arg->type = info.global;
  }
  for (size_t i = 0; i < main.results.size(); ++i) {
    ResultInfo& info = main.results[i];
    if (info.layout.empty()) {
      continue;
    }
    Op* ret = body.terminator();
    reorder(info.global, info.wanted, info.layout);
    Op* turned = body.append(Kind::kTranspose, {ret->operands[i]}, {info.global},
                             DimsAttrs{info.layout}, ret->loc);
    ret->operands[i] = turned->result();
    std::swap(body.ops[body.ops.size() - 1], body.ops[body.ops.size() - 2]);
  }
}

}  // namespace tpu::compiler::frontend
