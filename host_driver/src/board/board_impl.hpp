// BoardImpl: the state behind a Board. It composes the owners of that state, in the order of their
// dependencies, and connects those that must call up by functions. One lock, taken in the order of
// arrival, guards the owners (src/turn/turn.hpp): the thread that lets simulated time pass holds
// it, and hands it over with the board parked when a call arrives. Calls enter by the door
// (src/door) and by facets (src/facets). Files: board_open (open and close), board_enter (the
// thread that works when nobody calls), board_state (what the board is and counts).
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "board/board_loader.hpp"
#include "src/boot/booter.hpp"
#include "src/completions/completions.hpp"
#include "src/door/door.hpp"
#include "src/events/outbox.hpp"
#include "src/facets/counter_reader.hpp"
#include "src/facets/debug_port.hpp"
#include "src/facets/memory_calls.hpp"
#include "src/facets/profiling.hpp"
#include "src/facets/program_calls.hpp"
#include "src/facets/sim_calls.hpp"
#include "src/facets/snapshot_calls.hpp"
#include "src/feeds/feeds.hpp"
#include "src/handles/event_state.hpp"
#include "src/harts/harts.hpp"
#include "src/health/health.hpp"
#include "src/host_calls/host_call_server.hpp"
#include "src/launches/launch_records.hpp"
#include "src/launches/launcher.hpp"
#include "src/lock/board_lock.hpp"
#include "src/memory/box.hpp"
#include "src/memory/device_memory.hpp"
#include "src/memory/host_arena.hpp"
#include "src/operations/board_handles.hpp"
#include "src/operations/contents.hpp"
#include "src/operations/devices.hpp"
#include "src/operations/operation.hpp"
#include "src/operations/operations.hpp"
#include "src/operations/send_order.hpp"
#include "src/pump/pump.hpp"
#include "src/recovery/chip_events.hpp"
#include "src/recovery/hang_teller.hpp"
#include "src/recovery/recovery.hpp"
#include "src/residency/loader.hpp"
#include "src/residency/program.hpp"
#include "src/snapshots/board_snapshot.hpp"
#include "src/transfers/board_memory.hpp"
#include "src/transfers/transfers.hpp"
#include "src/turn/completion_thread.hpp"
#include "src/turn/fork_check.hpp"
#include "src/turn/host_news.hpp"
#include "src/turn/turn.hpp"
#include "src/turn/waiters.hpp"
#include "src/waits/waits.hpp"
#include "tpu/board.hpp"
#include "tpu/spec/rings.h"
#include "tpu/transport.hpp"

namespace tpu::driver {

class BoardImpl : public std::enable_shared_from_this<BoardImpl> {
 public:
  static std::shared_ptr<BoardImpl> open(const OpenOptions& options);
  ~BoardImpl();

  const spec::BoardParams& params() const { return params_; }
  uint64_t hash() const { return hash_; }
  std::vector<DeviceInfo> device_infos();
  size_t device_count() const { return devices_.size(); }
  // Facets: their calls take the lock themselves.
  MemoryCalls& memory() { return memory_calls_; }
  ProgramCalls& programs() { return program_calls_; }
  DebugPort& debug_port() { return debug_port_; }
  Profiling& profiling() { return profiling_; }
  CounterReader& counters() { return counters_; }
  SimCalls& sim() { return sim_calls_; }
  SnapshotCalls& snapshots() { return snapshot_calls_; }
  Waits& waits() { return waits_; }

  // All below take the lock themselves, too.
  void close(CloseMode mode);
  /// For tests of the wrap: the next launch has the id behind this one.
  void set_last_launch(uint32_t launch_id) {
    const Door::Entry entry(door_);
    launcher_.set_last_id(launch_id);
  }

  /// Any thread, any lock: an event of the host's own was set.
  void note_host_event();
  /// Of the completion thread: takes what is there, or lets time pass until something is, unless a
  /// caller does. True: there is more to do.
  bool let_time_pass();

 private:
  BoardImpl() = default;

