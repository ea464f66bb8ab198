// Calls on the board: its lock (src/turn/turn.hpp), and the thread that works when nobody calls.
#include <cstdlib>

#include "src/board/board_impl.hpp"
#include "sync/mutex.hpp"

namespace tpu::driver {
namespace {

struct ExitList {
  base::Mutex mutex;
  std::vector<std::weak_ptr<BoardImpl>> boards TPU_GUARDED_BY(mutex);
};

ExitList& exit_list() {
  static auto* const list = new ExitList();  // outlives what runs at exit
  return *list;
}

// Nothing may run in the simulation when static objects are gone.
void close_at_exit() {
  std::vector<std::weak_ptr<BoardImpl>> boards;
  {
    const base::MutexLock guard(exit_list().mutex);
    boards.swap(exit_list().boards);
  }
  for (const auto& weak : boards) {
    try {
      if (const auto board = weak.lock()) {
        board->close(CloseMode::kCancel);
      }
    } catch (const std::exception&) {
      // Nobody is left who could be told.
    }
  }
}

}  // namespace

// Events become ready without a caller who waits, until the process ends.
void BoardImpl::start_completion_thread() {
  completion_thread_ = std::make_shared<CompletionThread>([weak = weak_from_this()] {
    const auto board = weak.lock();
    return board && board->let_time_pass();
  });
  const base::MutexLock guard(exit_list().mutex);
  static const int hooked = std::atexit(close_at_exit);
  static_cast<void>(hooked);
  std::erase_if(exit_list().boards, [](const auto& weak) { return weak.expired(); });
  exit_list().boards.push_back(weak_from_this());
}

bool BoardImpl::let_time_pass() {
  if (waiters_.leave_to_them()) {
    return false;
  }
  const Door::Entry entry(door_, EntryKind::kWait);
  if (health_.closed()) {
    return false;
  }
  order_.send_waiting();
  if (operations_.busy()) {
    pump_.pump(std::nullopt, {.sleeps = false, .to_end = true});
    order_.send_waiting();  // what came behind an operation that is over
  }
  return operations_.busy() && !pump_.starves();
}

void BoardImpl::note_host_event() { news_.add_event(); }

// After this every call throws `error`, and nothing waits any more.
void BoardImpl::break_board(const ErrorPtr& error) {
  if (!health_.break_by(error)) {
    return;
  }
  operations_.fail_all(error);
  order_.fail_all(error);
  note_host_event();
}

// A launch is over, and its event not set yet.
void BoardImpl::end_launch(Operation& launch, const ErrorPtr& error) {
  if (launch.feed) {
    feeds_.end(*launch.feed, error);
  }
  if (launch.on_board) {
    records_.end(launch);
  }
  launch.program->has_ended = launch.program->has_ended || error == nullptr;
  launcher_.forget_id(launch);
}

}  // namespace tpu::driver
