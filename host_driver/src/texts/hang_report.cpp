// Waits as a graph: each unit waits for at most one other.
#include "src/texts/hang_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "sim/wait_text.hpp"
#include "src/texts/fault_text.hpp"

namespace tpu::driver {
namespace {

using For = UnitWait::For;

const exe::OpInfoT* op_of(const CommandPlace& place, const ProgramOfCore& program) {
  const exe::ExecutableT* exe = program ? program(place.core) : nullptr;
  return exe != nullptr && place.op_id < exe->ops.size() ? exe->ops[place.op_id].get() : nullptr;
}

std::string source_of(const exe::OpInfoT& op) {
  return op.file.empty() ? std::string() : fmt::format("{}:{}", op.file, op.line);
}

// Whom the wait is for; none: nobody that is known, or all engines of the core.
std::optional<size_t> successor(std::span<const UnitWait> waits, const UnitWait& wait) {
  uint32_t core = wait.at.core;
  std::string_view unit;
  if (wait.what == For::kQueue) {
    unit = wait.queue;
  } else if (wait.what == For::kSemaphore && wait.ender) {
    core = wait.ender->core;
    unit = wait.behind ? std::string_view(wait.ender->unit) : "sequencer";
  }
  const auto found = std::ranges::find_if(
      waits, [&](const UnitWait& other) { return other.at.core == core && other.at.unit == unit; });
  return found == waits.end() ? std::nullopt : std::optional<size_t>(found - waits.begin());
}

std::string unit_name(const UnitWait& wait) {
  return fmt::format("core {} {}", wait.at.core, wait.at.unit);
}

std::string cycle_text(const HangReport& report) {
  const std::span<const UnitWait> waits = report.waits;
  const std::vector<size_t> cycle = wait_cycle(waits);
  std::string text;
  if (!cycle.empty()) {
    for (const size_t i : cycle) {
      text += unit_name(waits[i]) + " -> ";
    }
    return "they wait in a circle: " + text + unit_name(waits[cycle.front()]) + "\n";
  }
  for (const UnitWait& wait : waits) {
    if (wait.what == For::kSemaphore && !wait.ender) {
      text += fmt::format("nothing {}signals semaphore {} of core {}, for which {} waits{}\n",
                          report.one_process ? "" : "in the same process ", wait.index,
                          wait.at.core, wait.at.unit,
                          report.one_process ? "" : "; of the other processes it is not known");
    }
  }
  return text;
}

nlohmann::json place_json(const CommandPlace& place, const ProgramOfCore& program) {
  nlohmann::json json = {{"core", place.core}, {"unit", place.unit}, {"word", place.pc}};
  if (const exe::OpInfoT* op = op_of(place, program); op != nullptr) {
    json["op_id"] = place.op_id;
    json["op"] = op->name;
    json["source"] = source_of(*op);
  }
  return json;
}

nlohmann::json wait_json(const UnitWait& wait, const ProgramOfCore& program) {
  constexpr std::array<const char*, 5> kFor = {"nothing", "semaphore", "queue", "engines", "host"};
  nlohmann::json json = place_json(wait.at, program);
  json["waits_for"] = kFor[static_cast<size_t>(wait.what)];
  if (wait.what == For::kSemaphore) {
    json["semaphore"] = {{"index", wait.index}, {"wanted", wait.wanted}, {"value", wait.value}};
    json["signalled_by"] = wait.ender ? place_json(*wait.ender, program) : nlohmann::json();
    if (wait.behind) {
      json["signalled_by"]["commands_in_front"] = *wait.behind;
    }
  } else if (wait.what == For::kQueue) {
    json["queue"] = wait.queue;
  } else if (wait.what == For::kHost) {
    json["call"] = wait.index;
  }
  return json;
}

}  // namespace

std::string place_text(const CommandPlace& place, const ProgramOfCore& program) {
  std::string text = fmt::format("core {} {} (word {}", place.core, place.unit, place.pc);
  if (const exe::OpInfoT* op = op_of(place, program); op != nullptr) {
    text += fmt::format(", op {} {}", place.op_id, op->name);
    text += op->file.empty() ? std::string() : " at " + source_of(*op);
  }
  return text + ")";
}

std::vector<size_t> wait_cycle(std::span<const UnitWait> waits) {
  std::vector<size_t> seen(waits.size(), SIZE_MAX);  // from which start
  for (size_t start = 0; start < waits.size(); ++start) {
    std::optional<size_t> at = start;
    while (at && seen[*at] == SIZE_MAX) {
      seen[*at] = start;
      at = successor(waits, waits[*at]);
    }
    if (!at || seen[*at] != start) {
      continue;
    }
    std::vector<size_t> cycle;
    const size_t first = *at;
    do {
      cycle.push_back(*at);
      at = successor(waits, waits[*at]);
    } while (*at != first);
    return cycle;
  }
  return {};
}

std::string hang_text(const HangReport& report) {
  std::string text;
  for (const UnitWait& wait : report.waits) {
    text += fmt::format(
        "{} {}\n", place_text(wait.at, report.program),
        spec::wait_text(
            wait, [&](const CommandPlace& place) { return place_text(place, report.program); },
            report.one_process));
  }
  return text + cycle_text(report);
}

std::string hang_json(const HangReport& report) {
  nlohmann::json waits = nlohmann::json::array();
  for (const UnitWait& wait : report.waits) {
    waits.push_back(wait_json(wait, report.program));
  }
  nlohmann::json harts = nlohmann::json::array();
  for (const HartTrace& hart : report.harts) {
    harts.push_back({{"core", hart.device},
                     {"state", hart.sleeping ? "sleeps" : "runs"},
                     {"pc", hart.pc},
                     {"trace", hart.frames}});
  }
  const nlohmann::json json = {{"hang", report.kind},
                               {"launch", report.what},
                               {"waits", std::move(waits)},
                               {"cycle", wait_cycle(report.waits)},
                               {"harts", std::move(harts)}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace tpu::driver
