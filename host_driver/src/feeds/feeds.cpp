// The firmware counts batches and results of a core whatever launch they are of, so the copies of a
// launch go to the rings when those of all earlier ones that share a core with it are there. A
// launch that is sent again has its copies sent again from the first.
#include "src/feeds/feeds.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "src/memory/word_planes.hpp"
#include "tpu/spec/core_page_regs.hpp"

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

// Of a launch on the rings: two batches on the board, and two whose copies wait there.
constexpr uint32_t kStepsOnRings = 4;

bool share_core(const StepFeedState& a, const StepFeedState& b) {
  return std::any_of(a.info->devices.begin(), a.info->devices.end(), [&](int device) {
    return std::find(b.info->devices.begin(), b.info->devices.end(), device) !=
           b.info->devices.end();
  });
}

// The copy of one core's part of a step.
std::shared_ptr<Command> feed_copy(const FeedSlot& slot, size_t p, uint32_t step,
                                   const std::shared_ptr<StagingRange>& staged, bool more,
                                   bool up) {
  auto command = std::make_shared<Command>();
  command->device = slot.memory[p]->device();
  command->flags |= up ? TPU_CMD_FLAG_INFEED : TPU_CMD_FLAG_OUTFEED;
  command->keep = {staged, slot.memory[p]};  // the firmware orders it, no track does
  const uint64_t place = slot.memory[p]->address() + step % TPU_INFEED_DEPTH * slot.stride;
  tpu_command_copy_t copy{};
  copy.src = up ? staged->iova() : place;
  copy.dst = up ? place : staged->iova();
  copy.bytes = staged->bytes().size();
  copy.kind = up ? TPU_COPY_H2D : TPU_COPY_D2H;
  copy.feed_more = more ? 1 : 0;
  set_payload(*command, TPU_OP_COPY, up ? TPU_TRACK_UP : TPU_TRACK_DOWN, copy);
  return command;
}

bool over(const std::shared_ptr<Operation>& op) { return op == nullptr || op->finished; }

}  // namespace

