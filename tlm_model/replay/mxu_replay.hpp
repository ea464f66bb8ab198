// A tile that a lockstep of matrix units has written to a file, again: through the Verilog, the
// fast engines of this host and the reference.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

namespace tpu::model {

// Outputs of a replayed tile that differ from the reference in integers.
struct MxuReplayResult {
  uint64_t verilog = 0;           // the Verilog, now
  uint64_t engines = 0;           // the fast engines of this host, now; all together
  uint64_t recorded_verilog = 0;  // what the file holds
  uint64_t recorded_engine = 0;
  bool agree() const {
    return verilog == 0 && engines == 0 && recorded_verilog == 0 && recorded_engine == 0;
  }
};

// Runs a dumped tile through the Verilog, the fast engines of this host and the reference in
// integers, and prints where the recorded and the new results differ. Writes an FST of the run if
// waves_path is not empty. Throws std::runtime_error on a bad file and when the FST cannot be
// written.
MxuReplayResult mxu_replay(const std::string& path, const std::string& waves_path,
                           uint64_t clock_hz, std::ostream& out);

}  // namespace tpu::model
