// Whether all boards of a pod do the same: exchanges, branches, and how much is compared.
#include "program/board_symmetry.hpp"

#include <gmock/gmock.h>

#include <string>

#include "board/board_loader.hpp"
#include "command/fold.hpp"
#include "program/encode.hpp"
#include "program/listing.hpp"

namespace tpu::compiler {
namespace {

using spec::Queue;
using spec::ScalarOp;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kCore = 1, kPeer = 2, kLoaded = 3, kNumber = 4;
constexpr int kSemaphore = 7;

void signal_peer(Listing& l) {
  auto nop = make_command<spec::NopCommand>(spec::Opcode::kNop, Queue::kDmaRemote, 0);
  nop.head.signal[0] = remote_signal(kSemaphore, kPeer);
  Command command;
  command.body = nop;
  l.append(std::move(command));
}

void label(Listing& l, int number) {
  Control control;
  control.kind = Control::Kind::kLabel;
  control.label = number;
  l.append(control);
}

void branch(Listing& l, ScalarOp op, int rs1, int rs2, int to) {
  Control control;
  control.kind = Control::Kind::kBranch;
  control.label = to;
  control.insn = {static_cast<uint8_t>(op), 0, static_cast<uint8_t>(rs1), static_cast<uint8_t>(rs2),
                  0};
  l.append(control);
}

// Core `from` alone signals its neighbor.
void one_signals(Listing& l, int from) {
  const int skip = l.labels++;
  l.append(ScalarOp::kRid, kCore, 0, 0, 0);
  l.append(ScalarOp::kLi, kNumber, 0, 0, from);
  branch(l, ScalarOp::kBne, kCore, kNumber, skip);
  l.append(ScalarOp::kAddi, kPeer, kCore, 0, 4);
  signal_peer(l);
  label(l, skip);
}

// A word of SMEM that a transfer has written.
void load_data(Listing& l) {
  auto dma = make_command<spec::DmaCommand>(spec::Opcode::kDma, Queue::kDmaIn, 0);
  dma.src = vmem_addr(0);
  dma.dst = smem_addr(0);
  dma.counts = {1, 1, 1, 1, 1};
  dma.elem_bytes = 4;
  Command command;
  command.body = dma;
  l.append(std::move(command));
  l.append(ScalarOp::kLds32, kLoaded, 0, 0, 0);
}

class BoardSymmetry : public ::testing::Test {
 protected:
  BoardComparison compare(const ComparisonLimits& limits = {}) {
    listing.append(ScalarOp::kHalt, 0, 0, 0, 0);
    return compare_boards(encode_image(listing, {.cores = fold.cores()}), fold, limits);
  }
  const spec::Fold fold{spec::load_board("v3_128", {})};
  Listing listing;
};

TEST_F(BoardSymmetry, AShiftOfTheBoardsIsTheSameOnAll) {
  listing.append(ScalarOp::kRid, kCore, 0, 0, 0);
  listing.append(ScalarOp::kAddi, kPeer, kCore, 0, 64);  // rows of boards; mirrored or none
  const int skip = listing.labels++;
  listing.append(ScalarOp::kLi, kNumber, 0, 0, 64);
  branch(listing, ScalarOp::kBlt, kCore, kNumber, skip);
  listing.append(ScalarOp::kAddi, kPeer, kCore, 0, -64);
  label(listing, skip);
  signal_peer(listing);
  const BoardComparison compared = compare();
  EXPECT_THAT(compared.difference, IsEmpty());
  EXPECT_THAT(compared.left_out, IsEmpty());
}

TEST_F(BoardSymmetry, ABoardInTheMiddleCounts) {
  one_signals(listing, 36);
  EXPECT_THAT(compare().difference, HasSubstr("sends 0 times"));
}

TEST_F(BoardSymmetry, BoardsBehindTheLimitAreNamed) {
  one_signals(listing, 36);
  const BoardComparison compared = compare({.pod = 1});
  EXPECT_THAT(compared.difference, IsEmpty());
  EXPECT_THAT(compared.left_out, HasSubstr("only boards 0, 1, 4, 10, 15 of 16"));
}

TEST_F(BoardSymmetry, WhatStandsBehindABranchOfAListCounts) {
  load_data(listing);
  const int skip = listing.labels++;
  branch(listing, ScalarOp::kBneg, kLoaded, 0, skip);
  label(listing, skip);
  one_signals(listing, 0);
  EXPECT_THAT(compare().difference, HasSubstr("core 0 sends 1 times"));
}

TEST_F(BoardSymmetry, AProgramWithoutEndIsComparedInPart) {
  const int top = listing.labels++;
  label(listing, top);
  branch(listing, ScalarOp::kBeq, 0, 0, top);
  const BoardComparison compared = compare({.core = 100});
  EXPECT_THAT(compared.difference, IsEmpty());
  EXPECT_THAT(compared.left_out, HasSubstr("the first 100 instructions"));
}

}  // namespace
}  // namespace tpu::compiler
