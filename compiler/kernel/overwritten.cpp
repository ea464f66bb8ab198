// See overwritten.hpp.
#include "kernel/overwritten.hpp"

#include <algorithm>
#include <vector>

#include "ir/eval.hpp"

namespace tpu::compiler {

namespace {

constexpr int64_t kMostTrips = 4096;  // whose starts are computed one by one

// A small integer made from the counter and constants, for one value of the counter.
class AtCounter {
 public:
  AtCounter(const Value* counter, int64_t value) {
    known_[counter] = to_tensor(make_splat_int(counter->type, value));
  }

  // Null where it is made from anything else.
  const Tensor* of(const Value* v) {
    if (const auto it = known_.find(v); it != known_.end()) {
      return &it->second;
    }
    const Op* op = v->def;
    if (op == nullptr || v->type.count() != 1 || is_float(v->type.elem)) {
      return nullptr;
    }
    if (op->kind == Kind::kConstant) {
      return &(known_[v] = to_tensor(op->as<ConstantAttrs>().value));
    }
    if (!can_eval(op->kind) || !op->regions.empty() || op->results.size() != 1 ||
        op->operands.empty()) {
      return nullptr;
    }
    Tensors operands;
    for (const Value* operand : op->operands) {
      operands.push_back(of(operand));
      if (operands.back() == nullptr) {
        return nullptr;
      }
    }
    return &(known_[v] = eval_op(*op, operands, {}));
  }

 private:
  std::unordered_map<const Value*, Tensor> known_;  // its elements keep their places
};

// The dimension along which the update is shorter than the array; nothing if there are several.
std::optional<size_t> cut_dimension(const Op& update) {
  const Dims &all = update.type().dims, &part = update.operand_type(1).dims;
  std::optional<size_t> cut;
  for (size_t d = 0; d < all.size(); ++d) {
    if (part[d] != all[d]) {
      if (cut) {
        return std::nullopt;
      }
      cut = d;
    }
  }
  return cut;
}

bool covers(const Op& loop, const CountedLoop& counted, const Op& update) {
  const auto cut = cut_dimension(update);
  if (!cut) {
    return false;
  }
  const int64_t all = update.type().dims[*cut], part = update.operand_type(1).dims[*cut];
  if (part == 0 || all % part != 0 || counted.trips > kMostTrips) {
    return false;
  }
  std::vector<bool> written(static_cast<size_t>(all / part), false);
  const Value* counter = loop.regions[1]->args[counted.index].get();
  for (int64_t trip = 0; trip < counted.trips; ++trip) {
    AtCounter numbers(counter, counted.first + trip * counted.step);
    const Tensor* start = numbers.of(update.operands[2 + *cut]);
    if (start == nullptr) {
      return false;
    }
    const int64_t at =
        std::clamp<int64_t>(to_dense(Tensor(*start)).as_int(0), 0, all - part);  // as it is defined
    if (at % part == 0) {
      written[static_cast<size_t>(at / part)] = true;
    }
  }
  return std::ranges::all_of(written, std::identity{});
}

}  // namespace

bool is_overwritten(const Op& loop, const CountedLoop& counted, size_t index) {
  const Region& body = *loop.regions[1];
  const Value* given = body.terminator()->operands[index];
  const Op* update = given->def;
  if (update == nullptr || update->kind != Kind::kDynamicUpdateSlice || update->parent != &body ||
      update->operands[0] != body.args[index].get()) {
    return false;
  }
  const Uses uses = compute_uses(body);
  const auto used_once = [&](const Value* v) {
    const auto it = uses.find(v);
    return it != uses.end() && it->second.size() == 1;
  };
  return used_once(update->operands[0]) && used_once(given) && covers(loop, counted, *update);
}

}  // namespace tpu::compiler
