/* Host calls: the program that runs stands at an `hcall` instruction. The host is told by a
   completion with MORE, and asks for transfers between its memory and HBM by registers of the core
   page, one at a time, until it lets the program go on. The command ring is not used: what is
   queued there may wait for this very launch. raised -> { request -> transfer -> completion } ->
   go on; abort.c takes over on faults. */
#include "dev/hostdma.h"
#include "dev/log.h"
#include "dev/sysctl.h"
#include "rt/fw.h"

static void tell_host(void) {
  fw.call.state = CALL_OPEN;
  ring_post(fw.run.seq, TPU_STATUS_OK, TPU_CPL_FLAG_MORE | TPU_CPL_FLAG_CALL, fw.call.number, true);
  fw.call.ticket = fw.cpl_tail;
}

void call_raised(void) {
  if (fw.run.state != RUN_PROGRAM) {
    return; /* stopped meanwhile */
  }
  fw.call.number = REG_READ(SEQ, CALL);
  FW_LOG("host call %u", fw.call.number);
  tell_host();
}

static void start_transfer(bool to_host) {
  const hostdma_transfer_t transfer = {
      .host = sysctl_read64(REG(SYSCTL, CALL_HOST_LO)),
      .local = sysctl_read64(REG(SYSCTL, CALL_HBM_LO)),
      .bytes = REG_READ(SYSCTL, CALL_BYTES),
      .control = to_host ? HOSTDMA_CONTROL(TO_HOST, HBM) : HOSTDMA_CONTROL(FROM_HOST, HBM),
  };
  fw.call.state = CALL_MOVING;
  hostdma_start(TPU_HOSTDMA_CTX_SPARE, &transfer);
}

/* The register keeps its value: requests for earlier completions are over. */
void call_requested(void) {
  const uint32_t request = REG_READ(SYSCTL, CALL_REQUEST);
  const uint32_t ticket = fw.call.ticket << TPU_SYSCTL_CALL_REQUEST_TICKET_SHIFT;
  if ((request & TPU_SYSCTL_CALL_REQUEST_TICKET_MASK) != ticket) {
    return;
  }
  switch (request & TPU_SYSCTL_CALL_REQUEST_KIND_MASK) {
    case TPU_CORE_PAGE_CALL_GO_ON:
      fw.call.state = CALL_NONE;
      REG_WRITE(SEQ, ANSWER, 1);
      break;
    case TPU_CORE_PAGE_CALL_TO_HOST:
      start_transfer(true);
      break;
    case TPU_CORE_PAGE_CALL_FROM_HOST:
      start_transfer(false);
      break;
    default:
      fw.call.state = CALL_NONE;
      abort_own_fault(TPU_FAULT_HOST_DMA);
  }
}

void call_moved(void) {
  if (fw.call.state != CALL_MOVING) {
    return;
  }
  fw.call.state = CALL_NONE;
  if (fw.run.state != RUN_PROGRAM) {
    abort_call_moved();
  } else if (hostdma_error(TPU_HOSTDMA_CTX_SPARE) != 0) {
    abort_own_fault(TPU_FAULT_HOST_DMA);
  } else {
    tell_host();
  }
}

bool call_dropped(void) {
  if (fw.call.state == CALL_MOVING) {
    return true;
  }
  fw.call.state = CALL_NONE;
  return false;
}
