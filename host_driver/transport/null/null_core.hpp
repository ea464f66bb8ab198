// One core of the null board: the registers of a fake core, the firmware that runs on them, HBM,
// and the pages that the host sees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fake/fake_core.hpp"
#include "fake/fake_gangs.hpp"
#include "fake/firmware_on_host.hpp"
#include "tpu/transport.hpp"
#include "transport/null/null_knobs.hpp"

namespace tpu::driver {

class NullCore;

/// What the cores of a null board share.
struct NullCores {
  NullCores(NullKnobs& its_knobs, HostMemory& its_memory, size_t count)
      : knobs(its_knobs), memory(its_memory), gangs(count) {}

  NullKnobs& knobs;
  HostMemory& memory;
  firmware::FakeGangs gangs;
  std::vector<std::unique_ptr<NullCore>> all;
  uint64_t cycle = 0;         ///< counts completions
  std::vector<uint32_t> msi;  ///< vectors raised since the last run, a bit mask for each chip
};

class NullCore : private firmware::FakeSurroundings, public firmware::FakeCore {
 public:
  /// Where the core is.
  struct Place {
    uint32_t core = 0;   ///< on the board
    uint32_t chip = 0;   ///< its chip
    uint32_t local = 0;  ///< on its chip
    uint32_t cores = 0;  ///< of the board
  };
  NullCore(NullCores& board, const Place& place, uint64_t hbm_bytes, uint32_t watchdog_kcycles);

  // The host's side.
  uint32_t host_read(uint64_t offset);
  void host_write(uint64_t offset, uint32_t value);
  void load(uint64_t at, std::span<const std::byte> data);  ///< bytes of the TCM

  /// Lets the firmware handle its interrupts, or ends a transfer or a drain; false: nothing to do.
  bool serve();
  /// A time limit of the core is over, when nothing else can happen; false: it has none.
  bool expire();
  /// The hart traps.
  void die();

  /// The step is over.
  void end_step();

  const Place place;
  NullHbm hbm;
  uint32_t stuck = 0;    ///< launch id of the program that hangs
  bool endless = false;  ///< it runs
  uint64_t steps = 0;    ///< ended

 private:
  void reset_core();
  void boot();
  void take_turn();

  std::span<std::byte> host_bytes(uint64_t iova, uint64_t bytes, bool write) override;
  std::span<std::byte> tcm_bytes(uint64_t address, uint64_t bytes) override;
  bool hbm_holds(uint32_t core, uint64_t at, uint64_t bytes) override;
  void read_hbm(uint64_t at, std::span<std::byte> out) override { hbm.read(at, out); }
  void write_hbm(uint64_t at, std::span<const std::byte> data) override { hbm.write(at, data); }
  void fill_hbm(uint64_t at, uint64_t bytes, uint32_t pattern) override;
  void copy_hbm(uint64_t from, uint32_t peer, uint64_t to, uint64_t bytes) override;
  uint64_t cycle() override { return board_.cycle + 1; }
  uint64_t counter(uint32_t index) override;
  void send_msi(uint32_t vector) override;
  void program_started() override;
  void arrived(uint32_t kind) override;
  void abort_sent(uint32_t tag, uint32_t root, const spec::CoreSet& gang, uint32_t code) override;
  void entry_on_the_way(std::span<std::byte> entry) override;
  void completion_on_the_way(std::span<std::byte> completion) override;

  NullCores& board_;
  firmware::FirmwareOnHost firmware_;
  std::vector<std::byte> tcm_;
  bool running_ = false;  // the hart has booted
  bool dead_ = false;
  // The hart traps after the completion that it writes: what it does in the rest of its turn is
  // lost.
  bool trapped_ = false;
  bool lost_ = false;
};

}  // namespace tpu::driver
