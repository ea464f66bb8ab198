// Infeed and outfeed of launches. The firmware counts batches and results of a core whatever launch
// they are of, so the copies of a launch go to the rings when those of all earlier ones that share
// a core with it are there. A launch that is sent again has its copies sent again from the first.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "src/board/board_impl.hpp"
#include "src/memory/word_planes.hpp"
#include "src/step_feed.hpp"
#include "tpu/spec/core_page_regs.hpp"

namespace tpu::driver {
namespace {

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

void set_feed_more(Command& command, bool more) {
  tpu_command_copy_t copy;
  std::memcpy(&copy, command.wire.data(), sizeof(copy));
  copy.feed_more = more ? 1 : 0;
  std::memcpy(command.wire.data(), &copy, sizeof(copy));
}

void stop_counting(Command& command) {
  if ((command.flags & TPU_CMD_FLAG_OUTFEED) == 0) {
    return;
  }
  command.flags = static_cast<uint16_t>(command.flags & ~TPU_CMD_FLAG_OUTFEED);
  set_feed_more(command, false);
}

StepFeedState::Step& BoardImpl::feed_step(StepFeedState& feed, uint32_t step) {
  const auto [place, is_new] = feed.at.try_emplace(step);
  if (is_new) {
    const auto event = [&] {
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

void BoardImpl::end_step(StepFeedState::Step& step, const ErrorPtr& error) {
  for (const auto& event : {step.uploaded, step.done}) {
    if (event) {
      outbox_.set_event(*event, error);
    }
  }
}

// The launch is on the rings, the last of those that are.
void BoardImpl::queue_feed(const Operation& launch) {
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
void BoardImpl::end_feed(StepFeedState& feed, const ErrorPtr& error) {
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
  note_host_event();
}

// The launch is sent again, and no step has run: nor has any batch been used up.
void BoardImpl::rewind_feed(StepFeedState& feed) {
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
void BoardImpl::send_step(const std::shared_ptr<StepFeedState>& feed) {
  const uint32_t number = feed->sent;
  StepFeedState::Step& step = feed_step(*feed, number);
  const auto start = [&](const char* what, const std::shared_ptr<EventState>& event) {
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
      down.back()->on_ok = [feed, number, i, p, staged] {
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
void BoardImpl::settle_steps(StepFeedState& feed) {
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

// Copies of steps, of all launches, that can go to the rings. Waits for nothing.
void BoardImpl::send_feeds() {
  for (size_t i = 0; i < feeds_.size() && !health_.broken(); ++i) {
    const auto feed = feeds_[i];
    const auto launch = feed->launch.lock();
    if ((!feed->over && (!launch || !launch->on_board)) ||
        std::any_of(feeds_.begin(), feeds_.begin() + static_cast<ptrdiff_t>(i),
                    [&](const auto& before) {
                      return before->sent < before->steps && share_core(*before, *feed);
                    })) {
      continue;
    }
    settle_steps(*feed);
    const size_t commands = feed->infeed.size() + feed->outfeed.size();
    const auto room = [&] {
      return std::all_of(feed->info->devices.begin(), feed->info->devices.end(), [&](int device) {
        return devices_[device].ring.has_room(false, commands);
      });
    };
    while (feed->sent < feed->steps && feed->sent - feed->settled < kStepsOnRings &&
           (feed->infeed.empty() || feed->sent < feed->given) && room()) {
      send_step(feed);
    }
  }
  std::erase_if(feeds_, [](const auto& feed) { return feed->over && feed->sent == feed->steps; });
}

// The first launch whose next step waits for a batch that the host has not given.
std::shared_ptr<Operation> BoardImpl::starving() {
  for (const auto& feed : feeds_) {
    settle_steps(*feed);
    auto launch = feed->launch.lock();
    if (launch && launch->on_board && !launch->finished && !launch->verdict &&
        !waits_its_turn(*launch) && !feed->infeed.empty() && feed->given < feed->steps &&
        feed->sent == feed->given &&
        std::all_of(feed->at.begin(), feed->at.end(),
                    [](const auto& each) { return over(each.second.up); })) {
      return launch;
    }
  }
  return nullptr;
}

// Nothing is in flight. True: a launch waits for a batch. One may have come meanwhile, since a
// thread that may sleep does so here, or the launch was ended.
bool BoardImpl::await_batch(Deadline deadline, bool sleeps) {
  const auto launch = starving();
  starves_ = launch != nullptr;
  if (!launch) {
    return false;
  }
  StepFeedState& feed = *launch->feed;
  if (!feed.dry_at && launch_clock_.seconds() > 0) {
    feed.dry_at = deadline_in(std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(std::min(launch_clock_.seconds(), 1e9))));
  }
  const bool late = feed.dry_at && std::chrono::steady_clock::now() >= *feed.dry_at;
  if (feed.ended || health_.closed() || health_.cancelled() || late) {
    starves_ = false;
    end_dry(*launch);
    return true;
  }
  if (sleeps) {
    const uint64_t news = news_.count();
    const auto until =
        !deadline || (feed.dry_at && *feed.dry_at < *deadline) ? feed.dry_at : deadline;
    if (!feed.ended) {  // it may have been since; then the news have been, too
      const Turn::Left others(turn_, deadline);
      news_.await(news, until);
    }
  }
  return true;
}

void BoardImpl::end_dry(Operation& launch) {
  const StepFeedState& feed = *launch.feed;
  std::vector<std::string> cores;
  for (const int device : feed.info->devices) {
    cores.push_back(fmt::format("TPU:{}", device));
  }
  const bool by_host = feed.ended || health_.closed() || health_.cancelled();
  const std::string why = feed.ended ? "and was told that no more come"
                          : by_host
                              ? "and the board is closed"
                              : fmt::format(
                                    "and got none for {} s of host time (OpenOptions::time_limit, "
                                    "--time-limit, TPUBOARD_TIME_LIMIT; 0: any time)",
                                    launch_clock_.seconds());
  launch.verdict = std::make_shared<Error>(
      health_.closed() || health_.cancelled() ? ErrorCode::kCancelled
      : by_host                               ? ErrorCode::kInvalidArgument
                                              : ErrorCode::kTimeout,
      fmt::format("{}: the infeed ran dry: {} wait for the batch of step {}; the launch needs {}, "
                  "got {} {}",
                  launch.what, fmt::join(cores, ", "), feed.given, feed.steps, feed.given, why));
  for (const int device : feed.info->devices) {
    registers_.write(devices_[device], spec::core_page::kAbort, launch.launch_id);
  }
}

}  // namespace tpu::driver
