// Host calls of a launch on two cores, step by step, as the firmware tells them.
#include <gtest/gtest.h>

#include <array>
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

class HostCallServerTest : public testing::Test, protected test::FakeBoard {
 protected:
  HostCallServerTest() { turn.enter(EntryKind::kCall, std::nullopt); }
  ~HostCallServerTest() override { turn.leave(); }

  // A call of two floats.
  static exe::HostCallT call(bool to_host, int partition, bool kept = false, bool index = false) {
    exe::HostCallT call;
    call.to_host = to_host;
    call.partition = partition;
    call.memory = kept;
    call.index = index;
    call.elem = static_cast<exe::Elem>(DType::kF32);
    call.dims = {2};
    return call;
  }
  // Of a transfer beside the program.
  static exe::HostCallT beside(bool to_host, exe::HostStage stage, int64_t channel) {
    exe::HostCallT made = call(to_host, -1, true);
    made.stage = stage;
    made.channel = channel;
    return made;
  }
  // A launch whose program has one call of two floats.
  void launch(bool to_host, int partition, bool kept = false, bool index = false) {
    launch({call(to_host, partition, kept, index)});
  }
  void launch(const std::vector<exe::HostCallT>& calls) {
    const auto exe = std::make_shared<exe::ExecutableT>();
    exe->ops.push_back(std::make_unique<exe::OpInfoT>());
    exe->ops[0]->name = "custom_call";
    for (const exe::HostCallT& each : calls) {
      exe->host_calls.push_back(std::make_unique<exe::HostCallT>(each));
    }
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
  void tell(size_t part, uint32_t number = 0) {
    called_[part] = newest_[part] = ++ticket_;
    calls_.add(*op_->commands[part], number, ticket_);
    EXPECT_TRUE(calls_.serve());
  }
  void moved(size_t part) {
    newest_[part] = ++ticket_;
    calls_.add(*op_->commands[part], core_page::kCallMoved, ticket_);
    EXPECT_TRUE(calls_.serve());
  }
  // The kinds of the requests to a core since the last look; answers name the last call, transfers
  // the last completion.
  std::vector<uint32_t> requests(int core) {
    std::vector<uint32_t> kinds;
    const uint64_t page = core_page::kBase + static_cast<uint64_t>(core) * core_page::kStride;
    for (const auto& [offset, value] : cores.wire.writes) {
      if (offset == page + core_page::kCallRequest) {
        EXPECT_EQ(value >> core_page::kCallRequestTicketShift, called_[static_cast<size_t>(core)]);
        kinds.push_back(value & core_page::kCallRequestKindMask);
      } else if (offset == page + core_page::kCallTransfer) {
        EXPECT_EQ(value >> core_page::kCallTransferTicketShift, newest_[static_cast<size_t>(core)]);
        kinds.push_back(value & core_page::kCallTransferKindMask);
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
  uint32_t ticket_ = 76;
  std::array<uint32_t, 2> newest_{}, called_{};  // by core: the last completion, and that of a call
  int answers_ = 0;
  size_t answered_for_ = 99;
  bool fails_ = false;
};

TEST_F(HostCallServerTest, ToTheHostEachPartitionIsMovedThenAnsweredThenGoesOn) {
  launch(true, -1);
  tell(1);
  EXPECT_EQ(requests(1), Kinds{core_page::kCallToHost});
  EXPECT_EQ(answers_, 0);
  moved(1);
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
  moved(1);
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
  moved(0);
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
  moved(1);
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

// The program goes on while the first array travels; the second one waits for the link, and what
// finishes the channel waits for its array.
TEST_F(HostCallServerTest, TransfersBesideTheProgramGoOneByOne) {
  launch({beside(true, exe::HostStage::start, 1), beside(true, exe::HostStage::start, 2),
          beside(true, exe::HostStage::finish, 2), beside(false, exe::HostStage::start, 2),
          beside(false, exe::HostStage::finish, 2)});
  op_->on_host_call = nullptr;
  tell(0, 0);
  EXPECT_EQ(requests(0), (Kinds{core_page::kCallToHost, core_page::kCallGoOn}));
  tell(0, 1);
  EXPECT_EQ(requests(0), Kinds{core_page::kCallGoOn}) << "the link is busy";
  tell(0, 2);
  EXPECT_EQ(requests(0), Kinds{});
  moved(0);
  EXPECT_EQ(requests(0), Kinds{core_page::kCallToHost});
  std::memset(op_->calls[0].transfers.front().staged->bytes().data(), 0x11, 8);
  moved(0);
  EXPECT_EQ(requests(0), Kinds{core_page::kCallGoOn});
  EXPECT_EQ((op_->kept.at({2, 0}).arrays.at(0)), std::vector<std::byte>(8, std::byte{0x11}));
  tell(0, 3);
  EXPECT_EQ(requests(0), (Kinds{core_page::kCallFromHost, core_page::kCallGoOn}));
  EXPECT_EQ(op_->calls[0].transfers.front().staged->bytes()[7], std::byte{0x11});
  moved(0);
  EXPECT_EQ(requests(0), Kinds{});
  tell(0, 4);
  EXPECT_EQ(requests(0), Kinds{core_page::kCallGoOn});
  EXPECT_TRUE(op_->calls[0].transfers.empty());
}

// A call that waits for its own transfer waits for those beside the program, too.
TEST_F(HostCallServerTest, OtherCallsTransferBehindThoseBesideTheProgram) {
  launch({beside(true, exe::HostStage::start, 1), call(true, -1)});
  tell(0, 0);
  requests(0);
  tell(0, 1);
  EXPECT_EQ(requests(0), Kinds{});
  moved(0);
  EXPECT_EQ(requests(0), Kinds{core_page::kCallToHost});
  EXPECT_EQ(answers_, 0);
  moved(0);
  EXPECT_EQ(answers_, 1);
  EXPECT_EQ(requests(0), Kinds{core_page::kCallGoOn});
  calls_.add(*op_->commands[0], core_page::kCallMoved, ++ticket_);
  calls_.serve();  // of no transfer: nothing happens
  EXPECT_EQ(requests(0), Kinds{});
}

}  // namespace
}  // namespace tpu::driver
