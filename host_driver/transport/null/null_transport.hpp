// Null transport: a double of firmware and board on the same registers and ring formats, in zero
// time. It boots, copies and fills for real in a sparse HBM, keeps tracks, gangs, HELD and RESUME
// as the firmware does; a launch calls an executor, or does nothing at all (outputs keep what was
// in memory). "Cycles" count completed commands. For tests of the driver: knobs lose doorbells and
// interrupts, spoil entries and firmware images, kill harts.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "tpu/spec/rings.h"
#include "tpu/transport.hpp"

namespace tpu::driver {

/// HBM of one core, 64 KiB pages on first write; absent pages read as zero.
class NullHbm {
 public:
  explicit NullHbm(uint64_t bytes) : bytes_(bytes) {}
  uint64_t bytes() const { return bytes_; }
  void read(uint64_t at, std::span<std::byte> out) const;
  void write(uint64_t at, std::span<const std::byte> data);
  /// Repeats a 32-bit pattern; whole pages of zero are dropped.
  void fill(uint64_t at, uint64_t bytes, uint32_t pattern);

 private:
  static constexpr uint64_t kPage = TPU_HBM_PAGE_BYTES;
  uint64_t bytes_;
  std::unordered_map<uint64_t, std::vector<std::byte>> pages_;
};

/// One core's part of a gang launch, as an executor sees it.
struct NullLaunchPart {
  int core = 0;
  uint32_t replica = 0;
  NullHbm* hbm = nullptr;
  std::vector<tpu_slot_entry_t> slots;
  std::vector<std::byte> image;
};

struct NullLaunch {
  uint32_t launch_id = 0;
  uint32_t steps = 1;
  std::vector<NullLaunchPart> parts;
};

/// Runs all steps; a returned record makes its `core` report FAULT and the others ABORTED.
using NullExecutor = std::function<std::optional<tpu_fault_record_t>(NullLaunch&)>;

class NullTransport : public Transport {
 public:
  NullTransport(const TransportRequest& request, HostMemory& memory);

  uint32_t read32(int chip, int bar, uint64_t offset) override;
  void write32(int chip, int bar, uint64_t offset, uint32_t value) override;
  void write_block(int chip, int bar, uint64_t offset, std::span<const std::byte> data) override;
  RunOutcome run() override;
  RunOutcome run_until(uint64_t cycle) override;
  void limit_run(std::chrono::nanoseconds limit) override { limit_ = limit; }
  void interrupt() override;
  uint64_t now() override { return cycle_; }
  TransportStats stats() override;

  // Knobs of the tests.
  void end_endless();  ///< launches that run for as long as the host lets them end well
  NullExecutor executor;
  int drop_doorbells = 0;     ///< of the next writes of CMD_TAIL
  int drop_interrupts = 0;    ///< of the next MSIs
  int good_entries = 0;       ///< of the next fetched commands: stay as they are, whatever follows
  int corrupt_entries = 0;    ///< of those behind them
  int corrupt_images = 0;     ///< of the next boots
  int stuck_launches = 0;     ///< of the next launches: never end by themselves
  int endless_launches = 0;   ///< of the next launches: run for as long as the host lets them
  int dead_on_launch = -1;    ///< core whose hart dies at its next launch
  int dead_behind = 0;        ///< completions; the hart that writes the last of them dies then
  bool tell_steps = false;    ///< launches complete with MORE | STEP behind each step but the last
  bool throw_in_run = false;  ///< the model breaks
  std::function<void(std::span<std::byte>)> spoil_completion;  ///< changes what is written
  uint32_t firmware_abi = TPU_RING_ABI;
  uint64_t commands_done = 0;
  uint64_t most_outstanding = 0;  ///< largest tail - oldest open command ever seen

 private:
  struct Pending {
    std::array<std::byte, TPU_CMD_ENTRY_BYTES> wire{};
    tpu_command_head_t head{};
    uint8_t track = 0;
    uint16_t fault = TPU_STATUS_OK;  // found while fetching
  };
  struct Program {
    uint64_t address = 0;
    uint64_t bytes = 0;
  };
  struct Core {
    explicit Core(uint64_t hbm_bytes) : hbm(hbm_bytes) {}
    std::vector<uint32_t> page = std::vector<uint32_t>(1024);
    std::vector<std::byte> tcm;
    NullHbm hbm;
    bool serving = false;
    bool held = false;
    bool dead = false;
    uint32_t fetched = 0;
    uint32_t tail = 0;
    uint32_t cpl_tail = 0;
    std::array<uint32_t, 3> done{};
    std::deque<Pending> window;
    std::array<std::optional<Program>, TPU_MAX_PROGRAMS> programs;
    uint32_t stuck = 0;      // launch id that never ends by itself
    bool endless = false;    // it runs
    uint64_t steps = 0;      // ended
    uint32_t fed_steps = 0;  // of the launch in front, when it is fed
    // Batches and results since the last resume.
    uint32_t infeed_full = 0, infeed_free = 0, outfeed_full = 0, outfeed_free = 0;
  };

  Core& core_at(int chip, uint64_t index);
  int core_id(const Core& core) const;
  void write_core(Core& core, uint64_t offset, uint32_t value);
  void boot(Core& core);
  void reset(Core& core);
  void set_state(Core& core, uint32_t state);
  void interrupt(const Core& core, uint32_t vector);
  bool serve(Core& core);
  bool fetch(Core& core);
  static uint8_t track_of(const Pending& command);
  bool waits_met(const Core& core, const Pending& command) const;
  uint16_t execute(Core& core, const Pending& command);
  uint16_t copy(Core& core, const Pending& command);
  uint16_t load_program(Core& core, const Pending& command);
  uint16_t check_launch(Core& core, const tpu_command_launch_t& launch,
                        std::vector<tpu_slot_entry_t>& slots);
  bool try_launch(Core& core, const Pending& command);
  bool run_gang(const std::vector<Core*>& gang);
  NullLaunch gather(const std::vector<Core*>& gang);
  bool feeds_ready(const std::vector<Core*>& gang) const;
  static bool copy_may_start(const Core& core, const Pending& command);
  static void count_copy(Core& core, const Pending& command);
  bool end_fed_step(Core& core);
  void abort_gang(uint32_t launch_id, const tpu_fault_record_t& record, bool only_waiting);
  uint32_t gang_of(uint32_t launch_id) const;
  void note_aborted(uint32_t launch_id, uint32_t mask);
  void forget_aborted(uint32_t launch_id, const Core& core);
  const Pending* waiting_launch(const Core& core) const;
  size_t place_of(const Core& core, const Pending* command) const;
  void complete(Core& core, size_t place, uint16_t status, uint32_t step = 0);
  void post(Core& core, const tpu_command_head_t& head, uint16_t status, uint32_t step,
            uint16_t flags);
  void hold(Core& core);
  void set_record(Core& core, tpu_fault_record_t record);

  const spec::BoardParams params_;
  uint64_t hash_;
  HostMemory& memory_;
  std::vector<Core> cores_;
  std::vector<uint32_t> msi_;
  std::map<uint32_t, uint32_t> aborted_;  // launch id -> cores that have not answered it yet
  std::chrono::nanoseconds limit_{0};
  std::mutex interrupt_mutex_;
  std::condition_variable interrupt_turn_;
  bool interrupted_ = false;
  uint64_t cycle_ = 0;
  uint32_t latched_time_ = 0;
};

}  // namespace tpu::driver
