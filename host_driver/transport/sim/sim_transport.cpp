// The simulated board as a transport: a thin adapter on the model's public entry. Links in the only
// edge between driver and model.
#include <fmt/format.h>

#include <cstdio>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "board/board_host.hpp"
#include "kernel/host_port.hpp"
#include "terminal/printable_text.hpp"
#include "tpu/error.hpp"
#include "tpu/spec/perf_regs.hpp"
#include "tpu/transport.hpp"
#include "transport/sim/pod_part.hpp"
#include "wire/pod_stream.hpp"
#include "wire/shm_wire.hpp"
#include "wire/socket_wire.hpp"

namespace tpu::driver {
namespace {

struct MemoryAdapter : model::HostMemory {
  explicit MemoryAdapter(driver::HostMemory& host) : memory(host) {}
  std::span<std::byte> span(uint64_t iova, uint64_t bytes, bool write) override {
    return memory.span(iova, bytes, write);
  }
  bool is_there(uint64_t iova, uint64_t bytes, bool write) override {
    return memory.is_there(iova, bytes, write);
  }
  HostMemory& of_chip(uint32_t chip) override {
    driver::HostMemory& own = memory.of_chip(static_cast<int>(chip));
    if (&own == &memory) {
      return *this;
    }
    chips.push_back(std::make_unique<MemoryAdapter>(own));
    return *chips.back();
  }
  driver::HostMemory& memory;
  std::vector<std::unique_ptr<MemoryAdapter>> chips;
};

CoreTimes times_of(const model::CoreTimes::Values& from) {
  const auto of = [&](model::CoreTime kind) { return from[static_cast<size_t>(kind)]; };
  return {of(model::CoreTime::kCompute), of(model::CoreTime::kLinks), of(model::CoreTime::kHbm),
          of(model::CoreTime::kStalled), of(model::CoreTime::kInput), of(model::CoreTime::kHost)};
}

// The way to the other processes of a pod; null: there are none.
std::shared_ptr<model::PodStream> others_of(const PodPart& part) {
  if (part.ranks == 1) {
    return nullptr;
  }
  if (!part.memory.empty()) {
    return std::make_shared<model::PodStream>(
        model::make_shm_wire(part.rank, part.ranks, part.memory));
  }
  return std::make_shared<model::PodStream>(model::make_pipe_wire(part.rank, part.pipes));
}

// The debug port, and the board that it looks into.
class SimDebugPort : public Transport {
 public:
  SimDebugPort(const TransportRequest& request, HostMemory& memory, const PodPart& part)
      : memory_(memory),
        board_({request.params, request.sim, request.firmware, others_of(part), request.folded},
               memory_),
        has_data_(!request.sim.no_data) {
    if (const std::string address = board_.gdb_address(); !address.empty()) {
      spec::print(
          stderr, "gdb: {} on {}\n",
          request.sim.gdb_wait ? "the board waits for a debugger" : "a debugger can connect",
          address);
    }
  }

  void host_prepares(bool begins) override { board_.host_prepares(begins); }
  std::vector<CheckFinding> take_findings() override { return board_.take_findings(); }
  void name_launch(uint32_t launch_id, const std::shared_ptr<const exe::ExecutableT>& program,
                   uint64_t trace_context) override {
    board_.name_launch(launch_id, program, trace_context);
  }
  std::string take_xspace() override { return board_.take_xspace(); }
  void log_commands(const std::optional<spec::MemoryLook>& look) override {
    try {
      board_.log_commands(look);
    } catch (const std::out_of_range& error) {
      throw Error(ErrorCode::kInvalidArgument, error.what());
    }
  }
  spec::CommandLog take_commands() override { return board_.take_commands(); }
  std::string take_record() override { return board_.take_record(); }
  std::optional<uint32_t> debug_read(int device, uint32_t address) override {
    uint32_t value = 0;
    const bool done = board_.debug_read(static_cast<uint32_t>(device), address, value);
    return done ? std::optional(value) : std::nullopt;
  }
  bool debug_write(int device, uint32_t address, uint32_t value) override {
    return board_.debug_write(static_cast<uint32_t>(device), address, value);
  }
  std::vector<OpTally> take_op_times(uint32_t launch_id) override {
    std::vector<OpTally> tallies;
    for (const model::OpTime& time : board_.take_op_times(launch_id)) {
      tallies.push_back({time.op_id, time.cycles, time.busy_cycles, time.commands});
    }
    return tallies;
  }

  std::vector<ThreadForecast> thread_forecast(const std::vector<int>& threads) override {
    std::vector<ThreadForecast> result;
    const auto seconds = [](uint64_t nanoseconds) {
      return static_cast<double>(nanoseconds) * 1e-9;
    };
    for (const model::ThreadForecast& from : board_.thread_forecast(threads)) {
      result.push_back({from.threads, seconds(from.total_ns), seconds(from.events_ns),
                        seconds(from.wait_ns), seconds(from.late_ns)});
    }
    return result;
  }

