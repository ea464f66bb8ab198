// One turn of the pump.
#include "src/pump/pump.hpp"

#include <algorithm>
#include <chrono>

namespace tpu::driver {

bool Pump::pump(Deadline deadline, How how) {
  if (!health_.broken() && calls_.await_answer(deadline)) {
    return true;
  }
  try {
    return !health_.broken() && pump_once(deadline, how);
  } catch (const std::exception& error) {
    break_board_(model_error(error));
    return false;
  }
}

bool Pump::pump_once(Deadline deadline, How how) {
  order_.send_waiting();
  bool progress = completions_.drain();
  progress = calls_.serve() || progress;
  feeds_.send();
  starves_ = false;
  if (!progress && !health_.broken()) {
    completions_.take_noted();
    const bool moving = run_.run(deadline, how.to_end);
    progress = completions_.drain() || completions_.take_noted();
    if (progress) {
      calls_.serve();
      recovery_.note_progress();
    } else if (!moving && !health_.broken() && devices_.in_flight() &&
               !await_batch(deadline, how.sleeps)) {
      recovery_.stalled();
    }
  }
  recovery_.recover();
  feeds_.send();
  return progress;
}

// Nothing is in flight. True: a launch waits for a batch. One may have come meanwhile, since a
// thread that may sleep does so here, or the launch was ended.
bool Pump::await_batch(Deadline deadline, bool sleeps) {
  const auto launch = feeds_.starving();
  starves_ = launch != nullptr;
  if (!launch) {
    return false;
  }
  StepFeedState& feed = *launch->feed;
  if (!feed.dry_at && limit_.seconds() > 0) {
    feed.dry_at = deadline_in(std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(std::min(limit_.seconds(), 1e9))));
  }
  const bool late = feed.dry_at && std::chrono::steady_clock::now() >= *feed.dry_at;
  if (feed.ended || health_.closed() || health_.cancelled() || late) {
    starves_ = false;
    feeds_.end_dry(*launch, limit_.seconds());
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

void Pump::spend_host_time(uint64_t cycles) {
  if (cycles == 0 || calls_.answers_here()) {
    return;
  }
  while (calls_.await_answer(std::nullopt)) {
  }
  health_.check_usable();
  const Turn::Kept whole(turn_);
  const uint64_t until = transport_->now() + cycles;
  while (!health_.broken() && transport_->now() < until) {
    run_.run_busy(until);
    completions_.drain();
    feeds_.send();
  }
  health_.check_unbroken();
}

void Pump::prepare_input(uint64_t cycles) {
  if (cycles == 0) {
    return;
  }
  transport_->host_prepares(true);
  try {
    spend_host_time(cycles);
  } catch (...) {
    if (transport_) {  // else the board was closed meanwhile
      transport_->host_prepares(false);
    }
    throw;
  }
  transport_->host_prepares(false);
}

}  // namespace tpu::driver
