/* Host calls: the program that runs stands at an `hcall` instruction. The host is told by a
   completion with MORE, and answers by a register of the core page, which lets the program go on.
   By another one it asks for transfers between its memory and HBM, one at a time, before it answers
   or behind that, beside the program. The end of each is a completion, too. The command ring is not
   used: what is queued there may wait for this very launch. abort.c takes over on faults. */
#include "dev/hostdma.h"
#include "dev/log.h"
#include "dev/sysctl.h"
#include "rt/fw.h"

static bool program_runs(void) { return fw.run.state == RUN_PROGRAM || fw.run.state == RUN_MOVING; }

static void tell_host(uint32_t number) {
  ring_post(fw.run.seq, TPU_STATUS_OK, TPU_CPL_FLAG_MORE | TPU_CPL_FLAG_CALL, number, true);
}

void call_raised(void) {
  if (!program_runs()) {
    return; /* stopped meanwhile */
  }
  const uint32_t number = REG_READ(SEQ, CALL);
  FW_LOG("host call %u", number);
  if (fw.call.launch != fw.run.launch_id) {
    fw.call.launch = fw.run.launch_id;
    fw.call.taken = fw.cpl_tail; /* requests for earlier launches are over */
  }
  tell_host(number);
  fw.call.ticket = fw.cpl_tail;
  fw.call.open = 1;
}

static void refuse_request(void) {
  fw.call.open = 0;
  abort_own_fault(TPU_FAULT_HOST_DMA);
}

static void start_transfer(uint32_t kind) {
  if (kind != TPU_CORE_PAGE_CALL_TO_HOST && kind != TPU_CORE_PAGE_CALL_FROM_HOST) {
    refuse_request();
    return;
  }
  const hostdma_transfer_t transfer = {
      .host = sysctl_read64(REG(SYSCTL, CALL_HOST_LO)),
      .local = sysctl_read64(REG(SYSCTL, CALL_HBM_LO)),
      .bytes = REG_READ(SYSCTL, CALL_BYTES),
      .control = kind == TPU_CORE_PAGE_CALL_TO_HOST ? HOSTDMA_CONTROL(TO_HOST, HBM)
                                                    : HOSTDMA_CONTROL(FROM_HOST, HBM),
  };
  fw.call.moving = 1;
  fw.run.state = RUN_MOVING;
  hostdma_start(TPU_HOSTDMA_CTX_SPARE, &transfer);
}

/* The registers keep their values: answers to earlier completions are over, and so are transfers
   that were taken. Both registers are read whichever was written, so that neither is missed. */
void call_requested(void) {
  const uint32_t answer = REG_READ(SYSCTL, CALL_REQUEST);
  if (fw.call.open && (answer & TPU_SYSCTL_CALL_REQUEST_TICKET_MASK) ==
                          fw.call.ticket << TPU_SYSCTL_CALL_REQUEST_TICKET_SHIFT) {
    if ((answer & TPU_SYSCTL_CALL_REQUEST_KIND_MASK) != TPU_CORE_PAGE_CALL_GO_ON) {
      refuse_request();
      return;
    }
    fw.call.open = 0;
    REG_WRITE(SEQ, ANSWER, 1);
  }
  if (fw.call.launch != fw.run.launch_id || fw.call.moving) {
    return;
  }
  const uint32_t wanted = REG_READ(SYSCTL, CALL_TRANSFER);
  const uint32_t newer = (wanted & TPU_SYSCTL_CALL_TRANSFER_TICKET_MASK) -
                         (fw.call.taken << TPU_SYSCTL_CALL_TRANSFER_TICKET_SHIFT);
  if (newer != 0 && newer <= (fw.cpl_tail - fw.call.taken)
                                 << TPU_SYSCTL_CALL_TRANSFER_TICKET_SHIFT) {
    fw.call.taken += newer >> TPU_SYSCTL_CALL_TRANSFER_TICKET_SHIFT;
    start_transfer(wanted & TPU_SYSCTL_CALL_TRANSFER_KIND_MASK);
  }
}

void call_moved(void) {
  if (!fw.call.moving) {
    return;
  }
  fw.call.moving = 0;
  if (fw.run.state != RUN_MOVING) {
    abort_call_moved();
    return;
  }
  fw.run.state = RUN_PROGRAM;
  if (hostdma_error(TPU_HOSTDMA_CTX_SPARE) != 0) {
    refuse_request();
  } else {
    tell_host(TPU_CORE_PAGE_CALL_MOVED);
  }
}

bool call_dropped(void) {
  fw.call.open = 0;
  return fw.call.moving != 0;
}
