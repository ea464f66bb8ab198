// StepFeed: the handle.
#include "tpu/step_feed.hpp"

#include "src/board/board_impl.hpp"
#include "src/feeds/step_feed_state.hpp"
#include "src/handles/access.hpp"

namespace tpu::driver {

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

namespace {

template <typename Owner>
Owner& owner_of(const std::shared_ptr<Owner>& owner) {
  if (!owner) {
    throw Error(ErrorCode::kInvalidArgument, "the feed handle is empty");
  }
  return *owner;
}

}  // namespace

Event StepFeed::feed(const std::vector<HostView>& batch) const {
  return owner_of(owner_).board->programs().feed(*owner_->state, batch);
}
void StepFeed::end() const { owner_of(owner_).end(); }
Event StepFeed::ready(uint32_t step) const {
  return owner_of(owner_).board->programs().step_ready(*owner_->state, step);
}
std::vector<HostArray> StepFeed::take(uint32_t step) const {
  refuse_in_callback();
  ready(step).wait();
  return owner_->board->programs().take_step(*owner_->state, step);
}

}  // namespace tpu::driver