  void connect(const OpenOptions& options) TPU_REQUIRES(board_lock);
  void start_completion_thread();
  void take_rest_of_console();
  void break_board(const ErrorPtr& error) TPU_REQUIRES(board_lock);
  void end_launch(Operation& launch, const ErrorPtr& error) TPU_REQUIRES(board_lock);
  void settle(uint64_t last = UINT64_MAX) TPU_REQUIRES(board_lock);
  void prepare_input(uint64_t bytes) TPU_REQUIRES(board_lock);
  void add_counters(BoardCounters& counters) const TPU_REQUIRES(board_lock);

  spec::BoardParams params_;
  uint64_t hash_ = 0;
  std::shared_ptr<HostArena> arena_;
  std::unique_ptr<Transport> transport_;
  LaunchRecords records_{transport_};
  Devices devices_;
  BoardHandles handles_;
  Health health_;
  Outbox outbox_;
  HostNews news_{[this] {
    if (completion_thread_) {
      completion_thread_->call_is_over();
    }
  }};
  CoreRegisters registers_{[this](const std::exception& error)
                               TPU_REQUIRES(board_lock) { break_board(model_error(error)); }};
  Operations operations_{
      devices_,
      registers_,
      health_,
      outbox_,
      news_,
      {.pump = [this]() TPU_REQUIRES(board_lock) { pump_.pump(std::nullopt, {}); },
       .make_event = [this]() TPU_REQUIRES(board_lock) { return handles_.make_event(); },
       .launch_over = [this](Operation& op, const ErrorPtr& error)
                          TPU_REQUIRES(board_lock) { end_launch(op, error); }}};
  SendOrder order_{operations_, health_,
                   [this]() TPU_REQUIRES(board_lock) { return calls_.answers_here(); }};
  BoardMemory memory_{
      devices_,
      health_,
      {.pump = [this]() TPU_REQUIRES(board_lock) { pump_.pump(std::nullopt, {}); },
       .evict = [this](int device) TPU_REQUIRES(board_lock) { return loader_.evict(device); },
       .held_bytes = [this] { return transport_->stats().hbm_host_bytes; }}};
  Turn turn_{[this] { transport_->interrupt(); }};
  // Never changed while there are handles.
  std::shared_ptr<CompletionThread> completion_thread_;
  Waiters waiters_{[this] {
    if (completion_thread_) {
      completion_thread_->call_is_over();
    }
  }};
  const ForkCheck forks_;
  Door door_{turn_, forks_, outbox_, operations_, order_, waiters_, completion_thread_};
  Transfers transfers_{memory_, operations_, order_, handles_, turn_};
  Feeds feeds_{devices_, registers_, operations_, memory_, handles_, health_, outbox_, news_};
  HostCallServer calls_{devices_, registers_, memory_, health_, outbox_, turn_, news_};
  Completions completions_{
      devices_,    registers_,
      operations_, calls_,
      health_,     [this](const ErrorPtr& error) TPU_REQUIRES(board_lock) { break_board(error); }};
  Harts harts_{transport_, registers_, outbox_};
  HangTeller hangs_{devices_, harts_};
  Booter booter_{transport_, devices_, registers_, harts_, outbox_};
  Loader loader_{devices_,
                 operations_,
                 order_,
                 memory_,
                 transfers_,
                 health_,
                 [this]() TPU_REQUIRES(board_lock) { pump_.pump(std::nullopt, {}); }};
  Launcher launcher_{operations_,
                     order_,
                     memory_,
                     transfers_,
                     feeds_,
                     loader_,
                     handles_,
                     health_,
                     [this](uint32_t id, const std::shared_ptr<const exe::ExecutableT>& program,
                            uint64_t context) {
                       if (transport_) {
                         transport_->name_launch(id, program, context);
                       }
                     }};
  ChipEvents chip_events_{params_, transport_, devices_, outbox_};
  Recovery recovery_{
      params_,
      transport_,
      devices_,
      registers_,
      operations_,
      completions_,
      feeds_,
      loader_,
      launcher_,
      records_,
      harts_,
      booter_,
      health_,
      outbox_,
      turn_,
      {.run = [this]() TPU_REQUIRES(board_lock) { return run_.run(); },
       .run_until = [this](uint64_t cycle) TPU_REQUIRES(board_lock) { run_.run_busy(cycle); },
       .break_board = [this](const ErrorPtr& error)
                          TPU_REQUIRES(board_lock) { break_board(error); },
       .tell_hang = [this](const char* kind, const Operation* op,
                           const std::vector<UnitWait>& waits, const TransportStats& stats)
                        TPU_REQUIRES(board_lock) { return hangs_.tell(kind, op, waits, stats); },
       .lost_chip = [this]() TPU_REQUIRES(board_lock) { return chip_events_.lost_chip(); }}};
  TimeLimit limit_{transport_,
                   devices_,
                   registers_,
                   harts_,
                   [this](const char* kind, const Operation* op, const std::vector<UnitWait>& waits,
                          const TransportStats& stats)
                       TPU_REQUIRES(board_lock) { return hangs_.tell(kind, op, waits, stats); },
                   [this](const ErrorPtr& error) TPU_REQUIRES(board_lock) { break_board(error); }};
  BoardRun run_{
      transport_,
      turn_,
      health_,
      devices_,
      registers_,
      feeds_,
      completions_,
      harts_,
      outbox_,
      limit_,
      {.break_board = [this](const ErrorPtr& error)
                          TPU_REQUIRES(board_lock) { break_board(error); },
       .abort_launches = [this]() TPU_REQUIRES(board_lock) { recovery_.abort_launches(); },
       .chip_events = [this](std::span<const uint32_t> msi)
                          TPU_REQUIRES(board_lock) { chip_events_.take(msi); }}};
  Pump pump_{transport_,
             turn_,
             health_,
             news_,
             devices_,
             order_,
             feeds_,
             calls_,
             completions_,
             recovery_,
             run_,
             limit_,
             [this](const ErrorPtr& error) TPU_REQUIRES(board_lock) { break_board(error); }};
  SimCalls sim_calls_{
      door_, health_, transport_, records_, harts_, limit_, [this]() TPU_REQUIRES(board_lock) {
        settle();
      }};
  BoardSnapshot snapshot_{{params_, sim_calls_.options(), transport_, booter_, handles_, order_,
                           feeds_, devices_, registers_, operations_, launcher_, loader_, recovery_,
                           turn_}};