  TransportStats stats() override {
    model::BoardStats from = board_.stats();
    TransportStats stats;
    for (model::CoreStats& core : from.cores) {
      stats.hart_instructions.push_back(core.hart_instructions);
      stats.run_cycles.push_back(core.counters.at(spec::perf::kRunCycles));
      stats.counters.push_back(core.counters);
      stats.times.push_back(times_of(core.times));
      stats.places.push_back({core.program_running, core.counters.at(spec::perf::kPrograms),
                              core.program_step, core.program_pc, core.program_op,
                              std::move(core.program_loops)});
      stats.harts.push_back({core.hart_pc, core.hart_sleeping, core.hart_ra, core.hart_sp,
                             std::move(core.hart_stack)});
      stats.faults.push_back({core.fault_cycle, std::move(core.fault_text)});
    }
    stats.lockstep_tiles = from.lockstep_tiles;
    stats.lockstep_semaphores = from.lockstep_semaphores;
    stats.lockstep_transfers = from.lockstep_transfers;
    stats.lockstep_mismatches = from.lockstep_mismatches;
    stats.lockstep_text = std::move(from.lockstep_text);
    for (model::HostWorkStats& work : from.profile) {
      stats.profile.push_back({std::move(work.name), std::move(work.unit),
                               static_cast<double>(work.nanoseconds) * 1e-9, work.count,
                               work.amount, work.bytes});
    }
    if (!from.profile.empty() && from.pod_windows != 0) {
      stats.profile.push_back(
          {"wire_wait", "", static_cast<double>(from.pod_wait_ns) * 1e-9, from.pod_windows, 0, 0});
    }
    stats.check_findings = from.check_findings;
    stats.fault_tallies = std::move(from.faults);
    stats.watchdog_waits = std::move(from.watchdog_waits);
    stats.watchdog_launch = from.watchdog_launch;
    if (has_data_) {
      stats.hbm_host_bytes = from.hbm_host_bytes;
    }
    return stats;
  }

  std::vector<UnitWait> waits() override { return board_.waits(); }

 protected:
  model::BoardHost& board() { return board_; }

 private:
  MemoryAdapter memory_;
  model::BoardHost board_;
  const bool has_data_;
};

// Of a pod whose other processes are gone nothing can be used any more.
template <class F>
auto named(F call) {
  try {
    return call();
  } catch (const model::PodLost& lost) {
    throw Error(ErrorCode::kUnavailable,
                fmt::format("the other boards of the pod were lost {}", lost.what()));
  }
}

class SimTransport final : public SimDebugPort {
 public:
  using SimDebugPort::SimDebugPort;

  uint32_t read32(int chip, int bar, uint64_t offset) override {
    return named([&] { return board().read32(chip, bar, offset); });
  }
  void write32(int chip, int bar, uint64_t offset, uint32_t value) override {
    board().write32(chip, bar, offset, value);
  }
  void write32_many(std::span<const RegisterWrite> writes) override {
    posted_.clear();
    for (const RegisterWrite& write : writes) {
      posted_.push_back({write.chip, write.bar, write.offset, write.value});
    }
    board().write32_many(posted_);
  }
  void write_block(int chip, int bar, uint64_t offset, std::span<const std::byte> data) override {
    board().write_block(chip, bar, offset, data);
  }
  RunOutcome run() override {
    return named([&] { return outcome_of(board().run(limit_)); });
  }
  RunOutcome run_handling(const InterruptHandler& handler) override {
    if (!handler) {
      return run();
    }
    return named([&] {
      return outcome_of(board().run(limit_, [&handler](const model::PausedRun& run) {
        return handler({run.msi, run.now, run.quiescent, run.has_console});
      }));
    });
  }
  void inside(const std::function<void()>& calls) override { board().inside(calls); }
  RunOutcome run_until(uint64_t cycle) override {
    return named([&] { return outcome_of(board().run_until(cycle, limit_)); });
  }
  std::vector<ConsoleLine> take_console() override { return lines(board().take_console()); }
  void limit_run(std::chrono::nanoseconds limit) override { limit_ = limit; }
  void interrupt() override { board().interrupt(); }
  uint64_t now() override { return board().now(); }
  std::string close() override { return board().close(); }
  std::string change_sim(const SimOptions& sim) override {
    try {
      return board().change_options(sim);
    } catch (const model::KernelError& error) {
      throw Error(ErrorCode::kInternal, error.what());
    } catch (const std::runtime_error& error) {
      throw Error(ErrorCode::kInvalidArgument, error.what());
    }
  }
  void visit_state(spec::Archive& archive) override { board().visit_state(archive); }

 private:
  static RunOutcome outcome_of(model::RunOutcome from) {
    return {from.quiescent, from.expired, std::move(from.msi), lines(std::move(from.console))};
  }
  static std::vector<ConsoleLine> lines(std::vector<model::ConsoleLine> from) {
    std::vector<ConsoleLine> to;
    for (model::ConsoleLine& line : from) {
      to.push_back({static_cast<int>(line.core), std::move(line.text)});
    }
    return to;
  }

  std::chrono::nanoseconds limit_{0};
  std::vector<model::RegisterWrite> posted_;  // kept for its room
};

Error unbuilt(ErrorCode code, const char* why) {
  return {code, fmt::format("the board cannot be built: {}", why)};
}

}  // namespace

std::unique_ptr<Transport> make_sim_transport(const TransportRequest& request, HostMemory& memory) {
  return make_sim_transport(request, memory, {});
}

std::unique_ptr<Transport> make_sim_transport(const TransportRequest& request, HostMemory& memory,
                                              const PodPart& part) {
  try {
    return std::make_unique<SimTransport>(request, memory, part);
  } catch (const model::KernelTakenError& error) {
    throw Error(ErrorCode::kFailedPrecondition, error.what());
  } catch (const model::KernelError& error) {
    throw unbuilt(ErrorCode::kInternal, error.what());
  } catch (const model::NoFirmwareError& error) {
    throw unbuilt(ErrorCode::kUnimplemented, error.what());
  } catch (const std::system_error& error) {
    throw unbuilt(ErrorCode::kResourceExhausted, error.what());
  } catch (const std::runtime_error& error) {
    throw Error(ErrorCode::kInvalidArgument, error.what());  // an option, named there
  }
}

}  // namespace tpu::driver
