// LaunchReporter: lines about launches that take long, for people (OpenOptions::progress).
#pragma once

#include <functional>
#include <string>

#include "src/lock/board_lock.hpp"
#include "src/operations/devices.hpp"
#include "src/pump/long_launches.hpp"
#include "tpu/board.hpp"
#include "tpu/transport.hpp"

namespace tpu::driver {

class LaunchReporter {
 public:
  /// Reports nothing.
  LaunchReporter() : launches_(0, 0) {}
  /// Throws InvalidArgument for an interval that is negative or not a number.
  LaunchReporter(const OpenOptions& options, size_t devices, double clock_hz);

  /// How long the board may run until report_after() is to be called; 0: as long as it likes.
  LongLaunches::Time slice() const TPU_REQUIRES(board_lock) { return launches_.slice(); }
  /// The board ran that long. Reports the launch that was not reported for the longest
  /// time; of equals the oldest, since younger ones may wait for it.
  void report_after(LongLaunches::Time ran, const Devices& devices, Transport& transport)
      TPU_REQUIRES(board_lock);

 private:
  bool comes_first(const Device& device, const Device& other, bool other_runs) const
      TPU_REQUIRES(board_lock);
  void report(const Device& device, const ProgramPlace* place, uint64_t cycle)
      TPU_REQUIRES(board_lock);

  LongLaunches launches_;
  double clock_hz_ = 0;
  std::function<void(const std::string&)> sink_;  // empty: standard error
};

}  // namespace tpu::driver
