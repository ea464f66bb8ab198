// The board lives on the heap and is never destroyed: handlers of exit(), and threads that outlive
// them, may still look at it.
#include "process_board.hpp"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>

#include "board/board_loader.hpp"

namespace tpu::client {
namespace {

std::atomic<bool> in_forked_child{false};

std::mutex opening;  // of the three below
ProcessBoard* opened = nullptr;
const ClientOptions* known_options = nullptr;
const spec::BoardParams* known_params = nullptr;

const ClientOptions& options_locked() {
  if (known_options == nullptr) {
    known_options = new ClientOptions(read_client_options(environment_of_process()));
  }
  return *known_options;
}

}  // namespace

// Waits for the events in order; while it does, the board runs and sets the later ones too.
struct ProcessBoard::Pump {
  Pump() : thread([this] { work(); }) {}

  void add(const driver::Event& event) {
    const std::lock_guard lock(mutex);
    if (!stopped) {
      events.push_back(event);
      changed.notify_one();
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex);
      stopped = true;
      changed.notify_one();
    }
    thread.join();
  }

  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return stopped || !events.empty(); });
      if (stopped) {
        return;
      }
      const driver::Event event = std::move(events.front());
      events.pop_front();
      lock.unlock();
      event.wait_for_error();
      lock.lock();
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<driver::Event> events;
  bool stopped = false;
  std::thread thread;  // last: it uses the others
};

ProcessBoard::ProcessBoard(driver::Board board)
    : board_(std::move(board)), pump_(std::make_unique<Pump>()) {}

const ClientOptions& ProcessBoard::options() {
  const std::lock_guard lock(opening);
  return options_locked();
}

const spec::BoardParams& ProcessBoard::params() {
  const std::lock_guard lock(opening);
  if (known_params == nullptr) {
    const driver::OpenOptions& open = options_locked().open;
    try {
      known_params = new spec::BoardParams(spec::load_board(open.preset, open.overrides));
    } catch (const std::exception& error) {
      throw driver::Error(driver::ErrorCode::kInvalidArgument, error.what());
    }
  }
  return *known_params;
}

ProcessBoard& ProcessBoard::get() {
  check_process();
  const std::lock_guard lock(opening);
  if (opened == nullptr) {
    opened = new ProcessBoard(driver::Board::open(options_locked().open));
    pthread_atfork(nullptr, nullptr, [] { in_forked_child = true; });
    std::atexit([] {
      if (!forked()) {
        opened->close();
      }
    });
  }
  return *opened;
}

bool ProcessBoard::is_open() {
  const std::lock_guard lock(opening);
  return opened != nullptr;
}

bool ProcessBoard::forked() { return in_forked_child.load(std::memory_order_relaxed); }

void ProcessBoard::check_process() {
  if (forked()) {
    throw driver::Error(driver::ErrorCode::kFailedPrecondition,
                        "the board belongs to the process that this one was forked from; start "
                        "processes by spawn (multiprocessing.set_start_method(\"spawn\"))");
  }
}

const driver::Board& ProcessBoard::board() const {
  check_process();
  return board_;
}

void ProcessBoard::track(const driver::Event& event) {
  if (!event.ready()) {
    pump_->add(event);
  }
}

void ProcessBoard::close() {
  try {
    board_.close(driver::CloseMode::kCancel);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tpuboard: %s\n", error.what());
  }
  pump_->stop();
}

}  // namespace tpu::client
