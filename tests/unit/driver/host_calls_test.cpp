// Host calls of a launch on two cores, step by step, as the firmware tells them.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "src/host_calls/host_call_server.hpp"
#include "src/residency/program.hpp"
#include "tests/unit/driver/fake_cores.hpp"
#include "tpu/spec/core_page_regs.hpp"

namespace tpu::driver {
namespace {

namespace core_page = spec::core_page;

constexpr uint32_t kTicket = 77;

class HostCallServerTest : public testing::Test, protected test::FakeBoard {
 protected:
  HostCallServerTest() { turn.enter(EntryKind::kCall, std::nullopt); }
  ~HostCallServerTest() override { turn.leave(); }

  // A launch whose program has one call of two floats.
  void launch(bool to_host, int partition, bool kept = false, bool index = false) {
    const auto exe = std::make_shared<exe::ExecutableT>();
    exe->ops.push_back(std::make_unique<exe::OpInfoT>());
    exe->ops[0]->name = "custom_call";
    auto call = std::make_unique<exe::HostCallT>();
    call->to_host = to_host;
    call->partition = partition;
    call->memory = kept;
    call->index = index;
    call->elem = static_cast<exe::Elem>(DType::kF32);
    call->dims = {2};
    exe->host_calls.push_back(std::move(call));
    op_ = operations.begin("launch");
    op_->program = std::make_shared<LoadedProgram>(exe, std::vector<int>{0, 1});
    op_->launch_id = 5;
    op_->on_host_call = [this](const HostCallInfo&, size_t part, std::span<std::byte> bytes) {
      ++answers_;
      answered_for_ = part;
      EXPECT_TRUE(calls_.answers_here());
      EXPECT_THROW(calls_.await_answer(std::nullopt), Error);
      if (fails_) {
        throw std::runtime_error("no answer");
      }
      std::memset(bytes.data(), 0x55, bytes.size());
    };
    for (const int device : {0, 1}) {
      auto command = std::make_shared<Command>();
      command->device = device;
      command->opcode = TPU_OP_LAUNCH;
      op_->commands.push_back(command);
      op_->calls.emplace_back().slots = {Allocation::make(cores.devices[device].memory, 512, "x")};
    }
    operations.submit_gang(op_);
    cores.registers.send();
    cores.wire.writes.clear();
  }
  void tell(size_t part) {
    calls_.add(*op_->commands[part], 0, kTicket);
    EXPECT_TRUE(calls_.serve());
  }
  // The kinds of the requests to a core since the last look.
  std::vector<uint32_t> requests(int core) {
    std::vector<uint32_t> kinds;
    const uint64_t page = core_page::kBase + static_cast<uint64_t>(core) * core_page::kStride;
    for (const auto& [offset, value] : cores.wire.writes) {
      if (offset == page + core_page::kCallRequest) {
        EXPECT_EQ(value >> core_page::kCallRequestTicketShift, kTicket);
        kinds.push_back(value & ((1u << core_page::kCallRequestTicketShift) - 1));
      }
    }
    std::erase_if(cores.wire.writes, [&](const auto& write) {
      return write.first >= page && write.first < page + core_page::kStride;
    });
    return kinds;
  }

