// What the control processors of a board share: each other's gsync blocks and HBM. Filled by the
// board's wiring before the simulation starts.
#pragma once

#include <cstdint>
#include <vector>

#include "file/archive.hpp"
#include "gang/core_set.hpp"
#include "hart/hart_code.hpp"
#include "hart/hart_debugger.hpp"
#include "kernel/activity.hpp"
#include "kernel/fluid_share.hpp"
#include "kernel/hbm_if.hpp"
#include "kernel/remote_if.hpp"
#include "probe/core_probe.hpp"

namespace tpu::model {

// Packet of the control channel, with priority over data on the links, so only latency counts: 32
// bytes, and the rows of a gang that has them.
struct ControlPacket {
  enum class Type : uint8_t { kArrive, kRelease, kAbortRequest, kAbort };
  void visit_state(spec::Archive& archive) {
    archive.choice(type, Type::kAbort);
    archive(kind, code, origin, tag, gang, step);
  }

  Type type;
  uint8_t kind;     // gsync KIND_*
  uint8_t code;     // gsync CODE_*
  uint16_t origin;  // core that began the abort
  uint32_t tag;     // launch id
  spec::CoreSet gang;
  uint32_t step;
};

class ControlIf {
 public:
  virtual ~ControlIf() = default;
  // A packet that arrives at cycle `at`.
  virtual void control_packet(uint64_t at, uint32_t from, const ControlPacket& packet) = 0;
};

class HartClock;

struct Fabric {
  IciIf* ici = nullptr;
  FluidShare* share = nullptr;
  Activity* activity = nullptr;
  HartClock* hart_clock = nullptr;
  const ProbeSet* probes = nullptr;  // who listens to the harts; may be null
  HartDebugger* debugger = nullptr;  // who may stop them; may be null
  HartCode* hart_code = nullptr;     // of their images; may be null
  std::vector<ControlIf*> control;   // by core
  std::vector<HbmIf*> hbm;           // by core
  std::vector<CoreProbe*> cores;     // by core, who counts its uploads; may be empty
};

}  // namespace tpu::model
