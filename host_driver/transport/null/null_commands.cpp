// What the commands of the rings do on the null board.
#include <algorithm>
#include <cstring>
#include <utility>

#include "file/crc32c.hpp"
#include "src/texts/fault_text.hpp"
#include "tpu/spec/core_page_regs.hpp"
#include "tpu/spec/isa.hpp"
#include "tpu/spec/perf_regs.hpp"
#include "tpu/spec/program_image.h"
#include "transport/null/null_transport.hpp"

namespace tpu::driver {
namespace {

namespace core_page = spec::core_page;

constexpr uint64_t kCopyPieceBytes = uint64_t{1} << 20;

template <typename Payload>
Payload payload(std::span<const std::byte> wire) {
  Payload result;
  static_assert(sizeof(result) == TPU_CMD_ENTRY_BYTES);
  std::memcpy(&result, wire.data(), sizeof(result));
  return result;
}

bool inside(uint64_t at, uint64_t bytes, uint64_t size) { return at <= size && bytes <= size - at; }

}  // namespace

uint16_t NullTransport::copy(Core& core, const Pending& command) {
  const auto copy = payload<tpu_command_copy_t>(command.wire);
  if (copy.kind > TPU_COPY_D2D || copy.peer >= cores_.size()) {
    return TPU_STATUS_BAD_FIELD;
  }
  Core& target = copy.kind == TPU_COPY_D2D ? cores_[copy.peer] : core;
  std::span<std::byte> host;
  if (copy.kind != TPU_COPY_D2D) {
    host = memory_.span(copy.kind == TPU_COPY_H2D ? copy.src : copy.dst, copy.bytes,
                        copy.kind == TPU_COPY_D2H);
    if (host.data() == nullptr) {
      return TPU_STATUS_HOST_ADDR;
    }
  }
  if ((copy.kind != TPU_COPY_H2D && !inside(copy.src, copy.bytes, core.hbm.bytes())) ||
      (copy.kind != TPU_COPY_D2H && !inside(copy.dst, copy.bytes, target.hbm.bytes()))) {
    return TPU_STATUS_HBM_RANGE;
  }
  if (copy.kind == TPU_COPY_H2D) {
    core.hbm.write(copy.dst, host);
  } else if (copy.kind == TPU_COPY_D2H) {
    core.hbm.read(copy.src, host);
  } else {
    std::vector<std::byte> piece(std::min<uint64_t>(copy.bytes, kCopyPieceBytes));
    for (uint64_t at = 0; at < copy.bytes; at += kCopyPieceBytes) {
      const auto part = std::span(piece).first(std::min(kCopyPieceBytes, copy.bytes - at));
      core.hbm.read(copy.src + at, part);
      target.hbm.write(copy.dst + at, part);
    }
  }
  return TPU_STATUS_OK;
}

uint16_t NullTransport::load_program(Core& core, const Pending& command) {
  const auto load = payload<tpu_command_load_t>(command.wire);
  if (load.program_id >= TPU_MAX_PROGRAMS) {
    return TPU_STATUS_BAD_FIELD;
  }
  if (core.programs[load.program_id]) {
    return TPU_STATUS_BUSY;
  }
  const auto image = memory_.span(load.image_iova, load.bytes, false);
  if (image.data() == nullptr) {
    return TPU_STATUS_HOST_ADDR;
  }
  if (!inside(load.hbm_dst, load.bytes, core.hbm.bytes())) {
    return TPU_STATUS_HBM_RANGE;
  }
  if (load.hbm_dst % TPU_SLOT_ALIGN != 0) {
    return TPU_STATUS_ALIGN;
  }
  tpu_program_image_header_t header;
  if (load.bytes < sizeof(header) || spec::crc32c(image) != load.image_crc) {
    return TPU_STATUS_BAD_PROGRAM;
  }
  std::memcpy(&header, image.data(), sizeof(header));
  if (header.magic != TPU_PROGRAM_MAGIC) {
    return TPU_STATUS_BAD_PROGRAM;
  }
  if (header.isa_version != spec::kIsaVersion || load.isa_version != spec::kIsaVersion) {
    return TPU_STATUS_ISA_MISMATCH;
  }
  core.hbm.write(load.hbm_dst, image);
  core.programs[load.program_id] = Program{load.hbm_dst, load.bytes};
  return TPU_STATUS_OK;
}

uint16_t NullTransport::execute(Core& core, const Pending& command) {
  switch (command.head.opcode) {
    case TPU_OP_LOAD_PROGRAM:
      return load_program(core, command);
    case TPU_OP_UNLOAD_PROGRAM: {
      const auto unload = payload<tpu_command_unload_t>(command.wire);
      if (unload.program_id >= TPU_MAX_PROGRAMS) {
        return TPU_STATUS_BAD_FIELD;
      }
      if (!core.programs[unload.program_id]) {
        return TPU_STATUS_NO_PROGRAM;
      }
      core.programs[unload.program_id].reset();
      return TPU_STATUS_OK;
    }
    case TPU_OP_COPY:
      return copy(core, command);
    case TPU_OP_FILL: {
      const auto fill = payload<tpu_command_fill_t>(command.wire);
      if (fill.bytes % 4 != 0 || fill.dst % 4 != 0) {
        return TPU_STATUS_ALIGN;
      }
      if (!inside(fill.dst, fill.bytes, core.hbm.bytes())) {
        return TPU_STATUS_HBM_RANGE;
      }
      core.hbm.fill(fill.dst, fill.bytes, fill.pattern);
      return TPU_STATUS_OK;
    }
    case TPU_OP_READ_COUNTERS: {
      const auto read = payload<tpu_command_read_counters_t>(command.wire);
      if (read.bytes % 8 != 0 || read.first + read.bytes / 8 > spec::perf::kCounters) {
        return TPU_STATUS_BAD_FIELD;
      }
      const auto host = memory_.span(read.iova, read.bytes, true);
      if (host.data() == nullptr) {
        return TPU_STATUS_HOST_ADDR;
      }
      std::vector<uint64_t> values(spec::perf::kCounters);
      values[spec::perf::kCycles] = cycle_;
      std::memcpy(host.data(), values.data() + read.first, read.bytes);
      return TPU_STATUS_OK;
    }
    default:  // NOP, SET
      return TPU_STATUS_OK;
  }
}

uint16_t NullTransport::check_launch(Core& core, const tpu_command_launch_t& launch,
                                     std::vector<tpu_slot_entry_t>& slots) {
  const uint32_t all = (1u << cores_.size()) - 1;
  if (launch.program_id >= TPU_MAX_PROGRAMS || launch.slots > TPU_MAX_SLOTS || launch.steps == 0 ||
      launch.reserved != 0 || launch.reserved2 != 0 || (launch.core_mask & ~all) != 0 ||
      (launch.core_mask >> core_id(core) & 1) == 0) {
    return TPU_STATUS_BAD_FIELD;
  }
  if (!core.programs[launch.program_id]) {
    return TPU_STATUS_NO_PROGRAM;
  }
  const uint64_t bytes = uint64_t{launch.slots} * sizeof(tpu_slot_entry_t);
  const auto table = memory_.span(launch.table_iova, bytes, false);
  if (table.data() == nullptr) {
    return TPU_STATUS_HOST_ADDR;
  }
  slots.resize(launch.slots);
  std::memcpy(slots.data(), table.data(), bytes);
  const bool fits = std::all_of(slots.begin(), slots.end(), [&](const tpu_slot_entry_t& slot) {
    return slot.mode == TPU_SLOT_NULL ||
           (slot.mode < TPU_SLOT_NULL && slot.base % TPU_SLOT_ALIGN == 0 &&
            inside(slot.base, slot.size, core.hbm.bytes()));
  });
  return fits && spec::crc32c(table) == launch.table_crc ? uint16_t{TPU_STATUS_OK}
                                                         : uint16_t{TPU_STATUS_NO_SLOT};
}

// The launch that a core would run next; null when there is none or it still waits.
const NullTransport::Pending* NullTransport::waiting_launch(const Core& core) const {
  for (const Pending& command : core.window) {
    if (command.track == TPU_TRACK_LAUNCH) {
      const bool ready = command.head.opcode == TPU_OP_LAUNCH && command.fault == TPU_STATUS_OK &&
                         !core.held && !core.dead && waits_met(core, command);
      return ready ? &command : nullptr;
    }
  }
  return nullptr;
}

size_t NullTransport::place_of(const Core& core, const Pending* command) const {
  size_t place = 0;
  while (&core.window[place] != command) {
    ++place;
  }
  return place;
}

void NullTransport::set_record(Core& core, tpu_fault_record_t record) {
  uint32_t& seq = core.page[core_page::kFaultSeq / 4];
  record.fault_seq = ++seq;
  record.cycle = cycle_;
  std::memcpy(&core.page[core_page::kFaultRecord / 4], &record, sizeof(record));
}

// Cores of a launch that is in a window somewhere; 0: none is.
uint32_t NullTransport::gang_of(uint32_t launch_id) const {
  for (const Core& core : cores_) {
    for (const Pending& command : core.window) {
      if (command.head.opcode == TPU_OP_LAUNCH && command.fault == TPU_STATUS_OK) {
        const auto launch = payload<tpu_command_launch_t>(command.wire);
        if (launch.launch_id == launch_id) {
          return launch.core_mask;
        }
      }
    }
  }
  return 0;
}

// An aborted launch is remembered until each of its cores has answered it: ids wrap, and a later
// launch of the same id is another one.
void NullTransport::note_aborted(uint32_t launch_id, uint32_t mask) {
  if (mask != 0) {
    aborted_.try_emplace(launch_id, mask);
  }
}

void NullTransport::forget_aborted(uint32_t launch_id, const Core& core) {
  const auto found = aborted_.find(launch_id);
  if (found != aborted_.end()) {
    found->second &= ~(1u << core_id(core));
    if (found->second == 0) {
      aborted_.erase(found);
    }
  }
}

// Ends a gang's launch on all cores where it is next. `only_waiting`: no core has found the fault
// itself.
void NullTransport::abort_gang(uint32_t launch_id, const tpu_fault_record_t& record,
                               bool only_waiting) {
  note_aborted(launch_id, gang_of(launch_id));
  for (Core& core : cores_) {
    const Pending* head = waiting_launch(core);
    if (head == nullptr || payload<tpu_command_launch_t>(head->wire).launch_id != launch_id) {
      continue;
    }
    const bool found_here = !only_waiting && core_id(core) == record.core;
    set_record(core, record);
    core.stuck = 0;
    core.endless = false;
    complete(core, place_of(core, head), found_here ? TPU_STATUS_FAULT : TPU_STATUS_ABORTED);
    hold(core);
  }
}

void NullTransport::end_endless() {
  for (Core& core : cores_) {
    if (std::exchange(core.endless, false)) {
      core.stuck = 0;
      ++core.steps;
      complete(core, place_of(core, waiting_launch(core)), TPU_STATUS_OK, 1);
    }
  }
}

bool NullTransport::try_launch(Core& core, const Pending& command) {
  const auto launch = payload<tpu_command_launch_t>(command.wire);
  tpu_fault_record_t record{};
  record.launch_id = launch.launch_id;
  record.core = static_cast<uint8_t>(core_id(core));
  record.mask = launch.core_mask;
  record.op_id = 0xFFFFFFFFu;
  if (aborted_.contains(launch.launch_id)) {
    record.code = TPU_FAULT_NOT_STARTED;
    set_record(core, record);
    complete(core, place_of(core, waiting_launch(core)), TPU_STATUS_ABORTED);
    hold(core);
    return true;
  }
  std::vector<tpu_slot_entry_t> slots;
  const uint16_t status = check_launch(core, launch, slots);
  if (status != TPU_STATUS_OK) {
    note_aborted(launch.launch_id, launch.core_mask);
    complete(core, place_of(core, waiting_launch(core)), status);
    hold(core);
    return true;
  }
  if (core.stuck != 0) {
    return false;
  }
  std::vector<Core*> gang;
  for (size_t i = 0; i < cores_.size(); ++i) {
    if ((launch.core_mask >> i & 1) == 0) {
      continue;
    }
    const Pending* head = waiting_launch(cores_[i]);
    if (head == nullptr) {
      return false;
    }
    const auto other = payload<tpu_command_launch_t>(head->wire);
    if (other.launch_id != launch.launch_id) {
      if ((other.core_mask >> core_id(core) & 1) != 0) {
        record.code = TPU_FAULT_GANG_MISMATCH;
        abort_gang(launch.launch_id, record, false);
        return true;
      }
      return false;
    }
    gang.push_back(&cores_[i]);
  }
  return run_gang(gang);
}

namespace {

constexpr uint16_t kFeeds = TPU_CMD_FLAG_INFEED | TPU_CMD_FLAG_OUTFEED;

}  // namespace

// As the firmware: two batches and two results may lie on a core.
bool NullTransport::copy_may_start(const Core& core, const Pending& command) {
  const bool in = (command.head.flags & TPU_CMD_FLAG_INFEED) != 0;
  const bool out = (command.head.flags & TPU_CMD_FLAG_OUTFEED) != 0;
  return command.head.opcode != TPU_OP_COPY ||
         ((!in || core.infeed_full - core.infeed_free < TPU_INFEED_DEPTH) &&
          (!out || core.outfeed_full != core.outfeed_free));
}

void NullTransport::count_copy(Core& core, const Pending& command) {
  if (command.head.opcode != TPU_OP_COPY ||
      payload<tpu_command_copy_t>(command.wire).feed_more != 0) {
    return;
  }
  core.infeed_full += (command.head.flags & TPU_CMD_FLAG_INFEED) != 0 ? 1 : 0;
  core.outfeed_free += (command.head.flags & TPU_CMD_FLAG_OUTFEED) != 0 ? 1 : 0;
}

bool NullTransport::feeds_ready(const std::vector<Core*>& gang) const {
  return std::all_of(gang.begin(), gang.end(), [&](const Core* core) {
    const uint16_t flags = waiting_launch(*core)->head.flags;
    return ((flags & TPU_CMD_FLAG_INFEED) == 0 || core->infeed_full != core->infeed_free) &&
           ((flags & TPU_CMD_FLAG_OUTFEED) == 0 ||
            core->outfeed_full - core->outfeed_free < TPU_INFEED_DEPTH);
  });
}

// True when its launch has more steps.
bool NullTransport::end_fed_step(Core& core) {
  const Pending* launch = waiting_launch(core);
  core.infeed_free += (launch->head.flags & TPU_CMD_FLAG_INFEED) != 0 ? 1 : 0;
  core.outfeed_full += (launch->head.flags & TPU_CMD_FLAG_OUTFEED) != 0 ? 1 : 0;
  ++core.steps;
  if (++core.fed_steps == payload<tpu_command_launch_t>(launch->wire).steps) {
    return false;
  }
  if ((launch->head.flags & TPU_CMD_FLAG_OUTFEED) != 0) {
    post(core, launch->head, TPU_STATUS_OK, core.fed_steps, TPU_CPL_FLAG_MORE | TPU_CPL_FLAG_STEP);
  }
  return true;
}

// What an executor sees: all steps of a launch, or the next one of a launch that is fed.
NullLaunch NullTransport::gather(const std::vector<Core*>& gang) {
  NullLaunch run;
  for (Core* core : gang) {
    const Pending* command = waiting_launch(*core);
    const auto launch = payload<tpu_command_launch_t>(command->wire);
    run.launch_id = launch.launch_id;
    run.steps = launch.steps;
    NullLaunchPart part;
    part.core = core_id(*core);
    part.replica = launch.replica;
    part.hbm = &core->hbm;
    static_cast<void>(check_launch(*core, launch, part.slots));
    for (tpu_slot_entry_t& slot : part.slots) {
      if (slot.mode == TPU_SLOT_INFEED || slot.mode == TPU_SLOT_OUTFEED) {
        slot.base += uint64_t{core->fed_steps % slot.depth} * slot.stride;
        slot.mode = TPU_SLOT_FIXED;
      }
    }
    part.image.resize(core->programs[launch.program_id]->bytes);
    core->hbm.read(core->programs[launch.program_id]->address, part.image);
    run.parts.push_back(std::move(part));
  }
  return run;
}

// False: a step waits for a batch, or for its results to be taken.
bool NullTransport::run_gang(const std::vector<Core*>& gang) {
  const bool fed = std::any_of(gang.begin(), gang.end(), [&](const Core* core) {
    return (waiting_launch(*core)->head.flags & kFeeds) != 0;
  });
  if (fed && !feeds_ready(gang)) {
    return false;
  }
  NullLaunch run = gather(gang);
  run.steps = fed ? 1 : run.steps;
  int& kept = endless_launches > 0 ? endless_launches : stuck_launches;
  if (kept > 0) {
    for (Core* core : gang) {
      core->stuck = run.launch_id;
      core->endless = &kept == &endless_launches;
    }
    --kept;
    return true;
  }
  tpu_fault_record_t record{};
  record.launch_id = run.launch_id;
  record.op_id = 0xFFFFFFFFu;
  if (dead_on_launch >= 0 && std::any_of(gang.begin(), gang.end(), [&](const Core* core) {
        return core_id(*core) == dead_on_launch;
      })) {
    Core& lost = cores_[static_cast<size_t>(dead_on_launch)];
    record.code = TPU_FAULT_FW_TRAP;
    record.core = static_cast<uint8_t>(dead_on_launch);
    dead_on_launch = -1;
    set_record(lost, record);
    lost.dead = true;
    set_state(lost, core_page::kStateDead);
    abort_gang(run.launch_id, record, true);
    return true;
  }
  if (executor) {
    if (auto fault = executor(run)) {
      fault->launch_id = run.launch_id;
      abort_gang(run.launch_id, *fault, false);
      return true;
    }
  }
  for (Core* core : gang) {
    if (fed && end_fed_step(*core)) {
      continue;
    }
    const uint32_t all = payload<tpu_command_launch_t>(waiting_launch(*core)->wire).steps;
    core->steps += fed ? 0 : all;
    for (uint32_t step = 1; tell_steps && step < run.steps; ++step) {
      post(*core, waiting_launch(*core)->head, TPU_STATUS_OK, step,
           TPU_CPL_FLAG_MORE | TPU_CPL_FLAG_STEP);
    }
    complete(*core, place_of(*core, waiting_launch(*core)), TPU_STATUS_OK, all);
  }
  return true;
}

}  // namespace tpu::driver