  using Kinds = std::vector<uint32_t>;
  HostCallServer calls_{cores.devices, cores.registers, memory, health, outbox, turn, news};
  std::shared_ptr<Operation> op_;
  int answers_ = 0;
  size_t answered_for_ = 99;
  bool fails_ = false;
};

TEST_F(HostCallServerTest, ToTheHostEachPartitionIsMovedThenAnsweredThenGoesOn) {
  launch(true, -1);
  tell(1);
  EXPECT_EQ(requests(1), Kinds{core_page::kCallToHost});
  EXPECT_EQ(answers_, 0);
  tell(1);  // the transfer is over
  EXPECT_EQ(answers_, 1);
  EXPECT_EQ(answered_for_, 1u);
  EXPECT_EQ(requests(1), Kinds{core_page::kCallGoOn});
  EXPECT_TRUE(requests(0).empty());
  EXPECT_FALSE(calls_.answers_here());
  EXPECT_FALSE(calls_.await_answer(std::nullopt));
  EXPECT_FALSE(calls_.serve());
}

// Without a handler: the driver answers, for each partition apart.
TEST_F(HostCallServerTest, BytesOfTheProgramAreKeptForIt) {
  launch(true, -1, true);
  op_->on_host_call = nullptr;
  op_->kept[{0, 1}].next = 7;
  tell(1);
  EXPECT_EQ(requests(1), Kinds{core_page::kCallToHost});
  std::memset(op_->calls[1].staged->bytes().data(), 0x11, 8);
  tell(1);
  EXPECT_EQ(requests(1), Kinds{core_page::kCallGoOn});
  const auto& kept = op_->kept.at({0, 1}).arrays;
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept.at(7), std::vector<std::byte>(8, std::byte{0x11}));
  EXPECT_FALSE(op_->kept.contains({0, 0}));
  EXPECT_EQ(answers_, 0);
}

TEST_F(HostCallServerTest, KeptBytesAreGivenByTheirNumber) {
  launch(false, -1, true);
  op_->on_host_call = nullptr;
  op_->kept[{0, 0}].arrays[3].assign(8, std::byte{0x22});
  op_->kept[{0, 0}].next = 3;
  op_->kept[{0, 1}].arrays[3].assign(8, std::byte{0x33});
  for (const size_t part : {0u, 1u}) {
    tell(part);
    EXPECT_EQ(requests(static_cast<int>(part)), Kinds{core_page::kCallFromHost});
    EXPECT_EQ(op_->calls[part].staged->bytes()[0], part == 0 ? std::byte{0x22} : std::byte{0})
        << "what was never stored is zero";
  }
  EXPECT_EQ(answers_, 0);
}

TEST_F(HostCallServerTest, ANumberSaysWhichArrayComesNext) {
  launch(true, -1, true, true);
  op_->on_host_call = nullptr;
  tell(0);
  const int32_t number = -5;
  std::memcpy(op_->calls[0].staged->bytes().data(), &number, sizeof number);
  tell(0);
  EXPECT_EQ(op_->kept.at({0, 0}).next, -5);
  EXPECT_TRUE(op_->kept.at({0, 0}).arrays.empty());
}

TEST_F(HostCallServerTest, ToTheHostForAllOnlyTheOwnersBytesTravel) {
  launch(true, 0);
  tell(1);
  EXPECT_EQ(requests(1), Kinds{core_page::kCallGoOn});
  tell(0);
  EXPECT_EQ(requests(0), Kinds{core_page::kCallToHost});
}

TEST_F(HostCallServerTest, FromTheHostForAllTheLastCoreIsWaitedForAndOneAnswerServes) {
  launch(false, 0);
  tell(1);
  EXPECT_EQ(answers_, 0);
  EXPECT_TRUE(requests(1).empty());
  tell(0);
  EXPECT_EQ(answers_, 1);
  EXPECT_EQ(answered_for_, 0u);
  EXPECT_EQ(requests(0), Kinds{core_page::kCallFromHost});
  EXPECT_EQ(requests(1), Kinds{core_page::kCallFromHost});
  EXPECT_EQ(op_->calls[0].staged, op_->calls[1].staged);
  EXPECT_EQ(op_->calls[0].staged->bytes()[7], std::byte{0x55});
  tell(1);
  EXPECT_EQ(requests(1), Kinds{core_page::kCallGoOn});
  EXPECT_EQ(op_->calls[1].staged, nullptr);
}

TEST_F(HostCallServerTest, AHandlerThatFailsTakesTheLaunchOffTheBoard) {
  launch(false, -1);
  fails_ = true;
  tell(0);
  ASSERT_NE(op_->verdict, nullptr);
  EXPECT_EQ(op_->verdict->message(), "a host call failed: no answer");
  EXPECT_EQ(op_->verdict->place().op, "custom_call");
  EXPECT_EQ(op_->verdict->place().device, 0);
  EXPECT_EQ(cores.wire.writes.back(),
            (std::pair<uint64_t, uint32_t>{core_page::kBase + core_page::kAbort, 5}));
  cores.wire.writes.clear();
  tell(1);
  EXPECT_TRUE(cores.wire.writes.empty()) << "nobody waits for an answer any more";
}

}  // namespace
}  // namespace tpu::driver
