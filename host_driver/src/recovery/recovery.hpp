// Recovery: cores that are HELD after a failed command have flushed what was queued. When all of it
// has come back, the fault records are read, the cores resumed with a new epoch, and what never
// started is sent again in the old order, unless one of its inputs was lost. Harts that died are
// started again. Guarded by the board lock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/boot/booter.hpp"
#include "src/completions/completions.hpp"
#include "src/feeds/feeds.hpp"
#include "src/launches/launcher.hpp"
#include "src/lock/board_lock.hpp"
#include "src/recovery/launch_judge.hpp"
#include "src/turn/turn.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::driver {

class Recovery {
 public:
  struct Hooks {
    /// Runs the board to its next interrupt. False: it is quiescent, or broke.
    std::function<bool()> run;
    /// The same, and also where it is quiescent, up to that cycle.
    std::function<void(uint64_t cycle)> run_until;
    std::function<void(const ErrorPtr&)> break_board;
    TellHang tell_hang;
    /// Why the board is lost: a chip has left the bus; null: none has.
    std::function<ErrorPtr()> lost_chip;
  };
  /// `transport`: null when the board is closed.
  Recovery(const spec::BoardParams& params, const std::unique_ptr<Transport>& transport,
           Devices& devices, CoreRegisters& registers, Operations& operations,
           Completions& completions, Feeds& feeds, Loader& loader, Launcher& launcher,
           LaunchRecords& records, Harts& harts, Booter& booter, const Health& health,
           Outbox& outbox, Turn& turn, const Hooks& hooks)
      : params_(params),
        transport_(transport),
        devices_(devices),
        registers_(registers),
        operations_(operations),
        completions_(completions),
        feeds_(feeds),
        loader_(loader),
        launcher_(launcher),
        harts_(harts),
        booter_(booter),
        health_(health),
        turn_(turn),
        hooks_(hooks),
        judge_(transport, devices, operations, harts, records, health, outbox, hooks.tell_hang) {}

  /// Where something failed: sends again what did not run, and lets the cores go on. Does nothing
  /// until all of it is reported: a launch in front of it may still run, make host calls and take
  /// batches, which needs turns of the pump.
  void recover() TPU_REQUIRES(board_lock);
  /// Nothing is in flight on the board and something waits: repeats the doorbells (absolute counts,
  /// so this is harmless), the next time looks for completions that got lost and takes the launches
  /// off, then gives up.
  void stalled() TPU_REQUIRES(board_lock);
  /// Something was completed: a stall begins anew.
  void note_progress() TPU_REQUIRES(board_lock) { stalls_ = 0; }
  /// Takes the launches that are in flight off the board, oldest of each core first.
  void abort_launches() TPU_REQUIRES(board_lock);

  /// Times that doorbells were repeated.
  uint64_t repeated_doorbells() const TPU_REQUIRES(board_lock) { return repeated_doorbells_; }
  /// Times that something was recovered.
  uint64_t recoveries() const TPU_REQUIRES(board_lock) { return recoveries_; }

  void visit_state(spec::Archive& archive) { archive(repeated_doorbells_, recoveries_); }

 private:
  void repeat_doorbells() TPU_REQUIRES(board_lock);
  void end_stall() TPU_REQUIRES(board_lock);
  void give_up() TPU_REQUIRES(board_lock);
  bool all_reported() const TPU_REQUIRES(board_lock);
  bool reboot_dead() TPU_REQUIRES(board_lock);
  bool reboot(const std::vector<int>& dead) TPU_REQUIRES(board_lock);
  std::vector<int> find_hung() TPU_REQUIRES(board_lock);
  void lose_commands(Device& device) TPU_REQUIRES(board_lock);
  void resume_held() TPU_REQUIRES(board_lock);
  bool await_epoch(const Device& device) TPU_REQUIRES(board_lock);
  bool drains(const Device& device) TPU_REQUIRES(board_lock);
  bool any_open_drains() TPU_REQUIRES(board_lock);
  bool outlast_drains(const std::function<bool()>& over) TPU_REQUIRES(board_lock);
  void resend_in_front() TPU_REQUIRES(board_lock);
  void resend(const std::vector<std::shared_ptr<Operation>>& launches,
              const std::vector<std::shared_ptr<Command>>& retries) TPU_REQUIRES(board_lock);
  void resend_command(Operation& op, const std::shared_ptr<Command>& command)
      TPU_REQUIRES(board_lock);
  void resend_launch(Operation& launch) TPU_REQUIRES(board_lock);

  const spec::BoardParams& params_;
  const std::unique_ptr<Transport>& transport_;
  Devices& devices_;
  CoreRegisters& registers_;
  Operations& operations_;
  Completions& completions_;
  Feeds& feeds_;
  Loader& loader_;
  Launcher& launcher_;
  Harts& harts_;
  Booter& booter_;
  const Health& health_;
  Turn& turn_;
  const Hooks hooks_;
  LaunchJudge judge_;
  int stalls_ = 0;          // quiescent runs without progress, one after the other
  std::string stall_text_;  // who waited for whom then
  uint64_t repeated_doorbells_ = 0;
  uint64_t recoveries_ = 0;
};

}  // namespace tpu::driver
