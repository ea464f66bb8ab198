// See barred_casts.hpp.
#include "passes/barred_casts.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tpu::compiler {
namespace {

class BarredCasts {
 public:
  explicit BarredCasts(Region& body) : body_(body) {
    for (size_t i = 0; i < body.ops.size(); ++i) {
      position_[body.ops[i].get()] = i;
    }
  }

  bool run() {
    std::vector<std::pair<const Op*, std::unique_ptr<Op>>> made;  // in front of which barrier
    for (const auto& op : body_.ops) {
      if (op->kind == Kind::kAllGather && op->operands.size() == 1) {
        if (Value* before = cast_before(*op->operands[0])) {
          const Op* barrier = op->operands[0]->def->operands[0]->def;
          made.emplace_back(barrier, again(*barrier, before));
          op->operands[0] = made.back().second->result(0);
        }
      }
    }
    for (auto& [barrier, op] : made) {
      op->parent = &body_;
      body_.ops.insert(
          std::ranges::find(body_.ops, barrier, [](const auto& each) { return each.get(); }),
          std::move(op));
    }
    return !made.empty();
  }

 private:
  // The same cast of the same argument, without and in front of the barrier. Null: there is none.
  Value* cast_before(const Value& gathered) const {
    const Op* cast = gathered.def;
    if (cast == nullptr || cast->kind != Kind::kConvert ||
        cast->type().bytes() >= cast->operand_type(0).bytes()) {
      return nullptr;
    }
    const Value* barred = cast->operands[0];
    if (barred->def == nullptr || barred->def->kind != Kind::kOptimizationBarrier ||
        barred->def->parent != &body_) {
      return nullptr;
    }
    const Value* argument = barred->def->operands[static_cast<size_t>(barred->index)];
    if (argument->def != nullptr) {
      return nullptr;
    }
    const auto end = body_.ops.begin() + static_cast<ptrdiff_t>(position_.at(barred->def));
    const auto found = std::find_if(body_.ops.begin(), end, [&](const auto& op) {
      return op->kind == Kind::kConvert && op->operands[0] == argument &&
             op->type() == cast->type();
    });
    return found == end ? nullptr : (*found)->result();
  }

  // Of `value`, behind what the barrier waits for.
  static std::unique_ptr<Op> again(const Op& barrier, Value* value) {
    auto op = std::make_unique<Op>();
    op->kind = Kind::kOptimizationBarrier;
    op->loc = barrier.loc;
    op->operands = {value};
    std::ranges::copy_if(barrier.operands, std::back_inserter(op->operands),
                         [](const Value* v) { return v->def != nullptr; });
    for (const Value* v : op->operands) {
      op->add_result(v->type);
    }
    return op;
  }

  Region& body_;
  std::unordered_map<const Op*, size_t> position_;
};

}  // namespace

bool cast_in_front_of_barriers(Module& module) { return BarredCasts(module.main->body).run(); }

}  // namespace tpu::compiler
