// How far a long command is: one line of a terminal that is written over, with the time that is
// left, and taken away at the end. Nothing where the stream is no terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace tpu::spec {

/// "9 min 44 s"
std::string duration_text(double seconds);

/// What takes longer should say how far it is.
constexpr double kLongSeconds = 2;

class TextBar {
 public:
  /// `what` is done. The bar stays away for the first `quiet_seconds`: of a command that is mostly
  /// short nothing is seen.
  explicit TextBar(std::string what, double quiet_seconds = 0, std::FILE* to = stderr);
  /// Takes the bar away.
  ~TextBar();
  TextBar(const TextBar&) = delete;
  TextBar& operator=(const TextBar&) = delete;

  bool terminal() const { return terminal_; }
  /// Whether show() would write: not where there is no terminal, nor ten times a second and more.
  bool due() const;
  /// "compile [####........] 34 %  kernels  2 s left". `part`: of the work, from 0 to 1; a last one
  /// of 1 is always shown. Of `more`, what the terminal has no room for is left out; first what
  /// stands last.
  void show(double part, const std::string& text, const std::vector<std::string>& more = {});
  /// The same with percent, the time that is left at the speed so far, and more.
  void share(double part, const std::string& more);
  /// The same of a count, with units a second.
  void count(uint64_t done, uint64_t all, const std::string& unit);
  /// A line that stays, in the place of the bar; elsewhere than on a terminal a line like others.
  void print(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;

  double seconds() const;
  void put(const std::string& text) const;

  std::string what_;
  double quiet_seconds_;
  std::FILE* to_;
  bool terminal_;
  bool shown_ = false;  // there is a bar on the terminal
  Clock::time_point start_;
  Clock::time_point last_;
};

}  // namespace tpu::spec
