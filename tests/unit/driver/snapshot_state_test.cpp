// The driver's own part of a snapshot: what refuses one, and what a board that is opened from it
// knows again.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "src/facets/snapshot_calls.hpp"
#include "src/handles/access.hpp"
#include "src/snapshots/board_snapshot.hpp"
#include "src/snapshots/snapshot_records.hpp"
#include "tests/unit/driver/fake_driver.hpp"

namespace tpu::driver {
namespace {

// A board without state of its own.
class StatelessWire : public test::FaultWire {
 public:
  void visit_state(spec::Archive& archive) override { archive.section("board"); }
};

struct Saved : test::FakeDriver {
  Saved() {
    params.board.name = "fake";
    auto made = std::make_unique<StatelessWire>();
    cores.registers.connect(made.get());
    transport = std::move(made);
    booter.set_firmware(std::vector<std::byte>(64), 0);
  }
  spec::BoardParams params{};
  SimOptions sim;
  BoardSnapshot snapshot{{params, sim, transport, booter, handles, order, feeds, cores.devices,
                          cores.registers, operations, launcher, loader, recovery, turn}};
};

class SnapshotState : public testing::Test {
 protected:
  SnapshotState() { std::filesystem::remove(path_); }
  ~SnapshotState() override { std::filesystem::remove(path_); }
  static std::string error_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.message();
    }
    return {};
  }
  // Tests run beside each other.
  const std::string path_ = testing::TempDir() +
                            testing::UnitTest::GetInstance()->current_test_info()->name() +
                            ".tpusnap";
};

TEST_F(SnapshotState, CountsAndItemsComeBack) {
  Saved first;
  const Buffer kept = first.transfers.zeros(0, DType::kF32, {4}, 0);
  first.report(0);
  first.turn.set_late_calls(17);
  first.launcher.set_last_id(5);
  Layout layout;
  layout.local = {4};
  layout.offsets = {{0}};
  SnapshotItems items;
  items.arrays.emplace("x", Array(DType::kF32, {4}, layout, {kept}));
  items.notes.emplace("note", "text");
  first.snapshot.save(path_, items);

  Saved second;
  SnapshotSource source(path_);
  second.snapshot.check(source);
  second.snapshot.restore(source);
  EXPECT_EQ(second.operations.last(), first.operations.last());
  EXPECT_EQ(second.turn.late_calls(), 17u);
  EXPECT_EQ(second.cores.devices[0].ring.tail(), 1u);
  const SnapshotItems restored = second.snapshot.take_items();
  EXPECT_EQ(restored.notes.at("note"), "text");
  const auto& state = *Access::state(restored.arrays.at("x").parts().at(0));
  EXPECT_EQ(state.hold()->address(), Access::state(kept)->hold()->address());
  EXPECT_TRUE(second.snapshot.take_items().arrays.empty()) << "once";
}

TEST_F(SnapshotState, AnotherBoardOrFirmwareIsNamed) {
  Saved first;
  first.snapshot.save(path_, {});
  Saved numbers;
  numbers.params.core.clock_mhz = 1;
  EXPECT_NE(error_of([&] {
              SnapshotSource source(path_);
              numbers.snapshot.check(source);
            }).find("core.clock_mhz"),
            std::string::npos);
  Saved firmware;
  firmware.booter.set_firmware(std::vector<std::byte>(65), 0);
  EXPECT_NE(error_of([&] {
              SnapshotSource source(path_);
              firmware.snapshot.check(source);
            }).find("another firmware"),
            std::string::npos);
}

TEST_F(SnapshotState, WhatIsNotOverRefusesASnapshot) {
  Saved board;
  const auto op = board.operations.begin("upload");
  const auto event = board.handles.make_host_event();
  op->inputs = op->after = {event};
  board.order.send_in_order(op, [] {});
  EXPECT_NE(error_of([&] { board.snapshot.save(path_, {}); }).find("an event that is not set"),
            std::string::npos);
  event->set(nullptr);
  board.order.send_waiting();
  board.cores.devices[1].held = true;
  EXPECT_NE(error_of([&] { board.snapshot.save(path_, {}); }).find("waits to be resumed"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(SnapshotState, ArraysAndRangesThatDoNotFitAreNamed) {
  SnapshotRecords good;
  good.ranges = {{.device = 0, .address = 0, .bytes = 16, .label = "x", .memory = nullptr},
                 {.device = 1, .address = 0, .bytes = 64, .label = "y", .memory = nullptr}};
  good.arrays.resize(1);
  good.arrays[0].name = "x";
  BufferRecord part;
  part.dtype = DType::kF32;
  part.shape = {4};
  good.arrays[0].parts = {part};
  EXPECT_NO_THROW(check_records(good, 2));
  const auto error_with = [&](const std::function<void(BufferRecord&)>& damage) {
    SnapshotRecords records = good;
    damage(records.arrays[0].parts[0]);
    try {
      check_records(records, 2);
    } catch (const spec::ArchiveError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string outside = "array x is outside of the ranges of HBM that hold it";
  EXPECT_EQ(error_with([](BufferRecord& b) { b.memory = 2; }), outside);   // is not there
  EXPECT_EQ(error_with([](BufferRecord& b) { b.memory = 1; }), outside);   // of another core
  EXPECT_EQ(error_with([](BufferRecord& b) { b.shape = {5}; }), outside);  // too small
  EXPECT_EQ(error_with([](BufferRecord& b) { b.device = 2; }),
            "array x is on a core that is not there");
}

TEST_F(SnapshotState, ABrokenBoardGivesNoItems) {
  Saved board;
  Waiters waiters([] {});
  const ForkCheck forks;
  const std::shared_ptr<CompletionThread> thread;
  Door door(board.turn, forks, board.outbox, board.operations, board.order, waiters, thread);
  SnapshotCalls calls(door, board.health, board.snapshot, [] {});
  EXPECT_TRUE(calls.take_items().arrays.empty());
  board.health.break_by(std::make_shared<Error>(ErrorCode::kInternal, "it broke", ErrorPlace{}));
  EXPECT_NE(error_of([&] { calls.take_items(); }).find("it broke"), std::string::npos);
}

}  // namespace
}  // namespace tpu::driver
