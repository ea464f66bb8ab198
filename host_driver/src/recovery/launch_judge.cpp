// The statuses of all cores are looked at first; a fault record is read where they do not decide.
#include "src/recovery/launch_judge.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/feeds/step_feed_state.hpp"
#include "src/residency/program.hpp"
#include "src/rings/status.hpp"
#include "src/texts/fault_text.hpp"

namespace tpu::driver {
namespace {

constexpr int kMaxLaunchAttempts = 4;

bool tells_no_start(uint16_t code) {
  return code == TPU_FAULT_GANG_MISMATCH || code == TPU_FAULT_NOT_STARTED;
}

// The core whose status says most: the first that refused the launch, else the last with a fault.
size_t worst_part(const Operation& launch) {
  size_t worst = 0;
  for (size_t i = 0; i < launch.status.size(); ++i) {
    if (status_refused(launch.status[i])) {
      return i;
    }
    if (launch.status[i] == TPU_STATUS_FAULT || launch.status[i] == kStatusLost) {
      worst = i;
    }
  }
  return worst;
}

}  // namespace

// A record takes dozens of reads of registers, and each of them time of the board.
const tpu_fault_record_t& LaunchJudge::record_of(const Operation& launch, size_t part) {
  const auto [found, missing] = fault_records_.try_emplace(part);
  if (missing) {
    found->second = harts_.read_fault(devices_[launch.commands[part]->device]);
  }
  return found->second;
}

bool LaunchJudge::judge(const std::shared_ptr<Operation>& launch) {
  fault_records_.clear();
  const size_t worst = worst_part(*launch);
  if (status_refused(launch->status[worst])) {
    return judge_refused(*launch, worst);
  }
  if (std::ranges::find(launch->status, TPU_STATUS_FLUSHED) != launch->status.end()) {
    return judge_flushed(*launch, *launch->commands[worst]);
  }
  if (launch->verdict) {
    const auto& feed = launch->feed;
    const bool unfed = feed && !feed->infeed.empty() && feed->given == 0;
    launch->on_board = !unfed && !never_started(*launch);
    operations_.finish(*launch, launch->verdict);
    return false;
  }
  if (repeats(*launch, worst)) {
    return true;
  }
  operations_.finish(*launch, fault_of(*launch, worst));
  return false;
}

bool LaunchJudge::judge_refused(Operation& launch, size_t part) {
  const uint16_t status = launch.status[part];
  Command& command = *launch.commands[part];
  const bool corrupt = status == TPU_STATUS_BAD_CRC || status == TPU_STATUS_BAD_SEQ;
  launch.on_board = false;
  // A load that did not get through is sent again in front of it.
  const bool missing = status == TPU_STATUS_NO_PROGRAM && launch.residence &&
                       !*launch.residence->parts[part].loaded &&
                       !launch.residence->parts[part].ready->failed();
  if ((corrupt && command.attempts++ == 0) ||
      (missing && command.attempts++ < kMaxLaunchAttempts)) {
    return true;
  }
  operations_.finish(launch, status_error(status, launch.what, command.device));
  return false;
}

// A core that never started the launch kept the whole gang from its first step.
bool LaunchJudge::judge_flushed(Operation& launch, Command& command) {
  launch.on_board = false;
  if (command.attempts++ < kMaxLaunchAttempts) {
    return true;
  }
  operations_.finish(launch, std::make_shared<Error>(ErrorCode::kInternal,
                                                     launch.what + ": flushed again and again"));
  return false;
}

// Once, where nothing but its own results and scratch memory can have changed since it began
// (docs/adr/0119-launches-sent-again.md). A core that has ended it may have run a later launch,
// which may have overwritten an argument.
bool LaunchJudge::repeats(Operation& launch, size_t part) {
  const bool intact = launch.donated.empty() && !launch.feed &&
                      launch.program->exe.host_calls.empty() && !health_.cancelled() &&
                      !health_.broken() && !launch.failed_input();
  if (launch.repeated || !intact) {
    return false;
  }
  bool hardware = false;
  for (size_t i = 0; i < launch.status.size(); ++i) {
    switch (cause_of(launch, i)) {
      case Cause::kNone:
        break;
      case Cause::kHardware:
        hardware = true;
        break;
      case Cause::kOther:
        return false;
    }
  }
  if (!hardware) {
    return false;
  }
  const Device& device = devices_[launch.commands[part]->device];
  const tpu_fault_record_t record = launch.trap ? *launch.trap : record_of(launch, part);
  const bool lost = launch.status[part] == kStatusLost;
  const std::string why = lost && !launch.trap
                              ? launch.what + ": the control hart did not answer"
                              : fault_error(record, launch.program->exe, device.id,
                                            launch.stall_text, {}, launch.trap_place)
                                    ->message();
  outbox_.tell(device.id, fmt::format("{}; its arguments are as they were: it is sent again",
                                      why.substr(0, why.find('\n'))));
  records_.take_findings(launch);
  launch.repeated = true;
  launch.on_board = false;
  launch.trap.reset();
  launch.trap_place.clear();
  launch.stall_text.clear();
  return true;
}

// Another run of the launch on the same memory can go well: what it writes first is what was
// damaged, or its core was started again. A hang can be one of the program: only of one that has
// ended before, it is taken for one of the hardware.
LaunchJudge::Cause LaunchJudge::cause_of(const Operation& launch, size_t part) {
  const uint16_t status = launch.status[part];
  if (status == kStatusLost) {
    const bool here = !launch.trap || launch.trap->launch_id == launch.launch_id;
    return here ? Cause::kHardware : Cause::kOther;
  }
  if (status != TPU_STATUS_FAULT && status != TPU_STATUS_ABORTED) {
    return Cause::kOther;
  }
  const tpu_fault_record_t& record = record_of(launch, part);
  if (record.launch_id != launch.launch_id) {
    return status == TPU_STATUS_ABORTED ? Cause::kNone : Cause::kOther;
  }
  const exe::ExecutableT& exe = launch.program->exe;
  bool hardware = false;
  switch (record.code) {
    case TPU_FAULT_SRAM_ECC:
      hardware = true;
      break;
    case TPU_FAULT_HBM_ECC:
      hardware = record.slot < exe.slots.size() &&
                 (exe.slots[record.slot]->kind == exe::SlotKind::result ||
                  exe.slots[record.slot]->kind == exe::SlotKind::scratch);
      break;
    case TPU_FAULT_WATCHDOG:
    case TPU_FAULT_HOST_ABORT:  // nothing was in flight; other reasons are verdicts
      hardware = launch.program->has_ended;
      break;
    case TPU_FAULT_PEER_LOST:
      return Cause::kNone;
    default:
      break;
  }
  return hardware ? Cause::kHardware : Cause::kOther;
}

ErrorPtr LaunchJudge::fault_of(Operation& launch, size_t part) {
  const Device& device = devices_[launch.commands[part]->device];
  const bool died = launch.status[part] == kStatusLost && launch.trap;
  const tpu_fault_record_t record = died ? *launch.trap : record_of(launch, part);
  const bool others = record.launch_id != launch.launch_id;
  if (died) {
    if (others) {
      launch.on_board = false;  // the hart died before or after it: no step ran
    }
    return fault_error(record, launch.program->exe, device.id, launch.stall_text, {},
                       launch.trap_place);
  }
  const bool no_engine_fault = others || record.code == TPU_FAULT_HOST_ABORT ||
                               record.code == TPU_FAULT_PEER_LOST || tells_no_start(record.code);
  if (no_engine_fault && never_started(launch)) {
    launch.on_board = false;
  }
  if (others) {
    return std::make_shared<Error>(
        ErrorCode::kDeviceFault,
        fmt::format("{}: {}{}{}", launch.what, status_name(launch.status[part]),
                    launch.stall_text.empty() ? "" : ": nothing in flight\n", launch.stall_text),
        ErrorPlace{.device = device.id, .op = {}, .source = {}});
  }
  return engine_fault(launch, device, record);
}

ErrorPtr LaunchJudge::engine_fault(const Operation& launch, const Device& device,
                                   const tpu_fault_record_t& record) {
  std::string waits = launch.stall_text;
  if (record.code == TPU_FAULT_WATCHDOG) {
    const TransportStats stats = transport_->stats();
    waits = tell_hang_("watchdog", &launch, stats.watchdog_waits, stats);
  }
  std::string core_says = harts_.core_text(device, record.cycle);
  const std::string findings = records_.take_findings(launch);
  if (!findings.empty()) {
    core_says += "\nthe checker says:\n" + findings;
  } else if (record.code == TPU_FAULT_SEM_NONZERO_AT_END && !records_.checks()) {
    core_says += "\nrun it with SimOptions::check, which says whose signal nobody takes";
  }
  if (record.code == TPU_FAULT_HBM_ECC && lost_of_program(record, launch.program->exe)) {
    launch.program->residence.reset();  // the next launch loads code and constants again
    core_says += "\ncode and constants of the program are loaded again for its next launch";
  }
  ErrorPtr fault = fault_error(record, launch.program->exe, device.id, waits, core_says);
  if (const ErrorPtr& cancelled = health_.cancelled();
      cancelled && record.code == TPU_FAULT_HOST_ABORT) {
    fault = std::make_shared<Error>(ErrorCode::kCancelled,
                                    fmt::format("{}: {}", cancelled->message(), fault->message()),
                                    fault->place());
  }
  return fault;
}

// True when a core of the gang says that no step ran: the first one begins on all cores together.
bool LaunchJudge::never_started(const Operation& launch) {
  return std::any_of(launch.commands.begin(), launch.commands.end(),
                     [&](const auto& command) TPU_REQUIRES(board_lock) {
                       if (launch.status[command->index] == kStatusLost) {
                         return false;  // the core may be gone
                       }
                       const tpu_fault_record_t& record = record_of(launch, command->index);
                       return record.launch_id == launch.launch_id && tells_no_start(record.code);
                     });
}

}  // namespace tpu::driver