  Waits waits_{door_,
               turn_,
               forks_,
               waiters_,
               news_,
               health_,
               outbox_,
               operations_,
               order_,
               completions_,
               completion_thread_,
               handles_,
               [this](Deadline deadline)
                   TPU_REQUIRES(board_lock) { return pump_.pump(deadline, {.to_end = true}); }};
  SnapshotCalls snapshot_calls_{door_, health_, snapshot_,
                                [this]() TPU_REQUIRES(board_lock) { settle(); }};
  MemoryCalls memory_calls_{door_, health_, memory_, transfers_,
                            [this](uint64_t bytes)
                                TPU_REQUIRES(board_lock) { prepare_input(bytes); }};
  ProgramCalls program_calls_{
      door_,
      health_,
      loader_,
      launcher_,
      feeds_,
      {.dispatch =
           [this]() TPU_REQUIRES(board_lock) {
             pump_.spend_host_time(static_cast<uint64_t>(params_.host.dispatch_cycles));
           },
       .prepare = [this](uint64_t bytes) TPU_REQUIRES(board_lock) { prepare_input(bytes); }}};
  DebugPort debug_port_{door_, health_, devices_, transport_};
  Profiling profiling_{door_, health_, transport_, records_,
                       [this]() TPU_REQUIRES(board_lock) { settle(); }};
  CounterReader counters_{
      door_,
      health_,
      devices_,
      operations_,
      memory_,
      transport_,
      {.settle = [this](uint64_t last) TPU_REQUIRES(board_lock) { settle(last); },
       .add_own = [this](BoardCounters& counters)
                      TPU_REQUIRES(board_lock) { add_counters(counters); }}};
};

}  // namespace tpu::driver
