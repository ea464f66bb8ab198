// Registers by their table: access, masks, handlers, reset, snapshot, and what does not fit.
#include "kernel/register_block.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "file/snapshot_file.hpp"

namespace tpu::model {
namespace {

using spec::RegisterAccess;
using spec::RegisterRow;

enum Offset : uint32_t {
  kMode = 0x00,
  kFlags = 0x04,
  kSerial = 0x08,
  kGo = 0x0c,
  kNow = 0x10,
  kPair = 0x20,  // two, 16 bytes apart
  kOutside = 0x40,
};

constexpr std::array<RegisterRow, 7> kTable = {{
    {"MODE", kMode, 1, 4, RegisterAccess::kReadWrite, 0x5, 0xff, 0, false, true, false},
    {"FLAGS", kFlags, 1, 4, RegisterAccess::kClears, 0, 0xf, spec::kHandlesWrite, false, false,
     false},
    {"SERIAL", kSerial, 1, 4, RegisterAccess::kReadOnly, 7, ~0U, 0, false, false, true},
    {"GO", kGo, 1, 4, RegisterAccess::kWriteOnly, 0, ~0U, spec::kHandlesWrite, false, false, false},
    {"NOW", kNow, 1, 4, RegisterAccess::kReadOnly, 0, ~0U, spec::kHandlesValue | spec::kHandlesRead,
     false, false, false},
    {"PAIR", kPair, 2, 16, RegisterAccess::kReadWrite, 0, ~0U,
     spec::kHandlesBefore | spec::kHandlesPeek, true, true, false},
    {"OUTSIDE", kOutside, 1, 4, RegisterAccess::kReadWrite, 0, ~0U, 0, false, false, false},
}};

class Block : public RegisterBlock {
 public:
  Block() : RegisterBlock(registers()) { bind(kOutside, outside); }
  using RegisterBlock::cell;
  using RegisterBlock::reset_registers;
  using RegisterBlock::set_reg;
  using RegisterBlock::share;
  void visit_state(spec::Archive& archive) { visit_registers(archive); }

  uint32_t outside = 0;
  uint32_t now = 100;
  bool closed = false;
  std::vector<std::pair<uint32_t, uint32_t>> changes;  // offset, value
  std::vector<uint32_t> written;                       // of FLAGS and GO, as written

