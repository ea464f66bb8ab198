// Texts to triggers, and events against them.
#include "waves/wave_trigger.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <stdexcept>

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

WaveTrigger WaveTrigger::parse(const std::string& text, uint64_t clock_mhz,
                               const std::vector<std::string>& paths) {
  WaveTrigger trigger;
  trigger.text_ = text;
  const size_t equals = text.find('=');
  const std::string_view name = std::string_view(text).substr(0, equals);
  const std::string_view value =
      equals == std::string::npos ? std::string_view() : std::string_view(text).substr(equals + 1);
  trigger.want(ProbeEvent::kProgram);
  if (name == "fault" || name == "watchdog") {
    if (equals != std::string::npos) {
      trigger.fail(std::string(name) + " takes no value");
    }
    trigger.kind_ = name == "fault" ? Kind::kFault : Kind::kWatchdog;
    trigger.want(ProbeEvent::kFault);
  } else if (name == "step") {
    const auto step = parse_count(value);
    if (!step) {
      trigger.fail("a step is a number");
    }
    trigger.number_ = *step;
  } else if (name == "time") {
    trigger.parse_time(value, clock_mhz);
  } else if (name == "op") {
    trigger.parse_ops(value);
  } else if (name == "dma") {
    trigger.parse_address(value);
  } else if (name == "sem") {
    trigger.parse_semaphore(value, paths);
  } else {
    trigger.fail(
        "triggers are step=N, time=N[ns|us|ms|cycles], op=N[,N], dma=MEMORY:LOW..HIGH, "
        "sem=[CORE:]N>=VALUE, fault, watchdog");
  }
  return trigger;
}

void WaveTrigger::fail(const std::string& why) const {
  throw std::runtime_error("--waves-trigger " + text_ + ": " + why);
}

void WaveTrigger::parse_ops(std::string_view value) {
  kind_ = Kind::kOp;
  want(ProbeEvent::kIssue);
  want(ProbeEvent::kMark);
  for (size_t begin = 0; begin <= value.size();) {
    const size_t comma = std::min(value.find(',', begin), value.size());
    const auto id = parse_count(value.substr(begin, comma - begin));
    if (!id || *id > UINT32_MAX) {
      fail("operations are named by their numbers, op=3 or op=3,7; tpuboard objdump lists them");
    }
    ops_.push_back(static_cast<uint32_t>(*id));
    begin = comma + 1;
  }
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
    fail("a time is a whole number with its unit, time=250us or time=90000cycles");
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
  fail("addresses of transfers are written dma=hbm:0x1000..0x1fff, with hbm, vmem or smem");
}

void WaveTrigger::parse_semaphore(std::string_view value, const std::vector<std::string>& paths) {
  kind_ = Kind::kSemaphore;
  want(ProbeEvent::kSemaphore);
  std::string glob = "*";
  if (const size_t colon = value.find(':'); colon != std::string_view::npos) {
    glob = value.substr(0, colon);
    value.remove_prefix(colon + 1);
  }
  const size_t compare = value.find(">=");
  const auto index = parse_count(value.substr(0, compare));
  const auto least =
      compare == std::string_view::npos ? std::nullopt : parse_count(value.substr(compare + 2));
  if (!index || !least) {
    fail("a semaphore is written sem=5>=2, or sem=board.chip0.core1:5>=2 for that of one core");
  }
  number_ = *index;
  value_ = *least;
  for (const std::string& path : paths) {
    cores_.push_back(fnmatch(glob.c_str(), path.c_str(), 0) == 0);
  }
  if (std::ranges::find(cores_, true) == cores_.end()) {
    fail(glob + " matches no core; this board has " + paths.front() + " to " + paths.back());
  }
}

bool WaveTrigger::op(uint32_t id) const {
  return kind_ == Kind::kOp && std::ranges::find(ops_, id) != ops_.end();
}

// A step that ends without its `halt` was stopped: by a fault, or from outside when it hung.
bool WaveTrigger::hit(const ProgramEvent& event) const {
  const bool stopped = !event.begin && !event.complete;
  return reached(event.cycle) ||
         (kind_ == Kind::kStep && event.begin && event.step >= number_ && event.step < end_) ||
         ((kind_ == Kind::kFault || kind_ == Kind::kWatchdog) && stopped);
}

bool WaveTrigger::hit(const IssueEvent& event) const {
  return reached(event.cycle) || op(event.source.op_id);
}

bool WaveTrigger::hit(const MarkEvent& event) const {
  return reached(event.cycle) || (event.begin && op(event.source.op_id));
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

}  // namespace tpu::model
