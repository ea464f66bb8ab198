#include "transport/worker/pod_transport.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "board/board_loader.hpp"
#include "board/pod_part.hpp"
#include "socket/shared_memory.hpp"
#include "tpu/error.hpp"
#include "tpu/worker.hpp"
#include "transport/mpi/mpi_mesh.hpp"
#include "transport/worker/address.hpp"
#include "transport/worker/board_service.hpp"
#include "transport/worker/fault_logs.hpp"
#include "transport/worker/local_workers.hpp"
#include "transport/worker/mpi_rank.hpp"
#include "transport/worker/pod_meeting.hpp"
#include "transport/worker/pod_options.hpp"
#include "transport/worker/pod_parts.hpp"
#include "transport/worker/worker_transport.hpp"

namespace tpu::driver {
namespace {

using namespace worker;  // NOLINT(google-build-using-namespace)

// A link between boards counts where it fails, and where others meet it.
void merge_tallies(std::vector<spec::FaultTally>& tallies) {
  std::map<std::pair<std::string, std::string>, spec::FaultTally> merged;
  for (spec::FaultTally& tally : tallies) {
    const auto [found, is_new] = merged.try_emplace({tally.kind, tally.place}, tally);
    if (!is_new) {
      found->second.fired += tally.fired;
      found->second.seen += tally.seen;
    }
  }
  tallies.clear();
  for (auto& [place, tally] : merged) {
    tallies.push_back(std::move(tally));
  }
}

// MPI ends behind the transport.
struct EndMpi {
  void operator()(MpiMesh* mesh) const { mesh->finish(kMpiPatience); }
};

struct PodOfWorkers {
  std::unique_ptr<LocalWorkers> own;      // null: they were there
  std::unique_ptr<MpiMesh, EndMpi> mesh;  // of ranks, of which this process is the first; or null
  std::vector<std::string> addresses;
};

// Which worker has what.
class Places {
 public:
  Places(const spec::BoardParams& params, uint32_t ranks)
      : boards_(static_cast<uint32_t>(spec::board_count(params))),
        ranks_(ranks),
        per_chip_(static_cast<size_t>(params.board.cores_per_chip)) {
    for (uint32_t chip = 0; chip < spec::chip_count(params); ++chip) {
      const auto board = static_cast<uint32_t>(spec::board_of_chip(params, chip));
      rank_of_chip_.push_back(spec::rank_of_board(board, boards_, ranks));
    }
  }
  uint32_t ranks() const { return ranks_; }
  size_t chips() const { return rank_of_chip_.size(); }
  size_t cores() const { return chips() * per_chip_; }
  uint32_t of_chip(int chip) const {
    if (chip < 0 || static_cast<size_t>(chip) >= chips()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("chip {}: the pod has the chips 0 to {}", chip, chips() - 1));
    }
    return rank_of_chip_[static_cast<size_t>(chip)];
  }
  uint32_t of_core(size_t core) const { return rank_of_chip_[core / per_chip_]; }
  std::string boards_text(uint32_t rank) const {
    uint32_t first = 0;
    while (spec::rank_of_board(first, boards_, ranks_) != rank) {
      ++first;
    }
    uint32_t last = first;
    while (last + 1 < boards_ && spec::rank_of_board(last + 1, boards_, ranks_) == rank) {
      ++last;
    }
    return first == last ? fmt::format("board {}", first)
                         : fmt::format("boards {} to {}", first, last);
  }

