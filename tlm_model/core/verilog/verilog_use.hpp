// Whether a block of a core is its model, its Verilog, or both side by side.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tpu::model {

enum class VerilogMode : uint8_t {
  kModel,
  kRtl,       // the Verilog decides
  kLockstep,  // the model decides, the Verilog runs beside it and is compared
};

// What the block is told, and how it reports. The functions outlive it.
struct VerilogUse {
  VerilogMode mode = VerilogMode::kModel;
  std::function<void()> compared{};                   // one value or transfer
  std::function<void(const std::string&)> differs{};  // says cycle, what the model has, the Verilog

  bool verilog() const { return mode != VerilogMode::kModel; }
};

}  // namespace tpu::model
