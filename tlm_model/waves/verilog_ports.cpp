// Ports to signals.
#include "waves/verilog_ports.hpp"

#include <algorithm>
#include <vector>

namespace tpu::model {

VerilogPorts::VerilogPorts(const VerilogUnit& unit, SignalTree& tree)
    : rows_(unit.rows), cols_(unit.cols) {
  const auto add = [&](const char* name, WaveKind kind) {
    return tree.add(unit.path + ".rtl." + name, kind);
  };
  w_valid_ = add("w_valid", wave_number(1));
  w_ = add("w", wave_hex(cols_ * 32));
  x_valid_ = add("x_valid", wave_number(1));
  x_swap_ = add("x_swap", wave_number(1));
  x_ = add("x", wave_hex(rows_ * 16));
  acc_ = add("acc", wave_hex(cols_ * 32));
  y_valid_ = add("y_valid", wave_number(1));
  y_ = add("y", wave_hex(cols_ * 32));
  busy_ = add("busy", wave_number(1));
  tile_ = add("tile", wave_number(64));
  op_id_ = add("op_id", wave_number(32));
}

void VerilogPorts::set_words(FstProcess& fst, uint32_t signal, uint64_t cycle,
                             const uint32_t* words, uint32_t count) const {
  if (signal != kNoSignal && words != nullptr) {
    fst.set_words(signal, cycle, {words, count});
  }
}

void VerilogPorts::show(FstProcess& fst, uint32_t holder, uint64_t end, const MxuPorts& ports) {
  const uint64_t cycle = std::max(ports.cycle, next_);
  next_ = cycle + 1;
  if (cycle >= end) {
    return;
  }
  fst.hold(holder, cycle);
  const auto set = [&](uint32_t signal, uint64_t value, uint64_t delay = 0) {
    if (signal != kNoSignal) {
      fst.set(signal, cycle + delay, value);
    }
  };
  const std::vector<uint32_t> zeros(ports.x != nullptr && ports.acc == nullptr ? cols_ : 0);
  set(w_valid_, ports.w != nullptr ? 1 : 0);
  set(x_valid_, ports.x != nullptr ? 1 : 0);
  set(x_swap_, ports.swap ? 1 : 0);
  set(y_valid_, ports.y != nullptr ? 1 : 0, 1);  // outputs change with the edge that ends the cycle
  set(busy_, ports.busy ? 1 : 0, 1);
  set(tile_, ports.tile);
  set(op_id_, ports.op_id);
  set_words(fst, w_, cycle, ports.w, cols_);
  set_words(fst, x_, cycle, ports.x, rows_ / 2);
  set_words(fst, acc_, cycle, zeros.empty() ? ports.acc : zeros.data(), cols_);
  set_words(fst, y_, cycle + 1, ports.y, cols_);
}

}  // namespace tpu::model
