// Whether a block of a core is its model, its Verilog, or both side by side.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

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

// The same use, with `tell` called behind each report.
inline VerilogUse also_telling(VerilogUse use, std::function<void()> tell) {
  if (use.differs) {
    use.differs = [report = std::move(use.differs),
                   tell = std::move(tell)](const std::string& text) {
      report(text);
      tell();
    };
  }
  return use;
}

}  // namespace tpu::model
