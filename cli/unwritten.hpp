// Requested outputs that are missing when a command fails on the way, besides its results: a trace
// that the disk had no room for, a trigger that never came. Without a failure of the command,
// Board::close() throws this error.
#pragma once

#include <algorithm>
#include <exception>
#include <utility>

#include "sim/option_names.hpp"
#include "terminal/printable_text.hpp"
#include "tpu/board.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {

class TellUnwritten {
 public:
  explicit TellUnwritten(Board board) : board_(std::move(board)) {}
  ~TellUnwritten() {
    if (std::uncaught_exceptions() == exceptions_ || !started()) {
      return;
    }
    try {
      board_.close(CloseMode::kCancel);
    } catch (const std::exception& error) {
      spec::print(stderr, "tpuboard: {}\n",
                  spec::name_options(error.what(), spec::OptionDoor::kCommandLine));
    }
  }
  TellUnwritten(const TellUnwritten&) = delete;
  TellUnwritten& operator=(const TellUnwritten&) = delete;

 private:
  // A program has started. Before that there was nothing to record: the failure says all.
  bool started() const {
    try {
      const BoardCounters counters = board_.peek();
      return std::ranges::any_of(counters.cores, [](const CoreCounters& core) {
        return core.run_cycles + core.idle_cycles != 0;
      });
    } catch (const std::exception&) {
      return true;  // not known of a board that broke
    }
  }

  const Board board_;
  const int exceptions_ = std::uncaught_exceptions();
};

}  // namespace tpu::driver
