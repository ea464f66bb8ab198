#include "ir/counter_values.hpp"

#include <unordered_map>

#include "ir/eval.hpp"

namespace tpu::compiler {

namespace {

constexpr int64_t kMostTrips = 4096;  // values are computed one by one

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

}  // namespace

std::optional<std::vector<int64_t>> values_in_loop(const Value* v, const Op& loop,
                                                   const CountedLoop& counted) {
  if (counted.trips > kMostTrips) {
    return std::nullopt;
  }
  const Value* counter = loop.regions[1]->args[counted.index].get();
  std::vector<int64_t> values;
  for (int64_t trip = 0; trip < counted.trips; ++trip) {
    AtCounter numbers(counter, counted.first + trip * counted.step);
    const Tensor* value = numbers.of(v);
    if (value == nullptr) {
      return std::nullopt;
    }
    values.push_back(to_dense(Tensor(*value)).as_int(0));
  }
  return values;
}

}  // namespace tpu::compiler