 private:
  const uint32_t boards_;
  const uint32_t ranks_;
  const size_t per_chip_;
  std::vector<uint32_t> rank_of_chip_;
};

template <class T>
void add_all(std::vector<T>& to, std::vector<T> from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

// Those of workers that end with the transport.
FaultLogs make_fault_logs(const SimOptions& sim, const Places& places, bool own) {
  const std::string& path = sim.fault_log_path;
  if (!own || sim.faults_path.empty() || path.empty() || path == "-") {
    return {};
  }
  std::map<uint32_t, size_t> first_chips;  // by rank
  for (size_t chip = 0; chip < places.chips(); ++chip) {
    first_chips.emplace(places.of_chip(static_cast<int>(chip)), chip);
  }
  std::vector<std::string> parts;
  for (const auto& [rank, chip] : first_chips) {
    parts.push_back(spec::fault_log_part(path, static_cast<int64_t>(chip)));
  }
  return {path, std::move(parts)};
}

class PodDebugPort : public Transport {
 public:
  PodDebugPort(PodOfWorkers workers, const spec::BoardParams& params, const SimOptions& sim)
      : places_(params, static_cast<uint32_t>(workers.addresses.size())),
        fault_logs_(make_fault_logs(sim, places_, workers.own != nullptr)),
        workers_(std::move(workers)),
        parts_(
            workers_.addresses.size(), [this](uint32_t rank) { return places_.boards_text(rank); },
            [this] {
              if (workers_.mesh != nullptr) {
                workers_.mesh->give_up();
              }
            }) {}

  void host_prepares(bool begins) override {
    for (size_t rank = 0; rank < parts_.size(); ++rank) {
      parts_[rank].host_prepares(begins);
    }
  }
  void name_launch(uint32_t launch_id, const std::shared_ptr<const exe::ExecutableT>& program,
                   uint64_t trace_context) override {
    for (size_t rank = 0; rank < parts_.size(); ++rank) {
      parts_[rank].name_launch(launch_id, program, trace_context);
    }
  }
  std::vector<ThreadForecast> thread_forecast(const std::vector<int>& threads) override {
    return look<std::vector<ThreadForecast>>(
               [&](Transport& part) { return part.thread_forecast(threads); })
        .front();
  }
  std::optional<uint32_t> debug_read(int device, uint32_t address) override {
    std::optional<uint32_t> value;
    ask_owner(device, [&](Transport& part) { value = part.debug_read(device, address); });
    return value;
  }
  bool debug_write(int device, uint32_t address, uint32_t value) override {
    bool written = false;
    ask_owner(device, [&](Transport& part) { written = part.debug_write(device, address, value); });
    return written;
  }
  std::vector<OpTally> take_op_times(uint32_t launch_id) override {
    std::map<uint32_t, OpTally> sums;
    for (const std::vector<OpTally>& each : look<std::vector<OpTally>>(
             [&](Transport& part) { return part.take_op_times(launch_id); })) {
      for (const OpTally& tally : each) {
        OpTally& sum = sums[tally.op_id];
        sum.op_id = tally.op_id;
        sum.cycles += tally.cycles;
        sum.busy_cycles += tally.busy_cycles;
        sum.commands += tally.commands;
      }
    }
    std::vector<OpTally> all;
    for (const auto& [op, sum] : sums) {
      all.push_back(sum);
    }
    return all;
  }

  TransportStats stats() override {
    std::vector<TransportStats> each =
        look<TransportStats>([](Transport& part) { return part.stats(); });
    TransportStats all;
    by_core(each, all, &TransportStats::hart_instructions);
    by_core(each, all, &TransportStats::run_cycles);
    by_core(each, all, &TransportStats::counters);
    by_core(each, all, &TransportStats::times);
    by_core(each, all, &TransportStats::places);
    by_core(each, all, &TransportStats::harts);
    by_core(each, all, &TransportStats::faults);
    // Another process may have those of an earlier launch yet.
    for (const TransportStats& one : each) {
      all.watchdog_launch = std::max(all.watchdog_launch, one.watchdog_launch);
    }
    for (TransportStats& one : each) {
      all.lockstep_tiles += one.lockstep_tiles;
      all.lockstep_semaphores += one.lockstep_semaphores;
      all.lockstep_transfers += one.lockstep_transfers;
      all.lockstep_mismatches += one.lockstep_mismatches;
      all.lockstep_text += one.lockstep_text;
      add_work(all.profile, one.profile);
      if (one.hbm_host_bytes) {
        all.hbm_host_bytes = all.hbm_host_bytes.value_or(0) + *one.hbm_host_bytes;
      }
      add_all(all.fault_tallies, std::move(one.fault_tallies));
      if (one.watchdog_launch == all.watchdog_launch) {
        add_all(all.watchdog_waits, std::move(one.watchdog_waits));
      }
      all.waits_text += one.waits_text;
    }
    merge_tallies(all.fault_tallies);
    return all;
  }

  std::vector<UnitWait> waits() override {
    std::vector<UnitWait> all;
    for (auto& each : look<std::vector<UnitWait>>([](Transport& part) { return part.waits(); })) {
      add_all(all, std::move(each));
    }
    return all;
  }

 protected:
  Places& places() { return places_; }
  PodParts& parts() { return parts_; }
  FaultLogs& fault_logs() { return fault_logs_; }
  const PodOfWorkers& workers() const { return workers_; }

  // What each part says, by rank; nothing of a pod that is lost.
  template <class T, class Call>
  std::vector<T> look(const Call& call) {
    std::vector<T> each(parts_.size());
    if (!parts_.look([&](size_t rank) { each[rank] = call(parts_[rank]); })) {
      each.assign(parts_.size(), T());
    }
    return each;
  }

 private:
  // The others are asked nothing, but their end is found.
  void ask_owner(int device, const std::function<void(Transport& part)>& call) {
    if (device < 0 || static_cast<size_t>(device) >= places_.cores()) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("core {}: the pod has the cores 0 to {}",
                                                           device, places_.cores() - 1));
    }
    const uint32_t owner = places_.of_core(static_cast<size_t>(device));
    parts_.ask([&](size_t rank) {
      if (rank == owner) {
        call(parts_[rank]);
      }
    });
  }

