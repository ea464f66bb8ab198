// See producers.hpp.
#include "kernel/producers.hpp"

#include <algorithm>
#include <vector>

#include "ir/op_traits.hpp"

namespace tpu::compiler {

Producers::Producers(const Region& region, const Region& made, const NestContext& views)
    : made_ops_(made), views_(views) {
  for (const auto& op : region.ops) {
    local_.insert(op.get());
    has_barriers_ = has_barriers_ || op->kind == Kind::kOptimizationBarrier;
  }
}

int Producers::position(const Value* v) const {
  const auto it = made_by_.find(v);
  return it == made_by_.end() ? -1 : it->second->order;
}

bool Producers::is_local(const Op* op) const {
  return local_.contains(op) || op->parent == &made_ops_;
}

bool Producers::waits(const Value* root) const {
  return root->def != nullptr && !made(root) && !given_.contains(root) &&
         !is_cheap(root->def->kind) && is_local(root->def);
}

int Producers::latest(const Value* v) const {
  const Value* root = view_root(v, views_);
  return std::max(waits(root) ? latest_of(*root->def) : position(root), behind_barriers(v));
}

int Producers::behind_barriers(const Value* v) const {
  int pos = -1;
  for (; has_barriers_ && v->def != nullptr && has_trait(v->def->kind, trait::kView) &&
         !views_.is_copied(v);
       v = v->def->operands[static_cast<size_t>(v->index)]) {
    const Op& op = *v->def;
    if (op.kind != Kind::kOptimizationBarrier || !is_local(&op)) {
      continue;
    }
    auto known = awaited_.find(&op);
    if (known == awaited_.end()) {
      int last = -1;
      for (const Value* operand : op.operands) {
        last = std::max(last, latest(operand));
      }
      known = awaited_.emplace(&op, last).first;
    }
    pos = std::max(pos, known->second);
  }
  return pos;
}

// Long chains may wait, with two paths an op: what is known stays known until a kernel changes.
int Producers::latest_of(const Op& op) const {
  std::vector<const Op*> work = {&op};
  while (!work.empty()) {
    const Op* top = work.back();
    const size_t before = work.size();
    int pos = -1;
    if (!latest_.contains(top)) {
      for (const Value* v : top->operands) {
        pos = std::max(pos, behind_barriers(v));
        const Value* root = view_root(v, views_);
        const auto known = waits(root) ? latest_.find(root->def) : latest_.end();
        if (known != latest_.end()) {
          pos = std::max(pos, known->second);
        } else if (waits(root)) {
          work.push_back(root->def);
        } else {
          pos = std::max(pos, position(root));
        }
      }
    }
    if (work.size() == before) {
      latest_.emplace(top, pos);
      work.pop_back();
    }
  }
  return latest_.at(&op);
}

}  // namespace tpu::compiler
