// HangTeller: launches that hang, from the debug port, in words with names and source lines; and
// the report of them that OpenOptions::hang_report asks for. Guarded by the board lock.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/harts/harts.hpp"
#include "src/lock/board_lock.hpp"
#include "src/operations/devices.hpp"

namespace tpu::driver {

class HangTeller {
 public:
  HangTeller(const Devices& devices, const Harts& harts) : devices_(devices), harts_(harts) {}

  /// Where the report is written; empty: nowhere.
  void set_report(std::string path) TPU_REQUIRES(board_lock) { report_path_ = std::move(path); }

  /// Whether one process has all boards; else none knows what the cores of the others signal.
  void set_one_process(bool one) TPU_REQUIRES(board_lock) { one_process_ = one; }

  /// What units wait for; the text ends with a line feed if there is any. `op`: null when it is
  /// not known.
  std::string tell(const char* kind, const Operation* op, const std::vector<UnitWait>& waits,
                   const TransportStats& stats) const TPU_REQUIRES(board_lock);

 private:
  const Devices& devices_;
  const Harts& harts_;
  std::string report_path_;
  bool one_process_ = true;
};

}  // namespace tpu::driver
