/* LOAD_PROGRAM and UNLOAD_PROGRAM. A program id is registered only when the image in HBM has the
   right CRC and a header that this board can run; a refused load leaves the table as it was. */
#include "dev/hostdma.h"
#include "dev/sysctl.h"
#include "rt/fw.h"
#include "tpu/spec/isa.h"
#include "tpu/spec/program_image.h"

#define WORD_BYTES 4u
#define CODE_WORD_BYTES 8u /* what code is counted in */

uint32_t program_load(uint32_t seq) {
  const tpu_command_load_t* load = &command_at(seq)->load;
  if (load->program_id >= TPU_MAX_PROGRAMS || load->reserved != 0 ||
      load->bytes < sizeof(tpu_program_image_header_t) || (load->bytes >> 32) != 0) {
    return TPU_STATUS_BAD_FIELD;
  }
  if (load->isa_version != TPU_ISA_VERSION) {
    return TPU_STATUS_ISA_MISMATCH;
  }
  if (load->hbm_dst % TPU_SLOT_ALIGN != 0 || load->bytes % WORD_BYTES != 0) {
    return TPU_STATUS_ALIGN;
  }
  if (fw.programs[load->program_id].loaded) {
    return TPU_STATUS_BUSY; /* its image may be the very memory that would be overwritten */
  }
  const hostdma_transfer_t transfer = {
      .host = load->image_iova,
      .local = load->hbm_dst,
      .bytes = load->bytes,
      .control = HOSTDMA_CONTROL(FROM_HOST, HBM) | TPU_HOSTDMA_START_CRC_MASK,
  };
  hostdma_start(TPU_HOSTDMA_CTX_SPARE, &transfer);
  return FW_PENDING;
}

/* Reads the header back from HBM, so that what is checked is what will run. */
static void read_header(uint64_t hbm, tpu_program_image_header_t* header) {
  uint32_t* words = (uint32_t*)header;
  sysctl_set_window(hbm);
  for (uint32_t i = 0; i < sizeof *header / sizeof *words; ++i) {
    words[i] = mmio_read32(TPU_HART_HBM_WINDOW_BASE + (uint32_t)(i * sizeof *words));
  }
}

static uint32_t check_header(const tpu_program_image_header_t* header, uint64_t bytes) {
  if (header->magic != TPU_PROGRAM_MAGIC) {
    return TPU_STATUS_BAD_PROGRAM;
  }
  if (header->isa_version != TPU_ISA_VERSION) {
    return TPU_STATUS_ISA_MISMATCH;
  }
  if (header->header_bytes != sizeof *header || header->code_bytes % CODE_WORD_BYTES != 0 ||
      header->code_bytes == 0 || header->code_bytes > bytes - header->header_bytes ||
      header->entry_word >= header->code_bytes / CODE_WORD_BYTES || header->slots > TPU_MAX_SLOTS ||
      header->cores == 0 || header->cores > fw.cores || header->flags != 0) {
    return TPU_STATUS_BAD_PROGRAM;
  }
  return TPU_STATUS_OK;
}

void program_loaded(void) {
  if (!fw.active[TPU_TRACK_LAUNCH] || fw.launch_active) {
    call_moved();
    return;
  }
  const uint32_t seq = fw.active_seq[TPU_TRACK_LAUNCH];
  const tpu_command_load_t* load = &command_at(seq)->load;
  if (load->head.opcode != TPU_OP_LOAD_PROGRAM) {
    return;
  }
  uint32_t status = hostdma_error(TPU_HOSTDMA_CTX_SPARE);
  if (status == TPU_STATUS_OK && hostdma_crc(TPU_HOSTDMA_CTX_SPARE) != load->image_crc) {
    status = TPU_STATUS_BAD_PROGRAM;
  }
  if (status == TPU_STATUS_OK) {
    tpu_program_image_header_t header;
    read_header(load->hbm_dst, &header);
    status = check_header(&header, load->bytes);
    if (status == TPU_STATUS_OK) {
      fw_program_t* program = &fw.programs[load->program_id];
      program->hbm = load->hbm_dst;
      program->version = ++fw.loads;
      program->slots = (uint16_t)header.slots;
      program->cores = (uint8_t)(header.cores < UINT8_MAX ? header.cores : UINT8_MAX);
      fw.program_cores[load->program_id] = (uint16_t)header.cores;
      program->loaded = 1;
    }
  }
  fw_complete(seq, status);
}

uint32_t program_unload(uint32_t seq) {
  const tpu_command_unload_t* unload = &command_at(seq)->unload;
  uint32_t reserved = unload->reserved2[0] | unload->reserved2[1] | unload->reserved2[2];
  for (uint32_t i = 0; i < sizeof unload->reserved / sizeof unload->reserved[0]; ++i) {
    reserved |= unload->reserved[i];
  }
  if (unload->program_id >= TPU_MAX_PROGRAMS || reserved != 0) {
    return TPU_STATUS_BAD_FIELD;
  }
  if (!fw.programs[unload->program_id].loaded) {
    return TPU_STATUS_NO_PROGRAM;
  }
  /* Launches behind a load of the same id run that one's program. */
  for (uint32_t at = seq + 1; at != fw.fetched; ++at) {
    const fw_command_t* next = command_at(at);
    if (entry_at(at)->state != ENTRY_QUEUED || entry_at(at)->status != TPU_STATUS_OK) {
      continue;
    }
    if (next->head.opcode == TPU_OP_LAUNCH && next->launch.program_id == unload->program_id) {
      return TPU_STATUS_BUSY;
    }
    if (next->head.opcode == TPU_OP_LOAD_PROGRAM && next->load.program_id == unload->program_id) {
      break;
    }
  }
  fw.programs[unload->program_id].loaded = 0;
  return TPU_STATUS_OK;
}
