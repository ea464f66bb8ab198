// What opens the window of a wave file: an event that is named in a text, "step=3" or
// "sem=board.chip0.core1:5>=2". The forms are listed in docs/waves.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "probe/events.hpp"
#include "waves/source_line.hpp"

namespace tpu::model {

// What of a run its triggers depend on.
struct WaveTriggerContext {
  uint64_t clock_mhz = 0;
  std::vector<std::string> cores{};          // their paths
  const LaunchPrograms* programs = nullptr;  // by launch; null: source lines are not known
  bool no_data = false;
  bool verilog = false;  // a unit runs as Verilog, maybe only at times
};

class WaveTrigger {
 public:
  // The window opens with step `first`, if that is before `end`.
  static WaveTrigger steps(uint64_t first, uint64_t end);
  // Throws std::runtime_error for a text that is no trigger, or one that this run cannot have.
  static WaveTrigger parse(const std::string& text, const WaveTriggerContext& context);

  // Kinds of events that it has to see, one bit each.
  uint32_t wanted() const { return wanted_; }
  // Instruction of the control harts that has to be watched.
  std::optional<uint32_t> watched_pc() const {
    return kind_ == Kind::kFirmware ? std::optional(static_cast<uint32_t>(number_)) : std::nullopt;
  }
  // The core begins a step of the launch.
  void begin_step(uint32_t core, uint32_t launch) {
    if (line_) {
      line_->begin(core, launch);
    }
  }
  // For people, where it never came: what could have.
  std::string hint() const { return line_ ? "; " + line_->near() : std::string(); }
  // Cycle of the window's begin, for an event at `cycle` that has hit.
  uint64_t begin(uint64_t cycle) const { return kind_ == Kind::kCycle ? number_ : cycle; }

  bool hit(const ProgramEvent& event) const;
  bool hit(const IssueEvent& event) const;
  bool hit(const MarkEvent& event) const;
  bool hit(const AccessEvent& event) const;
  bool hit(const SemaphoreEvent& event) const;
  bool hit(const FaultEvent& event) const;
  bool hit(const HartPcEvent& event) const;
  bool hit(const NonFiniteEvent& event) const;
  bool hit(const AssertionEvent& event) const;
  template <class Event>
  bool hit(const Event& event) const {
    return reached(event.cycle);
  }

 private:
  enum class Kind : uint8_t {
    kStep,
    kCycle,
    kOp,
    kLine,
    kAddress,
    kSemaphore,
    kFirmware,
    kNan,
    kNonFinite,
    kAssertion,
    kFault,
    kWatchdog,
    kMonitor
  };

  bool reached(uint64_t cycle) const { return kind_ == Kind::kCycle && cycle >= number_; }
  bool op(const ProbeSource& source) const;
  void want(ProbeEvent event) { wanted_ |= 1U << static_cast<uint32_t>(event); }
  bool parse_named(std::string_view name, const WaveTriggerContext& context);
  bool parse_valued(std::string_view name, std::string_view value,
                    const WaveTriggerContext& context);
  void parse_step(std::string_view value);
  void parse_ops(std::string_view value);
  void parse_line(std::string_view value, const WaveTriggerContext& context);
  void parse_time(std::string_view value, uint64_t clock_mhz);
  void parse_address(std::string_view value);
  void parse_semaphore(std::string_view value, const std::vector<std::string>& paths);
  void parse_firmware(std::string_view value, const std::vector<std::string>& paths);
  std::string_view take_cores(std::string_view value, const std::vector<std::string>& paths);
  [[noreturn]] void fail(const std::string& why) const;

  std::string text_;
  Kind kind_ = Kind::kStep;
  uint32_t wanted_ = 0;
  uint64_t number_ = 0;        // step, cycle, semaphore, address of firmware
  uint64_t end_ = UINT64_MAX;  // step
  std::vector<uint32_t> ops_;
  std::optional<SourceLine> line_;
  ProbeMemory memory_ = ProbeMemory::kHbm;
  uint64_t low_ = 0;  // addresses, both ends inside
  uint64_t high_ = 0;
  uint64_t value_ = 0;       // that a semaphore reaches
  std::vector<bool> cores_;  // of the semaphore, of the hart
};

}  // namespace tpu::model
