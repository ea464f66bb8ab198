// The firmware's portable part on the host: host calls of a program that runs, and aborts while one
// is open.
#include <gtest/gtest.h>

#include <numeric>

#include "firmware_fixture.hpp"
#include "tpu/spec/gsync_regs.h"
#include "tpu/spec/seq_regs.h"

namespace tpu::test {
namespace {

class HostCalls : public FirmwareTest {
 protected:
  static constexpr uint64_t kBuffer = 0x40000;  // in host memory
  static constexpr uint32_t kLaunch = 7;

  // A program runs.
  void start() {
    open();
    load_program();
    launch(kLaunch);
  }
  void launch(uint32_t number) {
    seq_ = host_.put(host_.launch(5, 3, number, 1, kAlone), TPU_OP_LAUNCH);
    host_.doorbell();
    dispatch();
    while (!device_.barrier_waiting) {
      ASSERT_TRUE(device_.finish_any_dma());
      dispatch();
    }
    device_.release();
    dispatch();
    ASSERT_TRUE(device_.program_running);
    host_.take();
  }
  // The program comes to a host call: what the host is told.
  tpu_completion_t call(uint32_t number) {
    device_.seq[TPU_SEQ_CALL_OFFSET / 4] = number;
    device_.raise(TPU_IRQ_HOST_CALL);
    dispatch();
    return told();
  }
  tpu_completion_t told() {
    const auto all = host_.take();
    EXPECT_EQ(all.size(), 1U);
    return all.empty() ? tpu_completion_t{} : all[0];
  }
  void answer(uint32_t ticket, uint32_t kind = TPU_CORE_PAGE_CALL_GO_ON) {
    device_.sys(TPU_SYSCTL_CALL_REQUEST_OFFSET) =
        kind | ticket << TPU_SYSCTL_CALL_REQUEST_TICKET_SHIFT;
    device_.raise(TPU_IRQ_HOST);
    dispatch();
  }
  void transfer(uint32_t kind, uint64_t host, uint64_t hbm, uint32_t bytes) {
    transfer(kind, host, hbm, bytes, host_.cpl_head);
  }
  void transfer(uint32_t kind, uint64_t host, uint64_t hbm, uint32_t bytes, uint32_t ticket) {
    device_.sys(TPU_SYSCTL_CALL_HOST_LO_OFFSET) = static_cast<uint32_t>(host);
    device_.sys(TPU_SYSCTL_CALL_HOST_HI_OFFSET) = static_cast<uint32_t>(host >> 32);
    device_.sys(TPU_SYSCTL_CALL_HBM_LO_OFFSET) = static_cast<uint32_t>(hbm);
    device_.sys(TPU_SYSCTL_CALL_HBM_HI_OFFSET) = static_cast<uint32_t>(hbm >> 32);
    device_.sys(TPU_SYSCTL_CALL_BYTES_OFFSET) = bytes;
    device_.sys(TPU_SYSCTL_CALL_TRANSFER_OFFSET) =
        kind | ticket << TPU_SYSCTL_CALL_TRANSFER_TICKET_SHIFT;
    device_.raise(TPU_IRQ_HOST);
    dispatch();
  }
  void finish_transfer() {
    ASSERT_TRUE(device_.finish_dma(TPU_HOSTDMA_CTX_SPARE));
    dispatch();
  }
  uint32_t answers() { return device_.seq[TPU_SEQ_ANSWER_OFFSET / 4]; }
  bool moving() { return device_.dma_busy(TPU_HOSTDMA_CTX_SPARE); }

