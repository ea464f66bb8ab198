// The fake core of firmware/fake with memories of its own, for the firmware's tests: a board of one
// core that its tests drive event by event, with counts of what the firmware did.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "fake/fake_core.hpp"

namespace tpu::test {

uint32_t crc32c(std::span<const uint8_t> bytes);

class MockDevice : private firmware::FakeSurroundings, public firmware::FakeCore {
 public:
  static constexpr uint32_t kHostBytes = 1U << 20;
  static constexpr uint32_t kHbmBytes = 1U << 20;
  static constexpr uint32_t kCore = 2;
  static constexpr uint32_t kCores = 8;

  MockDevice();

  // Bytes of ITCM or DTCM, or an empty span outside of both. Set by the test.
  std::function<std::span<uint8_t>(uint64_t addr, uint64_t bytes)> tcm;

  void reset();
  // An abort that comes from the root.
  void abort(uint32_t tag, uint32_t origin, uint32_t code);
  // Ends all that is under way until nothing is; programs and barriers end well.
  bool settle_one();

  int32_t first_bad_slot(uint32_t bank, uint32_t count) override;
  std::vector<uint8_t> host = std::vector<uint8_t>(kHostBytes);
  std::vector<uint8_t> hbm = std::vector<uint8_t>(kHbmBytes);
  uint64_t time = 0;
  bool echo_pending = false;   // this core's abort of its own gang has not come back from the root
  int32_t bad_slot = -1;       // what SLOT_CHECK finds
  uint32_t slots_checked = 0;  // entries of the last SLOT_CHECK

  unsigned event_msis = 0;
  unsigned completion_msis = 0;
  struct Abort {
    uint32_t tag;
    uint32_t root;
    spec::CoreSet gang;
    uint32_t code;
  };
  std::vector<Abort> aborts_sent;
  std::vector<uint32_t> steps_started;

 private:
  std::span<std::byte> host_bytes(uint64_t iova, uint64_t bytes, bool write) override;
  std::span<std::byte> tcm_bytes(uint64_t address, uint64_t bytes) override;
  bool hbm_holds(uint32_t core, uint64_t at, uint64_t bytes) override;
  void read_hbm(uint64_t at, std::span<std::byte> out) override;
  void write_hbm(uint64_t at, std::span<const std::byte> data) override;
  void fill_hbm(uint64_t at, uint64_t bytes, uint32_t pattern) override;
  void copy_hbm(uint64_t from, uint32_t peer, uint64_t to, uint64_t bytes) override;
  uint64_t cycle() override { return ++time; }
  uint64_t counter(uint32_t index) override { return 1000 + index; }
  void send_msi(uint32_t vector) override;
  void program_started() override;
  void arrived(uint32_t /*kind*/) override {}
  void abort_sent(uint32_t tag, uint32_t root, const spec::CoreSet& gang, uint32_t code) override;
};

}  // namespace tpu::test