  // Each part has its cores in ascending order; nothing is known of all when one part says nothing.
  template <class T>
  void by_core(std::vector<TransportStats>& each, TransportStats& all,
               std::vector<T> TransportStats::*list) const {
    std::vector<size_t> next(each.size());
    std::vector<T> found;
    for (size_t core = 0; core < places_.cores(); ++core) {
      const uint32_t rank = places_.of_core(core);
      std::vector<T>& from = each[rank].*list;
      if (next[rank] >= from.size()) {
        return;
      }
      found.push_back(std::move(from[next[rank]++]));
    }
    all.*list = std::move(found);
  }

  static void add_work(std::vector<HostWorkTime>& to, const std::vector<HostWorkTime>& from) {
    for (const HostWorkTime& work : from) {
      const auto same = std::ranges::find(to, work.name, &HostWorkTime::name);
      if (same == to.end()) {
        to.push_back(work);
        continue;
      }
      same->seconds += work.seconds;
      same->count += work.count;
      same->amount += work.amount;
      same->bytes += work.bytes;
    }
  }

  Places places_;
  FaultLogs fault_logs_;
  PodOfWorkers workers_;
  PodParts parts_;
};

class PodTransport final : public PodDebugPort {
 public:
  PodTransport(PodOfWorkers all, const OpenOptions& options, const TransportRequest& request,
               HostMemory& memory, std::span<const SharedRange> shared, uint32_t firmware)
      : PodDebugPort(std::move(all), request.params, request.sim) {
    const uint32_t ranks = places().ranks();
    TransportRequest asked = request;
    if (workers().own != nullptr) {
      asked.sim = {};  // they have been made with the options
    }
    MpiMesh* const mesh = workers().mesh.get();
    const bool local =
        mesh == nullptr && std::ranges::all_of(workers().addresses, [](const std::string& address) {
          return read_address(address).is_local();
        });
    std::optional<base::SharedMemory> wires;
    if (local) {
      wires.emplace(base::SharedMemory::create(spec::pod_memory_bytes(ranks)));
    }
    PodMeeting meeting(options.connect_ca, workers().addresses);
    parts().open([&](size_t rank) -> std::unique_ptr<Transport> {
      if (mesh != nullptr && rank == 0) {
        return make_board(options.transport, request, memory,
                          {.ranks = ranks, .memory = {}, .pipes = mpi_wires()});
      }
      OpenOptions one = options;
      one.connect = workers().addresses[rank];
      WorkerPart part{static_cast<uint32_t>(rank), ranks};
      if (wires) {
        part.file = wires->file();
        part.bytes = wires->bytes().size();
      }
      if (mesh == nullptr) {
        part.exchange = [&meeting, this, rank](const std::string& own, bool is_loopback) {
          const auto come = [&] { meeting.add(rank, own, is_loopback); };
          if (!parts().meet(rank, come, [] { return true; })) {
            throw Error(ErrorCode::kUnavailable, "another process of the pod did not start");
          }
          return meeting.all();
        };
      }
      part.links = &parts().links();
      auto made = make_worker_transport(one, asked, memory, shared, firmware, part);
      fault_logs().attached(rank);
      return made;
    });
  }

