// Transfers go up to where their bytes are made, with their registers, in their order.
#include "program/early_departures.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tpu::compiler {
namespace {

using spec::Queue;
using spec::ScalarOp;

constexpr uint32_t kProduct = 1, kStore = 2, kExchange = 3, kOther = 4, kInstruction = 98,
                   kBorder = 99;
constexpr int kPeer = 9, kOffset = 10;

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

void credit(Listing& l) { l.append(on(Queue::kDmaRemote, bytes(8192, 8448, true), kExchange)); }

// Of the bytes from `lo` on, with its offset in a register.
void send(Listing& l, int64_t lo, uint32_t id = kExchange) {
  l.append(ScalarOp::kLi, kOffset, 0, 0, static_cast<int32_t>(lo));
  auto dma = make_command<spec::DmaCommand>(spec::Opcode::kDma, Queue::kDmaRemote, id);
  dma.src = vmem_addr(0);
  dma.src.reg = kOffset;
  dma.peer_reg = kPeer;
  dma.counts = {1, 1, 1, 1, 16};
  dma.elem_bytes = 4;
  Command command;
  command.body = dma;
  command.windows = {bytes(lo, lo + 64, false)};
  l.append(std::move(command));
}

// Two blocks of a product, each stored behind it.
void two_blocks(Listing& l) {
  for (const int64_t lo : {0, 64}) {
    l.append(on(Queue::kMxu0, bytes(4096, 4160, true), kProduct));
    l.append(on(Queue::kDmaOut, bytes(lo, lo + 64, true), kStore));
  }
}

void drain(Listing& l) { l.append(Control{}); }

std::vector<uint32_t> ids(const Listing& l) {
  std::vector<uint32_t> all;
  for (const Item& item : l.items) {
    const auto* command = std::get_if<Command>(&item);
    all.push_back(command != nullptr                               ? command->head().op_id
                  : std::holds_alternative<spec::ScalarInsn>(item) ? kInstruction
                                                                   : kBorder);
  }
  return all;
}

using Ids = std::vector<uint32_t>;

TEST(EarlyDepartures, FollowTheStoreOfTheirBytes) {
  Listing l;
  two_blocks(l);
  credit(l);
  send(l, 0);
  send(l, 64);
  depart_early(l, {kExchange});
  EXPECT_EQ(ids(l), (Ids{kProduct, kStore, kExchange, kInstruction, kExchange, kProduct, kStore,
                         kInstruction, kExchange}));
}

TEST(EarlyDepartures, OnlyOfExchangesThatAreNamed) {
  Listing l;
  two_blocks(l);
  send(l, 0);
  const Ids before = ids(l);
  depart_early(l, {kOther});
  EXPECT_EQ(ids(l), before);
}

TEST(EarlyDepartures, KeepTheirOrder) {
  Listing l;
  two_blocks(l);
  send(l, 64);
  send(l, 0);
  const Ids before = ids(l);
  depart_early(l, {kExchange});
  EXPECT_EQ(ids(l), before);
}

TEST(EarlyDepartures, DoNotPassUsesOfTheirRegisters) {
  Listing l;
  l.append(on(Queue::kDmaOut, bytes(0, 64, true), kStore));
  l.append(on(Queue::kMxu0, bytes(4096, 4160, true), kProduct));
  l.append(ScalarOp::kAddi, kOffset + 1, kOffset, 0, 4);
  l.append(on(Queue::kMxu0, bytes(4096, 4160, true), kProduct));
  send(l, 0);
  depart_early(l, {kExchange});
  EXPECT_EQ(ids(l), (Ids{kStore, kProduct, kInstruction, kInstruction, kExchange, kProduct}));
}

// A credit permits a partner to write: not while the bytes are read.
TEST(EarlyDepartures, CreditsStayBehindReadersOfTheirBytes) {
  Listing l;
  two_blocks(l);
  l.append(on(Queue::kMxu0, bytes(8192, 8256, false), kOther));
  l.append(on(Queue::kMxu0, bytes(4096, 4160, true), kProduct));
  credit(l);
  send(l, 0);
  depart_early(l, {kExchange});
  EXPECT_EQ(ids(l), (Ids{kProduct, kStore, kProduct, kStore, kOther, kExchange, kInstruction,
                         kExchange, kProduct}));
}

TEST(EarlyDepartures, StayBehindOtherExchangesAndInTheirPiece) {
  Listing l;
  l.append(on(Queue::kDmaOut, bytes(0, 64, true), kStore));
  l.append(on(Queue::kDmaRemote, bytes(512, 576, false), kOther));
  l.append(on(Queue::kMxu0, bytes(4096, 4160, true), kProduct));
  send(l, 0);
  drain(l);
  l.append(on(Queue::kMxu0, bytes(4096, 4160, true), kProduct));
  send(l, 0);
  depart_early(l, {kExchange});
  EXPECT_EQ(ids(l), (Ids{kStore, kOther, kInstruction, kExchange, kProduct, kBorder, kInstruction,
                         kExchange, kProduct}));
}

TEST(EarlyDepartures, NumbersOfItemsFollow) {
  Listing l;
  two_blocks(l);
  const int granted = static_cast<int>(l.items.size());
  credit(l);
  send(l, 0);
  Command arrival = on(Queue::kVpu, bytes(8192, 8448, true), kOther);
  arrival.implies = {granted};
  l.append(std::move(arrival));
  depart_early(l, {kExchange});
  EXPECT_EQ(std::get<Command>(l.items.back()).implies, std::vector<int>{2});
}

// The walk upwards has an end, in listings of any length.
TEST(EarlyDepartures, PassABoundedNumberOfItems) {
  constexpr int kMany = 20'000;
  Listing l;
  l.append(on(Queue::kDmaOut, bytes(0, 64, true), kStore));
  for (int i = 0; i < kMany; ++i) {
    l.append(on(Queue::kMxu0, bytes(4096, 4160, false), kOther));
  }
  credit(l);
  send(l, 0);
  depart_early(l, {kExchange});
  const std::vector<uint32_t> all = ids(l);
  const auto sent = std::ranges::find(all, kExchange) - all.begin();
  EXPECT_GT(sent, 1);
  EXPECT_LT(sent, kMany);
}

}  // namespace
}  // namespace tpu::compiler
