// What opens the window of a wave file: an event that is named in a text, "step=3" or
// "sem=board.chip0.core1:5>=2". The forms are listed in docs/debugging.md, Waves.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "probe/events.hpp"

namespace tpu::model {

class WaveTrigger {
 public:
  // The window opens with step `first`, if that is before `end`.
  static WaveTrigger steps(uint64_t first, uint64_t end);
  // Throws std::runtime_error for a text that is no trigger. `paths`: of the cores.
  static WaveTrigger parse(const std::string& text, uint64_t clock_mhz,
                           const std::vector<std::string>& paths);

  // Kinds of events that it has to see, one bit each.
  uint32_t wanted() const { return wanted_; }
  // Cycle of the window's begin, for an event at `cycle` that has hit.
  uint64_t begin(uint64_t cycle) const { return kind_ == Kind::kCycle ? number_ : cycle; }

  bool hit(const ProgramEvent& event) const;
  bool hit(const IssueEvent& event) const;
  bool hit(const MarkEvent& event) const;
  bool hit(const AccessEvent& event) const;
  bool hit(const SemaphoreEvent& event) const;
  bool hit(const FaultEvent& event) const;
  template <class Event>
  bool hit(const Event& event) const {
    return reached(event.cycle);
  }

 private:
  enum class Kind : uint8_t { kStep, kCycle, kOp, kAddress, kSemaphore, kFault, kWatchdog };

  bool reached(uint64_t cycle) const { return kind_ == Kind::kCycle && cycle >= number_; }
  bool op(uint32_t id) const;
  void want(ProbeEvent event) { wanted_ |= 1U << static_cast<uint32_t>(event); }
  void parse_ops(std::string_view value);
  void parse_time(std::string_view value, uint64_t clock_mhz);
  void parse_address(std::string_view value);
  void parse_semaphore(std::string_view value, const std::vector<std::string>& paths);
  [[noreturn]] void fail(const std::string& why) const;

  std::string text_;
  Kind kind_ = Kind::kStep;
  uint32_t wanted_ = 0;
  uint64_t number_ = 0;        // step, cycle, semaphore
  uint64_t end_ = UINT64_MAX;  // step
  std::vector<uint32_t> ops_;
  ProbeMemory memory_ = ProbeMemory::kHbm;
  uint64_t low_ = 0;  // addresses, both ends inside
  uint64_t high_ = 0;
  uint64_t value_ = 0;       // that a semaphore reaches
  std::vector<bool> cores_;  // of the semaphore
};

}  // namespace tpu::model
