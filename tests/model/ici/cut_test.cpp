// Messages between boards: when a transfer lands, what answers and in which order.
#include "ici/cut.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <systemc>
#include <vector>

#include "board/board_loader.hpp"
#include "ici/ici.hpp"
#include "kernel/cycles.hpp"

namespace tpu::model {
namespace {

using Status = RemoteAnswer::Status;
using ::testing::ElementsAre;

constexpr uint64_t kBytes = 1 << 20;
constexpr uint32_t kSemaphore = 7;

// A core that keeps what it is told, with the cycle.
class Receiver : public sc_core::sc_module, public RemoteIf {
 public:
  explicit Receiver(sc_core::sc_module_name name) : sc_module(name) {}
  RemoteAnswer remote_open(const RemoteWrite& write, RemotePlace* /*place*/) override {
    opened.push_back(now_cycles());
    opened_by.push_back(write.from_core);
    return {.status = says, .bandwidth = bandwidth, .base = 0, .size = 77};
  }
  void remote_landed(const RemoteWrite& write, std::span<const uint8_t> data) override {
    landed.push_back(now_cycles());
    first_bytes.push_back(data.empty() ? 0 : data.front());
    EXPECT_EQ(write.at, now_cycles());
  }
  RemoteAnswer remote_signal(const RemoteSignal& signal) override {
    EXPECT_EQ(signal.semaphore, kSemaphore);
    EXPECT_EQ(signal.at, now_cycles());
    values.push_back(signal.value);
    signalled.push_back(now_cycles());
    return {.status = says, .bandwidth = -1, .base = 0, .size = 0};
  }
  uint64_t work_done() const override { return 5; }
  bool work_in_flight() const override { return true; }
  void await_answers(int change) override { awaited += change; }

  Status says = Status::kOk;
  ResourceId bandwidth = -1;
  int awaited = 0;
  std::vector<uint64_t> opened, landed, signalled;
  std::vector<uint32_t> opened_by;
  std::vector<int> first_bytes;
  std::vector<uint32_t> values;
};

// A v3_32: four boards, with cores that only listen.
class CutBench : public ::testing::Test {
 protected:
  CutBench() {
    std::vector<spec::BandwidthShare*> shares;
    for (int board = 0; board < 4; ++board) {
      shares.push_back(&fluid_.emplace_back(numbered("fluid", board).c_str(), agenda).share());
    }
    links = std::make_shared<const spec::Links>(params, shares);
    for (uint32_t core = 0; core < links->cores(); ++core) {
      cores.emplace_back(numbered("core", static_cast<int>(core)).c_str());
    }
    std::array<CutEnd*, 4> ends{};
    for (uint32_t board = 0; board < 4; ++board) {
      const int number = static_cast<int>(board);
      Ici& ici = ici_.emplace_back(numbered("ici", number).c_str(), board, links);
      for (uint32_t core = 0; core < links->cores(); ++core) {
        ici.connect(core, cores[core]);
      }
      ends[board] = &cuts.emplace_back(numbered("cut", number).c_str(), board, *links,
                                       fluid_[board], activity, ici);
      ici.set_cut(cuts.back());
    }
    for (size_t board = 0; board < cuts.size(); ++board) {
      hbm[board] = fluid_[board].add_resource(1, 1);  // a byte a cycle
      cuts[board].connect(ends, std::vector<ResourceId>(links->cores(), hbm[board]));
    }
    sc_core::sc_start(sc_core::SC_ZERO_TIME);
  }

  static std::string numbered(const std::string& name, int number) {
    return name + std::to_string(number);
  }
  void advance(uint64_t cycles) { sc_core::sc_start(from_cycles(cycles)); }
  Cut& of(uint32_t core) { return cuts[links->board_of(core)]; }

