// Barriers and aborts of gangs.
#include "fake/fake_gangs.hpp"

#include <bit>

#include "tpu/spec/gsync_regs.h"

namespace tpu::firmware {

spec::GangRoot& FakeGangs::root_of(uint32_t mask) {
  return roots_.at(static_cast<size_t>(std::countr_zero(mask)));
}

void FakeGangs::arrive(uint32_t core, uint32_t kind) {
  const FakeCore& from = *cores_.at(core);
  const uint32_t mask = from.gsync_reg(TPU_GSYNC_MASK_OFFSET);
  if (mask != 0) {
    deliver(root_of(mask).arrive(core,
                                 {from.gsync_reg(TPU_GSYNC_TAG_OFFSET), static_cast<uint8_t>(kind),
                                  from.gsync_reg(TPU_GSYNC_STEP_OFFSET), mask}));
  }
}

void FakeGangs::abort(uint32_t core, uint32_t tag, uint32_t mask, uint32_t code) {
  const uint32_t there = cores_.size() >= 32 ? mask : mask & ((1U << cores_.size()) - 1U);
  if (there != 0) {
    deliver(
        root_of(there).abort({tag, static_cast<uint8_t>(core), static_cast<uint8_t>(code), there}));
  }
}

void FakeGangs::abort_by_host(uint32_t core, uint32_t tag) {
  const FakeCore& reached = *cores_.at(core);
  if (reached.gsync_reg(TPU_GSYNC_TAG_OFFSET) == tag) {
    abort(core, tag, reached.gsync_reg(TPU_GSYNC_MASK_OFFSET), TPU_GSYNC_CODE_HOST);
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
                                core.gsync_reg(TPU_GSYNC_MASK_OFFSET), is_aborted)) {
    case spec::AbortAnswer::kIgnore:
      break;
    case spec::AbortAnswer::kDrain:
      deliver(root_of(abort.mask).arrive(index, {abort.tag, TPU_GSYNC_KIND_DRAIN, 0, abort.mask}));
      break;
    case spec::AbortAnswer::kStop:
      core.abort(abort.tag, abort.origin, abort.code);
      break;
  }
}

}  // namespace tpu::firmware