// Checks what the options feed, and makes its queues; null when that is nothing.
std::shared_ptr<StepFeedState> Feeds::make(const std::shared_ptr<Operation>& launch,
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
StepFeedState::Batch Feeds::stage_batch(const StepFeedState& feed,
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

StepFeedState::Step& Feeds::step_of(StepFeedState& feed, uint32_t step) {
  const auto [place, is_new] = feed.at.try_emplace(step);
  if (is_new) {
    const auto event = [&]() TPU_REQUIRES(board_lock) {
      auto made = handles_.make_event();
      made->off_ring = true;  // until its copies are sent
      return made;
    };
    place->second.uploaded = feed.infeed.empty() ? nullptr : event();
    place->second.done = feed.outfeed.empty() ? nullptr : event();
    if (feed.error) {
      end_step(place->second, feed.error);
    }
  }
  return place->second;
}

void Feeds::end_step(StepFeedState::Step& step, const ErrorPtr& error) {
  for (const auto& event : {step.uploaded, step.done}) {
    if (event) {
      outbox_.set_event(*event, error);
    }
  }
}

// The launch is on the rings, the last of those that are.
void Feeds::queue(const Operation& launch) {
  if (launch.feed && !launch.finished) {
    std::erase(feeds_, launch.feed);
    feeds_.push_back(launch.feed);
    launch.feed->resets.clear();
    for (const int device : launch.feed->info->devices) {
      launch.feed->resets.push_back(devices_[device].ring.resets());
    }
  }
}

// The launch has ended. When it did well, its last results may not have been asked for yet.
void Feeds::end(StepFeedState& feed, const ErrorPtr& error) {
  feed.over = true;
  feed.error = error;
  for (auto& [number, step] : feed.at) {
    step.batch.clear();  // what is on the rings holds its own
    if (error && number >= feed.sent) {
      end_step(step, error);
    }
  }
  if (error) {
    std::erase_if(feeds_, [&](const auto& each) { return each.get() == &feed; });
  }
  news_.add_event();
}

// The launch is sent again, and no step has run: nor has any batch been used up.
void Feeds::rewind(StepFeedState& feed) {
  for (auto& [number, step] : feed.at) {
    for (auto* op : {&step.up, &step.down}) {
      if (const auto old = std::exchange(*op, nullptr); old && !old->finished) {
        old->event = handles_.make_event();    // that of the step is for the next attempt
        operations_.finish(*old, given_up());  // its commands are nobody's: none is sent again
      }
    }
  }
  feed.sent = feed.settled = 0;
}

// Adds commands to an operation of a step; there is room for them on the rings.
void Feeds::send_step(const std::shared_ptr<StepFeedState>& feed) {
  const uint32_t number = feed->sent;
  StepFeedState::Step& step = step_of(*feed, number);
  const auto start = [&](const char* what,
                         const std::shared_ptr<EventState>& event) TPU_REQUIRES(board_lock) {
    auto op = operations_.begin(fmt::format("{} of step {} of {}", what, number, feed->what));
    op->event = event;
    op->inputs = {feed->event};
    return op;
  };
  std::vector<std::shared_ptr<Command>> up, down;
  for (size_t p = 0; p < feed->info->devices.size(); ++p) {
    for (size_t i = 0; i < feed->infeed.size(); ++i) {
      up.push_back(feed_copy(feed->infeed[i], p, number, step.batch[i][p],
                             i + 1 < feed->infeed.size(), true));
    }
    std::shared_ptr<Command> last;
    for (size_t i = 0; i < feed->outfeed.size(); ++i) {
      const FeedSlot& slot = feed->outfeed[i];
      if (!slot.read_from(p)) {
        continue;
      }
      const auto staged = memory_.stage_now(slot.boxes[p].bytes());
      down.push_back(feed_copy(slot, p, number, staged, true, false));
      down.back()->on_ok = [feed, number, i, p, staged]() TPU_REQUIRES(board_lock) {
        if (in_planes(feed->info->results[feed->outfeed[i].index].dtype)) {
          to_elements(staged->bytes());
        }
        feed->outfeed[i].boxes[p].paste(feed->at.at(number).results[i].bytes, 0, staged->bytes());
      };
      last = down.back();
    }
    if (last) {
      set_feed_more(*last, false);
    }
    if (feed->resets[p] != devices_[feed->info->devices[p]].ring.resets()) {
      for (const auto& command : down) {
        if (command->device == feed->info->devices[p]) {
          stop_counting(*command);
        }
      }
    }
  }
  step.results.clear();
  for (const FeedSlot& slot : feed->outfeed) {
    const ParameterInfo& info = feed->info->results[slot.index];
    step.results.push_back(
        {info.dtype, info.shape, std::vector<std::byte>(slot.boxes[0].global_bytes())});
  }
  ++feed->sent;
  if (!up.empty()) {
    step.up = start("batch", step.uploaded);
    operations_.add_all(step.up, up);
  }
  if (!down.empty()) {
    step.down = start("results", step.done);
    operations_.add_all(step.down, down);
  }
}

// Forgets what is over: a batch could be needed again only until a later step has run.
void Feeds::settle_steps(StepFeedState& feed) {
  while (feed.settled < feed.sent) {
    StepFeedState::Step& step = feed.at.at(feed.settled);
    if (!over(step.up) || !over(step.down)) {
      break;
    }
    step.up = step.down = nullptr;
    if (++feed.settled > TPU_INFEED_DEPTH) {
      const auto place = feed.at.find(feed.settled - TPU_INFEED_DEPTH - 1);
      place->second.batch.clear();
      if (feed.outfeed.empty() || place->second.taken) {
        feed.at.erase(place);
      }
    }
  }
}

bool Feeds::delay(const Operation& launch) const {
  return std::any_of(feeds_.begin(), feeds_.end(), [&](const auto& feed) TPU_REQUIRES(board_lock) {
    const auto& devices = feed->info->devices;
    return !feed->over && feed->sent < feed->steps &&
           std::any_of(launch.commands.begin(), launch.commands.end(), [&](const auto& command) {
             return std::find(devices.begin(), devices.end(), command->device) != devices.end();
           });
  });
}

// Copies of steps, of all launches, that can go to the rings. Waits for nothing.
void Feeds::send() {
  for (size_t i = 0; i < feeds_.size() && !health_.broken(); ++i) {
    const auto feed = feeds_[i];
    const auto launch = feed->launch.lock();
    if ((!feed->over && (!launch || !launch->on_board)) ||
        std::any_of(feeds_.begin(), feeds_.begin() + static_cast<ptrdiff_t>(i),
                    [&](const auto& before) TPU_REQUIRES(board_lock) {
                      return before->sent < before->steps && share_core(*before, *feed);
                    })) {
      continue;
    }
    settle_steps(*feed);
    const size_t commands = feed->infeed.size() + feed->outfeed.size();
    const auto room = [&] {
      return std::all_of(feed->info->devices.begin(), feed->info->devices.end(),
                         [&](int device) TPU_REQUIRES(board_lock) {
                           return devices_[device].ring.has_room(false, commands);
                         });
    };
    while (feed->sent < feed->steps && feed->sent - feed->settled < kStepsOnRings &&
           (feed->infeed.empty() || feed->sent < feed->given) && room()) {
      send_step(feed);
    }
  }
  std::erase_if(feeds_, [](const auto& feed) TPU_REQUIRES(board_lock) {
    return feed->over && feed->sent == feed->steps;
  });
}

// The first launch whose next step waits for a batch that the host has not given.
std::shared_ptr<Operation> Feeds::starving() {
  for (const auto& feed : feeds_) {
    settle_steps(*feed);
    auto launch = feed->launch.lock();
    if (launch && launch->on_board && !launch->finished && !launch->verdict &&
        !devices_.waits_its_turn(*launch) && !feed->infeed.empty() && feed->given < feed->steps &&
        feed->sent == feed->given &&
        std::all_of(feed->at.begin(), feed->at.end(),
                    [](const auto& each) { return over(each.second.up); })) {
      return launch;
    }
  }
  return nullptr;
}

void Feeds::end_dry(Operation& launch, double limit_seconds) {
  const StepFeedState& feed = *launch.feed;
  std::vector<std::string> cores;
  for (const int device : feed.info->devices) {
    cores.push_back(fmt::format("TPU:{}", device));
  }
  const bool by_host = feed.ended || health_.closed() || health_.cancelled();
  const std::string why = feed.ended ? "and StepFeed::end() was called"
                          : by_host  ? "and the board is closed"
                                     : fmt::format(
                                           "and got none for {} s of wall-clock time "
                                            "(OpenOptions::time_limit; 0: no limit)",
                                           limit_seconds);
  launch.verdict = std::make_shared<Error>(
      health_.closed() || health_.cancelled() ? ErrorCode::kCancelled
      : by_host                               ? ErrorCode::kInvalidArgument
                                              : ErrorCode::kTimeout,
      fmt::format("{}: the infeed is empty: {} wait for the batch of step {}; the launch needs {}, "
                  "got {} {}",
                  launch.what, fmt::join(cores, ", "), feed.given, feed.steps, feed.given, why));
  for (const int device : feed.info->devices) {
    registers_.write(devices_[device], spec::core_page::kAbort, launch.launch_id);
  }
}

uint64_t Feeds::check_batch(const StepFeedState& feed, const std::vector<HostView>& batch) {
  if (batch.size() != feed.infeed.size() || batch.empty()) {
    throw bad_feed(fmt::format("a batch of {} has {} arrays, found {}", feed.info->name,
                               feed.infeed.size(), batch.size()));
  }
  uint64_t bytes = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    const FeedSlot& slot = feed.infeed[i];
    const ParameterInfo& info = feed.info->arguments[slot.index];
    if (batch[i].dtype != info.dtype || batch[i].shape != info.shape) {
      throw bad_feed(fmt::format("array {} of the batch (argument {} of {}): expected {}, found {}",
                                 i, slot.index, feed.info->name, type_text(info.dtype, info.shape),
                                 type_text(batch[i].dtype, batch[i].shape)));
    }
    check_view(batch[i]);
    for (size_t p = 0; p < slot.memory.size(); ++p) {
      bytes += slot.read_from(p) ? slot.boxes[p].bytes() : 0;
    }
  }
  return bytes;
}

std::shared_ptr<EventState> Feeds::give(StepFeedState& feed, const std::vector<HostView>& batch) {
  if (feed.ended) {
    throw Error(ErrorCode::kFailedPrecondition, "the feed has ended and accepts no batch");
  }
  if (feed.given == feed.steps) {
    throw bad_feed(
        fmt::format("the launch of {} has {} steps, and each of them has a batch already",
                    feed.info->name, feed.steps));
  }
  auto staged = stage_batch(feed, batch);
  StepFeedState::Step& step = step_of(feed, feed.given);
  if (!feed.over) {
    step.batch = std::move(staged);
  }
  ++feed.given;
  feed.dry_at.reset();
  send();
  news_.add_event();
  return step.uploaded;
}

void Feeds::check_step(const StepFeedState& feed, uint32_t step) {
  if (feed.outfeed.empty() || step >= feed.steps) {
    throw bad_feed(
        feed.outfeed.empty()
            ? fmt::format("the launch of {} has no result that the host can read after each step",
                          feed.info->name)
            : fmt::format("no step {}: the launch of {} has {} steps", step, feed.info->name,
                          feed.steps));
  }
}

std::shared_ptr<EventState> Feeds::ready(StepFeedState& feed, uint32_t step) {
  if (step < feed.settled && !feed.at.contains(step)) {
    return nullptr;  // it was taken, so it was ready
  }
  return step_of(feed, step).done;
}

std::vector<HostArray> Feeds::take(StepFeedState& feed, uint32_t number) {
  const auto place = feed.at.find(number);
  if (place == feed.at.end() || std::exchange(place->second.taken, true)) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("the results of step {} were taken already", number));
  }
  return std::move(place->second.results);
}

}  // namespace tpu::driver