  // A sender's side of a transfer that begins now, as an engine has it.
  struct Sent {
    Flow flow;
    std::vector<RemoteAnswer> answers;
    std::vector<uint64_t> answered_at;
    uint64_t number = 0;
  };
  Sent& open(uint32_t from, uint32_t to, uint64_t bytes = kBytes) {
    Sent& sent = sent_.emplace_back();
    sent.flow.set_bytes(bytes);
    ici_[links->board_of(from)].add_path(from, to, sent.flow);
    fluid_[links->board_of(from)].start(sent.flow);
    RemoteWrite write;
    write.from_core = from;
    write.to_core = to;
    write.bytes = bytes;
    sent.number = of(from).open(write, bytes, 0, [&sent](const RemoteAnswer& answer) {
      sent.answers.push_back(answer);
      sent.answered_at.push_back(now_cycles());
    });
    return sent;
  }
  // Its last byte has passed.
  void deliver(const Sent& sent, uint32_t from, uint32_t to, uint32_t value, uint8_t byte = 1) {
    CutDelivery delivery;
    delivery.from_core = delivery.write.from_core = from;
    delivery.to_core = delivery.write.to_core = to;
    delivery.at = sent.flow.done_at() + links->data_latency(from, to);
    delivery.flow = sent.number;
    delivery.data = {byte};
    delivery.signals = {{.from = {}, .to_core = to, .semaphore = kSemaphore, .value = value}};
    of(from).deliver(std::move(delivery), [](const RemoteAnswer&) {});
  }
  void signal(uint32_t from, uint32_t to, uint32_t value, uint64_t at,
              std::vector<Status>* answers = nullptr) {
    CutDelivery delivery;
    delivery.from_core = from;
    delivery.to_core = to;
    delivery.at = at;
    delivery.signals = {{.from = {}, .to_core = to, .semaphore = kSemaphore, .value = value}};
    of(from).deliver(std::move(delivery), [answers](const RemoteAnswer& answer) {
      if (answers != nullptr) {
        answers->push_back(answer.status);
      }
    });
  }
  // Runs until the flow has left its board.
  void pass(const Sent& sent) {
    while (sent.flow.active()) {
      advance(1);
    }
  }
  // The same transfer where nothing is cut.
  uint64_t uncut(uint32_t from, uint32_t to) const {
    spec::BandwidthShare share;
    const spec::Links whole(params, share);
    spec::Transfer transfer;
    std::vector<spec::Transfer*> ended;
    transfer.set_bytes(kBytes);
    whole.add_path(from, to, transfer);
    share.start(transfer, 0);
    share.update(share.update(0, ended), ended);
    return transfer.done_at() + whole.data_latency(from, to);
  }

