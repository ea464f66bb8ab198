// The host's side of a StepFeed: what a launch feeds, batches given and results taken.
#include "src/step_feed.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "src/access.hpp"
#include "src/board/board_impl.hpp"
#include "src/memory/word_planes.hpp"

namespace tpu::driver {
namespace {

constexpr uint64_t kStrideAlign = 512;
Error bad_feed(const std::string& text) { return Error(ErrorCode::kInvalidArgument, text); }

// Two places for what core `p` has of it.
FeedSlot make_slot(size_t index, const exe::TensorT& tensor, const ParameterInfo& info,
                   const exe::ExecutableT& exe, const std::string& what) {
  FeedSlot made;
  made.index = index;
  made.slot = tensor.slot;
  const uint64_t bytes = exe.slots[tensor.slot]->bytes;
  const uint64_t align = bytes < TPU_HBM_PAGE_BYTES ? kStrideAlign : TPU_HBM_PAGE_BYTES;
  made.stride = (bytes + align - 1) / align * align;
  for (const Shape& offset : info.layout.offsets) {
    made.boxes.emplace_back(info.dtype, info.shape, offset, info.layout.local);
    const auto& all = info.layout.offsets;
    made.first_with_box.push_back(
        static_cast<size_t>(std::find(all.begin(), all.end(), offset) - all.begin()));
  }
  if (made.boxes[0].bytes() == 0 || made.stride > UINT32_MAX || !info.layout.terms.empty()) {
    throw bad_feed(fmt::format("{} cannot be fed: {}", what,
                               made.boxes[0].bytes() == 0 ? "it is empty"
                               : made.stride > UINT32_MAX
                                   ? "it has 4 GiB or more on a core"
                                   : "it is a sum of which cores have terms"));
  }
  return made;
}

void check_indices(const std::vector<size_t>& indices, size_t count, const char* what) {
  const std::set<size_t> once(indices.begin(), indices.end());
  if (once.size() != indices.size() || (!once.empty() && *once.rbegin() >= count)) {
    throw bad_feed(fmt::format("RunOptions::{} is [{}]: it names some of {} to {}, each once", what,
                               fmt::join(indices, ","), 0, count == 0 ? 0 : count - 1));
  }
}

}  // namespace

struct StepFeed::Owner {
  Owner(std::shared_ptr<BoardImpl> on, std::shared_ptr<StepFeedState> of)
      : board(std::move(on)), state(std::move(of)) {}
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  ~Owner() { end(); }
  void end() const {
    state->ended = true;
    board->note_host_event();
  }

