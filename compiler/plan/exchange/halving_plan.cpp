#include "plan/exchange/halving_plan.hpp"

#include <algorithm>

namespace tpu::compiler {

const UpdatePlan* HalvingPlan::update_of(int64_t i) const {
  const int update = piece(i).update;
  return update < 0 ? nullptr : &updates[static_cast<size_t>(update)];
}

size_t HalvingPlan::ways_back(int64_t i) const {
  const UpdatePlan* u = update_of(i);
  return u == nullptr ? 1 : u->gathered.size();
}

bool take_rings(Residency& memory, HalvingPlan& plan) {
  return take_rings([&](int64_t bytes) { return memory.take(bytes); }, plan);
}

bool take_rings(const TakeVmem& take, HalvingPlan& plan) {
  const auto pieces = static_cast<int64_t>(plan.pieces.size());
  const auto ring = [&](std::vector<int64_t>& areas, int64_t count, int64_t bytes) {
    for (int64_t i = 0; i < std::min(count, pieces); ++i) {
      const auto address = take(bytes);
      if (!address) {
        return false;
      }
      areas.push_back(*address);
      plan.memory.push_back(*address);
    }
    return true;
  };
  const int64_t way = plan.stages() * plan.lag;
  const bool both_ways = !plan.only_down && !plan.only_back &&
                         std::any_of(plan.pieces.begin(), plan.pieces.end(),
                                     [](const HalvingPlan::Piece& p) { return p.update < 0; });
  if (!plan.summed && plan.buckets.empty() &&
      !ring(plan.buckets, both_ways ? 2 * way + 2 : way + 2, plan.bytes)) {
    return false;
  }
  for (int64_t s = 0; !plan.summed && !plan.only_back && s < plan.stages(); ++s) {
    if (!ring(plan.landing[static_cast<size_t>(s)], plan.lag + 2, plan.bytes >> (s + 1))) {
      return false;
    }
  }
  std::vector<int64_t> backs;  // bytes of an element of each gathered value, the largest
  size_t slots = 0;
  for (const UpdatePlan& u : plan.updates) {
    const std::vector<const Value*>& gathered = u.update->gathered;
    backs.resize(std::max(backs.size(), gathered.size()));
    for (size_t i = 0; i < gathered.size(); ++i) {
      backs[i] = std::max(backs[i], elem_bytes(gathered[i]->type.elem));
    }
    slots = std::max(slots, u.operands.size());
  }
  plan.back.resize(backs.size());
  plan.slots.resize(slots);
  for (size_t i = 0; i < backs.size(); ++i) {
    if (!ring(plan.back[i], way + 2, plan.bytes / plan.unit * backs[i])) {
      return false;
    }
  }
  return std::all_of(plan.slots.begin(), plan.slots.end(),
                     [&](auto& areas) { return ring(areas, 3, 2 * plan.part_bytes()); });
}

static bool made_by(const Update& u, const Value* v) {
  return std::any_of(u.kernels.begin(), u.kernels.end(), [&](const UpdateKernel& k) {
    return std::find(k.writes.begin(), k.writes.end(), v) != k.writes.end();
  });
}

std::vector<UpdateOperand> update_operands(const Update& u) {
  std::vector<UpdateOperand> out;
  const auto add = [&](const Value* v, bool input) {
    if (std::none_of(out.begin(), out.end(),
                     [&](const UpdateOperand& o) { return o.value == v; })) {
      out.push_back({v, input});
    }
  };
  for (const UpdateKernel& k : u.kernels) {
    for (const NestAccess& a : k.nest.accesses) {
      if (a.view.stride[0] != 0 && !made_by(u, a.value) && a.value != u.sum) {
        add(a.value, true);
      }
    }
  }
  for (const UpdateKernel& k : u.kernels) {
    for (const Value* w : k.writes) {
      if (std::find(u.gathered.begin(), u.gathered.end(), w) == u.gathered.end()) {
        add(w, false);
      }
    }
  }
  return out;
}

}  // namespace tpu::compiler
