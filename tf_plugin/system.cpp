#include "system.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "board/board_loader.hpp"
#include "call_log.hpp"
#include "errors.hpp"
#include "feed_queues.hpp"
#include "process_board.hpp"
#include "runtime/process_runtime.hpp"
#include "sync/mutex.hpp"

namespace tpu::tensorflow {
namespace {

base::Mutex opening;
std::atomic<System*> opened = nullptr;  // never destroyed: threads may outlive statics

pid_t opened_by = 0;  // written once, with `opened`

// A step that waits for its infeed would keep the board, which the handler of ProcessBoard closes
// behind this one.
void close_feeds() {
  if (getpid() == opened_by) {  // not a child made by fork()
    FeedQueues::get().close();
  }
}

Places read_places() {
  const spec::BoardParams& board = client::ProcessBoard::params();
  Places places{static_cast<int>(spec::chip_count(board)),
                static_cast<int>(spec::chips_x(board)),
                static_cast<int>(spec::chips_y(board)),
                static_cast<int>(board.board.cores_per_chip),
                {}};
  for (int id = 0; id < places.chips * places.cores_per_chip; ++id) {
    const int chip = id / places.cores_per_chip;
    places.cores.push_back(
        {id, chip % places.chips_x, chip / places.chips_x, id % places.cores_per_chip});
  }
  return places;
}

}  // namespace

Places& places() {
  static Places* const read = new Places(read_places());
  return *read;
}

Places& places_or_none() noexcept {
  try {
    return places();
  } catch (...) {
    static Places* const none = [error = pjrt::error_of_exception()] {
      std::fprintf(stderr, "tpuboard: TensorFlow finds no TPU: %s\n", error.what());
      return new Places;
    }();
    return *none;
  }
}

System::System(const pjrt::Runtime& runtime) : runtime_(runtime), memory_(runtime) {
  for (const SE_TpuTopology_Core& core : places().cores) {
    executors_.push_back(std::make_unique<SE_StreamExecutor>(SE_StreamExecutor{core.id}));
  }
}

System& System::get() {
  if (System* const system = opened) {
    return *system;
  }
  const base::MutexLock lock(opening);
  if (opened == nullptr) {
    pjrt::CallLog::open(client::ProcessBoard::options().call_log);
    opened = new System(pjrt::process_runtime());
    opened_by = getpid();
    std::atexit(close_feeds);
  }
  return *opened;
}

SE_StreamExecutor& System::executor(int device) {
  if (device < 0 || static_cast<size_t>(device) >= executors_.size()) {
    pjrt::throw_invalid("device ordinal " + std::to_string(device) + ": expected 0 to " +
                        std::to_string(executors_.size() - 1));
  }
  return *executors_[static_cast<size_t>(device)];
}

}  // namespace tpu::tensorflow
