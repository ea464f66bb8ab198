// The host's calls, each a piece of code in the gate process of the kernel thread.
#include "board/board_host.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "board/pod.hpp"
#include "debug/gdb_link.hpp"
#include "faults/fault_script.hpp"
#include "image/firmware_image.hpp"
#include "kernel/end_cycle.hpp"
#include "kernel/host_port.hpp"
#include "kernel/host_profile.hpp"

namespace tpu::model {
struct BoardHost::Impl {
  Impl(const BoardOptions& options, HostMemory& memory, std::unique_ptr<GdbLink> link)
      : gdb(std::move(link)), port([this, &options, &memory]() -> std::shared_ptr<void> {
          if (firmware::image().rom.empty()) {
            throw NoFirmwareError(
                "this build has no firmware (no RISC-V cross compiler was found when it was "
                "configured): a board "
                "cannot boot; install gcc-riscv64-unknown-elf and picolibc-riscv64-unknown-elf and "
                "build again");
          }
          auto made = std::make_shared<Pod>("board", options, memory, firmware::image().rom,
                                            gdb.get(), launch_programs);
          board = made.get();
          return made;
        }) {}

  PcieEndpoint& pcie(int chip) {
    if (chip < 0 || static_cast<size_t>(chip) >= board->chips()) {
      throw std::out_of_range("chip " + std::to_string(chip) + ": the board has chips 0 to " +
                              std::to_string(board->chips() - 1));
    }
    Chip* const here = board->chip(static_cast<size_t>(chip));
    if (here == nullptr) {
      throw std::out_of_range("chip " + std::to_string(chip) + " is in another process");
    }
    return here->pcie();
  }
  bool is_here(int chip) const {
    return chip < 0 || static_cast<size_t>(chip) >= board->chips() ||
           board->chip(static_cast<size_t>(chip)) != nullptr;
  }

  // A call behind the writes that are held back, its time counted as the kernel thread's.
  template <class F>
  void call(F body, std::chrono::nanoseconds limit = {}, bool interruptible = false) {
    port.call(
        [this, &body] {
          const HostTimer timer(HostWork::kBoard);
          const JobsExpected expected(board->pool());
          send_posted();
          body();
        },
        limit, interruptible);
  }

  RunOutcome run(std::optional<uint64_t> until, const MsiHandler& handler = {});
  RunOutcome run_with_others(std::optional<uint64_t> until, const MsiHandler& handler);
  uint32_t read_in_pod(int chip, int bar, uint64_t offset);
  uint64_t next_msi() const;
  bool msi_pending();
  void take_msi(std::vector<uint32_t>& msi);
  void send_posted();
  void start_gdb(bool wait);

