// Who has the board: calls take its lock in the order of arrival. The thread that lets board time
// pass holds it meanwhile, parks the board when a call arrives, and hands the lock over.
#include <pthread.h>

#include <cstdlib>

#include "src/board/board_impl.hpp"
#include "src/board/completion_thread.hpp"

namespace tpu::driver {
namespace {

std::atomic<uint32_t> forks{0};  // of which this process is the child

struct ExitList {
  std::mutex mutex;
  std::vector<std::weak_ptr<BoardImpl>> boards;
};

ExitList& exit_list() {
  static auto* const list = new ExitList();  // outlives what runs at exit
  return *list;
}

// Nothing may run in the simulation when static objects are gone.
void close_at_exit() {
  std::vector<std::weak_ptr<BoardImpl>> boards;
  {
    const std::lock_guard<std::mutex> guard(exit_list().mutex);
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

uint32_t BoardImpl::forks_so_far() {
  static const int watched = pthread_atfork(nullptr, nullptr, [] { ++forks; });
  static_cast<void>(watched);
  return forks.load();
}

// Events become ready without a caller who waits, until the process ends.
void BoardImpl::start_completion_thread() {
  completion_thread_ = std::make_shared<CompletionThread>(weak_from_this());
  const std::lock_guard<std::mutex> guard(exit_list().mutex);
  static const int hooked = std::atexit(close_at_exit);
  static_cast<void>(hooked);
  std::erase_if(exit_list().boards, [](const auto& weak) { return weak.expired(); });
  exit_list().boards.push_back(weak_from_this());
}

bool BoardImpl::in_child() const { return forks.load() != forks_; }

void BoardImpl::check_process() const {
  if (in_child()) {
    throw Error(ErrorCode::kFailedPrecondition,
                "this process was forked from the one that opened the board, and the board stayed "
                "there: use a new process that opens its own (spawn, not fork)");
  }
}

BoardImpl::Entry::Entry(BoardImpl& board, EntryKind kind, Deadline deadline)
    : board_(board), kind_(kind) {
  board.check_process();
  const bool late = board_.running_.load();
  bool waited = false;
  const bool urgent = kind != EntryKind::kWait;
  entered_ = board_.mutex_.lock(
      deadline, urgent ? [this] { board_.interrupt_run(); } : std::function<void()>(), &waited);
  if (waited && late && kind == EntryKind::kCall) {
    ++board_.late_calls_;
  }
}

BoardImpl::Entry::~Entry() {
  if (!entered_) {
    return;
  }
  // Who only looks leaves callbacks to those who made events ready.
  auto callbacks = kind_ == EntryKind::kLook ? decltype(board_.callbacks_)()
                                             : std::exchange(board_.callbacks_, {});
  const auto dropped = std::exchange(board_.dropped_, {});
  const auto lines = std::exchange(board_.console_lines_, {});
  const auto console = lines.empty() ? nullptr : board_.console_;
  const bool work = kind_ != EntryKind::kWait && board_.busy();
  const auto thread = work ? board_.completion_thread_ : nullptr;
  if (kind_ == EntryKind::kWait && board_.waiting_.empty() && !board_.busy() &&
      !board_.being_sent()) {
    board_.passed_over_ = false;  // it is over
  }
  board_.mutex_.unlock();
  if (thread) {
    thread->call_is_over();
  }
  deliver(console, lines);
  for (const auto& [callback, error] : callbacks) {
    run_event_callback(callback, error);
  }
}

// Any thread: the board is parked soon, if it runs.
void BoardImpl::interrupt_run() {
  const std::lock_guard<std::mutex> guard(run_mutex_);
  if (running_) {
    transport_->interrupt();
  }
}

// False: a call waits for the board, and the caller may hand it over.
bool BoardImpl::begin_run() {
  const std::lock_guard<std::mutex> guard(run_mutex_);
  running_ = keeps_lock_ > 0 || !mutex_.urgent();
  return running_;
}

void BoardImpl::end_run() {
  const std::lock_guard<std::mutex> guard(run_mutex_);
  running_ = false;
}

void BoardImpl::lock_again(Deadline patience) {
  mutex_.lock_again(patience, [this] { interrupt_run(); });
}

// Calls that wait for the board take effect, then the caller goes on.
void BoardImpl::hand_over(Deadline deadline) {
  mutex_.unlock();
  lock_again(deadline);
}

bool BoardImpl::let_time_pass() {
  if (waiters_.load() > 0) {
    passed_over_ = true;
    if (waiters_.load() > 0) {
      return false;  // they do it, and call when they leave
    }
  }
  const Entry entry(*this, EntryKind::kWait);
  if (closed_) {
    return false;
  }
  send_waiting();
  if (busy()) {
    pump(std::nullopt, {.sleeps = false, .to_end = true});
    send_waiting();  // what came behind an operation that is over
  }
  return busy() && !starves_;
}

}  // namespace tpu::driver
