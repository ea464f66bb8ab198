// What happens when a launch has used its batches up.
#include "src/board/board_impl.hpp"
#include "src/feeds/feeds.hpp"

namespace tpu::driver {

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
