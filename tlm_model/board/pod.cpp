// Wiring of the pod, and its debug port.
#include "board/pod.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "board/append_line.hpp"
#include "board/board_loader.hpp"
#include "faults/fault_script.hpp"
#include "file/crc32c.hpp"
#include "kernel/cycles.hpp"
#include "sim/option_names.hpp"
#include "tpu/spec/option_table.hpp"

namespace tpu::model {
namespace {

// Registers by the calling convention of RISC-V; words of its stack that reports look at.
constexpr unsigned kHartReturnAddress = 1;
constexpr unsigned kHartStackPointer = 2;
constexpr size_t kStackWords = 256;

int thread_count(int asked) {
  return asked > 0 ? asked : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::string field_of(const spec::OptionInfo& option) {
  return spec::option_name(option, spec::OptionDoor::kStruct);
}

[[noreturn]] void refuse_fixed(const std::string& what) {
  std::string live;
  for (const spec::OptionInfo& option : spec::kBoardOptions) {
    live += option.live ? (live.empty() ? "" : ", ") + field_of(option) : std::string();
  }
  throw std::runtime_error(what + " is fixed when the board is opened; an open board can change " +
                           live);
}

// Options that the board is built with.
void check_fixed(const spec::SimOptions& now, const spec::SimOptions& wanted) {
  if (const spec::OptionInfo* const option = spec::fixed_difference(now, wanted)) {
    refuse_fixed(field_of(*option));
  }
  if (!now.mxu_waves_path.empty() && now.mxu != wanted.mxu) {
    refuse_fixed("SimOptions::mxu, with SimOptions::mxu_waves_path,");
  }
}

}  // namespace

Pod::Pod(sc_core::sc_module_name name, const BoardOptions& options, HostMemory& memory,
         std::span<const uint8_t> rom, GdbLink* gdb, const LaunchPrograms& programs)
    : sc_module(name),
      options_(options),
      fold_(options.folded ? std::optional<spec::Fold>(*options.folded) : std::nullopt),
      rom_crc_(spec::crc32c(std::as_bytes(rom))),
      mxu_select_(make_select(options_)),
      verilog_select_(options_.sim, options_.params),
      sinks_(options_, mxu_select_->verilog_units(), probes_, waves_open_,
             WatchdogSink::Board{[this] { return waits(); },
                                 [this](uint32_t core) { return launch_of(core); }},
             programs),
      pool_(thread_count(options.sim.threads)),
      programs_(options_.params) {
  if (options_.sim.profile) {
    pool_.keep_trace();
  }
  if (gdb != nullptr) {
    gdb_ = std::make_unique<GdbStub>(*gdb, options_.sim.gdb_wait);
  }
  std::optional<FaultScript> script;
  if (!options_.sim.faults_path.empty()) {
    if (fold_) {
      throw std::runtime_error(
          "SimOptions::faults_path: a pod that is folded to one board has no faults on purpose; "
          "use all boards");
    }
    script = load_fault_script(options_.sim.faults_path, options_.sim.fault_seed, options_.params);
  }
  make_boards(memory, rom, script ? script->digest : 0);
  if (script) {
    std::vector<Ici*> networks;
    for (uint32_t chip = 0; chip < places_.size(); ++chip) {
      Board& board = *boards_[static_cast<size_t>(spec::board_of_chip(options_.params, chip))];
      networks.push_back(places_[chip] != nullptr ? &board.ici() : nullptr);
    }
    faults_ = std::make_unique<BoardFaults>(options_.sim, options_.params, std::move(*script),
                                            places_, std::move(networks), probes_, programs);
    sinks_.add_listener([this](ProbeSet& probes) { faults_->listen(probes); });
  }
  if (gdb_ != nullptr) {
    gdb_->attach(debug_);
  }
}

void Pod::make_step_counters() {
  const auto count = static_cast<uint32_t>(spec::board_count(options_.params));
  if (count == 1) {  // alone, or folded: then its gangs have cores of boards that are not there
    steps_.resize(1);
    return;
  }
  std::vector<spec::CoreSet> cores(count);
  for (int64_t core = 0; core < spec::core_count(options_.params); ++core) {
    const int64_t chip = core / options_.params.board.cores_per_chip;
    cores[static_cast<size_t>(spec::board_of_chip(options_.params, chip))].insert(
        static_cast<uint32_t>(core));
  }
  steps_.reserve(count);
  for (spec::CoreSet& each : cores) {
    steps_.emplace_back(std::move(each));
  }
}

uint64_t Pod::steps_begun() const {
  return std::ranges::max(steps_, {}, &StepCounter::begun).begun();
}

CoreServices Pod::services_on(uint32_t board) {
  return {.agenda = agenda_,
          .activity = activity_,
          .pool = pool_,
          .equal_writes = equal_writes_,
          .fluid = boards_[board]->fluid(),
          .programs = programs_,
          .steps = steps_[board],
          .probes = probes_,
          .no_data = options_.sim.no_data,
          .schedule_seed = options_.sim.schedule_seed,
          .fold = fold_ ? &*fold_ : nullptr,
          .vpu_simd = vpu_simd_from_name(options_.sim.simd),
          .verilog = [this](const std::string& path) { return verilog_select_.use(path); },
          .make_mxu = [this](const std::string& path) { return mxu_select_->make(path); }};
}

void Pod::make_boards(HostMemory& memory, std::span<const uint8_t> rom, uint32_t faults) {
  const spec::BoardParams& params = options_.params;
  const auto count = static_cast<uint32_t>(spec::board_count(params));
  Fabric fabric;
  fabric.activity = &activity_;
  fabric.probes = &probes_;
  fabric.hart_clock = &hart_clock_;
  fabric.hart_code = hart_code_.get();
  fabric.debugger = gdb_.get();
  make_step_counters();
  std::vector<spec::BandwidthShare*> shares;
  for (uint32_t board = 0; board < count; ++board) {
    boards_.push_back(std::make_unique<Board>(params, board, fold_ ? &*fold_ : nullptr, agenda_));
    shares.push_back(&boards_.back()->fluid().share());
  }
  const auto links = fold_        ? std::make_shared<const spec::Links>(*fold_, *shares.front())
                     : count == 1 ? nullptr
                                  : std::make_shared<const spec::Links>(params, shares);
  const Board::Shared shared{params, pages_, console_, memory, rom};
  places_.resize(static_cast<size_t>(spec::chip_count(params)));
  if (options_.others != nullptr) {
    make_process(links, faults);
  }
  while (!is_here(static_cast<uint32_t>(first_here_))) {
    ++first_here_;
  }
  for (uint32_t board = 0; board < count; ++board) {
    if (!is_here(board)) {
      continue;
    }
    boards_[board]->build(shared, services_on(board), fabric, links);
    for (const auto& chip : boards_[board]->chips()) {
      places_[chip->index()] = chip.get();
    }
  }
  std::ranges::copy_if(places_, std::back_inserter(chips_),
                       [](const Chip* chip) { return chip != nullptr; });
  std::vector<CutEnd*> ends;
  for (uint32_t board = 0; board < count; ++board) {
    if (is_here(board)) {
      boards_[board]->connect(boards_, process_.get());
    }
    ends.push_back(boards_[board]->end());
  }
  if (process_ != nullptr) {
    const Fabric& here = boards_[first_here_]->fabric();
    process_->connect(ends, here.control, here.hbm, [this] { return silent(); });
  }
}

// What changes cycles is equal in all processes of a pod.
void Pod::make_process(std::shared_ptr<const spec::Links> links, uint32_t faults) {
  const spec::BoardParams& params = options_.params;
  if (links == nullptr) {
    throw std::runtime_error("a board alone cannot be spread over processes");
  }
  PodHello hello{};
  hello.board_hash = spec::board_hash(params);
  hello.schedule_seed = options_.sim.schedule_seed;
  hello.no_data = options_.sim.no_data ? 1 : 0;
  hello.rom = rom_crc_;
  hello.faults = faults;
  hello.build = spec::crc32c(std::as_bytes(std::span(std::string_view(TPU_VERSION))));
  process_ =
      std::make_unique<PodProcess>(options_.others, std::move(links), params, hello, activity_);
}

Pod::~Pod() {
  pool_.drain();  // what jobs touch goes before the pool
}

// With nothing known of a block, nothing leaves it before the next event.
uint64_t Pod::silent() const {
  const uint64_t now = now_cycles();
  const uint64_t event = to_cycles(sc_core::sc_time_to_pending_activity());
  const uint64_t floor = event > kNever - now ? kNever : now + event;
  uint64_t before = faults_ == nullptr ? kNever : 0;
  for (const std::unique_ptr<Board>& board : boards_) {
    before = before > floor ? std::min(before, board->silent()) : before;
  }
  return std::max(before, floor);
}

DebugTarget& Pod::debug(uint32_t core) {
  if (core >= debug_.harts() || places_[core / (debug_.harts() / places_.size())] == nullptr) {
    throw std::out_of_range("there is no core " + std::to_string(core));
  }
  return debug_;
}

void Pod::add_core_stats(Chip& chip, size_t index, BoardStats& stats) const {
  Core& core = chip.core(index);
  const Hart& hart = chip.mgmt(index).hart();
  CoreStats figures;
  figures.hart_instructions = hart.instret();
  figures.hart_cycles = hart.cycles();
  figures.hart_pc = hart.pc();
  figures.hart_sleeping = hart.sleeping();
  figures.hart_ra = hart.reg(kHartReturnAddress);
  figures.hart_sp = hart.reg(kHartStackPointer);
  figures.hart_stack = chip.mgmt(index).stack(kStackWords);
  figures.program_running = core.seq().state() == spec::seq::kStateRunning;
  const Sequencer::Progress progress = core.seq().progress();
  figures.program_step = progress.step;
  figures.program_pc = core.seq().pc();
  figures.program_op = core.seq().op();
  for (const LoopMarks::Position& loop : progress.loops) {
    figures.program_loops.push_back({.op_id = loop.op, .iteration = loop.iteration});
  }
  const PerfUnit::Values counters = core.counters();
  figures.counters.assign(counters.begin(), counters.end());
  figures.times = core.times();
  figures.fault_text = core.fault().text();
  figures.fault_cycle = core.fault().text_cycle();
  stats.cores.push_back(std::move(figures));
}

void Pod::host_prepares(bool begins) {
  for (CoreProbe* core : fabric().cores) {
    if (core != nullptr) {
      core->upload(now_cycles(), begins ? 1 : -1);
    }
  }
}

std::vector<spec::UnitWait> Pod::waits() const {
  std::vector<const Core*> cores;
  for (Chip* chip : chips_) {
    for (size_t core = 0; core < chip->cores(); ++core) {
      cores.push_back(&chip->core(core));
    }
  }
  return board_waits(cores);
}

uint32_t Pod::launch_of(uint32_t core) const {
  const auto per_chip = static_cast<uint32_t>(options_.params.board.cores_per_chip);
  return places_[core / per_chip]->core(core % per_chip).launch().launch;
}

BoardStats Pod::stats() {
  BoardStats stats;
  stats.watchdog_waits = sinks_.watchdog().waits();
  stats.watchdog_launch = sinks_.watchdog().launch();
  for (Chip* chip : chips_) {
    for (size_t core = 0; core < chip->cores(); ++core) {
      add_core_stats(*chip, core, stats);
    }
  }
  if (const RaceSink* race = sinks_.race()) {
    stats.check_findings = race->count();
  }
  stats.delta_cycles = sc_core::sc_delta_count();
  if (process_ != nullptr) {
    stats.pod_windows = process_->windows();
    stats.pod_wait_ns = static_cast<uint64_t>(process_->waited().count());
  }
  const MxuLockstepCounts lockstep = mxu_select_->counts();
  stats.lockstep_tiles = lockstep_past_.tiles + lockstep.tiles;
  stats.lockstep_semaphores = verilog_select_.semaphore_values();
  stats.lockstep_transfers = verilog_select_.transfers();
  stats.lockstep_mismatches =
      lockstep_past_.mismatches + lockstep.mismatches + verilog_select_.mismatches();
  stats.lockstep_text =
      lockstep_past_.text + mxu_select_->mismatch_text() + verilog_select_.mismatch_text();
  if (faults_ != nullptr) {
    stats.faults = faults_->tallies();
  }
  stats.hbm_host_bytes = pages_.pages_touched() * kHbmPageBytes;
  return stats;
}

std::vector<ConsoleLine> Pod::take_console() {
  std::vector<ConsoleLine> lines;
  for (ConsoleLog::Line& line : console_.take_lines()) {
    lines.push_back({line.core, std::move(line.text)});
  }
  return lines;
}

void Pod::end_console() {
  for (Chip* chip : chips_) {
    for (size_t core = 0; core < chip->cores(); ++core) {
      chip->end_console_line(core);
    }
  }
}

std::vector<Mxu*> Pod::all_mxus() {
  std::vector<Mxu*> found;
  for (Chip* chip : chips_) {
    for (size_t core = 0; core < chip->cores(); ++core) {
      for (size_t index = 0; index < chip->core(core).mxus(); ++index) {
        found.push_back(&chip->core(core).mxu(index));
      }
    }
  }
  return found;
}

std::unique_ptr<MxuSelect> Pod::make_select(const BoardOptions& options) {
  return std::make_unique<MxuSelect>(
      options,
      [this](const std::string& path, const MxuPorts& ports) { sinks_.show_ports(path, ports); },
      waves_open_);
}

// What can fail comes first.
std::string Pod::change_options(const spec::SimOptions& sim) {
  check_fixed(options_.sim, sim);
  BoardOptions options{options_.params, sim, options_.firmware};
  std::unique_ptr<MxuSelect> select;
  std::vector<MxuUnit> units;
  if (sim.mxu != options_.sim.mxu) {
    select = make_select(options);
    for (const Mxu* mxu : all_mxus()) {
      units.push_back(select->make(mxu->name()));
    }
  }
  std::string error =
      sinks_.change(sim, (select != nullptr ? select : mxu_select_)->verilog_units());
  options_ = std::move(options);
  if (select != nullptr) {
    if (const std::string more = change_mxus(std::move(select), std::move(units)); !more.empty()) {
      append_line(error, more);
    }
  }
  return error;
}

std::string Pod::change_mxus(std::unique_ptr<MxuSelect> select, std::vector<MxuUnit> units) {
  std::string error = mxu_select_->finish(steps_begun(), sinks_.waves_missed());
  const MxuLockstepCounts counts = mxu_select_->counts();
  lockstep_past_.tiles += counts.tiles;
  lockstep_past_.mismatches += counts.mismatches;
  lockstep_past_.text += mxu_select_->mismatch_text();
  const std::vector<Mxu*> mxus = all_mxus();
  for (size_t i = 0; i < mxus.size(); ++i) {
    mxus[i]->change_unit(std::move(units[i]));
  }
  mxu_select_ = std::move(select);  // engines of the old one are gone
  return error;
}

bool Pod::read_memory(const spec::MemoryRange& range, std::span<uint8_t> data) {
  if (range.core >= fabric().hbm.size() || fabric().hbm[range.core] == nullptr) {
    return false;
  }
  const size_t per_chip = chips_.front()->cores();
  Core& core = places_[range.core / per_chip]->core(range.core % per_chip);
  const bool hbm = range.memory == spec::CoreMemory::kHbm;
  LocalMemory& local = range.memory == spec::CoreMemory::kVmem ? core.vmem() : core.smem();
  const uint64_t bytes = hbm ? fabric().hbm[range.core]->bytes() : local.bytes();
  if (range.low > bytes || data.size() > bytes - range.low) {
    return false;
  }
  if (hbm) {
    fabric().hbm[range.core]->read(range.low, data);
  } else {
    local.read(range.low, data);
  }
  return true;
}

void Pod::log_commands(const std::optional<spec::MemoryLook>& look) {
  std::vector<uint8_t> tried(look ? look->range.bytes : 0);
  if (look && !read_memory(look->range, tried)) {
    throw std::out_of_range("the address range is outside of the memory of the board");
  }
  sinks_.log_commands(look, [this](const spec::MemoryRange& range, std::span<uint8_t> data) {
    return read_memory(range, data);
  });
}

std::string Pod::finish_files() {
  std::string error = sinks_.finish();
  if (const std::string more = faults_ != nullptr ? faults_->finish() : std::string();
      !more.empty()) {
    append_line(error, more);
  }
  for (const std::string& more : {mxu_select_->finish(steps_begun(), sinks_.waves_missed()),
                                  verilog_select_.finish(steps_begun())}) {
    if (!more.empty()) {
      append_line(error, more);
    }
  }
  return error;
}

}  // namespace tpu::model