  const spec::BoardParams params = spec::load_board("v3_32");
  Agenda agenda{"agenda"};
  Activity activity;
  std::deque<FluidShare> fluid_;
  std::shared_ptr<const spec::Links> links;
  std::deque<Receiver> cores;
  std::deque<Ici> ici_;
  std::deque<Cut> cuts;
  std::array<ResourceId, 4> hbm{};
  std::deque<Sent> sent_;
};

constexpr uint32_t kFrom = 2, kNext = 4, kFar = 31;  // chips 1, 2 and 15

TEST_F(CutBench, ATransferLandsWhenItWouldInOneBoard) {
  for (const uint32_t to : {kNext, kFar}) {
    const uint64_t begin = now_cycles();
    Sent& sent = open(kFrom, to);
    pass(sent);
    deliver(sent, kFrom, to, 3, 42);
    EXPECT_FALSE(activity.quiet());
    advance(100'000);
    EXPECT_THAT(cores[to].landed, ElementsAre(begin + uncut(kFrom, to)));
    EXPECT_THAT(cores[to].first_bytes, ElementsAre(42));
    EXPECT_THAT(cores[to].values, ElementsAre(3u));
    EXPECT_EQ(cores[kFrom].awaited, 0);
    EXPECT_TRUE(activity.quiet());
  }
}

// HBM of the receiver takes a byte a cycle.
TEST_F(CutBench, ABusyReceiverDelaysTheLandingAndNotTheSender) {
  constexpr uint64_t kSmall = 100'000;
  cores[kNext].bandwidth = hbm[1];
  const uint64_t begin = now_cycles();
  Sent& sent = open(kFrom, kNext, kSmall);
  pass(sent);
  EXPECT_LT(now_cycles(), begin + kSmall / 50);
  deliver(sent, kFrom, kNext, 1);
  advance(2 * kSmall);
  EXPECT_THAT(cores[kNext].landed, ElementsAre(begin + links->data_latency(kFrom, kNext) + kSmall));
}

// As an engine sends: what comes behind a transfer arrives no sooner.
TEST_F(CutBench, WhatACoreSendsToAnotherLandsInOrder) {
  cores[kNext].bandwidth = hbm[1];  // the bytes land long after they have arrived
  Sent& sent = open(kFrom, kNext, 50'000);
  pass(sent);
  const uint64_t arrival = sent.flow.done_at() + links->data_latency(kFrom, kNext);
  deliver(sent, kFrom, kNext, 1);
  signal(kFrom, kNext, 2, arrival);
  signal(kFrom + 1, kNext, 3, arrival);  // of another core, which does not wait
  advance(100'000);
  EXPECT_THAT(cores[kNext].values, ElementsAre(3u, 1u, 2u));
}

TEST_F(CutBench, ARefusalComesBackAsAMessage) {
  cores[kNext].says = Status::kBadRange;
  const uint64_t begin = now_cycles();
  Sent& sent = open(kFrom, kNext);
  EXPECT_EQ(cores[kFrom].awaited, 1);
  pass(sent);
  deliver(sent, kFrom, kNext, 1);
  advance(100'000);
  const uint64_t there = begin + links->data_latency(kFrom, kNext);
  EXPECT_THAT(cores[kNext].opened, ElementsAre(there));
  EXPECT_TRUE(cores[kNext].landed.empty());
  EXPECT_TRUE(cores[kNext].values.empty()) << "its signals say that the bytes are there";
  ASSERT_EQ(sent.answers.size(), 1u);
  EXPECT_EQ(sent.answers[0].status, Status::kBadRange);
  EXPECT_EQ(sent.answers[0].size, 77u);
  EXPECT_EQ(sent.answered_at[0], there + links->control_latency(kNext, kFrom));
  EXPECT_EQ(cores[kFrom].awaited, 0);
  EXPECT_TRUE(activity.quiet());
}

TEST_F(CutBench, ASignalThatComesTooLateIsAnswered) {
  cores[kNext].says = Status::kEnded;
  std::vector<Status> answers;
  signal(kFrom, kNext, 1, now_cycles() + links->control_latency(kFrom, kNext), &answers);
  EXPECT_EQ(cores[kFrom].awaited, 1);
  advance(links->control_latency(kFrom, kNext));
  EXPECT_TRUE(answers.empty());
  advance(links->control_latency(kNext, kFrom) + 1);
  EXPECT_THAT(answers, ElementsAre(Status::kEnded));
  EXPECT_EQ(cores[kFrom].awaited, 0);
}

// The copy passes HBM of the receiver, whose bandwidth here is the narrowest part.
TEST_F(CutBench, ACopyLandsAndIsAnswered) {
  constexpr uint64_t kSmall = 4096;
  const uint64_t begin = now_cycles();
  uint64_t copied = 0, answered = 0;
  CutDelivery delivery;
  delivery.from_core = kFrom;
  delivery.to_core = kNext;
  delivery.flow = of(kFrom).open_copy(kFrom, kNext, kSmall);
  delivery.at = begin + links->data_latency(kFrom, kNext) + 1;
  delivery.copy = [&copied] { copied = now_cycles(); };
  of(kFrom).deliver(std::move(delivery),
                    [&answered](const RemoteAnswer&) { answered = now_cycles(); });
  advance(100'000);
  EXPECT_EQ(copied, begin + links->data_latency(kFrom, kNext) + kSmall);
  EXPECT_EQ(answered, copied + links->control_latency(kNext, kFrom));
  EXPECT_TRUE(cores[kNext].opened.empty());
  EXPECT_EQ(cores[kFrom].awaited, 0);
}

TEST_F(CutBench, ASignalDoesNotWaitForACopyOfTheHost) {
  constexpr uint64_t kSmall = 50'000;
  const uint64_t at = now_cycles() + links->data_latency(kFrom, kNext) + 1;
  uint64_t copied = 0;
  CutDelivery delivery;
  delivery.from_core = kFrom;
  delivery.to_core = kNext;
  delivery.flow = of(kFrom).open_copy(kFrom, kNext, kSmall);
  delivery.at = at;
  delivery.copy = [&copied] { copied = now_cycles(); };
  of(kFrom).deliver(std::move(delivery), [](const RemoteAnswer&) {});
  signal(kFrom, kNext, 1, at);
  advance(100'000);
  EXPECT_THAT(cores[kNext].signalled, ElementsAre(at));
  EXPECT_GT(copied, at + kSmall / 2);
  EXPECT_TRUE(activity.quiet());
}

// What two boards send to one core in one cycle, and which the kernel took up in reverse order.
TEST_F(CutBench, WhatArrivesInOneCycleIsInTheOrderOfTheBoards) {
  constexpr uint32_t kMiddle = 12, kLow = 10, kHigh = 20;  // chips 6, 5 and 10: a hop each
  ASSERT_LT(links->board_of(kLow), links->board_of(kHigh));
  const uint64_t at = now_cycles() + links->data_latency(kLow, kMiddle);
  for (const uint32_t from : {kHigh, kLow}) {
    open(from, kMiddle);
    signal(from, kMiddle, from, at);
  }
  advance(at + 1 - now_cycles());
  EXPECT_THAT(cores[kMiddle].opened, ElementsAre(at, at));
  EXPECT_THAT(cores[kMiddle].opened_by, ElementsAre(kLow, kHigh));
  EXPECT_THAT(cores[kMiddle].values, ElementsAre(kLow, kHigh));
}

// The end of a flow is an event of the kernel too, before or behind that of the messages: it keeps
// those of one cycle in an order that others change.
TEST_F(CutBench, ALandingIsInOrderWithWhatArrivesInItsCycle) {
  constexpr uint64_t kSmall = 20'000;
  cores[kNext].bandwidth = hbm[1];  // a byte a cycle
  std::deque<sc_core::sc_event> strangers;
  for (uint32_t round = 0; round < 32; ++round) {
    const uint64_t end = now_cycles() + links->data_latency(kFrom, kNext) + kSmall;
    const auto disturb = [&](uint32_t times) {
      for (uint32_t i = 0; i < times; ++i) {
        strangers.emplace_back().notify(from_cycles(end - now_cycles() - i % 2));
      }
    };
    disturb(round % 4);
    if (round % 2 == 0) {
      signal(kFar, kNext, 2, end);
    }
    Sent& sent = open(kFrom, kNext, kSmall);
    advance(links->data_latency(kFrom, kNext) - 1);
    disturb(round / 4 % 4);
    advance(100);  // its flow has begun there
    disturb(round / 8);
    if (round % 2 != 0) {
      signal(kFar, kNext, 2, end);
    }
    signal(kFrom + 1, kNext, 0, end);
    pass(sent);
    deliver(sent, kFrom, kNext, 1);
    advance(100'000);
    EXPECT_EQ(cores[kNext].landed.back(), end);
    EXPECT_THAT(cores[kNext].signalled, ElementsAre(end, end, end));
    EXPECT_THAT(cores[kNext].values, ElementsAre(0u, 1u, 2u)) << "round " << round;
    cores[kNext].signalled.clear();
    cores[kNext].values.clear();
  }
}

// A third board shares a link of the way with a transfer of its own.
TEST_F(CutBench, ABoardBetweenDelaysTheLanding) {
  const spec::Links::Section between = links->sections(kFrom, kFar).front();
  ASSERT_NE(between.board, links->board_of(kFar));
  constexpr uint32_t kOwn = 6, kOther = 14;  // chips 3 and 7
  ASSERT_EQ(between.board, links->board_of(kOwn));
  FluidShare& share = fluid_[between.board];
  const auto begin_own = [&](Flow& own) {
    own.set_bytes(4 * kBytes);
    ici_[between.board].add_path(kOwn, kOther, own);
    share.start(own);
  };
  uint64_t took = 0;  // as both take without a cut
  {
    Flow own, through;
    through.set_bytes(kBytes);
    links->add_section(links->way(kFrom, kFar), kFar, between, through);
    const uint64_t begin = now_cycles();
    begin_own(own);
    share.start(through);
    while (own.active()) {
      advance(1);
    }
    took = through.done_at() - begin;
  }
  const uint64_t begin = now_cycles();
  Sent& sent = open(kFrom, kFar);
  advance(between.entry);
  Flow own;
  begin_own(own);
  pass(sent);
  deliver(sent, kFrom, kFar, 1);
  advance(1'000'000);
  EXPECT_THAT(cores[kFar].landed, ElementsAre(begin + between.entry + took + between.rest));
  EXPECT_GT(cores[kFar].landed.front(), begin + uncut(kFrom, kFar) + 10'000);
}

// The end of a command can be known too late, or its latency be that to a nearer receiver.
TEST_F(CutBench, NothingIsFasterThanAPacket) {
  for (const uint32_t to : {kNext, kFar}) {
    const uint64_t begin = now_cycles();
    signal(kFrom, to, 1, begin + 1);
    advance(100'000);
    EXPECT_THAT(cores[to].signalled, ElementsAre(begin + links->control_latency(kFrom, to)));
  }
}

TEST_F(CutBench, AQuestionTakesThereAndBack) {
  const uint64_t begin = now_cycles();
  uint64_t told = 0;
  of(kFrom).ask(kFrom, kFar, [&told](const GangWork& work) {
    EXPECT_EQ(work.done, 5u);
    EXPECT_TRUE(work.in_flight);
    told = now_cycles();
  });
  advance(100'000);
  EXPECT_EQ(told, begin + 2 * links->control_latency(kFrom, kFar));
}

}  // namespace
}  // namespace tpu::model