  uint32_t read32(int chip, int bar, uint64_t offset) override {
    const uint32_t owner = places().of_chip(chip);
    uint32_t value = 0;
    parts().together([&](size_t rank) {
      const uint32_t read = parts()[rank].read32(chip, bar, offset);
      if (rank == owner) {
        value = read;
      }
    });
    return value;
  }
  void write32(int chip, int bar, uint64_t offset, uint32_t value) override {
    part_of(chip).write32(chip, bar, offset, value);
  }
  void write32_many(std::span<const RegisterWrite> writes) override {
    std::vector<std::vector<RegisterWrite>> each(parts().size());
    for (const RegisterWrite& write : writes) {
      each[places().of_chip(write.chip)].push_back(write);
    }
    for (size_t rank = 0; rank < each.size(); ++rank) {
      if (!each[rank].empty()) {
        parts()[rank].write32_many(each[rank]);
      }
    }
  }
  void write_block(int chip, int bar, uint64_t offset, std::span<const std::byte> data) override {
    part_of(chip).write_block(chip, bar, offset, data);
  }

  RunOutcome run() override {
    return run_all([this](size_t rank) { return parts()[rank].run(); });
  }
  RunOutcome run_handling(const InterruptHandler& handler) override {
    if (!handler) {
      return run();
    }
    return run_all([&](size_t rank) {
      return parts()[rank].run_handling(
          [&](const PausedRun& run) { return meet(rank, run, handler); });
    });
  }
  RunOutcome run_until(uint64_t cycle) override {
    return run_all([&](size_t rank) { return parts()[rank].run_until(cycle); });
  }
  void limit_run(std::chrono::nanoseconds limit) override {
    for (size_t rank = 0; rank < parts().size(); ++rank) {
      parts()[rank].limit_run(limit);
    }
  }
  void interrupt() override { parts()[0].interrupt(); }
  uint64_t now() override { return parts()[0].now(); }

  std::vector<ConsoleLine> take_console() override {
    std::vector<ConsoleLine> lines;
    for (auto& each :
         look<std::vector<ConsoleLine>>([](Transport& part) { return part.take_console(); })) {
      add_all(lines, std::move(each));
    }
    return lines;
  }
  std::string change_sim(const SimOptions& sim) override {
    check_part(sim, "sim");
    std::vector<std::string> texts(parts().size());
    parts().ask([&](size_t rank) { texts[rank] = parts()[rank].change_sim(sim); });
    return fmt::format("{}", fmt::join(texts, ""));
  }
  void log_commands(const std::optional<spec::MemoryLook>& /*look*/) override {
    throw Error(ErrorCode::kUnimplemented,
                "boards in several processes do not record commands; open the pod in one process");
  }
  void visit_state(spec::Archive& /*archive*/) override {
    throw Error(ErrorCode::kUnimplemented,
                "a pod in several processes has no snapshots; open it in one process");
  }
  std::string close() override {
    std::vector<std::string> texts = parts().close();
    std::string all;
    texts.push_back(fault_logs().merge());
    for (const std::string& text : texts) {
      all += (all.empty() || text.empty() ? "" : "\n") + text;
    }
    return all;
  }

