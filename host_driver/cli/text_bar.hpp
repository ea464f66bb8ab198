// How far a long command is: one line on standard error that is written over, with a rate and the
// time that is left. Nothing where standard error is no terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tpu::driver {

class TextBar {
 public:
  /// `what` is done, counted in `unit`.
  TextBar(std::string what, std::string unit);
  /// Ends the line.
  ~TextBar();
  TextBar(const TextBar&) = delete;
  TextBar& operator=(const TextBar&) = delete;

  void show(uint64_t done, uint64_t all);

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  std::string unit_;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point start_;
  Clock::time_point last_;
};

}  // namespace tpu::driver
