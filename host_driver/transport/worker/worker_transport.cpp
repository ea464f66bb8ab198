#include "transport/worker/worker_transport.hpp"

#include <map>
#include <string>
#include <utility>

#include "board/board_loader.hpp"
#include "exe/executable.hpp"
#include "options/option_wire.hpp"
#include "transport/worker/link_group.hpp"
#include "transport/worker/worker_link.hpp"

namespace tpu::driver {
namespace {

using namespace worker;  // NOLINT(google-build-using-namespace)

class WorkerDebugPort : public Transport {
 public:
  WorkerDebugPort(const OpenOptions& options, HostMemory& memory, size_t chips, bool is_part)
      : is_part_(is_part), link_(options, memory, chips) {}

  TransportStats stats() override { return look({.kind = CallKind::kStats}).stats; }
  std::vector<UnitWait> waits() override { return look({.kind = CallKind::kWaits}).waits; }
  std::vector<ThreadForecast> thread_forecast(const std::vector<int>& threads) override {
    return look({.kind = CallKind::kForecast, .threads = {threads.begin(), threads.end()}})
        .forecast;
  }
  std::vector<CheckFinding> take_findings() override {
    return look({.kind = CallKind::kFindings}).findings;
  }
  std::optional<uint32_t> debug_read(int device, uint32_t address) override {
    const Answer answer =
        call({.kind = CallKind::kDebugRead, .device = device, .address = address});
    return answer.done ? std::optional(answer.value) : std::nullopt;
  }
  bool debug_write(int device, uint32_t address, uint32_t value) override {
    return call({.kind = CallKind::kDebugWrite,
                 .device = device,
                 .address = address,
                 .value = value})
        .done;
  }
  std::vector<OpTally> take_op_times(uint32_t launch_id) override {
    return look({.kind = CallKind::kOpTimes, .value = launch_id}).tallies;
  }
  std::string take_xspace() override { return call({.kind = CallKind::kXspace}).text; }
  std::string take_record() override { return call({.kind = CallKind::kRecord}).text; }
  void log_commands(const std::optional<spec::MemoryLook>& /*look*/) override {
    throw Error(ErrorCode::kUnimplemented,
                "a board in another process does not record commands; open it in this one, without "
                "OpenOptions::connect");
  }
  void host_prepares(bool begins) override { link_.post(Kind::kPrepares, pack(Flag{begins})); }
  void name_launch(uint32_t launch_id, const std::shared_ptr<const exe::ExecutableT>& program,
                   uint64_t trace_context) override {
    link_.note_launch(launch_id, program == nullptr ? nullptr : &program->name);
    if (names_launches_) {
      const uint64_t number = program == nullptr ? 0 : number_of(program);
      link_.post(Kind::kName, pack(Name{launch_id, number, trace_context}));
    }
  }

 protected:
  WorkerLink& link() { return link_; }
  void set_sim(const SimOptions& sim) { names_launches_ = names_launches(sim); }

  Answer call(Call request) {
    const CallKind kind = request.kind;
    Answer answer = unpack<Answer>(link_.ask(Kind::kCall, pack(std::move(request))));
    if (answer.kind != kind) {
      refuse_message("it answers another call");
    }
    return answer;
  }
  // Of a board that is lost nothing is known: whoever lets time pass says why. Other parts of a pod
  // have to hear of it.
  Answer look(Call request) {
    if (is_part_) {
      return call(std::move(request));
    }
    if (!link_.lost()) {
      try {
        return call(std::move(request));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kUnavailable) {
          throw;
        }
        link_.lose_quietly(error.message());
      }
    }
    return {};
  }

 private:
  uint64_t number_of(const std::shared_ptr<const exe::ExecutableT>& program) {
    const auto [found, added] = programs_.emplace(program, programs_.size() + 1);
    if (added) {
      link_.post(Kind::kProgram, pack(Program{found->second, exe::write_executable(*program)}));
    }
    return found->second;
  }

