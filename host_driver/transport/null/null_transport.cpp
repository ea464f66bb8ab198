// Registers, boot and the serving of rings. The commands are in null_commands.cpp.
#include "transport/null/null_transport.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "board/board_loader.hpp"
#include "file/crc32c.hpp"
#include "src/rings/status.hpp"
#include "src/texts/fault_text.hpp"
#include "tpu/error.hpp"
#include "tpu/spec/chip_page_regs.hpp"
#include "tpu/spec/core_page_regs.hpp"
#include "tpu/spec/hart_map.h"

namespace tpu::driver {

namespace core_page = spec::core_page;
namespace chip_page = spec::chip_page;

void NullHbm::read(uint64_t at, std::span<std::byte> out) const {
  while (!out.empty()) {
    const uint64_t offset = at % kPage;
    const size_t run = std::min<uint64_t>(kPage - offset, out.size());
    const auto page = pages_.find(at / kPage);
    if (page == pages_.end()) {
      std::memset(out.data(), 0, run);
    } else {
      std::memcpy(out.data(), page->second.data() + offset, run);
    }
    at += run;
    out = out.subspan(run);
  }
}

void NullHbm::write(uint64_t at, std::span<const std::byte> data) {
  while (!data.empty()) {
    const uint64_t offset = at % kPage;
    const size_t run = std::min<uint64_t>(kPage - offset, data.size());
    std::vector<std::byte>& page = pages_[at / kPage];
    page.resize(kPage);
    std::memcpy(page.data() + offset, data.data(), run);
    at += run;
    data = data.subspan(run);
  }
}

void NullHbm::fill(uint64_t at, uint64_t bytes, uint32_t pattern) {
  const std::vector<uint32_t> words(kPage / sizeof(pattern), pattern);
  while (bytes > 0) {
    const uint64_t run = std::min(kPage - at % kPage, bytes);
    if (run == kPage && pattern == 0) {
      pages_.erase(at / kPage);
    } else {
      write(at, std::as_bytes(std::span(words)).first(run));
    }
    at += run;
    bytes -= run;
  }
}

NullTransport::NullTransport(const TransportRequest& request, HostMemory& memory)
    : params_(request.params), hash_(spec::board_hash(request.params)), memory_(memory) {
  for (int64_t i = 0; i < spec::core_count(params_); ++i) {
    cores_.emplace_back(static_cast<uint64_t>(params_.hbm.gib_per_core) << 30);
    cores_.back().tcm.resize(TPU_HART_ITCM_BYTES + TPU_HART_DTCM_BYTES);
  }
  msi_.resize(static_cast<size_t>(params_.board.chips));
}

NullTransport::Core& NullTransport::core_at(int chip, uint64_t index) {
  return cores_.at(static_cast<size_t>(chip) * static_cast<size_t>(params_.board.cores_per_chip) +
                   index);
}

int NullTransport::core_id(const Core& core) const {
  return static_cast<int>(&core - cores_.data());
}

uint32_t NullTransport::read32(int chip, int bar, uint64_t offset) {
  const auto cores = static_cast<uint64_t>(params_.board.cores_per_chip);
  if (bar != 0 || offset % 4 != 0) {
    return 0xFFFFFFFFu;
  }
  if (offset >= core_page::kBase) {
    const uint64_t index = (offset - core_page::kBase) / core_page::kStride;
    const uint64_t at = (offset - core_page::kBase) % core_page::kStride;
    return index < cores && at < core_page::kSize ? core_at(chip, index).page[at / 4] : 0xFFFFFFFFu;
  }
  switch (offset) {
    case chip_page::kMagic:
      return chip_page::kMagicTpub;
    case chip_page::kHwAbi:
      return chip_page::kHwAbiMajor << 16 | chip_page::kHwAbiMinor;
    case chip_page::kChipId:
      return static_cast<uint32_t>(chip | (chip % params_.board.torus_x) << 8 |
                                   (chip / params_.board.torus_x) << 16);
    case chip_page::kCores:
      return static_cast<uint32_t>(cores);
    case chip_page::kHbmMib:
      return static_cast<uint32_t>(params_.hbm.gib_per_core << 10);
    case chip_page::kClockKhz:
      return static_cast<uint32_t>(params_.core.clock_mhz * 1000);
    case chip_page::kBoardHashLo:
      return static_cast<uint32_t>(hash_);
    case chip_page::kBoardHashHi:
      return static_cast<uint32_t>(hash_ >> 32);
    case chip_page::kTimeLo:
      latched_time_ = static_cast<uint32_t>(cycle_ >> 32);
      return static_cast<uint32_t>(cycle_);
    case chip_page::kTimeHi:
      return latched_time_;
    default:
      return 0xFFFFFFFFu;
  }
}

void NullTransport::write32(int chip, int bar, uint64_t offset, uint32_t value) {
  if (bar != 0 || offset < core_page::kBase) {
    return;
  }
  const uint64_t index = (offset - core_page::kBase) / core_page::kStride;
  const uint64_t at = (offset - core_page::kBase) % core_page::kStride;
  if (index < static_cast<uint64_t>(params_.board.cores_per_chip) && at < core_page::kSize) {
    write_core(core_at(chip, index), at, value);
  }
}

void NullTransport::write_block(int chip, int bar, uint64_t offset,
                                std::span<const std::byte> data) {
  const uint64_t index = offset / core_page::kLoadStride;
  const uint64_t at = offset % core_page::kLoadStride;
  if (bar != 2 || index >= static_cast<uint64_t>(params_.board.cores_per_chip)) {
    return;
  }
  Core& core = core_at(chip, index);
  if (at + data.size() <= core.tcm.size()) {
    std::copy(data.begin(), data.end(), core.tcm.begin() + static_cast<ptrdiff_t>(at));
  }
}

void NullTransport::set_state(Core& core, uint32_t state) {
  core.page[core_page::kFwState / 4] = state;
}

void NullTransport::interrupt(const Core& core, uint32_t vector) {
  if (drop_interrupts > 0) {
    --drop_interrupts;
    return;
  }
  const int id = core_id(core);
  const auto per_chip = static_cast<int>(params_.board.cores_per_chip);
  msi_[static_cast<size_t>(id / per_chip)] |= 1u
                                              << (2 * (id % per_chip) + static_cast<int>(vector));
}

void NullTransport::reset(Core& core) {
  std::fill(core.page.begin(), core.page.end(), 0);
  core.serving = core.held = core.dead = false;
  core.fetched = core.tail = core.cpl_tail = 0;
  core.done = {};
  core.fed_steps = 0;
  core.infeed_full = core.infeed_free = core.outfeed_full = core.outfeed_free = 0;
  core.window.clear();
  for (auto entry = aborted_.begin(); entry != aborted_.end();) {
    const uint32_t launch_id = (entry++)->first;
    forget_aborted(launch_id, core);
  }
  core.programs = {};
  core.stuck = 0;
  core.endless = false;
}

void NullTransport::boot(Core& core) {
  const uint32_t length = core.page[core_page::kBootLen / 4];
  uint32_t crc = 0;
  if (length <= core.tcm.size()) {
    crc = spec::crc32c(std::span<const std::byte>(core.tcm).first(length));
  }
  if (corrupt_images > 0) {
    --corrupt_images;
    crc = ~crc;
  }
  interrupt(core, chip_page::kMsiEvent);
  if (crc != core.page[core_page::kBootCrc / 4]) {
    set_state(core, core_page::kStateBadImage);
    return;
  }
  core.page[core_page::kFwAbi / 4] = firmware_abi;
  set_state(core, core_page::kStateHandshake);
}

void NullTransport::write_core(Core& core, uint64_t offset, uint32_t value) {
  switch (offset) {
    case core_page::kCoreCtrl:
      if ((value & core_page::kCoreCtrlCoreResetMask) != 0) {
        reset(core);
      } else if ((value & core_page::kCoreCtrlHartRunMask) != 0) {
        boot(core);
      }
      return;
    case core_page::kQueueEn: {
      const bool match = core.page[core_page::kHostAbi / 4] >> 16 == firmware_abi >> 16;
      set_state(core, match ? core_page::kStateReady : core_page::kStateAbiMismatch);
      core.serving = value != 0 && match;
      interrupt(core, chip_page::kMsiEvent);
      return;
    }
    case core_page::kCmdTail:
      if (drop_doorbells > 0) {
        --drop_doorbells;
        return;
      }
      core.tail = value;
      return;
    case core_page::kResume:
      if (core.held && value == core.page[core_page::kEpoch / 4] + 1) {
        core.page[core_page::kEpoch / 4] = value;
        core.held = false;
        core.done = {};
        core.infeed_full = core.infeed_free = core.outfeed_full = core.outfeed_free = 0;
        set_state(core, core_page::kStateReady);
      }
      return;
    case core_page::kAbort: {
      tpu_fault_record_t record{};
      record.code = TPU_FAULT_HOST_ABORT;
      record.core = static_cast<uint8_t>(core_id(core));
      record.launch_id = value;
      record.op_id = 0xFFFFFFFFu;
      abort_gang(value, record, true);
      return;
    }
    case core_page::kHostAbi:
    case core_page::kBootEntry:
    case core_page::kBootLen:
    case core_page::kBootCrc:
    case core_page::kCmdBaseLo:
    case core_page::kCmdBaseHi:
    case core_page::kCmdLog2:
    case core_page::kCplBaseLo:
    case core_page::kCplBaseHi:
    case core_page::kCplLog2:
      core.page[offset / 4] = value;
      return;
    default:
      return;
  }
}

void NullTransport::interrupt() {
  {
    const std::lock_guard<std::mutex> guard(interrupt_mutex_);
    interrupted_ = true;
  }
  interrupt_turn_.notify_all();
}

RunOutcome NullTransport::run() {
  if (throw_in_run) {
    throw std::runtime_error("told to break");
  }
  bool progress = true;
  while (progress) {
    progress = false;
    for (Core& core : cores_) {
      progress = serve(core) || progress;
    }
  }
  RunOutcome outcome;
  outcome.msi = msi_;
  outcome.quiescent =
      std::all_of(msi_.begin(), msi_.end(), [](uint32_t vectors) { return vectors == 0; });
  std::fill(msi_.begin(), msi_.end(), 0);
  const bool runs =
      std::any_of(cores_.begin(), cores_.end(), [](const Core& core) { return core.endless; });
  if (outcome.quiescent && runs) {
    if (limit_.count() == 0) {
      throw std::runtime_error("a launch was told never to end, and run() has no limit");
    }
    std::unique_lock<std::mutex> guard(interrupt_mutex_);
    interrupt_turn_.wait_for(guard, limit_, [&] { return interrupted_; });
    interrupted_ = false;
    outcome.quiescent = false;
    outcome.expired = true;
  }
  return outcome;
}

RunOutcome NullTransport::run_until(uint64_t cycle) {
  RunOutcome outcome = run();
  if (outcome.quiescent) {
    cycle_ = std::max(cycle_, cycle);
  }
  return outcome;
}

uint8_t NullTransport::track_of(const Pending& command) {
  if (command.head.opcode == TPU_OP_COPY) {
    tpu_command_copy_t copy;
    std::memcpy(&copy, command.wire.data(), sizeof(copy));
    return copy.kind == TPU_COPY_D2H ? TPU_TRACK_DOWN : TPU_TRACK_UP;
  }
  return command.head.opcode == TPU_OP_FILL ? TPU_TRACK_UP : TPU_TRACK_LAUNCH;
}

// Brings one entry into the window.
bool NullTransport::fetch(Core& core) {
  if (core.window.size() >= TPU_CMD_WINDOW || core.fetched == core.tail) {
    return false;
  }
  const auto reg = [&](uint32_t offset) { return uint64_t{core.page[offset / 4]}; };
  const uint64_t base = reg(core_page::kCmdBaseLo) | reg(core_page::kCmdBaseHi) << 32;
  const uint64_t slot = core.fetched & ((1u << reg(core_page::kCmdLog2)) - 1);
  const auto entry = memory_.span(base + slot * TPU_CMD_ENTRY_BYTES, TPU_CMD_ENTRY_BYTES, false);
  if (entry.empty()) {
    core.dead = true;
    set_state(core, core_page::kStateDead);
    return false;
  }
  Pending command;
  std::copy(entry.begin(), entry.end(), command.wire.begin());
  if (good_entries > 0) {
    --good_entries;
  } else if (corrupt_entries > 0) {
    --corrupt_entries;
    command.wire[30] ^= std::byte{0x10};
  }
  std::memcpy(&command.head, command.wire.data(), sizeof(command.head));
  uint32_t crc = 0;
  std::memcpy(&crc, command.wire.data() + TPU_CMD_ENTRY_BYTES - 4, 4);
  if (crc != spec::crc32c(std::span(command.wire).first(TPU_CMD_ENTRY_BYTES - 4))) {
    command.fault = TPU_STATUS_BAD_CRC;
  } else if (command.head.seq != core.fetched) {
    command.fault = TPU_STATUS_BAD_SEQ;
  } else if (command.head.opcode < TPU_OP_LOAD_PROGRAM || command.head.opcode > TPU_OP_SET) {
    command.fault = TPU_STATUS_BAD_OPCODE;
  }
  command.head.seq = core.fetched;
  // As in the firmware: nothing in an entry that is wrong is believed, its track neither.
  command.track = command.fault == TPU_STATUS_OK ? track_of(command) : uint8_t{TPU_TRACK_LAUNCH};
  ++core.fetched;
  core.page[core_page::kCmdFetched / 4] = core.fetched;
  core.window.push_back(command);
  most_outstanding = std::max<uint64_t>(most_outstanding, core.tail - core.window.front().head.seq);
  return true;
}

bool NullTransport::waits_met(const Core& core, const Pending& command) const {
  const auto met = [](uint32_t done, uint32_t wanted) {
    return static_cast<int32_t>(done - wanted) >= 0;
  };
  return met(core.done[TPU_TRACK_LAUNCH], command.head.wait_launch) &&
         met(core.done[TPU_TRACK_UP], command.head.wait_up) &&
         met(core.done[TPU_TRACK_DOWN], command.head.wait_down);
}

// Does one thing; false when there is nothing to do.
bool NullTransport::serve(Core& core) {
  if (!core.serving || core.dead) {
    return false;
  }
  if (fetch(core)) {
    return true;
  }
  std::array<bool, 3> track_busy{};
  for (size_t i = 0; i < core.window.size(); ++i) {
    const Pending command = core.window[i];
    const bool in_front = !track_busy[command.track];
    track_busy[command.track] = true;
    const bool stale = core.held || command.head.epoch != core.page[core_page::kEpoch / 4];
    const bool keeps = (command.head.flags & TPU_CMD_FLAG_KEEP_ON_FLUSH) != 0;
    if (stale && !keeps) {
      if (command.head.opcode == TPU_OP_LAUNCH) {
        tpu_command_launch_t launch;
        std::memcpy(&launch, command.wire.data(), sizeof(launch));
        note_aborted(launch.launch_id, launch.core_mask);
      }
      complete(core, i, TPU_STATUS_FLUSHED);
      return true;
    }
    if (command.fault != TPU_STATUS_OK) {
      complete(core, i, command.fault);
      hold(core);
      return true;
    }
    if (!in_front || !waits_met(core, command)) {
      continue;
    }
    if (command.head.opcode == TPU_OP_LAUNCH) {
      if (try_launch(core, command)) {
        return true;
      }
      continue;
    }
    if (!copy_may_start(core, command)) {
      continue;
    }
    const uint16_t status = execute(core, command);
    if (status == TPU_STATUS_OK) {
      count_copy(core, command);
    }
    complete(core, i, status);
    if (status != TPU_STATUS_OK && status_holds(status, command.head.opcode)) {
      hold(core);
    }
    return true;
  }
  return false;
}

void NullTransport::hold(Core& core) {
  core.held = true;
  set_state(core, core_page::kStateHeld);
  interrupt(core, chip_page::kMsiEvent);
}

void NullTransport::complete(Core& core, size_t place, uint16_t status, uint32_t step) {
  const Pending command = core.window[place];
  core.window.erase(core.window.begin() + static_cast<ptrdiff_t>(place));
  if (command.head.opcode == TPU_OP_LAUNCH && command.fault == TPU_STATUS_OK) {
    tpu_command_launch_t launch;
    std::memcpy(&launch, command.wire.data(), sizeof(launch));
    forget_aborted(launch.launch_id, core);
    core.fed_steps = 0;
  }
  ++core.done[command.track];
  ++commands_done;
  post(core, command.head, status, step, 0);
}

void NullTransport::post(Core& core, const tpu_command_head_t& head, uint16_t status, uint32_t step,
                         uint16_t flags) {
  ++cycle_;
  tpu_completion_t completion{};
  completion.seq = head.seq;
  completion.status = status;
  const auto reg = [&](uint32_t offset) { return uint64_t{core.page[offset / 4]}; };
  const uint32_t log2 = core.page[core_page::kCplLog2 / 4];
  const bool lap_even = ((core.cpl_tail >> log2) & 1) == 0;
  completion.flags = static_cast<uint16_t>(flags | (lap_even ? TPU_CPL_FLAG_PHASE : 0));
  completion.step = step;
  completion.cycle = cycle_;
  completion.fault_seq = core.page[core_page::kFaultSeq / 4];
  completion.epoch = core.page[core_page::kEpoch / 4];
  const auto record = std::as_writable_bytes(std::span<tpu_completion_t, 1>(&completion, 1));
  completion.crc = spec::crc32c(record.first(sizeof(completion) - sizeof(completion.crc)));
  if (spoil_completion) {
    spoil_completion(record);
  }
  const uint64_t base = reg(core_page::kCplBaseLo) | reg(core_page::kCplBaseHi) << 32;
  const auto entry = memory_.span(base + (core.cpl_tail & ((1u << log2) - 1)) * TPU_CPL_ENTRY_BYTES,
                                  TPU_CPL_ENTRY_BYTES, true);
  if (!entry.empty()) {
    std::memcpy(entry.data(), &completion, sizeof(completion));
  }
  ++core.cpl_tail;
  core.page[core_page::kCplTail / 4] = core.cpl_tail;
  if (dead_behind > 0 && --dead_behind == 0) {
    core.dead = true;
    set_state(core, core_page::kStateDead);
  }
  if ((head.flags & TPU_CMD_FLAG_INTERRUPT) != 0 || status != TPU_STATUS_OK) {
    interrupt(core, chip_page::kMsiCompletion);
  }
}

TransportStats NullTransport::stats() {
  TransportStats stats;
  for (const Core& core : cores_) {
    stats.places.push_back({core.stuck != 0, core.steps, 0, 0, UINT32_MAX});
    if (core.stuck != 0) {
      stats.waits_text += "  TPU:" + std::to_string(core_id(core)) + ": launch " +
                          std::to_string(core.stuck) + " was told to hang\n";
    }
  }
  return stats;
}

namespace {

// Options that ask for what only a board with time and engines, or with firmware, can give.
void need_no_simulation(const SimOptions& sim) {
  const std::vector<std::pair<bool, const char*>> asked = {
      {!sim.mxu.empty(), "mxu"},
      {!sim.verilog.empty(), "verilog"},
      {sim.check, "check"},
      {sim.schedule_seed != 0, "schedule_seed"},
      {sim.profile, "profile"},
      {sim.xprof, "xprof"},
      {sim.record, "record"},
      {!sim.record_path.empty(), "record_path"},
      {!sim.trace_path.empty(), "trace_path"},
      {!sim.mmio_trace_path.empty(), "mmio_trace_path"},
      {!sim.firmware_log.empty(), "firmware_log"},
      {!sim.waves_path.empty(), "waves_path"},
      {!sim.timeline_path.empty(), "timeline_path"},
      {!sim.mxu_waves_path.empty(), "mxu_waves_path"},
      {!sim.gdb.empty(), "gdb"}};
  for (const auto& [is_asked, name] : asked) {
    if (is_asked) {
      throw Error(ErrorCode::kInvalidArgument,
                  std::string("SimOptions::") + name +
                      ": a board of the transport 'null' has neither time nor engines nor "
                      "firmware: this needs OpenOptions::transport to be sim");
    }
  }
}

}  // namespace

std::unique_ptr<Transport> make_null_transport(const TransportRequest& request,
                                               HostMemory& memory) {
  need_no_simulation(request.sim);
  return std::make_unique<NullTransport>(request, memory);
}

}  // namespace tpu::driver