  uint32_t seq_ = 0;
};

TEST_F(HostCalls, BytesGoDownAndUpBeforeTheProgramGoesOn) {
  start();
  std::iota(device_.hbm.begin() + 0x5000, device_.hbm.begin() + 0x5100, uint8_t{0});
  const tpu_completion_t first = call(3);
  const uint32_t ticket = host_.cpl_head;
  EXPECT_EQ(first.seq, seq_);
  EXPECT_EQ(first.status, TPU_STATUS_OK);
  EXPECT_EQ(first.flags & ~TPU_CPL_FLAG_PHASE, TPU_CPL_FLAG_MORE | TPU_CPL_FLAG_CALL);
  EXPECT_EQ(first.step, 3U);

  transfer(TPU_CORE_PAGE_CALL_TO_HOST, kBuffer, 0x5000, 256);
  ASSERT_TRUE(moving());
  EXPECT_EQ(answers(), 0U);
  device_.finish_dma(TPU_HOSTDMA_CTX_SPARE);
  dispatch();
  const tpu_completion_t moved = told();
  EXPECT_EQ(moved.flags & ~TPU_CPL_FLAG_PHASE, TPU_CPL_FLAG_MORE | TPU_CPL_FLAG_CALL);
  EXPECT_EQ(moved.step, TPU_CORE_PAGE_CALL_MOVED);
  EXPECT_EQ(device_.host[kBuffer + 7], 7);

  device_.host[kBuffer] = 99;
  transfer(TPU_CORE_PAGE_CALL_FROM_HOST, kBuffer, 0x6000, 256);
  device_.finish_dma(TPU_HOSTDMA_CTX_SPARE);
  dispatch();
  told();
  EXPECT_EQ(device_.hbm[0x6000], 99);
  EXPECT_EQ(answers(), 0U);

  answer(ticket);
  EXPECT_EQ(answers(), 1U);
  settle();
  EXPECT_EQ(taken().at(seq_).status, TPU_STATUS_OK);
}

// A request names the completion that it answers: the register keeps its value.
TEST_F(HostCalls, RequestsForEarlierCompletionsAreOver) {
  start();
  call(0);
  answer(host_.cpl_head);
  ASSERT_EQ(answers(), 1U);
  device_.seq[TPU_SEQ_ANSWER_OFFSET / 4] = 0;
  call(1);
  device_.raise(TPU_IRQ_HOST);
  dispatch();
  EXPECT_EQ(answers(), 0U);
  answer(host_.cpl_head - 1);
  EXPECT_EQ(answers(), 0U);
  answer(host_.cpl_head);
  EXPECT_EQ(answers(), 1U);
}

TEST_F(HostCalls, TransferThatFailsIsAFaultOfTheLaunch) {
  start();
  call(0);
  transfer(TPU_CORE_PAGE_CALL_TO_HOST, 1ULL << 40, 0x5000, 256);
  device_.finish_dma(TPU_HOSTDMA_CTX_SPARE);
  settle();
  EXPECT_EQ(taken().at(seq_).status, TPU_STATUS_FAULT);
  EXPECT_EQ(answers(), 0U);
}

TEST_F(HostCalls, UnknownRequestIsAFaultOfTheLaunch) {
  start();
  call(0);
  transfer(3, kBuffer, 0x5000, 256);
  EXPECT_FALSE(moving());
  settle();
  EXPECT_EQ(taken().at(seq_).status, TPU_STATUS_FAULT);
  EXPECT_EQ(answers(), 0U);
}

TEST_F(HostCalls, AbortEndsAnOpenCall) {
  start();
  call(0);
  const uint32_t ticket = host_.cpl_head;
  device_.abort(kLaunch, MockDevice::kCore, TPU_GSYNC_CODE_HOST);
  settle();
  EXPECT_EQ(taken().at(seq_).status, TPU_STATUS_ABORTED);
  answer(ticket);
  EXPECT_EQ(answers(), 0U);
  // Nor is it an answer to the next launch, which has not called.
  host_.resume();
  dispatch();
  launch(kLaunch + 1);
  answer(ticket);
  EXPECT_EQ(answers(), 0U);
}

TEST_F(HostCalls, UnknownAnswerIsAFaultOfTheLaunch) {
  start();
  call(0);
  answer(host_.cpl_head, TPU_CORE_PAGE_CALL_TO_HOST);
  settle();
  EXPECT_EQ(taken().at(seq_).status, TPU_STATUS_FAULT);
  EXPECT_EQ(answers(), 0U);
}

// A transfer beside the program: neither the answer of the next call nor the end of the transfer
// hides the other.
TEST_F(HostCalls, ProgramGoesOnBesideATransfer) {
  start();
  call(3);
  const uint32_t first = host_.cpl_head;
  transfer(TPU_CORE_PAGE_CALL_TO_HOST, kBuffer, 0x5000, 256);
  answer(first);
  EXPECT_EQ(answers(), 1U);
  EXPECT_TRUE(moving());
  device_.seq[TPU_SEQ_ANSWER_OFFSET / 4] = 0;
  device_.hbm[0x5007] = 77;
  EXPECT_EQ(call(4).step, 4U);
  const uint32_t second = host_.cpl_head;
  finish_transfer();
  EXPECT_EQ(told().step, TPU_CORE_PAGE_CALL_MOVED);
  EXPECT_EQ(device_.host[kBuffer + 7], 77);
  EXPECT_EQ(answers(), 0U);
  device_.sys(TPU_SYSCTL_CALL_REQUEST_OFFSET) = second << TPU_SYSCTL_CALL_REQUEST_TICKET_SHIFT;
  transfer(TPU_CORE_PAGE_CALL_FROM_HOST, kBuffer, 0x6000, 256);  // one interrupt for both
  EXPECT_EQ(answers(), 1U);
  EXPECT_TRUE(moving());
  finish_transfer();
  EXPECT_EQ(told().step, TPU_CORE_PAGE_CALL_MOVED);
  EXPECT_EQ(device_.hbm[0x6007], 77);
  settle();
  EXPECT_EQ(taken().at(seq_).status, TPU_STATUS_OK);
}

TEST_F(HostCalls, TransfersThatWereTakenOrAreOfEarlierLaunchesAreOver) {
  start();
  transfer(TPU_CORE_PAGE_CALL_TO_HOST, kBuffer, 0x5000, 256);
  EXPECT_FALSE(moving()) << "the program has not called";
  const uint32_t before = host_.cpl_head;
  call(0);
  transfer(TPU_CORE_PAGE_CALL_TO_HOST, kBuffer, 0x5000, 256, before);
  EXPECT_FALSE(moving()) << "a ticket from in front of the launch's first call";
  transfer(TPU_CORE_PAGE_CALL_TO_HOST, kBuffer, 0x5000, 256, host_.cpl_head + 1);
  EXPECT_FALSE(moving()) << "a ticket that does not exist yet";
  transfer(TPU_CORE_PAGE_CALL_TO_HOST, kBuffer, 0x5000, 256);
  finish_transfer();
  told();
  device_.raise(TPU_IRQ_HOST);
  dispatch();
  EXPECT_FALSE(moving()) << "the same transfer again";
}

TEST_F(HostCalls, ProgramThatEndsBesideATransferIsAFault) {
  start();
  call(0);
  transfer(TPU_CORE_PAGE_CALL_TO_HOST, kBuffer, 0x5000, 256);
  answer(host_.cpl_head);
  device_.finish_program();
  dispatch();
  EXPECT_TRUE(host_.take().empty()) << "its host memory is still written";
  finish_transfer();
  settle();
  EXPECT_EQ(taken().at(seq_).status, TPU_STATUS_FAULT);
}

// The launch is over only when its host memory is not touched any more.
TEST_F(HostCalls, AbortWaitsForTheTransfer) {
  start();
  call(0);
  transfer(TPU_CORE_PAGE_CALL_TO_HOST, kBuffer, 0x5000, 256);
  device_.abort(kLaunch, MockDevice::kCore, TPU_GSYNC_CODE_HOST);
  dispatch();
  device_.drained();
  dispatch();
  EXPECT_FALSE(device_.barrier_waiting);
  EXPECT_TRUE(host_.take().empty());
  ASSERT_TRUE(device_.finish_dma(TPU_HOSTDMA_CTX_SPARE));
  dispatch();
  EXPECT_TRUE(device_.barrier_waiting);
  settle();
  EXPECT_EQ(taken().at(seq_).status, TPU_STATUS_ABORTED);
}

}  // namespace
}  // namespace tpu::test
