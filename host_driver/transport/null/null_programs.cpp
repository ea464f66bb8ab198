// Steps of gangs on the null board.
#include "transport/null/null_programs.hpp"

#include <algorithm>
#include <string>

#include "tpu/spec/program_image.h"
#include "tpu/spec/seq_regs.h"

namespace tpu::driver {
namespace {

uint32_t launch_of(const NullCore& core) { return core.seq_reg(TPU_SEQ_LAUNCH_OFFSET); }

// Its program will not end by itself.
bool hangs(const NullCore& core) { return core.program_running && core.stuck != 0; }

// Slots as the present step resolves them, and the image that runs.
NullLaunchPart part_of(NullCore& core) {
  NullLaunchPart part;
  part.core = static_cast<int>(core.place.core);
  part.replica = core.seq_reg(TPU_SEQ_REPLICA_OFFSET) & TPU_SEQ_REPLICA_ID_MASK;
  part.hbm = &core.hbm;
  part.slots = core.slots();
  const uint32_t step = core.seq_reg(TPU_SEQ_STEP_OFFSET);
  for (tpu_slot_entry_t& slot : part.slots) {
    if (slot.mode == TPU_SLOT_INFEED || slot.mode == TPU_SLOT_OUTFEED) {
      slot.base += uint64_t{step % slot.depth} * slot.stride;
    } else if (slot.mode == TPU_SLOT_PINGPONG && step % 2 != 0) {
      slot.base = slot.alt_base;
    }
    slot.mode = slot.mode == TPU_SLOT_NULL ? TPU_SLOT_NULL : TPU_SLOT_FIXED;
  }
  const uint64_t image = core.seq_reg(TPU_SEQ_PROGRAM_LO_OFFSET) |
                         uint64_t{core.seq_reg(TPU_SEQ_PROGRAM_HI_OFFSET)} << 32;
  tpu_program_image_header_t header;
  core.hbm.read(image, std::as_writable_bytes(std::span(&header, 1)));
  part.image.resize(size_t{header.header_bytes} + header.code_bytes);
  core.hbm.read(image, part.image);
  return part;
}

}  // namespace

// Its cores, if all are at the same step; else none.
NullPrograms::Gang NullPrograms::gang_of(const NullCore& core) const {
  Gang gang;
  for (const auto& other : board_.all) {
    if (!core.gang().has(other->place.core)) {
      continue;
    }
    if (!other->program_running || hangs(*other) || launch_of(*other) != launch_of(core) ||
        other->seq_reg(TPU_SEQ_STEP_OFFSET) != core.seq_reg(TPU_SEQ_STEP_OFFSET)) {
      return {};
    }
    gang.push_back(other.get());
  }
  return gang;
}

bool NullPrograms::run_one() {
  for (const auto& core : board_.all) {
    if (!core->program_running || hangs(*core)) {
      continue;
    }
    const Gang gang = gang_of(*core);
    if (gang.empty()) {
      continue;
    }
    if (!hang(gang) && !lose_hart(gang) && !fault(gang)) {
      for (NullCore* member : gang) {
        member->end_step();
      }
    }
    return true;
  }
  return false;
}

bool NullPrograms::hang(const Gang& gang) {
  NullKnobs& knobs = board_.knobs;
  int& kept = knobs.endless_launches > 0 ? knobs.endless_launches : knobs.stuck_launches;
  if (kept <= 0) {
    return false;
  }
  for (NullCore* core : gang) {
    core->stuck = launch_of(*core);
    core->endless = &kept == &knobs.endless_launches;
  }
  --kept;
  return true;
}

bool NullPrograms::lose_hart(const Gang& gang) {
  const auto lost = std::find_if(gang.begin(), gang.end(), [&](const NullCore* core) {
    return static_cast<int>(core->place.core) == board_.knobs.dead_on_launch;
  });
  if (lost == gang.end()) {
    return false;
  }
  board_.knobs.dead_on_launch = -1;
  (*lost)->die();
  return true;
}

bool NullPrograms::fault(const Gang& gang) {
  if (!board_.knobs.executor) {
    return false;
  }
  NullLaunch launch;
  launch.launch_id = launch_of(*gang.front());
  for (NullCore* core : gang) {
    launch.parts.push_back(part_of(*core));
  }
  auto record = board_.knobs.executor(launch);
  if (!record) {
    return false;
  }
  record->cycle = board_.cycle;
  const auto found = std::find_if(gang.begin(), gang.end(), [&](const NullCore* core) {
    return core->place.core == record->core;
  });
  (found == gang.end() ? gang.front() : *found)->fault_program(*record);
  return true;
}

bool NullPrograms::any_endless() const {
  return std::any_of(board_.all.begin(), board_.all.end(),
                     [](const auto& core) { return hangs(*core) && core->endless; });
}

void NullPrograms::end_endless() {
  for (const auto& core : board_.all) {
    if (hangs(*core) && core->endless) {
      core->end_step();
    }
  }
}

void NullPrograms::tell(TransportStats& stats) const {
  for (const auto& core : board_.all) {
    stats.places.push_back({hangs(*core), core->steps, 0, 0, UINT32_MAX});
    if (hangs(*core)) {
      stats.waits_text += "  TPU:" + std::to_string(core->place.core) + ": launch " +
                          std::to_string(core->stuck) + " was told to hang\n";
    }
  }
}

}  // namespace tpu::driver
