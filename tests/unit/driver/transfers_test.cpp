// Room in HBM and staging memory, and transfers in pieces, against fake cores.
#include "src/transfers/transfers.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "src/handles/access.hpp"
#include "tests/unit/driver/fake_cores.hpp"

namespace tpu::driver {
namespace {

constexpr uint64_t kStagingBytes = 64 << 10;  // of FakeBoard

class TransfersTest : public testing::Test, protected test::FakeBoard {
 protected:
  static std::shared_ptr<LoadedProgram> resident_program() {
    auto program =
        std::make_shared<LoadedProgram>(std::make_shared<exe::ExecutableT>(), std::vector<int>{0});
    program->residence = std::make_shared<Residence>();
    return program;
  }
  // As the core does: moves the bytes of the oldest copy and completes it.
  void run_oldest(int device) {
    tpu_command_copy_t copy;
    std::memcpy(&copy, cores.oldest(device)->wire.data(), sizeof(copy));
    if (copy.kind == TPU_COPY_H2D) {
      const auto bytes = arena->span(copy.src, copy.bytes, false);
      std::copy(bytes.begin(), bytes.end(), hbm_.begin() + static_cast<ptrdiff_t>(copy.dst));
    } else {
      const auto bytes = arena->span(copy.dst, copy.bytes, true);
      const auto from = hbm_.begin() + static_cast<ptrdiff_t>(copy.src);
      std::copy(from, from + static_cast<ptrdiff_t>(copy.bytes), bytes.begin());
    }
    report(device);
  }

  std::vector<std::byte> hbm_ = std::vector<std::byte>(1 << 20);
  Transfers transfers_{memory, operations, order, handles, turn};
};

TEST_F(TransfersTest, AProgramMakesRoomInHbmBeforeACallIsRefused) {
  constexpr uint64_t kPage = TPU_HBM_PAGE_BYTES;
  const uint64_t pages = cores.devices[0].memory->capacity() / kPage;
  const auto most = memory.allocate(0, (pages - 1) * kPage, "most");
  auto rest = memory.allocate(0, kPage, "rest");
  const auto program = resident_program();
  program->residence->parts.resize(1);
  program->residence->parts[0].code = std::move(rest);
  programs.add(program);
  const auto array = memory.allocate(0, kPage, "array");
  EXPECT_EQ(program->residence, nullptr);
  try {
    memory.allocate(0, 512, "more");
    FAIL() << "there is no room left";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_NE(error.message().find("most"), std::string::npos) << error.message();
  }
}

TEST_F(TransfersTest, AnArrayLargerThanStagingMemoryComesAndGoesInPieces) {
  std::vector<float> values(3 * kStagingBytes / sizeof(float));
  std::iota(values.begin(), values.end(), 1.0F);
  const Shape shape{static_cast<int64_t>(values.size())};
  const HostView view{DType::kF32, shape, std::as_bytes(std::span(values))};
  int waits = 0;
  pump = [&] {
    ++waits;
    run_oldest(0);
  };
  ASSERT_TRUE(turn.enter(EntryKind::kCall, std::nullopt));
  const auto buffers = transfers_.upload({0}, view, Box(view, Shape{0}, shape), shape, 0, "array");
  EXPECT_GT(waits, 0) << "staging memory has room for a third of it";
  while (cores.oldest(0) != nullptr) {
    run_oldest(0);
  }
  const BufferState& state = *Access::state(buffers.at(0));
  EXPECT_FALSE(state.ready->open());
  const auto at = state.hold()->address();
  EXPECT_EQ(std::memcmp(hbm_.data() + at, values.data(), view.bytes.size()), 0);

  std::vector<std::byte> out(view.bytes.size());
  const Event done = transfers_.read({{Access::state(buffers[0]),
                                       {{0, out.size()}},
                                       [&](uint64_t first, std::span<const std::byte> piece) {
                                         std::copy(piece.begin(), piece.end(),
                                                   out.begin() + static_cast<ptrdiff_t>(first));
                                       }}},
                                     {});
  while (cores.oldest(0) != nullptr) {
    run_oldest(0);
  }
  EXPECT_TRUE(done.ready());
  EXPECT_EQ(std::memcmp(out.data(), values.data(), out.size()), 0);
  turn.leave();
}

TEST_F(TransfersTest, ACopyToAnotherCoreIsNotOrderedByItsRing) {
  const auto filled = transfers_.zeros(0, DType::kF32, {4}, 0);
  const auto copied = transfers_.copy(*Access::state(filled), 1, {});
  EXPECT_EQ(cores.oldest(1), nullptr) << "it runs on the ring of the source";
  EXPECT_TRUE(Access::state(copied)->ready->off_ring);
  const auto same = transfers_.copy(*Access::state(filled), 0, {});
  EXPECT_FALSE(Access::state(same)->ready->off_ring);
}

TEST_F(TransfersTest, ABufferThatIsGoneIsRefused) {
  const auto filled = transfers_.zeros(0, DType::kF32, {4}, 0);
  Access::state(filled)->donate();
  Access::state(filled)->settle();
  const uint64_t submitted = operations.last();
  EXPECT_THROW(transfers_.copy(*Access::state(filled), 1, {}), Error);
  EXPECT_EQ(operations.last(), submitted);
}

TEST_F(TransfersTest, HostEventsThatNobodySetFailWithTheBoard) {
  const auto event = handles.make_host_event();
  const auto set = handles.make_host_event();
  set->set(nullptr);
  EXPECT_TRUE(event->off_ring);
  handles.fail_host_events(outbox,
                           std::make_shared<Error>(ErrorCode::kCancelled, "the board is closed"));
  EXPECT_TRUE(event->failed());
  EXPECT_FALSE(set->failed());
}

}  // namespace
}  // namespace tpu::driver
