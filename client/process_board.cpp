// What lies here is never destroyed: handlers of exit(), and threads that outlive them, may still
// look at it.
#include "process_board.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "board/board_loader.hpp"
#include "board/chip_lease.hpp"
#include "job/sampler.hpp"
#include "visible_chips.hpp"

namespace tpu::client {
namespace {

base::Mutex opening;
ProcessBoard* opened TPU_GUARDED_BY(opening) = nullptr;
monitor::Sampler* sampler TPU_GUARDED_BY(opening) = nullptr;
const ClientOptions* known_options TPU_GUARDED_BY(opening) = nullptr;
const spec::BoardParams* known_params TPU_GUARDED_BY(opening) = nullptr;
const std::string* elsewhere TPU_GUARDED_BY(opening) = nullptr;
pid_t opened_by = 0;  // written once, with `opened`

// The driver closes boards at exit too, but has nobody to tell of a trace or of waves that could
// not be completed. Without the lock, which a thread may hold that will not go on.
void close_at_exit() TPU_NO_THREAD_SAFETY_ANALYSIS {
  if (getpid() != opened_by) {
    return;  // a child made by fork()
  }
  if (sampler != nullptr) {
    sampler->stop();
  }
  try {
    opened->board().close(driver::CloseMode::kCancel);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tpuboard: %s\n", text_of(error).c_str());
  }
}

// "python3 train.py"
std::string command_of_process() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string words((std::istreambuf_iterator<char>(file)), {});
  std::replace(words.begin(), words.end(), '\0', ' ');
  words.erase(words.find_last_not_of(' ') + 1);
  constexpr size_t kMost = 200;
  return words.substr(0, kMost);
}

const char* variable(const char* name) { return std::getenv(name); }

// Of a TPU host. The variables name chips of a host: they cannot tell those of a larger board.
constexpr int64_t kHostChips = 4;

// A worker's board: chips to lease. A board of this process has no other chips, where the variables
// of a TPU host say in full that the process has these alone.
void take_visible_chips(driver::OpenOptions& open) {
  const bool worker = open.connect.starts_with("unix:") || open.connect.starts_with("tcp:");
  const bool leases = worker && open.connect.find(',') == std::string::npos;
  const char* const bounds = variable("TPU_PROCESS_BOUNDS");
  const bool has_part = open.connect.empty() && bounds != nullptr && is_one_process(bounds);
  if (!has_part && (!leases || !open.connect_chips.empty())) {
    return;
  }
  const std::string chips = visible_chips(variable);
  try {
    if (leases) {
      open.connect_chips = chips;
      if (variable("TPU_CHIPS_PER_PROCESS_BOUNDS") != nullptr) {
        check_shape(spec::load_chips(open.preset, open.overrides, chips), chips, variable);
      }
      return;
    }
    const spec::BoardParams board = spec::load_board(open.preset, open.overrides);
    if (spec::chip_count(board) > kHostChips) {
      return;
    }
    for (std::string& each :
         spec::overrides_of_chips(board, spec::read_chips(board, chips, "TPU_VISIBLE_CHIPS"))) {
      open.overrides.push_back(std::move(each));
    }
    check_shape(spec::load_board(open.preset, open.overrides), chips, variable);
  } catch (const spec::BoardError& error) {
    throw driver::Error(driver::ErrorCode::kInvalidArgument, error.what());
  }
}

const ClientOptions& options_locked() TPU_REQUIRES(opening) {
  if (known_options == nullptr) {
    auto options = std::make_unique<ClientOptions>(read_client_options(environment_of_process()));
    options->open.completion_thread = true;
    take_visible_chips(options->open);
    known_options = options.release();
  }
  return *known_options;
}

}  // namespace

const ClientOptions& ProcessBoard::options() {
  const base::MutexLock lock(opening);
  return options_locked();
}

const spec::BoardParams& ProcessBoard::params() {
  const base::MutexLock lock(opening);
  if (known_params == nullptr) {
    const driver::OpenOptions& open = options_locked().open;
    try {
      known_params =
          new spec::BoardParams(spec::load_chips(open.preset, open.overrides, open.connect_chips));
    } catch (const std::exception& error) {
      throw driver::Error(driver::ErrorCode::kInvalidArgument, error.what());
    }
  }
  return *known_params;
}

ProcessBoard& ProcessBoard::get() {
  const base::MutexLock lock(opening);
  if (elsewhere != nullptr) {
    throw driver::Error(driver::ErrorCode::kFailedPrecondition, *elsewhere);
  }
  if (opened == nullptr) {
    opened = new ProcessBoard(driver::Board::open(options_locked().open));
    opened_by = getpid();
    std::atexit(close_at_exit);
    if (options_locked().monitor) {
      sampler =
          new monitor::Sampler(opened->board(), {.command = command_of_process(), .show = {}});
    }
  }
  return *opened;
}

void ProcessBoard::change(const Environment& changes) {
  const base::MutexLock lock(changing_);
  const Environment wanted = changed_environment(environment_, changes);
  driver::OpenOptions open = read_client_options(wanted).open;
  open.sim.xprof = board_.sim().xprof;  // no variable's: a profile goes on
  try {
    board_.change_sim(open.sim);
  } catch (const driver::Error& error) {
    if (error.code() == driver::ErrorCode::kFailedPrecondition) {
      environment_ = wanted;  // what it ended was not complete; it has changed
    }
    throw;
  }
  environment_ = wanted;
}

void ProcessBoard::set_elsewhere(const std::string& text) {
  const base::MutexLock lock(opening);
  if (opened != nullptr) {
    throw driver::Error(driver::ErrorCode::kFailedPrecondition,
                        "the board is open in this process, which shares it with others; make the "
                        "client of the framework first");
  }
  elsewhere = new std::string(text);
}

bool ProcessBoard::is_open() {
  const base::MutexLock lock(opening);
  return opened != nullptr;
}

}  // namespace tpu::client
