// Texts to triggers, and events against them.
#include "waves/wave_trigger.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <optional>
#include <stdexcept>

#include "tpu/spec/hart_map.h"
#include "tpu/spec/isa.hpp"
#include "tpu/spec/rings.h"

namespace tpu::model {
namespace {

// Decimal, or hexadecimal with 0x.
std::optional<uint64_t> parse_count(std::string_view text) {
  const int base = text.starts_with("0x") ? 16 : 10;
  text.remove_prefix(base == 16 ? 2 : 0);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size() && !text.empty()
             ? std::optional(value)
             : std::nullopt;
}

std::string memory_text(uint32_t base, uint32_t bytes) {
  char text[40];
  std::snprintf(text, sizeof text, "0x%x..0x%x", base, base + bytes - 1);
  return text;
}

bool is_dma(uint32_t unit) {
  return unit < spec::kQueues.size() && spec::kQueues[unit].engine >= spec::Engine::kDmaIn;
}

}  // namespace

WaveTrigger WaveTrigger::steps(uint64_t first, uint64_t end) {
  WaveTrigger trigger;
  trigger.number_ = first;
  trigger.end_ = end;
  trigger.want(ProbeEvent::kProgram);
  return trigger;
}

WaveTrigger WaveTrigger::parse(const std::string& text, const WaveTriggerContext& context) {
  WaveTrigger trigger;
  trigger.text_ = text;
  const size_t equals = text.find('=');
  const std::string_view name = std::string_view(text).substr(0, equals);
  trigger.want(ProbeEvent::kProgram);
  if (trigger.parse_named(name, context)) {
    if (equals != std::string::npos) {
      trigger.fail(std::string(name) + " takes no value");
    }
    if (trigger.kind_ == Kind::kAssertion && !context.verilog) {
      trigger.fail(
          "no unit runs as Verilog, so that no assertion can fail; choose units by SimOptions::mxu "
          "or SimOptions::verilog: GLOB=rtl or GLOB=lockstep");
    }
  } else if (!trigger.parse_valued(
                 name, std::string_view(text).substr(std::min(equals, text.size() - 1) + 1),
                 context)) {
    trigger.fail(
        "expected step=N, time=N[ns|us|ms|cycles], op=N[,N], line=FILE:N, "
        "dma=MEMORY:LOW..HIGH, sem=[CORE:]N>=VALUE, firmware=[CORE:]FUNCTION|ADDRESS, nan, "
        "nonfinite, assertion, fault, watchdog, monitor");
  }
  return trigger;
}

// Those that take no value.
bool WaveTrigger::parse_named(std::string_view name, const WaveTriggerContext& context) {
  struct Named {
    std::string_view name;
    Kind kind;
    ProbeEvent event;
  };
  constexpr std::array<Named, 6> kNamed = {{{"nan", Kind::kNan, ProbeEvent::kNonFinite},
                                            {"nonfinite", Kind::kNonFinite, ProbeEvent::kNonFinite},
                                            {"assertion", Kind::kAssertion, ProbeEvent::kAssertion},
                                            {"fault", Kind::kFault, ProbeEvent::kFault},
                                            {"watchdog", Kind::kWatchdog, ProbeEvent::kFault},
                                            {"monitor", Kind::kMonitor, ProbeEvent::kProgram}}};
  const auto* named = std::ranges::find(kNamed, name, &Named::name);
  if (named == kNamed.end()) {
    return false;
  }
  if (named->event == ProbeEvent::kNonFinite && context.no_data) {
    fail("a run without data (SimOptions::no_data) computes no values");
  }
  kind_ = named->kind;
  want(named->event);
  return true;
}

bool WaveTrigger::parse_valued(std::string_view name, std::string_view value,
                               const WaveTriggerContext& context) {
  if (name == "step") {
    parse_step(value);
  } else if (name == "time") {
    parse_time(value, context.clock_mhz);
  } else if (name == "op") {
    parse_ops(value);
  } else if (name == "line") {
    parse_line(value, context);
  } else if (name == "dma") {
    parse_address(value);
  } else if (name == "sem") {
    parse_semaphore(value, context.cores);
  } else if (name == "firmware") {
    parse_firmware(value, context.cores);
  } else {
    return false;
  }
  return true;
}

void WaveTrigger::fail(const std::string& why) const {
  throw std::runtime_error("SimOptions::waves_trigger " + text_ + ": " + why);
}

void WaveTrigger::parse_step(std::string_view value) {
  const auto step = parse_count(value);
  if (!step) {
    fail("expected the number of a step, such as step=100");
  }
  number_ = *step;
}

void WaveTrigger::parse_ops(std::string_view value) {
  kind_ = Kind::kOp;
  want(ProbeEvent::kIssue);
  want(ProbeEvent::kMark);
  for (size_t begin = 0; begin <= value.size();) {
    const size_t comma = std::min(value.find(',', begin), value.size());
    const auto id = parse_count(value.substr(begin, comma - begin));
    if (!id || *id > UINT32_MAX) {
      fail("expected numbers of operations, op=3 or op=3,7; tpuboard objdump lists them");
    }
    ops_.push_back(static_cast<uint32_t>(*id));
    begin = comma + 1;
  }
}

void WaveTrigger::parse_line(std::string_view value, const WaveTriggerContext& context) {
  kind_ = Kind::kLine;
  want(ProbeEvent::kIssue);
  want(ProbeEvent::kMark);
  const size_t colon = value.rfind(':');
  const auto line =
      colon == std::string_view::npos ? std::nullopt : parse_count(value.substr(colon + 1));
  if (!line || *line > UINT32_MAX || colon == 0) {
    fail(
        "expected a source line, such as line=train.py:42; tpuboard objdump lists those of a "
        "program");
  }
  if (context.programs == nullptr) {
    fail("source lines are not known here");
  }
  line_.emplace(std::string(value.substr(0, colon)), static_cast<uint32_t>(*line),
                *context.programs);
}

void WaveTrigger::parse_time(std::string_view value, uint64_t clock_mhz) {
  struct Unit {
    std::string_view name;
    uint64_t nanoseconds;  // 0: cycles
  };
  constexpr std::array<Unit, 4> kTimeUnits = {
      {{"cycles", 0}, {"ns", 1}, {"us", 1000}, {"ms", 1000000}}};
  kind_ = Kind::kCycle;
  for (const ProbeEvent event :
       {ProbeEvent::kIssue, ProbeEvent::kStart, ProbeEvent::kDone, ProbeEvent::kRegister}) {
    want(event);
  }
  const auto unit = std::ranges::find_if(
      kTimeUnits, [&](const Unit& each) { return value.ends_with(each.name); });
  if (unit != kTimeUnits.end()) {
    value.remove_suffix(unit->name.size());
  }
  const auto count = parse_count(value);
  constexpr uint64_t kMost = uint64_t{1} << 62;
  if (unit == kTimeUnits.end() || !count || *count > kMost / 1'000'000) {
    fail("expected a time with its unit, such as time=250us or time=90000cycles");
  }
  number_ = unit->nanoseconds == 0 ? *count
                                   : static_cast<uint64_t>(static_cast<unsigned __int128>(*count) *
                                                           unit->nanoseconds * clock_mhz / 1000);
}

void WaveTrigger::parse_address(std::string_view value) {
  constexpr std::array<std::pair<std::string_view, ProbeMemory>, 3> kAddressed = {
      {{"vmem:", ProbeMemory::kVmem}, {"smem:", ProbeMemory::kSmem}, {"hbm:", ProbeMemory::kHbm}}};
  kind_ = Kind::kAddress;
  want(ProbeEvent::kAccess);
  const auto memory = std::ranges::find_if(
      kAddressed, [&](const auto& each) { return value.starts_with(each.first); });
  if (memory != kAddressed.end()) {
    memory_ = memory->second;
    value.remove_prefix(memory->first.size());
    const size_t dots = value.find("..");
    const auto low = parse_count(value.substr(0, dots));
    const auto high = dots == std::string_view::npos ? low : parse_count(value.substr(dots + 2));
    if (low && high && *low <= *high) {
      low_ = *low;
      high_ = *high;
      return;
    }
  }
  fail("expected addresses in hbm, vmem or smem, such as dma=hbm:0x1000..0x1fff");
}

void WaveTrigger::parse_semaphore(std::string_view value, const std::vector<std::string>& paths) {
  kind_ = Kind::kSemaphore;
  want(ProbeEvent::kSemaphore);
  value = take_cores(value, paths);
  const size_t compare = value.find(">=");
  const auto index = parse_count(value.substr(0, compare));
  const auto least =
      compare == std::string_view::npos ? std::nullopt : parse_count(value.substr(compare + 2));
  if (!index || !least) {
    fail(
        "expected a semaphore, such as sem=5>=2, or sem=board.chip0.core1:5>=2 for that of one "
        "core");
  }
  number_ = *index;
  value_ = *least;
}

// A function has its address behind it: boot@0x100.
void WaveTrigger::parse_firmware(std::string_view value, const std::vector<std::string>& paths) {
  kind_ = Kind::kFirmware;
  want(ProbeEvent::kHartPc);
  const std::string_view place = take_cores(value, paths);
  const size_t at = place.rfind('@');
  const auto address = parse_count(at == std::string_view::npos ? place : place.substr(at + 1));
  if (!address) {
    fail(
        "expected a place in the firmware, such as firmware=0x100, or "
        "firmware=board.chip0.core1:0x100 for the hart of one core");
  }
  const auto in = [&](uint64_t base, uint64_t bytes) {
    return *address >= base && *address - base < bytes;
  };
  if (*address % 2 != 0 || (!in(TPU_HART_ROM_BASE, TPU_HART_ROM_BYTES) &&
                            !in(TPU_HART_ITCM_BASE, TPU_HART_ITCM_BYTES))) {
    fail("invalid address: expected an even address in the code, which is in " +
         memory_text(TPU_HART_ROM_BASE, TPU_HART_ROM_BYTES) + " and " +
         memory_text(TPU_HART_ITCM_BASE, TPU_HART_ITCM_BYTES));
  }
  number_ = *address;
}

// What is behind "GLOB:", which chooses cores; without it all are.
std::string_view WaveTrigger::take_cores(std::string_view value,
                                         const std::vector<std::string>& paths) {
  std::string glob = "*";
  if (const size_t colon = value.find(':'); colon != std::string_view::npos) {
    glob = value.substr(0, colon);
    value.remove_prefix(colon + 1);
  }
  for (const std::string& path : paths) {
    cores_.push_back(fnmatch(glob.c_str(), path.c_str(), 0) == 0);
  }
  if (std::ranges::find(cores_, true) == cores_.end()) {
    fail(glob + " matches no core; this board has " + paths.front() + " to " + paths.back());
  }
  return value;
}

bool WaveTrigger::op(const ProbeSource& source) const {
  return (kind_ == Kind::kOp && std::ranges::find(ops_, source.op_id) != ops_.end()) ||
         (kind_ == Kind::kLine && line_->has(source.core, source.op_id));
}

// A step that ends without its `halt` was stopped: by a fault, or from outside when it hung.
bool WaveTrigger::hit(const ProgramEvent& event) const {
  const bool stopped = !event.begin && !event.complete;
  return reached(event.cycle) ||
         (kind_ == Kind::kStep && event.begin && event.step >= number_ && event.step < end_) ||
         ((kind_ == Kind::kFault || kind_ == Kind::kWatchdog) && stopped);
}

bool WaveTrigger::hit(const IssueEvent& event) const {
  return reached(event.cycle) || op(event.source);
}

bool WaveTrigger::hit(const MarkEvent& event) const {
  return reached(event.cycle) || (event.begin && op(event.source));
}

bool WaveTrigger::hit(const AccessEvent& event) const {
  return kind_ == Kind::kAddress && is_dma(event.source.unit) &&
         std::ranges::any_of(event.extents, [&](const AccessRange& range) {
           return range.memory == memory_ && range.low <= high_ && range.low + range.bytes > low_;
         });
}

bool WaveTrigger::hit(const SemaphoreEvent& event) const {
  return kind_ == Kind::kSemaphore && event.semaphore == number_ && event.value >= value_ &&
         cores_[event.core];
}

bool WaveTrigger::hit(const FaultEvent& event) const {
  return kind_ == Kind::kFault || (kind_ == Kind::kWatchdog && event.code == TPU_FAULT_WATCHDOG);
}

bool WaveTrigger::hit(const HartPcEvent& event) const {
  return kind_ == Kind::kFirmware && event.pc == number_ && cores_[event.core];
}

bool WaveTrigger::hit(const NonFiniteEvent& event) const {
  return kind_ == Kind::kNonFinite || (kind_ == Kind::kNan && event.nan);
}

bool WaveTrigger::hit(const AssertionEvent& /*event*/) const { return kind_ == Kind::kAssertion; }

}  // namespace tpu::model
