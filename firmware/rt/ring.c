/* Command and completion ring in host memory: fetch in pieces of up to 16 entries, check each
   entry, post completions. The doorbell register is read again at each event, so a lost interrupt
   costs nothing; it is absolute, so a repeated or a backward one does nothing. */
#include "dev/hostdma.h"
#include "dev/log.h"
#include "dev/sysctl.h"
#include "rt/fw.h"

#define MAX_RING_LOG2 16u
#define KNOWN_FLAGS \
  (TPU_CMD_FLAG_INTERRUPT | TPU_CMD_FLAG_INFEED | TPU_CMD_FLAG_OUTFEED | TPU_CMD_FLAG_KEEP_ON_FLUSH)

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* Reads the rings' places. CMD_FETCHED and CPL_TAIL give the counts to start from (0 after reset).
 */
void ring_open(void) {
  const uint32_t cmd_log2 = REG_READ(SYSCTL, CMD_LOG2);
  fw.cpl_log2 = REG_READ(SYSCTL, CPL_LOG2);
  if (cmd_log2 == 0 || cmd_log2 > MAX_RING_LOG2 || fw.cpl_log2 == 0 ||
      fw.cpl_log2 > MAX_RING_LOG2) {
    return; /* stays in HANDSHAKE: the host sees no READY */
  }
  fw.cmd_mask = (1u << cmd_log2) - 1u;
  fw.cmd_base = sysctl_read64(REG(SYSCTL, CMD_BASE_LO));
  fw.cpl_base = sysctl_read64(REG(SYSCTL, CPL_BASE_LO));
  fw.fetched = fw.oldest = REG_READ(SYSCTL, CMD_FETCHED);
  fw.cpl_tail = REG_READ(SYSCTL, CPL_TAIL);
  for (uint32_t track = 0; track < FW_TRACKS; ++track) {
    fw.next[track] = fw.fetched;
  }
  fw.serving = 1;
}

void ring_fetch(void) {
  if (fw.fetching != 0 || fw.fetch_failed) {
    return;
  }
  const uint32_t room = TPU_CMD_WINDOW - (fw.fetched - fw.oldest);
  if (room == 0) {
    return;
  }
  const uint32_t available = REG_READ(SYSCTL, CMD_TAIL) - fw.fetched;
  if (available == 0 || available > fw.cmd_mask + 1u) {
    return; /* nothing new, or no count that a correct host writes */
  }
  uint32_t count = min_u32(min_u32(available, room), TPU_CMD_FETCH_MAX);
  count = min_u32(count, fw.cmd_mask + 1u - (fw.fetched & fw.cmd_mask));
  count = min_u32(count, TPU_CMD_WINDOW - (fw.fetched & FW_WINDOW_MASK));
  const hostdma_transfer_t transfer = {
      .host = fw.cmd_base + (uint64_t)(fw.fetched & fw.cmd_mask) * TPU_CMD_ENTRY_BYTES,
      .local = fw_address(command_at(fw.fetched)),
      .bytes = count * TPU_CMD_ENTRY_BYTES,
      .control = HOSTDMA_CONTROL(FROM_HOST, TCM) | TPU_HOSTDMA_START_ENTRIES_MASK,
  };
  fw.fetching = count;
  hostdma_start(TPU_HOSTDMA_CTX_COMMAND, &transfer);
}

static uint32_t track_of(const fw_command_t* command) {
  switch (command->head.opcode) {
    case TPU_OP_COPY:
      return command->copy.kind == TPU_COPY_D2H ? TPU_TRACK_DOWN : TPU_TRACK_UP;
    case TPU_OP_FILL:
      return TPU_TRACK_UP;
    default:
      return TPU_TRACK_LAUNCH;
  }
}

static uint32_t check_entry(const fw_command_t* command, uint32_t seq, bool crc_bad) {
  if (crc_bad) {
    return TPU_STATUS_BAD_CRC;
  }
  if (command->head.seq != seq) {
    return TPU_STATUS_BAD_SEQ;
  }
  if (command->head.opcode < TPU_OP_LOAD_PROGRAM || command->head.opcode > TPU_OP_SET) {
    return TPU_STATUS_BAD_OPCODE;
  }
  if ((command->head.flags & ~KNOWN_FLAGS) != 0) {
    return TPU_STATUS_BAD_FIELD;
  }
  return TPU_STATUS_OK;
}

void ring_fetched(void) {
  if (fw.fetching == 0) {
    return;
  }
  const uint32_t count = fw.fetching;
  fw.fetching = 0;
  if (hostdma_error(TPU_HOSTDMA_CTX_COMMAND) != 0) {
    fw.fetch_failed = 1; /* until RESUME */
    fw_hold();
    return;
  }
  const uint32_t bad = hostdma_entry_bad(TPU_HOSTDMA_CTX_COMMAND);
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t seq = fw.fetched + i;
    fw_entry_t* entry = entry_at(seq);
    const uint32_t status = check_entry(command_at(seq), seq, ((bad >> i) & 1u) != 0);
    entry->status = (uint16_t)status;
    entry->state = ENTRY_QUEUED;
    /* Nothing in a corrupt entry is believed: it fails in track LAUNCH. */
    entry->track =
        (uint8_t)(status == TPU_STATUS_OK ? track_of(command_at(seq)) : TPU_TRACK_LAUNCH);
  }
  FW_LOG("fetched %u commands from %u", count, fw.fetched);
  fw.fetched += count;
  fw.dirty = 1;
  REG_WRITE(SYSCTL, CMD_FETCHED, fw.fetched);
}

void ring_post(uint32_t seq, uint32_t status, uint32_t flags, uint32_t step, bool interrupt) {
  const bool odd_lap = ((fw.cpl_tail >> fw.cpl_log2) & 1u) != 0;
  fw.completion.seq = seq;
  fw.completion.status = (uint16_t)status;
  fw.completion.flags = (uint16_t)(flags | (odd_lap ? 0u : TPU_CPL_FLAG_PHASE));
  fw.completion.step = step;
  fw.completion.cycle = timer_now();
  fw.completion.fault_seq = fw.fault_seq;
  fw.completion.epoch = fw.epoch;
  const uint32_t slot = fw.cpl_tail & ((1u << fw.cpl_log2) - 1u);
  const hostdma_transfer_t transfer = {
      .host = fw.cpl_base + (uint64_t)slot * TPU_CPL_ENTRY_BYTES,
      .local = fw_address(&fw.completion),
      .bytes = TPU_CPL_ENTRY_BYTES,
      .control = HOSTDMA_CONTROL(TO_HOST, TCM) | TPU_HOSTDMA_START_SEAL_MASK |
                 (interrupt ? TPU_HOSTDMA_START_MSI_MASK : 0u),
  };
  hostdma_start(TPU_HOSTDMA_CTX_COMPLETION, &transfer);
  REG_WRITE(SYSCTL, CPL_TAIL, ++fw.cpl_tail);
}
