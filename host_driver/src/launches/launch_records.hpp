// LaunchRecords: what the debug port says of launches, in the words of their programs: where their
// time went (SimOptions::op_times), and what the happens-before checker found (SimOptions::check).
// Guarded by the board lock.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/launches/op_counts.hpp"
#include "src/lock/board_lock.hpp"
#include "src/operations/operation.hpp"
#include "tpu/sim_options.hpp"
#include "tpu/transport.hpp"

namespace tpu::driver {

class LaunchRecords {
 public:
  /// `transport`: null when the board is closed.
  explicit LaunchRecords(const std::unique_ptr<Transport>& transport) : transport_(transport) {}

  /// Options of the command that choose this board: " --set a.b=1".
  void set_board_words(std::string words) TPU_REQUIRES(board_lock) {
    board_words_ = std::move(words);
  }
  void set_options(const SimOptions& sim) TPU_REQUIRES(board_lock);

  /// At the end of a launch that a core had, while its program is known.
  void end(const Operation& launch) TPU_REQUIRES(board_lock);
  /// What the checker says of the launch; it is added to check_text(). Empty when it is off.
  std::string take_findings(const Operation& launch) TPU_REQUIRES(board_lock);
  bool checks() const TPU_REQUIRES(board_lock) { return sim_.check; }

  const std::string& check_text() const TPU_REQUIRES(board_lock) { return check_text_; }
  std::vector<OpTime> op_times() const TPU_REQUIRES(board_lock) { return op_counts_.list(); }

 private:
  std::string tell_findings(const Operation& launch) TPU_REQUIRES(board_lock);

  const std::unique_ptr<Transport>& transport_;
  std::string board_words_;
  SimOptions sim_;
  std::vector<CheckFinding> findings_;  // of launches that have not ended
  std::string check_text_;              // of those that have
  OpCounts op_counts_;
};

}  // namespace tpu::driver
