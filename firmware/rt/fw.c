/* The firmware's heart: boot handshake, dispatch of interrupt sources, state and HELD/RESUME. */
#include "rt/fw.h"

#include "dev/gsync.h"
#include "dev/hostdma.h"
#include "dev/log.h"
#include "dev/sysctl.h"

#ifdef TPU_FW_HOST
__thread fw_t* fw_of_thread;
#else
fw_t fw;
#endif

#define ALL_SOURCES                                                                       \
  (TPU_IRQ_DOORBELL | TPU_IRQ_HOST_DMA | TPU_IRQ_BARRIER | TPU_IRQ_PROGRAM_DONE |         \
   TPU_IRQ_ENGINE_FAULT | TPU_IRQ_ABORT | TPU_IRQ_INFEED | TPU_IRQ_TIMER | TPU_IRQ_HOST | \
   TPU_IRQ_ENGINES_IDLE | TPU_IRQ_HOST_CALL)
#define ABI_MAJOR_SHIFT 16

uint64_t fw_address(const void* member) {
#ifdef TPU_FW_HOST
  return TPU_HART_DTCM_BASE + (uint64_t)((const char*)member - (const char*)&fw);
#else
  return (uint64_t)(uintptr_t)member;
#endif
}

/* Events tell the host about states that it waits for; READY <-> RUN is not one of them. */
static void set_state(uint32_t state, bool event) {
  if (fw.state == state) {
    return;
  }
  FW_LOG("state %u, was %u", state, fw.state);
  fw.state = state;
  sysctl_set_state(state, 0);
  if (event) {
    REG_WRITE(SYSCTL, MSI, SYSCTL_MSI_EVENT);
  }
}

void fw_boot(uint32_t build) {
  const uint32_t id = REG_READ(SYSCTL, CORE_ID);
  fw.core = (uint16_t)((id & TPU_SYSCTL_CORE_ID_CORE_MASK) >> TPU_SYSCTL_CORE_ID_CORE_SHIFT);
  fw.cores = (uint16_t)((id & TPU_SYSCTL_CORE_ID_CORES_MASK) >> TPU_SYSCTL_CORE_ID_CORES_SHIFT);
  const bool in_masks = fw.core < TPU_MASK_CORES;
  const uint32_t last = fw.cores < TPU_MASK_CORES ? fw.cores - 1u : TPU_MASK_CORES - 1u;
  fw.mask_bit = (uint8_t)(in_masks ? fw.core : TPU_MASK_CORES - 1u);
  fw.last_bit = (uint8_t)(in_masks ? last : 0);
  FW_LOG("boot: core %u of %u, build %08x", fw.core, fw.cores, build);
  fw.default_watchdog_kcycles = REG_READ(SYSCTL, WATCHDOG_KCYCLES);
  REG_WRITE(GSYNC, PEER_TIMEOUT, fw.default_watchdog_kcycles);
  REG_WRITE(SYSCTL, EPOCH, fw.epoch);
  REG_WRITE(SYSCTL, FW_ABI, TPU_RING_ABI);
  REG_WRITE(SYSCTL, FW_BUILD, build);
  REG_WRITE(IRQ, ENABLE, ALL_SOURCES);
  if (REG_READ(SYSCTL, ID) != TPU_SYSCTL_BLOCK_ID || REG_READ(SEQ, ID) != TPU_SEQ_ID_VALUE) {
    fw.state = TPU_CORE_PAGE_STATE_DEAD;
    sysctl_set_state(TPU_CORE_PAGE_STATE_DEAD, 1);
    REG_WRITE(SYSCTL, MSI, SYSCTL_MSI_EVENT);
    return;
  }
  set_state(TPU_CORE_PAGE_STATE_HANDSHAKE, true);
}

/* The host may set up rings until they are served; a wrong version can be mended and tried again.
 */
static void handshake(void) {
  if (fw.serving || fw.state == TPU_CORE_PAGE_STATE_DEAD || REG_READ(SYSCTL, QUEUE_EN) == 0) {
    return;
  }
  const uint32_t host_abi = REG_READ(SYSCTL, HOST_ABI);
  if ((host_abi >> ABI_MAJOR_SHIFT) != (TPU_RING_ABI >> ABI_MAJOR_SHIFT)) {
    set_state(TPU_CORE_PAGE_STATE_ABI_MISMATCH, true);
    return;
  }
  ring_open();
  if (fw.serving) {
    set_state(TPU_CORE_PAGE_STATE_READY, true);
  }
}

void fw_hold(void) {
  fw.held = 1;
  fw.dirty = 1;
}

