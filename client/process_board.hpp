// ProcessBoard: the board of this process, which all its clients share (SystemC has one kernel a
// process). It is opened with the first client and stays open until the process exits, which
// cancels what is still running. Its completion thread lets simulated time pass while work is under
// way, so that nobody has to wait for callbacks to come. In a child that was made by fork() every
// call of the board fails.
#pragma once

#include "client_options.hpp"
#include "sync/mutex.hpp"
#include "tpu/board.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::client {

class ProcessBoard {
 public:
  // Opens the board at the first call. Throws driver::Error; a call that failed can be repeated
  // where Board::open() can.
  static ProcessBoard& get();
  static bool is_open();
  // The board is in another process, as `text` says: get() fails with it from here on. Throws
  // driver::Error (FailedPrecondition) when the board is open here.
  static void set_elsewhere(const std::string& text);

  // The options of the environment, read at the first call. Throws driver::Error.
  static const ClientOptions& options();
  // The numbers of the board that get() opens or has opened. Throws driver::Error.
  static const spec::BoardParams& params();

  const driver::Board& board() const { return board_; }
  // Other values of variables of the environment, for the open board (changed_environment()). Waits
  // until everything submitted is over. Throws driver::Error as Board::change_sim() does.
  void change(const Environment& changes);

 private:
  explicit ProcessBoard(driver::Board board)
      : board_(std::move(board)), environment_(environment_of_process()) {}

  driver::Board board_;
  base::Mutex changing_;
  Environment environment_ TPU_GUARDED_BY(changing_);  // the variables
};

}  // namespace tpu::client
