// Calls of the host on a step feed, and what happens when a launch has used its batches up.
#include "src/access.hpp"
#include "src/board/board_impl.hpp"
#include "src/feeds/feeds.hpp"

namespace tpu::driver {

Event BoardImpl::feed(StepFeedState& feed, const std::vector<HostView>& batch) {
  const uint64_t bytes = Feeds::check_batch(feed, batch);
  const Door::Entry entry(door_);
  health_.check_usable();
  prepare_input(bytes);  // may let others in: what follows does not
  return Access::event(feeds_.give(feed, batch));
}

Event BoardImpl::step_ready(StepFeedState& feed, uint32_t step) {
  Feeds::check_step(feed, step);
  const Door::Entry entry(door_, EntryKind::kLook);
  const auto event = feeds_.ready(feed, step);
  return event ? Access::event(event) : Event();
}

std::vector<HostArray> BoardImpl::take_step(StepFeedState& feed, uint32_t number) {
  const Door::Entry entry(door_, EntryKind::kLook);
  return Feeds::take(feed, number);
}

// Nothing is in flight. True: a launch waits for a batch. One may have come meanwhile, since a
// thread that may sleep does so here, or the launch was ended.
bool BoardImpl::await_batch(Deadline deadline, bool sleeps) {
  const auto launch = feeds_.starving();
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
    feeds_.end_dry(*launch, launch_clock_.seconds());
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

}  // namespace tpu::driver
