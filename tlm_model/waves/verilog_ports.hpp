// The ports of one matrix unit that runs as Verilog, as signals of the board's wave file:
// `board.chip0.core0.mxu0.rtl.x_valid`. A command that starts before the one before it has drained
// is shown behind it: its run in the Verilog begins with an empty array.
#pragma once

#include <cstdint>
#include <string>

#include "mxu/mxu_ports.hpp"
#include "waves/fst_process.hpp"
#include "waves/signal_tree.hpp"

namespace tpu::model {

struct VerilogUnit {
  std::string path;  // of the matrix unit
  uint32_t rows = 128;
  uint32_t cols = 128;
};

class VerilogPorts {
 public:
  VerilogPorts(const VerilogUnit& unit, SignalTree& tree);

  // A cycle of a job, in the order of the jobs; any thread, one at a time. As `holder` of the file
  // it names the cycle that it has reached. Nothing from cycle `end` on.
  void show(FstProcess& fst, uint32_t holder, uint64_t end, const MxuPorts& ports);

 private:
  void set_words(FstProcess& fst, uint32_t signal, uint64_t cycle, const uint32_t* words,
                 uint32_t count) const;

  uint32_t rows_;
  uint32_t cols_;
  uint32_t w_valid_, w_, x_valid_, x_swap_, x_, acc_, y_valid_, y_, busy_, tile_, op_id_;
  uint64_t next_ = 0;  // cycle
};

}  // namespace tpu::model
