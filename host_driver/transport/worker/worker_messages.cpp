#include "transport/worker/worker_messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "board/board_loader.hpp"
#include "options/option_wire.hpp"

namespace tpu::driver::worker {
namespace {

using spec::Archive;

void number(Archive& a, double& value) {
  auto bits = std::bit_cast<uint64_t>(value);
  a(bits);
  value = std::bit_cast<double>(bits);
}

template <class T, class Fields>
void list(Archive& a, std::vector<T>& values, const Fields& fields) {
  values.resize(a.size(values.size(), 1));
  for (T& value : values) {
    fields(a, value);
  }
}

template <class T, class Fields>
void maybe(Archive& a, std::optional<T>& value, const Fields& fields) {
  bool there = value.has_value();
  a(there);
  if (there && !value) {
    value.emplace();
  }
  if (there) {
    fields(a, *value);
  }
}

void simple(Archive& a, uint32_t& value) { a(value); }
void long_number(Archive& a, uint64_t& value) { a(value); }
void line(Archive& a, ConsoleLine& value) { a(value.device, value.text); }
void command(Archive& a, CommandPlace& value) { a(value.core, value.unit, value.pc, value.op_id); }
void loop(Archive& a, spec::LoopPlace& value) { a(value.op_id, value.iteration); }
void place(Archive& a, ProgramPlace& value) {
  a(value.running, value.steps, value.step, value.pc, value.op_id);
  list(a, value.loops, loop);
}
void hart(Archive& a, HartPlace& value) {
  a(value.pc, value.sleeping, value.ra, value.sp, value.stack);
}
void fault(Archive& a, FaultWords& value) { a(value.cycle, value.text); }
void work(Archive& a, HostWorkTime& value) {
  a(value.name, value.unit);
  number(a, value.seconds);
  a(value.count, value.amount, value.bytes);
}
void wait(Archive& a, UnitWait& value) {
  command(a, value.at);
  a.choice(value.what, UnitWait::For::kHost);
  a(value.index, value.wanted, value.value, value.queue);
  maybe(a, value.ender, command);
  maybe(a, value.behind, simple);
}
void times(Archive& a, CoreTimes& value) {
  a(value.compute, value.links, value.hbm, value.stalled, value.input, value.host);
}
void finding(Archive& a, CheckFinding& value) {
  command(a, value.who);
  a(value.what);
  maybe(a, value.other, command);
  a(value.where, value.launch, value.step);
}
void tally(Archive& a, OpTally& value) {
  a(value.op_id, value.cycles, value.busy_cycles, value.commands);
}
void fault_tally(Archive& a, spec::FaultTally& value) {
  a(value.kind, value.place, value.fired, value.seen);
}
void forecast_of(Archive& a, ThreadForecast& value) {
  a(value.threads);
  number(a, value.seconds);
  number(a, value.events_seconds);
  number(a, value.wait_seconds);
  number(a, value.late_seconds);
}
void stats_of(Archive& a, TransportStats& value) {
  a(value.hart_instructions, value.run_cycles, value.counters);
  list(a, value.times, times);
  a(value.lockstep_tiles, value.lockstep_semaphores, value.lockstep_transfers,
    value.lockstep_mismatches, value.lockstep_text, value.check_findings);
  list(a, value.profile, work);
  list(a, value.places, place);
  list(a, value.harts, hart);
  list(a, value.faults, fault);
  maybe(a, value.hbm_host_bytes, long_number);
  list(a, value.watchdog_waits, wait);
  list(a, value.fault_tallies, fault_tally);
  a(value.waits_text, value.watchdog_launch);
}

}  // namespace

void MessageReader::bytes(std::span<std::byte> data) {
  need(data.size() <= rest_.size(), "its end is missing");
  std::copy_n(rest_.begin(), data.size(), data.begin());
  rest_ = rest_.subspan(data.size());
}

void refuse_message(const char* why) {
  throw Error(ErrorCode::kUnavailable,
              fmt::format("a message of the other end cannot be read: {}", why));
}

Failure failure_of(const Error& error) {
  return {static_cast<uint8_t>(error.code()), error.message(), error.place().device,
          error.place().op, error.place().source};
}

Error error_of(const Failure& failure) {
  const auto last = static_cast<uint8_t>(ErrorCode::kDataLoss);
  return {static_cast<ErrorCode>(std::min(failure.code, last)), failure.message,
          ErrorPlace{failure.device, failure.op, failure.source}};
}

void Attach::visit_state(Archive& a) {
  a(numbers, transport, firmware);
  visit_options(a, sim);
}

std::vector<std::string> board_numbers(const spec::BoardParams& params) {
  std::vector<std::string> numbers;
  for (const spec::BoardKey& key : spec::kBoardKeys) {
    numbers.push_back(spec::value_text(key, params));
  }
  return numbers;
}

void Attached::visit_state(Archive& a) { visit_options(a, sim); }

void Writes::visit_state(Archive& a) {
  list(a, writes, [](Archive& archive, RegisterWrite& write) {
    archive(write.chip, write.bar, write.offset, write.value);
  });
}

void Stopped::visit_state(Archive& a) {
  a(outcome.quiescent, outcome.expired, outcome.msi);
  list(a, outcome.console, line);
  a(now);
}

void Call::visit_state(Archive& a) {
  a.choice(kind, CallKind::kChangeSim);
  a(device, address, value, threads);
  if (kind == CallKind::kChangeSim) {
    visit_options(a, sim);
  }
}

void Answer::visit_state(Archive& a) {
  a.choice(kind, CallKind::kChangeSim);
  a(done, value, text);
  switch (kind) {
    case CallKind::kStats:
      return stats_of(a, stats);
    case CallKind::kWaits:
      return list(a, waits, wait);
    case CallKind::kForecast:
      return list(a, forecast, forecast_of);
    case CallKind::kFindings:
      return list(a, findings, finding);
    case CallKind::kOpTimes:
      return list(a, tallies, tally);
    case CallKind::kConsole:
      return list(a, console, line);
    case CallKind::kChangeSim:
      return visit_options(a, sim);
    case CallKind::kDebugRead:
    case CallKind::kDebugWrite:
    case CallKind::kXspace:
    case CallKind::kRecord:
      return;
  }
}

}  // namespace tpu::driver::worker