 private:
  Transport& part_of(int chip) { return parts()[places().of_chip(chip)]; }

  // The processes have stopped in one cycle, and the handler sees all that came in it.
  bool meet(size_t rank, const PausedRun& run, const InterruptHandler& handler) {
    return parts().meet(
        rank,
        [&] {
          msi_.resize(places().chips());
          for (size_t chip = 0; chip < std::min(run.msi.size(), msi_.size()); ++chip) {
            msi_[chip] |= run.msi[chip];
          }
          has_console_ = has_console_ || run.has_console;
        },
        [&] {
          const std::vector<uint32_t> msi = std::exchange(msi_, {});
          const bool console = std::exchange(has_console_, false);
          return handler({msi, run.now, run.quiescent, console});
        });
  }

  template <class Call>
  RunOutcome run_all(const Call& call) {
    std::vector<RunOutcome> each(parts().size());
    msi_.clear();
    has_console_ = false;
    parts().together([&](size_t rank) { each[rank] = call(rank); });
    RunOutcome all = std::move(each.front());
    for (size_t rank = 1; rank < each.size(); ++rank) {
      for (size_t chip = 0; chip < each[rank].msi.size(); ++chip) {
        all.msi[chip] |= each[rank].msi[chip];
      }
      all.expired = all.expired || each[rank].expired;
      add_all(all.console, std::move(each[rank].console));
    }
    return all;
  }

  std::vector<uint32_t> msi_;  // of those that have come to a meeting
  bool has_console_ = false;
};

}  // namespace

std::vector<std::string> addresses_of(const std::string& connect) {
  std::vector<std::string> addresses;
  for (size_t from = 0; from <= connect.size();) {
    const size_t end = std::min(connect.find(',', from), connect.size());
    addresses.push_back(connect.substr(from, end - from));
    from = end + 1;
  }
  return addresses;
}

std::unique_ptr<Transport> make_pod_transport(const OpenOptions& options,
                                              const TransportRequest& request, HostMemory& memory,
                                              std::span<const SharedRange> shared,
                                              uint32_t firmware) {
  const auto boards = static_cast<size_t>(spec::board_count(request.params));
  PodOfWorkers workers;
  if (options.connect.empty()) {
    workers.addresses.resize(static_cast<size_t>(options.board_processes));
  } else if (options.board_processes != 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "OpenOptions::board_processes and OpenOptions::connect: expected one of them; the "
                "list of addresses says how many processes there are");
  } else if (options.connect.starts_with(kMpiAddress)) {
    serve_first_rank(options);
    workers.mesh.reset(&MpiMesh::of_process());
    for (int rank = 0; rank < workers.mesh->ranks(); ++rank) {
      workers.addresses.push_back(address_of_rank(rank));
    }
  } else {
    workers.addresses = addresses_of(options.connect);
  }
  const size_t ranks = workers.addresses.size();
  if (ranks > boards || ranks > kMostRanks) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: expected at most {} processes, one for each board of {}, found {}",
                            options.connect.empty() ? "OpenOptions::board_processes"
                                                    : "OpenOptions::connect",
                            std::min<size_t>(boards, kMostRanks), options.preset, ranks));
  }
  check_part(request.sim, options.transport);
  if (options.connect.empty()) {
    workers.own = std::make_unique<LocalWorkers>(options, options.board_processes);
    std::ranges::fill(workers.addresses, workers.own->address());
  }
  return std::make_unique<PodTransport>(std::move(workers), options, request, memory, shared,
                                        firmware);
}

}  // namespace tpu::driver