static bool quiet(void) {
  return fw.run.state == RUN_NONE && !fw.active[TPU_TRACK_LAUNCH] && !fw.active[TPU_TRACK_UP] &&
         !fw.active[TPU_TRACK_DOWN] && fw.prep.state != PREP_FETCHING;
}

static void try_resume(void) {
  if (!fw.held || fw.resume != fw.epoch + 1 || !quiet()) {
    return;
  }
  fw.epoch = fw.resume;
  FW_LOG("resumed: epoch %u", fw.epoch);
  fw.held = 0;
  /* An entry that was not believed has counted in track LAUNCH, whatever it was at the host. */
  for (uint32_t track = 0; track < FW_TRACKS; ++track) {
    fw.done[track] = 0;
  }
  fw.dirty = 1;
  fw.fetch_failed = 0;
  fw.infeed_full = fw.infeed_free = fw.outfeed_full = fw.outfeed_free = 0;
  REG_WRITE(INFEED, FULL, 0);
  REG_WRITE(INFEED, FREE, 0);
  REG_WRITE(INFEED, WANT, 0);
  REG_WRITE(SYSCTL, EPOCH, fw.epoch);
}

/* Lets everything that can go on go on. Most events (a barrier, the end of a step) change nothing
   that a queued command waits for: the tracks are looked at only when something did. */
static void progress(void) {
  const bool any = fw.dirty != 0;
  do {
    ring_fetch();
    if (fw.dirty) {
      fw.dirty = 0;
      track_pump();
    }
    if (fw.run.state == RUN_FEED) {
      launch_step_ready();
    }
    try_resume();
  } while (fw.dirty);
  if (any) {
    launch_prefetch();
  }
}

static void show_state(void) {
  if (!fw.serving) {
    return;
  }
  if (fw.run.state == RUN_DRAIN || fw.run.state == RUN_DRAIN_BARRIER) {
    set_state(TPU_CORE_PAGE_STATE_DRAIN, false);
  } else if (fw.run.state != RUN_NONE) {
    set_state(TPU_CORE_PAGE_STATE_RUN, false);
  } else if (fw.held) {
    set_state(TPU_CORE_PAGE_STATE_HELD, true);
  } else {
    set_state(TPU_CORE_PAGE_STATE_READY, fw.state == TPU_CORE_PAGE_STATE_HELD);
  }
}

static void dma_event(void) {
  const uint32_t done = hostdma_take_done();
  if ((done & (1u << TPU_HOSTDMA_CTX_COMMAND)) != 0) {
    ring_fetched();
  }
  if ((done & (1u << TPU_HOSTDMA_CTX_UP)) != 0) {
    copy_done(TPU_TRACK_UP);
  }
  if ((done & (1u << TPU_HOSTDMA_CTX_DOWN)) != 0) {
    copy_done(TPU_TRACK_DOWN);
  }
  if ((done & (1u << TPU_HOSTDMA_CTX_SPARE)) != 0) {
    program_loaded();
  }
  if ((done & (1u << TPU_HOSTDMA_CTX_TABLE)) != 0) {
    launch_table_done();
  }
}

static void rare_event(uint32_t sources) {
  if ((sources & TPU_IRQ_TIMER) != 0) {
    abort_timeout();
  }
  if ((sources & TPU_IRQ_HOST_CALL) != 0) {
    call_raised();
  }
}

/* An abort goes before the end of a program, so that a gang ends alike on its cores; a release goes
   before an abort, since it tells whether the step was started anywhere. */
void fw_dispatch(uint32_t sources) {
  REG_WRITE(SYSCTL, HEARTBEAT, ++fw.heartbeat);
  if ((sources & TPU_IRQ_HOST) != 0) {
    handshake();
    fw.resume = REG_READ(SYSCTL, RESUME);
    if (fw.run.state == RUN_PROGRAM || fw.run.state == RUN_MOVING) {
      call_requested();
    }
  }
  if (!fw.serving) {
    return;
  }
  if ((sources & TPU_IRQ_HOST_DMA) != 0) {
    dma_event();
  }
  if ((sources & TPU_IRQ_BARRIER) != 0) {
    launch_released();
  }
  /* Before the abort: a fault of this core's engines comes together with the echo of its abort. */
  if ((sources & (TPU_IRQ_PROGRAM_DONE | TPU_IRQ_ENGINE_FAULT | TPU_IRQ_ENGINES_IDLE)) != 0) {
    launch_program_event();
  }
  if ((sources & TPU_IRQ_ABORT) != 0) {
    abort_received();
  }
  if ((sources & (TPU_IRQ_TIMER | TPU_IRQ_HOST_CALL)) != 0) {
    rare_event(sources);
  }
  progress();
  show_state();
}