  std::shared_ptr<BoardImpl> board;
  std::shared_ptr<StepFeedState> state;
};

StepFeed Access::step_feed(std::shared_ptr<BoardImpl> board, std::shared_ptr<StepFeedState> state) {
  return StepFeed(std::make_shared<StepFeed::Owner>(std::move(board), std::move(state)));
}

const FeedSlot* StepFeedState::fed_slot(uint32_t slot, size_t p) const {
  for (const FeedSlot& fed : infeed) {
    if (fed.slot == slot) {
      return &fed;
    }
  }
  for (const FeedSlot& fed : outfeed) {
    if (fed.slot == slot && fed.read_from(p)) {
      return &fed;
    }
  }
  return nullptr;
}

// Flags of the LAUNCH command of partition `p`.
uint16_t StepFeedState::launch_flags(size_t p) const {
  const bool out = std::any_of(outfeed.begin(), outfeed.end(),
                               [&](const FeedSlot& slot) { return slot.read_from(p); });
  return static_cast<uint16_t>((infeed.empty() ? 0 : TPU_CMD_FLAG_INFEED) |
                               (out ? TPU_CMD_FLAG_OUTFEED : 0));
}

// Checks what the options feed, and makes its queues; null when that is nothing.
std::shared_ptr<StepFeedState> BoardImpl::make_feed(const std::shared_ptr<Operation>& launch,
                                                    const RunOptions& options) {
  if (options.infeed.empty() && options.outfeed.empty()) {
    return nullptr;
  }
  const LoadedProgram& program = *launch->program;
  const exe::ExecutableT& exe = program.exe;
  check_indices(options.infeed, exe.args.size(), "infeed");
  check_indices(options.outfeed, exe.results.size(), "outfeed");
  const auto refuse = [&](const std::string& what) {
    throw bad_feed(
        fmt::format("{} of {} is kept from step to step and cannot be fed", what, exe.name));
  };
  auto feed = std::make_shared<StepFeedState>();
  feed->launch = launch;
  feed->what = launch->what;
  feed->event = launch->event;
  feed->info = program.info;
  feed->steps = options.steps;
  for (const size_t i : options.infeed) {
    const std::string what = fmt::format("argument {}", i);
    if (program.info->arguments[i].donated_to >= 0 || program.argument_owned[i]) {
      refuse(what);
    }
    feed->infeed.push_back(make_slot(i, *exe.args[i], program.info->arguments[i], exe, what));
  }
  for (const size_t r : options.outfeed) {
    const std::string what = fmt::format("result {}", r);
    if (exe.slots[exe.results[r]->slot]->kind != exe::SlotKind::result || program.result_owned[r]) {
      refuse(what);
    }
    feed->outfeed.push_back(make_slot(r, *exe.results[r], program.info->results[r], exe, what));
  }
  for (size_t p = 0; p < program.info->devices.size(); ++p) {
    for (auto* fed : {&feed->infeed, &feed->outfeed}) {
      for (FeedSlot& slot : *fed) {
        const bool both = fed == &feed->infeed || slot.read_from(p);
        slot.memory.push_back(memory_.allocate(program.info->devices[p],
                                               both ? 2 * slot.stride : slot.stride,
                                               fmt::format("steps of {}", exe.name)));
      }
    }
  }
  return feed;
}

// Cuts the batch into the boxes of the cores, each box once.
StepFeedState::Batch BoardImpl::stage_batch(const StepFeedState& feed,
                                            const std::vector<HostView>& batch) {
  StepFeedState::Batch staged;
  for (size_t i = 0; i < batch.size(); ++i) {
    const FeedSlot& slot = feed.infeed[i];
    const ParameterInfo& info = feed.info->arguments[slot.index];
    auto& parts = staged.emplace_back();
    for (size_t p = 0; p < slot.memory.size(); ++p) {
      if (slot.first_with_box[p] != p) {
        parts.push_back(parts[slot.first_with_box[p]]);
        continue;
      }
      const Box box(batch[i], info.layout.offsets[p], info.layout.local);
      parts.push_back(memory_.stage_now(box.bytes()));
      box.cut(batch[i].bytes, 0, parts.back()->bytes());
      if (in_planes(info.dtype)) {
        to_planes(parts.back()->bytes());
      }
    }
  }
  return staged;
}

Event BoardImpl::feed(StepFeedState& feed, const std::vector<HostView>& batch) {
  if (batch.size() != feed.infeed.size() || batch.empty()) {
    throw bad_feed(fmt::format("a batch of {} has {} arrays, {} were given", feed.info->name,
                               feed.infeed.size(), batch.size()));
  }
  uint64_t bytes = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    const FeedSlot& slot = feed.infeed[i];
    const ParameterInfo& info = feed.info->arguments[slot.index];
    if (batch[i].dtype != info.dtype || batch[i].shape != info.shape) {
      throw bad_feed(
          fmt::format("array {} of the batch is argument {} of {} and must be {}, not {}", i,
                      slot.index, feed.info->name, type_text(info.dtype, info.shape),
                      type_text(batch[i].dtype, batch[i].shape)));
    }
    check_view(batch[i]);
    for (size_t p = 0; p < slot.memory.size(); ++p) {
      bytes += slot.read_from(p) ? slot.boxes[p].bytes() : 0;
    }
  }
  const Entry entry(*this);
  health_.check_usable();
  prepare_input(bytes);  // may let others in: what follows does not
  if (feed.ended) {
    throw Error(ErrorCode::kFailedPrecondition, "a batch after the end of the feed");
  }
  if (feed.given == feed.steps) {
    throw bad_feed(fmt::format("the launch of {} has {} steps, and each has its batch",
                               feed.info->name, feed.steps));
  }
  auto staged = stage_batch(feed, batch);
  StepFeedState::Step& step = feed_step(feed, feed.given);
  if (!feed.over) {
    step.batch = std::move(staged);
  }
  ++feed.given;
  feed.dry_at.reset();
  send_feeds();
  note_host_event();
  return Access::event(step.uploaded);
}

Event BoardImpl::step_ready(StepFeedState& feed, uint32_t step) {
  if (feed.outfeed.empty() || step >= feed.steps) {
    throw bad_feed(feed.outfeed.empty()
                       ? fmt::format("the launch of {} gives nothing to the host step by step",
                                     feed.info->name)
                       : fmt::format("no step {}: the launch of {} has {}", step, feed.info->name,
                                     feed.steps));
  }
  const Entry entry(*this, EntryKind::kLook);
  if (step < feed.settled && !feed.at.contains(step)) {
    return {};  // it was taken, so it was ready
  }
  return Access::event(feed_step(feed, step).done);
}

std::vector<HostArray> BoardImpl::take_step(StepFeedState& feed, uint32_t number) {
  const Entry entry(*this, EntryKind::kLook);
  const auto place = feed.at.find(number);
  if (place == feed.at.end() || std::exchange(place->second.taken, true)) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("the results of step {} were taken already", number));
  }
  return std::move(place->second.results);
}

namespace {

template <typename Owner>
Owner& owner_of(const std::shared_ptr<Owner>& owner) {
  if (!owner) {
    throw bad_feed("the handle of a feed is empty");
  }
  return *owner;
}

}  // namespace

Event StepFeed::feed(const std::vector<HostView>& batch) const {
  return owner_of(owner_).board->feed(*owner_->state, batch);
}
void StepFeed::end() const { owner_of(owner_).end(); }
Event StepFeed::ready(uint32_t step) const {
  return owner_of(owner_).board->step_ready(*owner_->state, step);
}
std::vector<HostArray> StepFeed::take(uint32_t step) const {
  refuse_in_callback();
  ready(step).wait();
  return owner_->board->take_step(*owner_->state, step);
}

}  // namespace tpu::driver
