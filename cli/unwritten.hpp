// What was asked for beside the results of a command that fails on the way: a trace that the disk
// had no room for, a trigger that never came. Behind a command that does not fail the board's
// close() throws that.
#pragma once

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
    if (std::uncaught_exceptions() == exceptions_) {
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
  const Board board_;
  const int exceptions_ = std::uncaught_exceptions();
};

}  // namespace tpu::driver