 private:
  static RegisterMap registers() {
    static constexpr auto kMap = make_register_map(
        kTable, {on_write<&Block::note>(kFlags), on_write<&Block::note>(kGo),
                 on_value<&Block::time>(kNow), on_read<&Block::advance>(kNow),
                 before_write<&Block::open>(kPair), on_peek<&Block::twice>(kPair)});
    return kMap.view();
  }
  void stored(uint32_t offset, uint32_t value) override { changes.emplace_back(offset, value); }
  bool untimed_now(uint32_t index) const override { return index == 0; }
  void note(uint32_t value) { written.push_back(value); }
  uint32_t time() const { return now; }
  void advance() { ++now; }
  bool open(uint32_t /*index*/, uint32_t /*value*/) { return !closed; }
  uint32_t twice(uint32_t index) const { return 2 * reg(kPair, index); }
};

uint32_t read(RegisterBlock& block, uint32_t offset) {
  uint32_t value = 0xdead;
  EXPECT_TRUE(block.read(offset, value)) << offset;
  return value;
}
uint32_t peek(const RegisterBlock& block, uint32_t offset) {
  uint32_t value = 0xdead;
  EXPECT_TRUE(block.peek(offset, value)) << offset;
  return value;
}

TEST(RegisterBlock, AccessFollowsTheTable) {
  Block block;
  uint32_t value = 0;
  EXPECT_EQ(read(block, kMode), 5U);  // the reset value
  EXPECT_TRUE(block.write(kMode, 0x1234));
  EXPECT_EQ(read(block, kMode), 0x34U);
  EXPECT_EQ(read(block, kSerial), 7U);
  EXPECT_FALSE(block.write(kSerial, 1));
  EXPECT_FALSE(block.read(kGo, value));
  EXPECT_FALSE(block.peek(kGo, value));
  EXPECT_FALSE(block.read(0x14, value));
  EXPECT_FALSE(block.write(0x14, 1));
  EXPECT_FALSE(block.read(kPair + 4, value));
  EXPECT_FALSE(block.read(kPair + 48, value));  // after the last one of the array
  EXPECT_FALSE(block.read(kMode + 2, value));
  EXPECT_FALSE(block.read(spec::kRegisterBlockBytes, value));
}

TEST(RegisterBlock, WrittenOnesClear) {
  Block block;
  block.set_reg(kFlags, 0x37);
  EXPECT_TRUE(block.write(kFlags, 0x33));
  EXPECT_EQ(read(block, kFlags), 0x34U);  // bits 5 and 4 are outside of the mask
  EXPECT_THAT(block.written, testing::ElementsAre(0x33));
  EXPECT_THAT(block.changes, testing::ElementsAre(std::pair(uint32_t{kFlags}, 0x37U),
                                                  std::pair(uint32_t{kFlags}, 0x34U)));
}

TEST(RegisterBlock, HandlersComputeActAndDrop) {
  Block block;
  EXPECT_TRUE(block.write(kGo, 0xffffffff));
  EXPECT_THAT(block.written, testing::ElementsAre(0xffffffff));
  EXPECT_EQ(peek(block, kNow), 100U);
  EXPECT_EQ(read(block, kNow), 100U);
  EXPECT_EQ(read(block, kNow), 101U);  // each read has its effect, a look of a debugger has none
  EXPECT_TRUE(block.write(kPair + 16, 9));
  block.closed = true;
  EXPECT_TRUE(block.write(kPair + 16, 10));  // dropped
  EXPECT_EQ(read(block, kPair), 0U);
  EXPECT_EQ(read(block, kPair + 16), 9U);
  EXPECT_EQ(peek(block, kPair + 16), 18U);
}

TEST(RegisterBlock, UntimedByDirectionAndState) {
  const Block block;
  EXPECT_TRUE(block.untimed(kMode, true));
  EXPECT_FALSE(block.untimed(kMode, false));
  EXPECT_TRUE(block.untimed(kPair, false));
  EXPECT_FALSE(block.untimed(kPair + 16, false));  // the block says no
  EXPECT_FALSE(block.untimed(0x14, true));
}

TEST(RegisterBlock, ResetKeepsConstantsAndBoundVariables) {
  Block block;
  block.cell(kSerial) = 42;
  block.write(kMode, 1);
  block.write(kPair + 16, 3);
  block.write(kOutside, 77);
  EXPECT_EQ(block.outside, 77U);
  block.changes.clear();
  block.reset_registers();
  EXPECT_EQ(read(block, kMode), 5U);
  EXPECT_EQ(read(block, kPair + 16), 0U);
  EXPECT_EQ(read(block, kSerial), 42U);
  EXPECT_EQ(block.outside, 77U);
  EXPECT_THAT(block.changes, testing::ElementsAre(std::pair(uint32_t{kMode}, 5U),
                                                  std::pair(uint32_t{kPair + 16}, 0U)));
}

TEST(RegisterBlock, SnapshotHasWhatIsStored) {
  Block block;
  block.write(kMode, 3);
  block.write(kPair, 4);
  block.set_reg(kFlags, 8);
  block.cell(kSerial) = 42;
  block.write(kOutside, 77);
  std::vector<std::byte> file;
  spec::SnapshotWriter writer([&](std::span<const std::byte> bytes) {
    file.insert(file.end(), bytes.begin(), bytes.end());
  });
  writer.section("block");
  writer(block);
  writer.finish();
  Block other;
  spec::SnapshotReader reader(file);
  reader.section("block");
  reader(other);
  reader.finish();
  EXPECT_EQ(read(other, kMode), 3U);
  EXPECT_EQ(read(other, kPair), 4U);
  EXPECT_EQ(read(other, kFlags), 8U);
  EXPECT_EQ(read(other, kSerial), 7U);  // a number of the board, not of the run
  EXPECT_EQ(other.outside, 0U);         // saved by its owner
  EXPECT_TRUE(other.written.empty());   // to load has no effects
}

TEST(RegisterBlock, BlocksShareRegistersByOffset) {
  Block block;
  Block view;
  view.share(block);
  view.write(kMode, 0x21);
  EXPECT_EQ(read(block, kMode), 0x21U);
  block.write(kGo, 1);
  EXPECT_TRUE(view.written.empty());
  view.write(kGo, 6);
  EXPECT_EQ(block.cell(kGo), 6U);  // what this side only writes, the other may read
}

// As make_register_map(), which does not compile then.
TEST(RegisterMap, NamesWhatDoesNotFitTheTable) {
  struct Other : RegisterBlock {
    using RegisterBlock::RegisterBlock;
    void act() {}
    uint32_t look() const { return 0; }
  };
  const auto wrong = [](std::initializer_list<RegisterEntry> entries) {
    static constexpr std::array<RegisterRow, 2> kRows = {kTable[3], kTable[0]};
    const char* const text = match_registers(kRows, entries).wrong;
    return std::string(text == nullptr ? "" : text);
  };
  EXPECT_EQ(wrong({on_write<&Other::act>(kGo)}), "");
  EXPECT_EQ(wrong({}), "a register lacks a handler that its table asks for");
  EXPECT_EQ(wrong({on_write<&Other::act>(kGo), on_value<&Other::look>(kMode)}),
            "a register has a handler that its table does not ask for");
  EXPECT_EQ(wrong({on_write<&Other::act>(kGo), on_write<&Other::act>(kGo)}),
            "a register has two handlers of one kind");
  EXPECT_EQ(wrong({on_write<&Other::act>(kGo), on_write<&Other::act>(0x30)}),
            "a handler is for an offset that is not in the table");
}

}  // namespace
}  // namespace tpu::model
