// Barriers and aborts of gangs.
#include "fake/fake_gangs.hpp"

#include <algorithm>
#include <bit>

#include "tpu/spec/gsync_regs.h"

namespace tpu::firmware {
namespace {

constexpr size_t kAbortedKept = 64;

// Tags are counted and wrap: how much younger `tag` is than `other`; negative: older.
int32_t age(uint32_t tag, uint32_t other) { return static_cast<int32_t>(tag - other); }

}  // namespace

FakeGangs::Root& FakeGangs::root_of(uint32_t mask) {
  return roots_.at(static_cast<size_t>(std::countr_zero(mask)));
}

void FakeGangs::arrive(uint32_t core, uint32_t kind) {
  const FakeCore& from = *cores_.at(core);
  const uint32_t mask = from.gsync_reg(TPU_GSYNC_MASK_OFFSET);
  if (mask != 0) {
    count(core, {from.gsync_reg(TPU_GSYNC_TAG_OFFSET), kind, from.gsync_reg(TPU_GSYNC_STEP_OFFSET),
                 mask});
  }
}

void FakeGangs::count(uint32_t core, const Arrival& arrival) {
  Root& root = root_of(arrival.mask);
  forget_old(root, arrival.tag);
  if (arrival.kind == TPU_GSYNC_KIND_STEP) {
    if (const Aborted* known = find_aborted(root, arrival.tag)) {
      tell_abort(core, arrival.mask, Aborted(*known));
      return;
    }
    if (mismatch(core, arrival)) {
      return;
    }
  }
  const auto same = [&](const Barrier& barrier) {
    return barrier.what.tag == arrival.tag && barrier.what.kind == arrival.kind &&
           (arrival.kind == TPU_GSYNC_KIND_DRAIN || barrier.what.step == arrival.step);
  };
  auto found = std::find_if(root.barriers.begin(), root.barriers.end(), same);
  if (found == root.barriers.end()) {
    root.barriers.push_back({arrival, 0});
    found = root.barriers.end() - 1;
  }
  found->arrived |= 1U << core;
  if ((found->arrived & found->what.mask) == found->what.mask) {
    const Arrival full = found->what;
    root.barriers.erase(found);
    release(full);
  }
}

// Two barriers that each wait for a core which has arrived at the other one can never be complete.
bool FakeGangs::mismatch(uint32_t core, const Arrival& arrival) {
  for (const Barrier& other : root_of(arrival.mask).barriers) {
    const Arrival what = other.what;
    const bool same =
        what.tag == arrival.tag && what.step == arrival.step && what.mask == arrival.mask;
    if (!same && what.kind == TPU_GSYNC_KIND_STEP && (what.mask >> core & 1U) != 0 &&
        (other.arrived & arrival.mask) != 0) {
      abort(core, what.tag, what.mask, TPU_GSYNC_CODE_MISMATCH);
      abort(core, arrival.tag, arrival.mask, TPU_GSYNC_CODE_MISMATCH);
      return true;
    }
  }
  return false;
}

void FakeGangs::release(const Arrival& full) {
  for (uint32_t index = 0; index < cores_.size(); ++index) {
    FakeCore& core = *cores_[index];
    if ((full.mask >> index & 1U) != 0 && core.barrier_waiting && core.barrier_kind == full.kind &&
        core.gsync_reg(TPU_GSYNC_TAG_OFFSET) == full.tag) {
      core.release();
    }
  }
}

void FakeGangs::abort(uint32_t core, uint32_t tag, uint32_t mask, uint32_t code) {
  const uint32_t there = cores_.size() >= 32 ? mask : mask & ((1U << cores_.size()) - 1U);
  if (there == 0) {
    return;
  }
  Root& root = root_of(there);
  forget_old(root, tag);
  if (find_aborted(root, tag) != nullptr) {
    return;
  }
  const Aborted aborted{tag, core, code};
  root.aborted.push_back(aborted);
  if (root.aborted.size() > kAbortedKept) {
    root.aborted.pop_front();
  }
  std::erase_if(root.barriers, [&](const Barrier& barrier) {
    return barrier.what.tag == tag && barrier.what.kind == TPU_GSYNC_KIND_STEP;
  });
  for (uint32_t index = 0; index < cores_.size(); ++index) {
    if ((there >> index & 1U) != 0) {
      tell_abort(index, there, aborted);
    }
  }
}

void FakeGangs::abort_by_host(uint32_t core, uint32_t tag) {
  const FakeCore& reached = *cores_.at(core);
  if (reached.gsync_reg(TPU_GSYNC_TAG_OFFSET) == tag) {
    abort(core, tag, reached.gsync_reg(TPU_GSYNC_MASK_OFFSET), TPU_GSYNC_CODE_HOST);
  }
}

void FakeGangs::tell_abort(uint32_t index, uint32_t mask, const Aborted& aborted) {
  FakeCore& core = *cores_[index];
  const uint32_t own = core.gsync_reg(TPU_GSYNC_TAG_OFFSET);
  const bool is_aborted =
      (core.gsync_reg(TPU_GSYNC_STATE_OFFSET) & TPU_GSYNC_STATE_ABORTED_MASK) != 0;
  if (core.gsync_reg(TPU_GSYNC_MASK_OFFSET) == 0 || is_aborted || age(aborted.tag, own) > 0) {
    return;  // not in the gang yet: its arrival will be answered by the root
  }
  if (aborted.tag != own) {  // past the gang: the others must not wait for it in the drain barrier
    count(index, {aborted.tag, TPU_GSYNC_KIND_DRAIN, 0, mask});
    return;
  }
  core.abort(aborted.tag, aborted.origin, aborted.code);
}

const FakeGangs::Aborted* FakeGangs::find_aborted(const Root& root, uint32_t tag) {
  const auto found = std::find_if(root.aborted.begin(), root.aborted.end(),
                                  [tag](const Aborted& entry) { return entry.tag == tag; });
  return found == root.aborted.end() ? nullptr : &*found;
}

// No core arrives for tags that are so much older, and their numbers will be used again.
void FakeGangs::forget_old(Root& root, uint32_t youngest) {
  const auto old = [youngest](uint32_t tag) {
    return age(youngest, tag) >= static_cast<int32_t>(TPU_GSYNC_FORGET_AGE);
  };
  std::erase_if(root.aborted, [&](const Aborted& entry) { return old(entry.tag); });
  std::erase_if(root.barriers, [&](const Barrier& barrier) { return old(barrier.what.tag); });
}

}  // namespace tpu::firmware
