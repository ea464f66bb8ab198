// Pass `unroll`: see unroll.hpp.
#include "passes/unroll.hpp"

#include <optional>
#include <unordered_map>

#include "ir/control.hpp"
#include "ir/op_traits.hpp"
#include "passes/rewriter.hpp"

namespace tpu::compiler {
namespace {

constexpr int64_t kMaxTrips = 8;
constexpr int64_t kMostUnrolled = 400;  // after unrolling

bool is_plain(const Op& op) {
  return has_trait(op.kind, trait::kUnrolls) || is_elementwise(op.kind);
}

std::optional<int64_t> scalar_constant(const Value* v) {
  const Dense* d = constant_of(v);
  return d != nullptr && v->type.is_scalar() && is_integer(v->type.elem)
             ? std::optional<int64_t>(d->as_int(0))
             : std::nullopt;
}

// Iterations of `while (i < limit) { ..; i = i + step }`, counted as the loop itself would.
std::optional<int64_t> trip_count(const Op& loop) {
  const Region& condition = *loop.regions[0];
  const Region& body = *loop.regions[1];
  const Op* test = condition.terminator()->operands.at(0)->def;
  if (test == nullptr || test->kind != Kind::kCompare || test->parent != &condition ||
      test->as<CompareAttrs>().direction != CompareDirection::kLt || has_effects(condition)) {
    return std::nullopt;
  }
  const Value* counter = test->operands[0];
  const auto limit = scalar_constant(test->operands[1]);
  if (counter->owner != &condition || !limit) {
    return std::nullopt;
  }
  const auto at = static_cast<size_t>(counter->index);
  const auto start = scalar_constant(loop.operands.at(at));
  const Op* next = body.terminator()->operands.at(at)->def;
  if (!start || next == nullptr || next->kind != Kind::kAdd) {
    return std::nullopt;
  }
  const Value* own = body.args.at(at).get();
  const size_t other = next->operands[0] == own ? 1 : 0;
  const auto step = scalar_constant(next->operands[other]);
  if (next->operands[1 - other] != own || !step || *step < 1 || *step > kMaxTrips ||
      *start > *limit || *start < 0 || *limit - *start > kMaxTrips * *step) {
    return std::nullopt;
  }
  return (*limit - *start + *step - 1) / *step;
}

class Unroller {
 public:
  explicit Unroller(PassLog* log) : log_(log) {}

  bool any = false;

  void region(Region& r) {
    std::vector<std::unique_ptr<Op>> old;
    old.swap(r.ops);
    for (auto& op : old) {
      op->operands = mapped(std::move(op->operands), replaced_);
      for (auto& inner : op->regions) {
        region(*inner);
      }
      if (op->kind == Kind::kWhile && expand(*op, r)) {
        graveyard_.push_back(std::move(op));
      } else {
        r.ops.push_back(std::move(op));
      }
    }
  }

 private:
  bool expand(const Op& loop, Region& to) {
    const auto trips = trip_count(loop);
    const Region& body = *loop.regions[1];
    if (!trips) {
      return gave_up("trip count unknown or large");
    }
    if (*trips * static_cast<int64_t>(body.ops.size()) > kMostUnrolled) {
      return gave_up("body too large");
    }
    for (const auto& op : body.ops) {
      if (!is_plain(*op)) {
        return gave_up("body has ops that are not unrolled");
      }
    }
    std::vector<Value*> carried = loop.operands;
    for (int64_t i = 0; i < *trips; ++i) {
      ValueMap map;
      for (size_t a = 0; a < carried.size(); ++a) {
        map[body.args[a].get()] = carried[a];
      }
      for (const auto& op : body.ops) {
        if (op->kind != Kind::kReturn) {
          clone_op(*op, to, map);
          continue;
        }
        carried = mapped(op->operands, map);
      }
    }
    for (size_t i = 0; i < carried.size(); ++i) {
      replaced_[loop.result(i)] = carried[i];
    }
    any = true;
    return true;
  }

  bool gave_up(std::string_view why) const {
    if (log_ != nullptr) {
      log_->gave_up(why);
    }
    return false;
  }

  PassLog* const log_;
  ValueMap replaced_;
  std::vector<std::unique_ptr<Op>> graveyard_;  // keeps the keys alive
};

}  // namespace

bool unroll_loops(Module& module, PassLog* log) {
  Unroller unroller(log);
  unroller.region(module.main->body);
  return unroller.any;
}

}  // namespace tpu::compiler
