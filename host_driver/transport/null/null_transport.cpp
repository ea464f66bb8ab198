// BARs of the null board, and the passing of its time.
#include "transport/null/null_transport.hpp"

#include <algorithm>
#include <stdexcept>

#include "board/board_loader.hpp"
#include "tpu/error.hpp"
#include "tpu/spec/chip_page_regs.hpp"
#include "tpu/spec/core_page_regs.hpp"
#include "transport/null/null_core.hpp"
#include "transport/null/null_programs.hpp"

namespace tpu::driver {

namespace core_page = spec::core_page;
namespace chip_page = spec::chip_page;

namespace {

constexpr int64_t kKilocycle = 1024;

uint32_t watchdog_kcycles(const spec::BoardParams& params) {
  return static_cast<uint32_t>(params.mgmt.watchdog_us * params.core.clock_mhz / kKilocycle);
}

}  // namespace

NullTransport::NullTransport(const TransportRequest& request, HostMemory& memory)
    : params_(request.params), hash_(spec::board_hash(request.params)) {
  const auto count = static_cast<uint32_t>(spec::core_count(params_));
  const auto per_chip = static_cast<uint32_t>(params_.board.cores_per_chip);
  cores_ = std::make_unique<NullCores>(*this, memory, count);
  cores_->msi.resize(static_cast<size_t>(spec::chip_count(params_)));
  for (uint32_t core = 0; core < count; ++core) {
    const NullCore::Place place{core, core / per_chip, core % per_chip, count};
    cores_->all.push_back(std::make_unique<NullCore>(
        *cores_, place, static_cast<uint64_t>(params_.hbm.gib_per_core) << 30,
        watchdog_kcycles(params_)));
    cores_->gangs.add(core, *cores_->all.back());
  }
  programs_ = std::make_unique<NullPrograms>(*cores_);
}

NullTransport::~NullTransport() = default;

NullCore& NullTransport::core_at(int chip, uint64_t index) {
  const auto per_chip = static_cast<size_t>(params_.board.cores_per_chip);
  return *cores_->all.at(static_cast<size_t>(chip) * per_chip + index);
}

uint32_t NullTransport::read32(int chip, int bar, uint64_t offset) {
  const auto cores = static_cast<uint64_t>(params_.board.cores_per_chip);
  if (bar != 0 || offset % 4 != 0) {
    return 0xFFFFFFFFu;
  }
  if (offset >= core_page::kBase) {
    const uint64_t index = (offset - core_page::kBase) / core_page::kStride;
    const uint64_t at = (offset - core_page::kBase) % core_page::kStride;
    return index < cores && at < core_page::kSize ? core_at(chip, index).host_read(at)
                                                  : 0xFFFFFFFFu;
  }
  switch (offset) {
    case chip_page::kMagic:
      return chip_page::kMagicTpub;
    case chip_page::kHwAbi:
      return chip_page::kHwAbiMajor << 16 | chip_page::kHwAbiMinor;
    case chip_page::kChipId:
      return static_cast<uint32_t>(chip | (chip % spec::chips_x(params_)) << 8 |
                                   (chip / spec::chips_x(params_)) << 16);
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
      latched_time_ = static_cast<uint32_t>(cores_->cycle >> 32);
      return static_cast<uint32_t>(cores_->cycle);
    case chip_page::kTimeHi:
      return latched_time_;
    default:
      return 0xFFFFFFFFu;
  }
}

void NullTransport::write32(int chip, int bar, uint64_t offset, uint32_t value) {
  if (bar != 0 || offset < core_page::kBase || offset % 4 != 0) {
    return;
  }
  const uint64_t index = (offset - core_page::kBase) / core_page::kStride;
  const uint64_t at = (offset - core_page::kBase) % core_page::kStride;
  if (index < static_cast<uint64_t>(params_.board.cores_per_chip) && at < core_page::kSize) {
    core_at(chip, index).host_write(at, value);
  }
}

void NullTransport::write_block(int chip, int bar, uint64_t offset,
                                std::span<const std::byte> data) {
  const uint64_t index = offset / core_page::kLoadStride;
  if (bar == 2 && index < static_cast<uint64_t>(params_.board.cores_per_chip)) {
    core_at(chip, index).load(offset % core_page::kLoadStride, data);
  }
}

uint64_t NullTransport::now() { return cores_->cycle; }

// Does all that can be done at once; a limit is over only when nothing else can happen.
void NullTransport::settle() {
  const auto any = [&](const auto& call) {
    bool done = false;
    for (const auto& core : cores_->all) {
      done = call(*core) || done;
    }
    return done;
  };
  while (any([](NullCore& core) { return core.serve(); }) || programs_->run_one() ||
         any([](NullCore& core) { return core.expire(); })) {
  }
}

void NullTransport::interrupt() {
  {
    const base::MutexLock guard(interrupt_mutex_);
    interrupted_ = true;
  }
  interrupt_turn_.notify_all();
}

RunOutcome NullTransport::run() {
  if (throw_in_run) {
    throw std::runtime_error("told to break");
  }
  settle();
  RunOutcome outcome;
  outcome.msi = cores_->msi;
  outcome.quiescent = std::all_of(outcome.msi.begin(), outcome.msi.end(),
                                  [](uint32_t vectors) { return vectors == 0; });
  std::fill(cores_->msi.begin(), cores_->msi.end(), 0);
  if (outcome.quiescent && programs_->any_endless()) {
    if (limit_.count() == 0) {
      throw std::runtime_error("a step of the null board never ends, and run() has no time limit");
    }
    const auto end = std::chrono::steady_clock::now() + limit_;
    const base::MutexLock guard(interrupt_mutex_);
    while (!interrupted_ && interrupt_turn_.wait_until(interrupt_mutex_, end)) {
    }
    interrupted_ = false;
    outcome.quiescent = false;
    outcome.expired = true;
  }
  return outcome;
}

RunOutcome NullTransport::run_until(uint64_t cycle) {
  RunOutcome outcome = run();
  if (outcome.quiescent) {
    cores_->cycle = std::max(cores_->cycle, cycle);
  }
  return outcome;
}

void NullTransport::end_endless() { programs_->end_endless(); }

TransportStats NullTransport::stats() {
  TransportStats stats;
  programs_->tell(stats);
  return stats;
}

namespace {

// Options that ask for what only a board with time, engines and harts can give.
void need_no_simulation(const SimOptions& sim) {
  const std::vector<std::pair<bool, const char*>> asked = {
      {!sim.mxu.empty(), "mxu"},
      {!sim.verilog.empty(), "verilog"},
      {sim.check, "check"},
      {sim.schedule_seed != 0, "schedule_seed"},
      {!sim.faults_path.empty(), "faults_path"},
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
                      ": a board of the transport 'null' has no simulated time and no engines; "
                      "this option needs OpenOptions::transport to be sim");
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