  const bool is_part_;
  WorkerLink link_;
  bool names_launches_ = false;
  // Programs that launches were named by, which live as long as the board here.
  std::map<std::shared_ptr<const exe::ExecutableT>, uint64_t> programs_;
};

class WorkerTransport final : public WorkerDebugPort {
 public:
  WorkerTransport(const OpenOptions& options, const TransportRequest& request, HostMemory& memory,
                  std::span<const SharedRange> shared, uint32_t firmware, const WorkerPart& part)
      : WorkerDebugPort(options, memory, static_cast<size_t>(spec::chip_count(request.params)),
                        part.ranks > 1),
        member_(part.links, part.rank, link()),
        chips_(static_cast<size_t>(spec::chip_count(request.params))) {
    if (link().is_local()) {
      for (const SharedRange& range : shared) {
        link().post(Kind::kMap, pack(Map{range.iova, range.bytes}), range.file);
      }
    }
    if (part.ranks > 1) {
      send_part(part);
    }
    Attach attach;
    attach.numbers = board_numbers(request.params);
    attach.transport = options.transport;
    attach.firmware = firmware;
    attach.sim = request.sim;
    set_sim(unpack<Attached>(link().ask(Kind::kAttach, pack(attach))).sim);
  }
  ~WorkerTransport() override {
    if (!link().closed() && !link().lost()) {
      link().post(Kind::kClose, {});
      link().send();
    }
  }
  WorkerTransport(const WorkerTransport&) = delete;
  WorkerTransport& operator=(const WorkerTransport&) = delete;

  uint32_t read32(int chip, int bar, uint64_t offset) override {
    const auto answer = unpack<Value>(link().ask(Kind::kRead, pack(Read{chip, bar, offset})));
    link().set_now(answer.now);
    return answer.value;
  }
  void write32(int chip, int bar, uint64_t offset, uint32_t value) override {
    const RegisterWrite write{chip, bar, offset, value};
    write32_many(std::span(&write, 1));
  }
  void write32_many(std::span<const RegisterWrite> writes) override {
    link().post(Kind::kWrites, pack(Writes{{writes.begin(), writes.end()}}));
  }
  void write_block(int chip, int bar, uint64_t offset, std::span<const std::byte> data) override {
    link().post(Kind::kBlock, pack(Block{chip, bar, offset, {data.begin(), data.end()}}));
  }

  RunOutcome run() override { return run_as({}, nullptr); }
  RunOutcome run_handling(const InterruptHandler& handler) override {
    return run_as({.handles = static_cast<bool>(handler)}, &handler);
  }
  RunOutcome run_until(uint64_t cycle) override {
    return run_as({.has_until = true, .until = cycle}, nullptr);
  }
  void limit_run(std::chrono::nanoseconds limit) override { limit_ = limit; }
  void interrupt() override { link().interrupt(); }
  uint64_t now() override { return link().now(); }

  std::vector<ConsoleLine> take_console() override {
    return look({.kind = CallKind::kConsole}).console;
  }
  std::string change_sim(const SimOptions& sim) override {
    const Answer answer = call({.kind = CallKind::kChangeSim, .sim = sim});
    set_sim(answer.sim);
    return answer.text;
  }
  void visit_state(spec::Archive& /*archive*/) override {
    throw Error(ErrorCode::kUnimplemented,
                "a board in another process has no snapshots; open it in this one, without "
                "OpenOptions::connect");
  }

  std::string close() override {
    if (link().lost() || link().closed()) {
      return "";  // what it was lost by has been said
    }
    return unpack<Answer>(link().ask(Kind::kClose, {})).text;
  }

 private:
  void send_part(const WorkerPart& part) {
    Part message;
    message.rank = part.rank;
    message.ranks = part.ranks;
    message.bytes = part.bytes;
    if (part.bytes == 0 && part.exchange) {
      const auto listens = unpack<Listens>(link().ask(Kind::kListen, {}));
      WorkerPart::Addresses addresses = part.exchange(listens.address, listens.is_loopback);
      message.addresses = std::move(addresses.all);
      message.names = std::move(addresses.names);
      message.secret = std::move(addresses.secret);
      message.trusted = std::move(addresses.trusted);
    }
    link().post(Kind::kPart, pack(std::move(message)), part.file);
  }

  RunOutcome run_as(Run run, const InterruptHandler* handler) {
    run.limit_ns = limit_.count();
    Stopped stopped = link().run(run, handler);
    link().set_now(stopped.now);
    stopped.outcome.msi.resize(chips_);
    return std::move(stopped.outcome);
  }

  const LinkGroup::Member member_;
  std::chrono::nanoseconds limit_{0};
  const size_t chips_;
};

}  // namespace

std::unique_ptr<Transport> make_worker_transport(const OpenOptions& options,
                                                 const TransportRequest& request,
                                                 HostMemory& memory,
                                                 std::span<const SharedRange> shared,
                                                 uint32_t firmware, const WorkerPart& part) {
  return std::make_unique<WorkerTransport>(options, request, memory, shared, firmware, part);
}

}  // namespace tpu::driver
