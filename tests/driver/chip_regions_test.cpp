// What writes to the regions of a function become for its chip.
#include "transport/vfio/chip_regions.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "tpu/transport.hpp"
#include "transport/vfio/config_space.hpp"
#include "transport/vfio/protocol.hpp"

namespace tpu::driver::vfio {
namespace {

using ::testing::ElementsAre;

// Lists the accesses of a chip: "load OFFSET+BYTES", "write OFFSET", "read OFFSET".
class Listed final : public Transport {
 public:
  uint32_t read32(int /*chip*/, int /*bar*/, uint64_t offset) override {
    accesses.push_back("read " + std::to_string(offset));
    return 0;
  }
  void write32(int /*chip*/, int /*bar*/, uint64_t offset, uint32_t /*value*/) override {
    accesses.push_back("write " + std::to_string(offset));
  }
  void write_block(int /*chip*/, int bar, uint64_t offset,
                   std::span<const std::byte> data) override {
    EXPECT_EQ(bar, 2);
    accesses.push_back("load " + std::to_string(offset) + "+" + std::to_string(data.size()));
    loaded.insert(loaded.end(), data.begin(), data.end());
  }
  RunOutcome run() override { return {}; }
  uint64_t now() override { return 0; }
  TransportStats stats() override { return {}; }

  std::vector<std::string> accesses;
  std::vector<std::byte> loaded;
};

class ChipRegionsTest : public ::testing::Test {
 protected:
  ChipRegionsTest() {
    board_.transport = &chip_;
    write(kConfigRegion, 4, 6, 2);  // memory space, bus master
    chip_.accesses.clear();
  }

  void write(uint32_t region, uint64_t offset, uint32_t value, size_t bytes = 4) {
    RegionAccess access{};
    access.region = region;
    access.offset = offset;
    access.count = static_cast<uint32_t>(bytes);
    std::vector<std::byte> payload(sizeof access + bytes);
    std::memcpy(payload.data(), &access, sizeof access);
    std::memcpy(payload.data() + sizeof access, &value, bytes);
    regions_.write(payload);
  }

  void load(uint64_t begin, uint64_t end) {
    for (uint64_t at = begin; at < end; at += 4) {
      write(kBar2Region, at, static_cast<uint32_t>(at));
    }
  }

  Listed chip_;
  FunctionBoard board_;
  ChipRegions regions_{board_, 0, PciId{}};
};

// A guest's kernel writes an image so.
TEST_F(ChipRegionsTest, WordsForTheLoadWindowsAreJoinedToPages) {
  load(0x800, 0x3000);
  regions_.settle();
  EXPECT_THAT(chip_.accesses, ElementsAre("load 2048+2048", "load 4096+4096", "load 8192+4096"));
  ASSERT_EQ(chip_.loaded.size(), 0x2800U);
  for (size_t at = 0; at < chip_.loaded.size(); at += 4) {
    uint32_t word = 0;
    std::memcpy(&word, &chip_.loaded[at], sizeof word);
    ASSERT_EQ(word, 0x800 + at);
  }
}

TEST_F(ChipRegionsTest, WordsThatAreApartAreNotJoined) {
  load(0x100, 0x108);
  load(0x200, 0x204);
  load(0x1FC, 0x200);
  regions_.settle();
  regions_.settle();
  EXPECT_THAT(chip_.accesses, ElementsAre("load 256+8", "load 512+4", "load 508+4"));
}

TEST_F(ChipRegionsTest, LoadsReachTheChipBeforeTheNextRegister) {
  load(0, 8);
  write(kBar0Region, 0x40, 1);
  EXPECT_THAT(chip_.accesses, ElementsAre("load 0+8", "write 64"));
}

}  // namespace
}  // namespace tpu::driver::vfio
