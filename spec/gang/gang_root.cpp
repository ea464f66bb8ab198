// Barriers and aborts at the root of a gang.
#include "gang/gang_root.hpp"

#include <algorithm>
#include <bit>

#include "tpu/spec/gsync_regs.hpp"

namespace tpu::spec {
namespace {

// One message for each core of the mask, the lowest first.
template <typename What>
void send_all(uint32_t mask, const What& what, std::vector<GangMessage>& to) {
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    to.push_back({static_cast<uint32_t>(std::countr_zero(left)), what});
  }
}

}  // namespace

std::vector<GangMessage> GangRoot::arrive(uint32_t core, const GangArrival& arrival) {
  std::vector<GangMessage> sent;
  forget_old(arrival.tag);
  if (arrival.kind == gsync::kKindStep) {
    if (const Aborted* known = find_aborted(arrival.tag)) {
      return {{core, GangAbort{arrival.tag, known->origin, known->code, arrival.mask}}};
    }
    if (const Barrier* found = mismatch(core, arrival)) {
      const auto code = static_cast<uint8_t>(gsync::kCodeMismatch);
      const auto origin = static_cast<uint8_t>(core);
      sent = abort({found->tag, origin, code, found->mask});
      std::ranges::copy(abort({arrival.tag, origin, code, arrival.mask}), std::back_inserter(sent));
      return sent;
    }
  }
  auto found = std::ranges::find_if(barriers_, [&](const Barrier& barrier) {
    return barrier.tag == arrival.tag && barrier.kind == arrival.kind &&
           (arrival.kind == gsync::kKindDrain || barrier.step == arrival.step);
  });
  if (found == barriers_.end()) {
    barriers_.push_back({arrival.tag, arrival.kind, arrival.step, arrival.mask, 0});
    found = barriers_.end() - 1;
  }
  found->arrived |= 1U << core;
  if ((found->arrived & found->mask) == found->mask) {
    const Barrier full = *found;
    barriers_.erase(found);
    send_all(full.mask, GangArrival{full.tag, full.kind, full.step, full.mask}, sent);
  }
  return sent;
}

// Two barriers that each wait for a core that has arrived at the other one can never be complete.
const GangRoot::Barrier* GangRoot::mismatch(uint32_t core, const GangArrival& arrival) const {
  const auto found = std::ranges::find_if(barriers_, [&](const Barrier& other) {
    const bool same =
        other.tag == arrival.tag && other.step == arrival.step && other.mask == arrival.mask;
    return !same && other.kind == gsync::kKindStep && (other.mask >> core & 1U) != 0 &&
           (other.arrived & arrival.mask) != 0;
  });
  return found == barriers_.end() ? nullptr : &*found;
}

std::vector<GangMessage> GangRoot::abort(const GangAbort& abort) {
  std::vector<GangMessage> sent;
  forget_old(abort.tag);
  if (find_aborted(abort.tag) != nullptr) {
    return sent;  // the first abort of a tag wins
  }
  aborted_[next_aborted_] = {true, abort.tag, abort.origin, abort.code};
  next_aborted_ = (next_aborted_ + 1) % kAbortedKept;
  std::erase_if(barriers_, [&](const Barrier& barrier) {
    return barrier.tag == abort.tag && barrier.kind == gsync::kKindStep;
  });
  send_all(abort.mask, abort, sent);
  return sent;
}

// No core arrives for tags that are so much older, and their numbers will be used again.
void GangRoot::forget_old(uint32_t youngest) {
  const auto old = [youngest](const auto& entry) {
    return gang_tag_age(youngest, entry.tag) >= static_cast<int32_t>(gsync::kForgetAge);
  };
  for (Aborted& entry : aborted_) {
    entry.valid = entry.valid && !old(entry);
  }
  std::erase_if(barriers_, old);
}

const GangRoot::Aborted* GangRoot::find_aborted(uint32_t tag) const {
  const auto found = std::ranges::find_if(
      aborted_, [tag](const Aborted& entry) { return entry.valid && entry.tag == tag; });
  return found == aborted_.end() ? nullptr : &*found;
}

void GangRoot::visit_state(Archive& archive, uint32_t cores) {
  archive(barriers_, aborted_, next_aborted_);
  archive.need(next_aborted_ < kAbortedKept, "an aborted gang has no place");
  for (const Barrier& barrier : barriers_) {
    archive.need((barrier.mask & ~cores) == 0, "a barrier is for cores that are not there");
  }
}

AbortAnswer answer_to_abort(uint32_t abort_tag, uint32_t tag, uint32_t mask, bool aborted) {
  if (mask == 0 || aborted || gang_tag_age(abort_tag, tag) > 0) {
    return AbortAnswer::kIgnore;
  }
  return abort_tag == tag ? AbortAnswer::kStop : AbortAnswer::kDrain;
}

}  // namespace tpu::spec