  LaunchPrograms launch_programs;
  Pod* board = nullptr;     // lives on the kernel thread until close
  std::mutex posted_mutex;  // leaf lock: guards posted
  std::vector<RegisterWrite> posted;
  std::vector<RegisterWrite> sending;  // of the kernel thread
  std::unique_ptr<GdbLink> gdb;
  HostPort port;
  bool closed = false;
};

BoardHost::BoardHost(const BoardOptions& options, HostMemory& memory) {
  // Mistakes in the options are found before the process's only kernel is used up.
  const bool no_waves = false;
  MxuSelect check_patterns(options, {}, no_waves);
  vpu_simd_from_name(options.sim.simd);
  if (!options.sim.faults_path.empty()) {
    load_fault_script(options.sim.faults_path, options.sim.fault_seed, options.params);
  }
  if (options.sim.profile) {
    HostProfile::enable();
  }
  std::unique_ptr<GdbLink> gdb;
  if (!options.sim.gdb.empty()) {
    gdb = std::make_unique<GdbLink>(options.sim.gdb);
  }
  impl_ = std::make_unique<Impl>(options, memory, std::move(gdb));
  impl_->start_gdb(options.sim.gdb_wait);
}

void BoardHost::Impl::start_gdb(bool wait) {
  if (gdb == nullptr) {
    return;
  }
  port.on_attention([this] { board->gdb()->serve(); });
  gdb->start([this] { port.attend(); });
  if (wait) {
    port.attend();
  }
}

std::string BoardHost::gdb_address() const {
  return impl_->gdb != nullptr ? impl_->gdb->address() : std::string();
}

BoardHost::~BoardHost() {
  try {
    close();
  } catch (const std::exception&) {
    // Who wants to know calls close().
  }
}

uint32_t BoardHost::read32(int chip, int bar, uint64_t offset) {
  uint32_t value = 0;
  impl_->call([&] {
    value = impl_->board->many_boards() ? impl_->read_in_pod(chip, bar, offset)
                                        : impl_->pcie(chip).host_read(bar, offset);
  });
  return value;
}

void BoardHost::write32(int chip, int bar, uint64_t offset, uint32_t value) {
  write_block(chip, bar, offset, std::as_bytes(std::span(&value, 1)));
}

void BoardHost::write_block(int chip, int bar, uint64_t offset, std::span<const std::byte> data) {
  impl_->call([&] { impl_->pcie(chip).host_write(bar, offset, data); });
}

void BoardHost::write32_many(std::span<const RegisterWrite> writes) {
  const std::lock_guard<std::mutex> guard(impl_->posted_mutex);
  impl_->posted.insert(impl_->posted.end(), writes.begin(), writes.end());
}

void BoardHost::interrupt() { impl_->port.interrupt(); }

void BoardHost::Impl::send_posted() {
  sending.clear();
  {
    const std::lock_guard<std::mutex> guard(posted_mutex);
    sending.swap(posted);
  }
  for (const RegisterWrite& write : sending) {
    pcie(write.chip).host_write(write.bar, write.offset, std::as_bytes(std::span(&write.value, 1)));
  }
}

bool BoardHost::Impl::msi_pending() {
  return std::ranges::any_of(board->chips_here(),
                             [](Chip* chip) { return chip->pcie().msi_pending(); });
}

uint64_t BoardHost::Impl::next_msi() const {
  uint64_t least = kNever;
  for (Chip* chip : board->chips_here()) {
    least = std::min(least, chip->pcie().coming().msi);
  }
  return least;
}

// Adds what has come since to what each chip has raised.
void BoardHost::Impl::take_msi(std::vector<uint32_t>& msi) {
  msi.resize(board->chips());
  for (Chip* chip : board->chips_here()) {
    msi[chip->index()] |= chip->pcie().take_msi();
  }
}

// The other processes let the time of a read pass too.
uint32_t BoardHost::Impl::read_in_pod(int chip, int bar, uint64_t offset) {
  PcieEndpoint::HostRead read;
  PcieEndpoint* const endpoint = is_here(chip) ? &pcie(chip) : nullptr;
  if (endpoint != nullptr) {
    endpoint->begin_read(bar, offset, read);
  }
  if (board->process() == nullptr) {
    while (!read.at || now_cycles() < *read.at) {
      if (read.at) {
        sc_core::wait(from_cycles(*read.at - now_cycles()));
      } else {
        sc_core::wait(read.answered);
        end_cycle();
        endpoint->see_answer(read);
      }
    }
    return read.value;
  }
  sc_core::sc_event_or_list wake;
  wake |= read.answered;
  board->process()->run({.until = kPodRead,
                         .halt =
                             [&] {
                               if (endpoint == nullptr) {
                                 return kNever;
                               }
                               endpoint->see_answer(read);
                               return read.least;
                             },
                         .stop = [&] { return read.at && now_cycles() == *read.at; },
                         .asked = [] { return false; },
                         .wake = &wake});
  return read.value;
}

RunOutcome BoardHost::Impl::run_with_others(std::optional<uint64_t> until,
                                            const MsiHandler& handler) {
  sc_core::sc_event_or_list wake;
  for (Chip* chip : board->chips_here()) {
    wake |= chip->pcie().msi_event();
  }
  wake |= board->activity().quiet_event();
  wake |= port.asked_event();
  RunOutcome outcome;
  for (;;) {
    const PodClock::Step step =
        board->process()->run({.until = until.value_or(kPodQuiet),
                               .halt = [this] { return next_msi(); },
                               .stop = [this] { return msi_pending(); },
                               .asked = [this] { return port.asked_to_end(); },
                               .wake = &wake});
    outcome.quiescent = step.quiet;
    outcome.expired = step.early;
    take_msi(outcome.msi);
    if (!step.interrupt || !handler ||
        !handler({outcome.msi, now_cycles(), outcome.quiescent, board->has_console()})) {
      break;
    }
    // The next turn finds the end, on which all processes agree. Whether the pod was quiet at an
    // interrupt is what each has heard by then.
  }
  outcome.console = board->take_console();
  return outcome;
}

RunOutcome BoardHost::Impl::run(std::optional<uint64_t> until, const MsiHandler& handler) {
  if (board->process() != nullptr) {
    return run_with_others(until, handler);
  }
  sc_core::sc_event_or_list wake;
  for (Chip* chip : board->chips_here()) {
    wake |= chip->pcie().msi_event();
  }
  if (!until) {
    wake |= board->activity().quiet_event();
  }
  wake |= port.asked_event();
  RunOutcome outcome;
  for (;;) {
    end_cycle();
    outcome.quiescent = board->activity().quiet();
    if (msi_pending()) {
      take_msi(outcome.msi);
      if (!handler ||
          !handler({outcome.msi, now_cycles(), outcome.quiescent, board->has_console()})) {
        break;
      }
    }
    if (until ? now_cycles() >= *until : outcome.quiescent) {
      break;
    }
    if (port.asked_to_end()) {
      outcome.expired = true;
      break;
    }
    if (until) {
      sc_core::wait(from_cycles(*until - now_cycles()), wake);
    } else {
      sc_core::wait(wake);
    }
  }
  take_msi(outcome.msi);
  outcome.console = board->take_console();
  return outcome;
}

RunOutcome BoardHost::run(std::chrono::nanoseconds limit, const MsiHandler& handler) {
  RunOutcome outcome;
  impl_->call([&] { outcome = impl_->run(std::nullopt, handler); }, limit, true);
  return outcome;
}

void BoardHost::inside(const std::function<void()>& calls) { impl_->port.call(calls); }

RunOutcome BoardHost::run_until(uint64_t cycle, std::chrono::nanoseconds limit) {
  RunOutcome outcome;
  impl_->call([&] { outcome = impl_->run(cycle); }, limit, true);
  return outcome;
}

uint64_t BoardHost::now() {
  uint64_t cycles = 0;
  impl_->call([&] { cycles = now_cycles(); });
  return cycles;
}

void BoardHost::host_prepares(bool begins) {
  impl_->call([&] { impl_->board->host_prepares(begins); });
}

BoardStats BoardHost::stats() {
  BoardStats stats;
  impl_->call([&] { stats = impl_->board->stats(); });
  if (HostProfile::enabled()) {
    const HostProfile::Counters counters = HostProfile::read();
    for (size_t i = 0; i < kHostWorks; ++i) {
      stats.profile.push_back({std::string(kHostWorkInfo[i].name),
                               std::string(kHostWorkInfo[i].unit), counters[i].nanoseconds,
                               counters[i].count, counters[i].amount, counters[i].bytes});
    }
  }
  return stats;
}

std::vector<spec::UnitWait> BoardHost::waits() {
  std::vector<spec::UnitWait> waits;
  impl_->call([&] { waits = impl_->board->waits(); });
  return waits;
}

std::vector<ThreadForecast> BoardHost::thread_forecast(std::span<const int> threads) {
  std::vector<ThreadForecast> result;
  impl_->call([&] { result = impl_->board->thread_forecast(threads); });
  return result;
}

std::vector<ConsoleLine> BoardHost::take_console() {
  std::vector<ConsoleLine> lines;
  impl_->call([&] {
    impl_->board->end_console();
    lines = impl_->board->take_console();
  });
  return lines;
}

std::string BoardHost::change_options(const spec::SimOptions& sim) {
  std::string error;
  impl_->call([&] { error = impl_->board->change_options(sim); });
  return error;
}

std::vector<spec::CheckFinding> BoardHost::take_findings() {
  std::vector<spec::CheckFinding> findings;
  impl_->call([&] { findings = impl_->board->take_findings(); });
  return findings;
}

void BoardHost::name_launch(uint32_t launch, std::shared_ptr<const exe::ExecutableT> program,
                            uint64_t trace_context) {
  impl_->launch_programs.name(launch, std::move(program), trace_context);
}

void BoardHost::visit_state(spec::Archive& archive) {
  impl_->call([&] { impl_->board->visit_state(archive); });
}

std::vector<OpTime> BoardHost::take_op_times(uint32_t launch) {
  std::vector<OpTime> times;
  impl_->call([&] { times = impl_->board->take_op_times(launch); });
  return times;
}

void BoardHost::log_commands(const std::optional<spec::MemoryLook>& look) {
  impl_->call([&] { impl_->board->log_commands(look); });
}

spec::CommandLog BoardHost::take_commands() {
  spec::CommandLog log;
  impl_->call([&] { log = impl_->board->take_commands(); });
  return log;
}

std::string BoardHost::take_xspace() {
  std::string bytes;
  impl_->call([&] { bytes = impl_->board->take_xspace(); });
  return bytes;
}

bool BoardHost::debug_read(uint32_t core, uint32_t address, uint32_t& value) {
  bool done = false;
  impl_->call([&] {
    DebugTarget& target = impl_->board->debug(core);
    done = target.read(core, address, std::span(reinterpret_cast<uint8_t*>(&value), sizeof value));
  });
  return done;
}

bool BoardHost::debug_write(uint32_t core, uint32_t address, uint32_t value) {
  bool done = false;
  impl_->call([&] {
    DebugTarget& target = impl_->board->debug(core);
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
    done = target.write(core, address, std::span(bytes, sizeof value));
  });
  return done;
}

std::string BoardHost::take_record() {
  std::string bytes;
  impl_->call([&] { bytes = impl_->board->take_record(); });
  return bytes;
}

std::string BoardHost::close() {
  if (impl_ == nullptr || impl_->closed) {
    return {};
  }
  impl_->closed = true;
  std::string error;
  try {
    impl_->call([&] { error = impl_->board->finish_files(); });
  } catch (const std::exception& broken) {
    error = broken.what();
  }
  impl_->port.close();
  impl_->gdb.reset();
  return error;
}

}  // namespace tpu::model
