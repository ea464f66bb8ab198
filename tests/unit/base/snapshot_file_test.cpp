// Archives: what is saved is loaded, and what does not fit is refused with its section's name.
#include "file/snapshot_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace tpu::spec {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct Point {
  uint8_t small = 0;
  uint64_t large = 0;  // a hole before it
  void visit_state(Archive& archive) { archive(small, large); }
  bool operator==(const Point&) const = default;
};

struct Everything {
  bool flag = false;
  int32_t number = 0;
  std::array<uint16_t, 3> row{};
  std::string text;
  std::vector<uint32_t> words;
  std::vector<bool> flags;
  std::vector<std::vector<int64_t>> rows;
  std::deque<Point> points;
  std::vector<std::byte> bulk;

  void visit_state(Archive& archive) {
    archive(flag, number, row, text, words, flags, rows, points, bulk);
  }
  bool operator==(const Everything&) const = default;
};

Everything sample() {
  return {.flag = true,
          .number = -5,
          .row = {1, 2, 3},
          .text = "name",
          .words = {7, 8},
          .flags = {true, false, true},
          .rows = {{}, {1, -1}},
          .points = {{1, 2}, {3, 4}},
          .bulk = std::vector<std::byte>(200000, std::byte{9})};
}

enum class Colour : uint8_t { kRed, kGreen, kBlue };

std::vector<std::byte> saved(uint64_t more = 0) {
  std::vector<std::byte> file;
  SnapshotWriter writer([&](std::span<const std::byte> bytes) {
    file.insert(file.end(), bytes.begin(), bytes.end());
  });
  Everything first = sample();
  writer.section("first");
  writer(first);
  writer.section("second");
  writer(more);
  writer.finish();
  EXPECT_EQ(writer.written(), file.size());
  return file;
}

TEST(Archive, AChoiceThatIsNotThereSaysWhichThereAre) {
  const auto load = [](uint8_t number) {
    std::vector<std::byte> file;
    SnapshotWriter writer([&](std::span<const std::byte> bytes) {
      file.insert(file.end(), bytes.begin(), bytes.end());
    });
    writer.section("colour");
    writer(number);
    writer.finish();
    SnapshotReader reader(file);
    Colour colour = Colour::kRed;
    reader.section("colour");
    reader.choice(colour, Colour::kBlue);
    return colour;
  };
  EXPECT_EQ(load(2), Colour::kBlue);
  EXPECT_THAT([&] { load(7); }, ThrowsMessage<ArchiveError>(HasSubstr(
                                    "invalid enumeration value: expected 0 to 2, found 7")));
}

TEST(SnapshotFile, LoadsWhatWasSaved) {
  const std::vector<std::byte> file = saved(17);
  SnapshotReader reader(file);
  Everything first;
  uint64_t more = 0;
  reader.section("first");
  reader(first);
  reader.section("second");
  EXPECT_EQ(reader.left(), sizeof more);
  reader(more);
  reader.finish();
  EXPECT_EQ(first, sample());
  EXPECT_EQ(more, 17U);
}

TEST(SnapshotFile, EveryFlippedBitIsFound) {
  const std::vector<std::byte> file = saved();
  std::minstd_rand random(1);
  for (int i = 0; i < 300; ++i) {
    std::vector<std::byte> bad = file;
    // All of the head and the tail, samples between; the reserved words mean nothing.
    const size_t at = i < 12 ? static_cast<size_t>(i) : 16 + random() % (file.size() - 16);
    if (at >= file.size() - 12 && at < file.size() - 8) {
      continue;
    }
    bad[at] ^= std::byte{1} << static_cast<int>(random() % 8);
    EXPECT_THROW(SnapshotReader{bad}, ArchiveError) << "byte " << at;
  }
}

TEST(SnapshotFile, SaysWhichStateDoesNotFit) {
  const std::vector<std::byte> file = saved();
  const auto message = [](const char* text) {
    return ThrowsMessage<ArchiveError>(HasSubstr(text));
  };
  uint32_t half = 0;
  Everything first;
  EXPECT_THAT(([&] {
                SnapshotReader reader(file);
                reader.section("other");
              }),
              message("section 'other' is missing"));
  EXPECT_THAT(([&] {
                SnapshotReader reader(file);
                reader.section("first");
                reader(first);
                reader.section("second");
                reader(half);
                reader.finish();
              }),
              message("section 'second' has 4 unexpected bytes"));
  EXPECT_THAT(([&] {
                SnapshotReader reader(file);
                reader.section("first");
                reader(first, half);
              }),
              message("section 'first' has fewer bytes"));
  EXPECT_THAT(([&] {
                SnapshotReader reader(file);
                reader.section("first");
                reader(first);
                reader.finish();
              }),
              message("unknown section 'second'"));
}

// A length that no section holds takes no memory.
TEST(SnapshotFile, RefusesListsLongerThanTheirSection) {
  std::vector<std::byte> file;
  SnapshotWriter writer([&](std::span<const std::byte> bytes) {
    file.insert(file.end(), bytes.begin(), bytes.end());
  });
  uint64_t length = uint64_t{1} << 60;
  writer.section("list");
  writer(length);
  writer.finish();
  SnapshotReader reader(file);
  reader.section("list");
  std::vector<uint64_t> list;
  EXPECT_THAT(([&] { reader(list); }),
              ThrowsMessage<ArchiveError>(HasSubstr("does not fit into its section")));
}

}  // namespace
}  // namespace tpu::spec
