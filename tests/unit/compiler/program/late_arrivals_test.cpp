// Waits for arrivals go down to what needs the data, and into its queue.
#include "program/late_arrivals.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tpu::compiler {
namespace {

using spec::Queue;

constexpr int kFirstRemote = 120, kCredit = 124, kArrival = 125, kPeer = 2;
constexpr uint32_t kMatmul = 1, kVector = 2, kReader = 3, kArrived = 4;

MemRange bytes(int64_t lo, int64_t hi, bool write) {
  MemRange m;
  m.lo = lo;
  m.hi = hi;
  m.write = write;
  return m;
}

Command on(Queue queue, MemRange window, uint32_t id) {
  Command c;
  c.body = make_command<spec::NopCommand>(spec::Opcode::kNop, queue, id);
  c.windows = {window};
  return c;
}

// A grant and a send whose arrival at `lo` is awaited behind them. Returns the item of the send.
int exchange(Listing& l, int64_t lo) {
  Command grant = on(Queue::kDmaRemote, bytes(lo, lo + 64, true), 0);
  grant.head().signal[0] = remote_signal(kCredit, kPeer);
  const int granted = l.append(std::move(grant));
  Command send = on(Queue::kDmaRemote, bytes(4096, 4160, false), 0);
  send.head().wait[0] = taking_wait(kCredit);
  send.head().signal[0] = remote_signal(kArrival, kPeer);
  const int sent = l.append(std::move(send));
  Command arrival = on(Queue::kVpu, bytes(lo, lo + 64, true), kArrived);
  arrival.head().wait[0] = taking_wait(kArrival);
  arrival.implies = {granted};
  l.append(std::move(arrival));
  return sent;
}

void drain(Listing& l) {
  Control c;
  c.kind = Control::Kind::kDrain;
  l.append(c);
}

std::vector<uint32_t> ids(const Listing& l) {
  std::vector<uint32_t> all;
  for (const Item& item : l.items) {
    const auto* command = std::get_if<Command>(&item);
    all.push_back(command == nullptr ? 99 : command->head().op_id);
  }
  return all;
}

const Command& at(const Listing& l, size_t i) { return std::get<Command>(l.items[i]); }

TEST(LateArrivals, WaitInTheQueueOfTheReader) {
  Listing l;
  const int sent = exchange(l, 0);
  l.append(on(Queue::kMxu0, bytes(512, 576, false), kMatmul));
  l.append(on(Queue::kVpu, bytes(1024, 1088, true), kVector));
  l.append(on(Queue::kDmaIn, bytes(32, 48, false), kReader));
  EXPECT_EQ(await_late(l, kFirstRemote), kFirstRemote - 1);
  EXPECT_EQ(ids(l), (std::vector<uint32_t>{0, 0, kMatmul, kVector, kArrived, kReader}));
  const Command& arrival = at(l, 4);
  EXPECT_EQ(arrival.queue(), Queue::kDmaIn);
  EXPECT_EQ(arrival.head().wait[0].sem, kFirstRemote - 1);
  EXPECT_EQ(at(l, static_cast<size_t>(sent)).head().signal[0].sem, kFirstRemote - 1);
  EXPECT_EQ(arrival.implies, std::vector<int>{0});
}

TEST(LateArrivals, OfTheVectorQueueKeepTheirSemaphore) {
  Listing l;
  const int sent = exchange(l, 0);
  l.append(on(Queue::kMxu0, bytes(512, 576, false), kMatmul));
  l.append(on(Queue::kVpu, bytes(0, 8, false), kReader));
  EXPECT_EQ(await_late(l, kFirstRemote), kFirstRemote);
  EXPECT_EQ(ids(l), (std::vector<uint32_t>{0, 0, kMatmul, kArrived, kReader}));
  EXPECT_EQ(at(l, 3).head().wait[0].sem, kArrival);
  EXPECT_EQ(at(l, static_cast<size_t>(sent)).head().signal[0].sem, kArrival);
}

TEST(LateArrivals, OfOneChannelKeepTheirOrder) {
  Listing l;
  exchange(l, 0);
  exchange(l, 64);
  l.append(on(Queue::kDmaIn, bytes(64, 128, false), kReader));  // of the second one
  l.append(on(Queue::kMxu0, bytes(0, 64, false), kMatmul));
  await_late(l, kFirstRemote);
  EXPECT_EQ(ids(l), (std::vector<uint32_t>{0, 0, 0, 0, kArrived, kArrived, kReader, kMatmul}));
  EXPECT_EQ(at(l, 4).windows[0].lo, 0);
  EXPECT_EQ(at(l, 5).windows[0].lo, 64);
  EXPECT_EQ(at(l, 5).implies, std::vector<int>{2});
}

TEST(LateArrivals, StayInTheirPiece) {
  Listing l;
  exchange(l, 0);
  l.append(on(Queue::kMxu0, bytes(512, 576, false), kMatmul));
  drain(l);
  l.append(on(Queue::kDmaIn, bytes(0, 64, false), kReader));
  EXPECT_EQ(await_late(l, kFirstRemote), kFirstRemote);
  EXPECT_EQ(ids(l), (std::vector<uint32_t>{0, 0, kMatmul, kArrived, 99, kReader}));
}

// Local pairs of queues need the others.
TEST(LateArrivals, StayInTheVectorQueueWithoutSemaphores) {
  Listing l;
  const int sent = exchange(l, 0);
  l.append(on(Queue::kMxu0, bytes(0, 64, false), kMatmul));
  EXPECT_EQ(await_late(l, 96), 96);
  EXPECT_EQ(ids(l), (std::vector<uint32_t>{0, 0, kArrived, kMatmul}));
  EXPECT_EQ(at(l, 2).queue(), Queue::kVpu);
  EXPECT_EQ(at(l, static_cast<size_t>(sent)).head().signal[0].sem, kArrival);
}

}  // namespace
}  // namespace tpu::compiler
