// What all engines of a core share, and how the commands of one are named to probes.
#pragma once

#include <array>
#include <cstdint>

#include "core/deferred_copies.hpp"
#include "core/equal_writes.hpp"
#include "core/ports.hpp"
#include "core/program.hpp"
#include "core/sram_damage.hpp"
#include "kernel/activity.hpp"
#include "kernel/agenda.hpp"
#include "kernel/data_order.hpp"
#include "kernel/job_pool.hpp"
#include "probe/core_probe.hpp"

namespace tpu::model {

// Units of a core (queues, kSequencerUnit) that start nothing until their launch is stopped: faults
// on purpose.
using HungUnits = std::array<bool, kUnits>;

// References outlive the engines.
struct EngineContext {
  uint32_t core_id;
  const spec::BoardParams& params;
  Agenda& agenda;
  Activity& activity;
  JobPool& pool;
  DeferredCopies& copies;
  DataOrder& vmem_order;
  EqualWrites& equal_writes;
  CoreProbe& probe;
  const LaunchState& launch;
  HungUnits& hung;
  SramDamage& sram;
  bool no_data;
  uint64_t schedule_seed;  // 0: commands start as soon as they can

  // A sink wants to know what commands touch, or ECC has to look at it.
  bool wants_access() const { return probe.wants(ProbeEvent::kAccess) || sram.any(); }
};

inline ProbeSource command_source(const EngineContext& context, int unit,
                                  const QueuedCommand& queued) {
  return {.core = context.core_id,
          .unit = static_cast<uint32_t>(unit),
          .sequence = queued.sequence,
          .step = context.launch.job_step,
          .pc = queued.command->pc,
          .op_id = queued.command->op_id,
          .opcode = static_cast<uint8_t>(queued.command->opcode)};
}

}  // namespace tpu::model
