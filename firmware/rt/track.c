/* Three in-order tracks over the window of fetched commands. A command starts when it is the first
   of its track and its three waits hold; it is flushed when the core is HELD or its epoch is over.
   Every command completes once and counts in its track, whatever its status; the counts begin again
   with each resume. */
#include "dev/gsync.h"
#include "dev/log.h"
#include "rt/fw.h"

/* Statuses that tell the host about a refused command but stop nothing behind it. */
static bool holds(uint32_t opcode, uint32_t entry_status, uint32_t status) {
  if (status == TPU_STATUS_OK || status == TPU_STATUS_FLUSHED) {
    return false;
  }
  if (entry_status != TPU_STATUS_OK) {
    return true; /* the entry itself is wrong: its opcode says nothing */
  }
  return opcode != TPU_OP_LOAD_PROGRAM && opcode != TPU_OP_UNLOAD_PROGRAM && opcode != TPU_OP_NOP &&
         opcode != TPU_OP_READ_COUNTERS;
}

static void report(uint32_t track, uint32_t seq, bool asked, uint32_t status, uint32_t flags,
                   uint32_t step) {
  FW_LOG("command %u of track %u over: status %u", seq, track, status);
  ring_post(seq, status, flags, step, asked || status != TPU_STATUS_OK);
  fw.active[track] = 0;
  ++fw.done[track];
  fw.dirty = 1;
}

static void retire(fw_entry_t* entry) {
  entry->state = ENTRY_DONE;
  while (fw.oldest != fw.fetched && entry_at(fw.oldest)->state == ENTRY_DONE) {
    ++fw.oldest;
  }
}

void fw_complete(uint32_t seq, uint32_t status) {
  fw_entry_t* entry = entry_at(seq);
  const tpu_command_head_t* head = &command_at(seq)->head;
  if (holds(head->opcode, entry->status, status)) {
    fw_hold();
  }
  report(entry->track, seq, (head->flags & TPU_CMD_FLAG_INTERRUPT) != 0, status, 0, 0);
  retire(entry);
}

void fw_complete_launch(uint32_t status, uint32_t flags) {
  if (status != TPU_STATUS_OK) {
    fw_hold();
  }
  fw.launch_active = 0;
  report(TPU_TRACK_LAUNCH, fw.run.seq, (fw.run.flags & TPU_CMD_FLAG_INTERRUPT) != 0, status, flags,
         fw.run.step);
}

/* Moves fw.next[track] to the track's next command that is not done or running. */
static bool track_next(uint32_t track, uint32_t* seq) {
  uint32_t at = fw.next[track];
  while (at != fw.fetched &&
         (entry_at(at)->track != track || entry_at(at)->state != ENTRY_QUEUED)) {
    ++at;
  }
  fw.next[track] = at;
  *seq = at;
  return at != fw.fetched;
}

bool track_next_launch(uint32_t* seq) { return track_next(TPU_TRACK_LAUNCH, seq); }

static void flush(uint32_t seq, uint32_t status) {
  if (entry_at(seq)->status == TPU_STATUS_OK && command_at(seq)->head.opcode == TPU_OP_LAUNCH) {
    launch_refused(command_at(seq), seq);
  }
  fw_complete(seq, status);
}

static uint32_t start(uint32_t seq) {
  const fw_command_t* command = command_at(seq);
  switch (command->head.opcode) {
    case TPU_OP_LOAD_PROGRAM:
      return program_load(seq);
    case TPU_OP_UNLOAD_PROGRAM:
      return program_unload(seq);
    case TPU_OP_LAUNCH:
      return launch_start(seq);
    case TPU_OP_COPY:
      return copy_start(seq);
    case TPU_OP_FILL:
      return fill_start(seq);
    case TPU_OP_READ_COUNTERS:
      return read_counters(command);
    case TPU_OP_NOP:
      return nop_check(command);
    default:
      return set_execute(command);
  }
}

/* HELD: commands of a later epoch wait for the resume that they were written for. */
static bool must_flush(const fw_command_t* command, uint32_t entry_status, bool* wait) {
  *wait = false;
  if (!fw.held) {
    return entry_status == TPU_STATUS_OK && command->head.epoch != fw.epoch;
  }
  if (entry_status != TPU_STATUS_OK) {
    return true;
  }
  if (!reached(fw.epoch, command->head.epoch)) {
    *wait = true;
    return false;
  }
  const bool kept =
      (command->head.flags & TPU_CMD_FLAG_KEEP_ON_FLUSH) != 0 &&
      (command->head.opcode == TPU_OP_NOP || command->head.opcode == TPU_OP_READ_COUNTERS);
  return !kept || command->head.epoch != fw.epoch;
}

static bool waits_hold(const tpu_command_head_t* head) {
  return reached(fw.done[TPU_TRACK_LAUNCH], head->wait_launch) &&
         reached(fw.done[TPU_TRACK_UP], head->wait_up) &&
         reached(fw.done[TPU_TRACK_DOWN], head->wait_down);
}

static bool pump_one(uint32_t track) {
  uint32_t seq;
  if (fw.active[track] || !track_next(track, &seq)) {
    return false;
  }
  const fw_command_t* command = command_at(seq);
  fw_entry_t* entry = entry_at(seq);
  bool wait;
  if (must_flush(command, entry->status, &wait)) {
    flush(seq, TPU_STATUS_FLUSHED);
    return true;
  }
  if (wait) {
    return false;
  }
  if (entry->status != TPU_STATUS_OK) {
    fw_complete(seq, entry->status);
    return true;
  }
  if (!waits_hold(&command->head)) {
    return false;
  }
  const uint32_t status = start(seq);
  if (status == FW_WAIT) {
    return false;
  }
  FW_LOG("command %u of track %u started: opcode %u", seq, track, command->head.opcode);
  if (status == FW_PENDING) {
    entry->state = ENTRY_RUNNING;
    fw.active[track] = 1;
    fw.active_seq[track] = seq;
    if (command->head.opcode == TPU_OP_LAUNCH) {
      /* `run` holds all of it: a long launch must not keep its own feeds out of the window. */
      fw.launch_active = 1;
      retire(entry);
    }
  } else if (status != TPU_STATUS_OK) {
    flush(seq, status); /* a refused launch tells its gang */
  } else {
    fw_complete(seq, status);
  }
  return true;
}

void track_pump(void) {
  for (uint32_t track = 0; track < FW_TRACKS; ++track) {
    while (pump_one(track)) {
    }
  }
}
