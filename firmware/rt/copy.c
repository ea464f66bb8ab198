/* COPY and FILL: bulk transfers of the tracks UP and DOWN, one at a time a track, moved by hostdma,
   which checks the whole range before the first byte. INFEED and OUTFEED copies also keep the feed
   counts. */
#include "dev/hostdma.h"
#include "dev/sysctl.h"
#include "rt/fw.h"

static const uint8_t kContext[FW_TRACKS] = {TPU_HOSTDMA_CTX_SPARE, TPU_HOSTDMA_CTX_UP,
                                            TPU_HOSTDMA_CTX_DOWN};

static bool copy_fields_good(const tpu_command_copy_t* copy) {
  const uint32_t flags = copy->head.flags;
  const bool infeed = (flags & TPU_CMD_FLAG_INFEED) != 0;
  const bool outfeed = (flags & TPU_CMD_FLAG_OUTFEED) != 0;
  if (copy->kind > TPU_COPY_D2D || copy->reserved != 0 || copy->reserved2 != 0 ||
      copy->feed_more > 1 || (copy->feed_more != 0 && !infeed && !outfeed)) {
    return false;
  }
  if ((infeed && copy->kind != TPU_COPY_H2D) || (outfeed && copy->kind != TPU_COPY_D2H)) {
    return false;
  }
  return copy->kind == TPU_COPY_D2D ? copy->peer < fw.cores : copy->peer == 0;
}

uint32_t copy_start(uint32_t seq) {
  const tpu_command_copy_t* copy = &command_at(seq)->copy;
  if (!copy_fields_good(copy)) {
    return TPU_STATUS_BAD_FIELD;
  }
  if ((copy->head.flags & TPU_CMD_FLAG_INFEED) != 0 &&
      fw.infeed_full - fw.infeed_free >= TPU_INFEED_DEPTH) {
    return FW_WAIT;
  }
  if ((copy->head.flags & TPU_CMD_FLAG_OUTFEED) != 0 && fw.outfeed_full == fw.outfeed_free) {
    return FW_WAIT;
  }
  hostdma_transfer_t transfer = {.bytes = copy->bytes};
  uint32_t track = TPU_TRACK_UP;
  switch (copy->kind) {
    case TPU_COPY_H2D:
      transfer.host = copy->src;
      transfer.local = copy->dst;
      transfer.control = HOSTDMA_CONTROL(FROM_HOST, HBM);
      break;
    case TPU_COPY_D2H:
      transfer.host = copy->dst;
      transfer.local = copy->src;
      transfer.control = HOSTDMA_CONTROL(TO_HOST, HBM);
      track = TPU_TRACK_DOWN;
      break;
    default:
      transfer.host = copy->src;
      transfer.local = copy->dst;
      transfer.control =
          HOSTDMA_CONTROL(D2D, HBM) | ((uint32_t)copy->peer << TPU_HOSTDMA_START_PEER_SHIFT);
      break;
  }
  hostdma_start(kContext[track], &transfer);
  return FW_PENDING;
}

uint32_t fill_start(uint32_t seq) {
  const tpu_command_fill_t* fill = &command_at(seq)->fill;
  if (fill->reserved != 0 || fill->reserved2[0] != 0 || fill->reserved2[1] != 0) {
    return TPU_STATUS_BAD_FIELD;
  }
  const hostdma_transfer_t transfer = {
      .local = fill->dst,
      .bytes = fill->bytes,
      .pattern = fill->pattern,
      .control = HOSTDMA_CONTROL(FILL, HBM),
  };
  hostdma_start(TPU_HOSTDMA_CTX_UP, &transfer);
  return FW_PENDING;
}

void copy_done(uint32_t track) {
  if (!fw.active[track]) {
    return;
  }
  const uint32_t seq = fw.active_seq[track];
  const tpu_command_copy_t* copy = &command_at(seq)->copy;
  const uint32_t status = hostdma_error(kContext[track]);
  const bool completes_batch = copy->head.opcode == TPU_OP_COPY && copy->feed_more == 0;
  if (status == TPU_STATUS_OK && completes_batch) {
    if ((copy->head.flags & TPU_CMD_FLAG_INFEED) != 0) {
      ++fw.infeed_full;
      REG_WRITE(INFEED, PUSH, 1);
    }
    if ((copy->head.flags & TPU_CMD_FLAG_OUTFEED) != 0) {
      ++fw.outfeed_free;
    }
  }
  fw_complete(seq, status);
}
