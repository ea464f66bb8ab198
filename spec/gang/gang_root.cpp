// Barriers and aborts at the root of a gang.
#include "gang/gang_root.hpp"

#include <algorithm>
#include <utility>

#include "tpu/spec/gsync_regs.hpp"

namespace tpu::spec {
namespace {

// One message for each core of the gang, the lowest first.
template <typename What>
void send_all(const CoreSet& gang, const What& what, std::vector<GangMessage>& to) {
  to.reserve(to.size() + gang.size());
  gang.for_each([&](uint32_t core) { to.push_back({core, what}); });
}

}  // namespace

std::vector<GangMessage> GangRoot::arrive(uint32_t core, const GangArrival& arrival) {
  std::vector<GangMessage> sent;
  forget_old(arrival.tag);
  if (arrival.kind == gsync::kKindStep) {
    if (const Aborted* known = find_aborted(arrival.tag)) {
      return {{core, GangAbort{arrival.tag, known->origin, known->code, arrival.gang}}};
    }
    if (const Barrier* found = mismatch(core, arrival)) {
      const auto code = static_cast<uint8_t>(gsync::kCodeMismatch);
      const auto origin = static_cast<uint16_t>(core);
      const GangAbort other{found->tag, origin, code, found->gang};
      sent = abort(other);
      std::ranges::copy(abort({arrival.tag, origin, code, arrival.gang}), std::back_inserter(sent));
      return sent;
    }
  }
  auto found = std::ranges::find_if(barriers_, [&](const Barrier& barrier) {
    return barrier.tag == arrival.tag && barrier.kind == arrival.kind &&
           (arrival.kind == gsync::kKindDrain || barrier.step == arrival.step);
  });
  if (found == barriers_.end()) {
    barriers_.push_back(
        {arrival.tag, arrival.kind, arrival.step, arrival.gang, {}, arrival.gang.size()});
    found = barriers_.end() - 1;
  }
  if (found->gang.has(core) && !found->arrived.has(core)) {
    --found->missing;
  }
  found->arrived.insert(core);
  if (found->missing == 0) {
    const Barrier full = std::move(*found);
    barriers_.erase(found);
    // Who is released knows its gang.
    send_all(full.gang, GangArrival{full.tag, full.kind, full.step, {}}, sent);
  }
  return sent;
}

// Two barriers that each wait for a core that has arrived at the other one can never be complete.
const GangRoot::Barrier* GangRoot::mismatch(uint32_t core, const GangArrival& arrival) const {
  const auto found = std::ranges::find_if(barriers_, [&](const Barrier& other) {
    const bool same =
        other.tag == arrival.tag && other.step == arrival.step && other.gang == arrival.gang;
    return !same && other.kind == gsync::kKindStep && other.gang.has(core) &&
           other.arrived.meets(arrival.gang);
  });
  return found == barriers_.end() ? nullptr : &*found;
}

std::vector<GangMessage> GangRoot::abort(const GangAbort& abort) {
  std::vector<GangMessage> sent;
  forget_old(abort.tag);
  if (Aborted* known = find_aborted(abort.tag)) {
    // Those who had not joined when it was told, or whose gang was not known, learn it at their
    // next barrier, which may never come: they can wait for the host.
    const GangAbort first{abort.tag, known->origin, known->code, abort.gang};
    if (!abort.gang.empty() && !std::exchange(known->told, true)) {
      send_all(abort.gang, first, sent);
    } else if (abort.gang.has(abort.origin)) {
      sent.push_back({abort.origin, first});
    }
    return sent;
  }
  GangAbort told = abort;
  std::erase_if(barriers_, [&](const Barrier& barrier) {
    const bool over = barrier.tag == abort.tag && barrier.kind == gsync::kKindStep;
    if (over && told.gang.empty()) {
      told.gang = barrier.gang;
    }
    return over;
  });
  aborted_[next_aborted_] = {true, abort.tag, abort.origin, abort.code, !told.gang.empty()};
  next_aborted_ = (next_aborted_ + 1) % kAbortedKept;
  send_all(told.gang, told, sent);
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

GangRoot::Aborted* GangRoot::find_aborted(uint32_t tag) {
  auto found = std::ranges::find_if(
      aborted_, [tag](const Aborted& entry) { return entry.valid && entry.tag == tag; });
  return found == aborted_.end() ? nullptr : &*found;
}

void GangRoot::visit_state(Archive& archive, uint32_t cores) {
  archive(barriers_, aborted_, next_aborted_);
  archive.need(next_aborted_ < kAbortedKept, "an aborted gang has no place");
  for (const Barrier& barrier : barriers_) {
    archive.need(barrier.gang.end() <= cores && barrier.arrived.end() <= cores &&
                     barrier.missing > 0 && barrier.missing <= barrier.gang.size(),
                 "a barrier is for cores that are not there");
  }
}

AbortAnswer answer_to_abort(uint32_t abort_tag, uint32_t tag, bool in_gang, bool aborted) {
  if (!in_gang || aborted || gang_tag_age(abort_tag, tag) > 0) {
    return AbortAnswer::kIgnore;
  }
  return abort_tag == tag ? AbortAnswer::kStop : AbortAnswer::kDrain;
}

}  // namespace tpu::spec
