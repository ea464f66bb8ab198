// Wiring of the board, and its debug port.
#include "board/board.hpp"

#include <algorithm>
#include <thread>

#include "board/append_line.hpp"
#include "board/board_loader.hpp"

namespace tpu::model {
namespace {

int thread_count(int asked) {
  return asked > 0 ? asked : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

Board::Board(sc_core::sc_module_name name, const BoardOptions& options, HostMemory& memory,
             std::span<const uint8_t> rom)
    : sc_module(name),
      options_(options),
      fluid_("fluid"),
      mxu_select_(options_),
      sinks_(options_, probes_),
      pool_(thread_count(options.sim.threads)),
      programs_(options_.params),
      ici_("ici", options_.params, fluid_),
      core_services_{
          .activity = activity_,
          .pool = pool_,
          .fluid = fluid_,
          .programs = programs_,
          .steps = steps_,
          .probes = probes_,
          .no_data = options.sim.no_data,
          .vpu_simd = vpu_simd_from_name(options.sim.simd),
          .make_mxu = [this](const std::string& path) { return mxu_select_.make(path); }} {
  const spec::BoardParams& params = options_.params;
  const auto chips = static_cast<uint32_t>(params.board.chips);
  const auto torus_x = static_cast<uint32_t>(params.board.torus_x);
  const auto cores = static_cast<size_t>(spec::core_count(params));
  fabric_.ici = &ici_;
  fabric_.share = &fluid_;
  fabric_.activity = &activity_;
  fabric_.probes = &probes_;
  fabric_.control.resize(cores);
  fabric_.hbm.resize(cores);
  const ChipServices services{core_services_, pages_, fabric_, console_, memory, rom};
  for (uint32_t chip = 0; chip < chips; ++chip) {
    const ChipIdentity identity{chip, chip % torus_x, chip / torus_x, spec::board_hash(params)};
    chips_.push_back(std::make_unique<Chip>(("chip" + std::to_string(chip)).c_str(), params,
                                            identity, services, ici_));
    for (size_t core = 0; core < chips_.back()->cores(); ++core) {
      Core& unit = chips_.back()->core(core);
      ici_.core_port[unit.core_id()].bind(unit.remote_export);
    }
  }
}

Board::~Board() = default;

void Board::add_core_stats(Chip& chip, size_t index, BoardStats& stats) const {
  Core& core = chip.core(index);
  const Hart& hart = chip.mgmt(index).hart();
  CoreStats figures;
  figures.hart_instructions = hart.instret();
  figures.hart_cycles = hart.cycles();
  figures.hart_pc = hart.pc();
  figures.hart_sleeping = hart.sleeping();
  figures.program_running = core.seq().state() == spec::seq::kStateRunning;
  figures.program_step = core.seq().step();
  figures.program_pc = core.seq().pc();
  figures.program_op = core.seq().op();
  const PerfUnit::Values counters = core.counters();
  figures.counters.assign(counters.begin(), counters.end());
  figures.fault_text = core.fault().text();
  figures.fault_cycle = core.fault().text_cycle();
  stats.cores.push_back(std::move(figures));
  stats.waits_text += core.describe_waits();
}

BoardStats Board::stats() {
  BoardStats stats;
  for (const auto& chip : chips_) {
    for (size_t core = 0; core < chip->cores(); ++core) {
      add_core_stats(*chip, core, stats);
    }
  }
  if (const RaceSink* race = sinks_.race()) {
    stats.check_findings = race->count();
    for (const std::string& finding : race->findings()) {
      stats.check_text += finding + "\n";
    }
  }
  stats.delta_cycles = sc_core::sc_delta_count();
  const MxuLockstepCounts lockstep = mxu_select_.counts();
  stats.lockstep_tiles = lockstep.tiles;
  stats.lockstep_mismatches = lockstep.mismatches;
  stats.lockstep_text = mxu_select_.mismatch_text();
  stats.hbm_host_bytes = pages_.pages_touched() * kHbmPageBytes;
  return stats;
}

std::vector<ConsoleLine> Board::take_console() {
  std::vector<ConsoleLine> lines;
  for (ConsoleLog::Line& line : console_.take_lines()) {
    lines.push_back({line.core, std::move(line.text)});
  }
  return lines;
}

void Board::end_console() {
  for (const auto& chip : chips_) {
    for (size_t core = 0; core < chip->cores(); ++core) {
      chip->end_console_line(core);
    }
  }
}

std::string Board::finish_files() {
  std::string error = sinks_.finish();
  if (const std::string more = mxu_select_.finish(steps_.begun()); !more.empty()) {
    append_line(error, more);
  }
  return error;
}

}  // namespace tpu::model
