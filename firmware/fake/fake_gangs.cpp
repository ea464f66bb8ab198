// Barriers and aborts of gangs.
#include "fake/fake_gangs.hpp"

#include "tpu/spec/gsync_regs.h"

namespace tpu::firmware {

void FakeGangs::arrive(uint32_t core, uint32_t kind) {
  const FakeCore& from = *cores_.at(core);
  const spec::CoreSet& gang = from.gang();
  if (!gang.empty()) {
    deliver(roots_.at(gang.lowest())
                .arrive(core, {from.gsync_reg(TPU_GSYNC_TAG_OFFSET), static_cast<uint8_t>(kind),
                               from.gsync_reg(TPU_GSYNC_STEP_OFFSET), gang}));
  }
}

void FakeGangs::abort(uint32_t core, uint32_t tag, uint32_t root, const spec::CoreSet& gang,
                      uint32_t code) {
  if (root < roots_.size()) {
    deliver(
        roots_[root].abort({tag, static_cast<uint16_t>(core), static_cast<uint8_t>(code), gang}));
  }
}

void FakeGangs::abort_by_host(uint32_t core, uint32_t tag) {
  const FakeCore& reached = *cores_.at(core);
  if (reached.gsync_reg(TPU_GSYNC_TAG_OFFSET) == tag && !reached.gang().empty()) {
    abort(core, tag, reached.gang().lowest(), reached.gang(), TPU_GSYNC_CODE_HOST);
  }
}

void FakeGangs::deliver(const std::vector<spec::GangMessage>& messages) {
  for (const spec::GangMessage& message : messages) {
    if (const auto* release = std::get_if<spec::GangArrival>(&message.what)) {
      released(message.core, *release);
    } else {
      aborted(message.core, std::get<spec::GangAbort>(message.what));
    }
  }
}

void FakeGangs::released(uint32_t index, const spec::GangArrival& full) {
  FakeCore& core = *cores_.at(index);
  if (core.barrier_waiting && core.barrier_kind == full.kind &&
      core.gsync_reg(TPU_GSYNC_TAG_OFFSET) == full.tag) {
    core.release();
  }
}

void FakeGangs::aborted(uint32_t index, const spec::GangAbort& abort) {
  FakeCore& core = *cores_.at(index);
  const bool is_aborted =
      (core.gsync_reg(TPU_GSYNC_STATE_OFFSET) & TPU_GSYNC_STATE_ABORTED_MASK) != 0;
  switch (spec::answer_to_abort(abort.tag, core.gsync_reg(TPU_GSYNC_TAG_OFFSET),
                                !core.gang().empty(), is_aborted)) {
    case spec::AbortAnswer::kIgnore:
      break;
    case spec::AbortAnswer::kDrain:
      deliver(roots_.at(abort.gang.lowest())
                  .arrive(index, {abort.tag, TPU_GSYNC_KIND_DRAIN, 0, abort.gang}));
      break;
    case spec::AbortAnswer::kStop:
      core.abort(abort.tag, abort.origin, abort.code);
      break;
  }
}

}  // namespace tpu::firmware
