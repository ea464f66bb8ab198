// One Verilated systolic array, as plain calls: set inputs, step a cycle, read outputs. Hides
// Verilator's types. Implemented per array size by verilated_array.hpp; make_rtl_array knows the
// sizes that are built in.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "arith/mxu_shape.hpp"

namespace tpu::model {

// Inputs of one cycle; pointers must stay valid until step() returns and may be null when the flag
// is false.
struct RtlArrayInput {
  bool w_valid = false;
  bool x_valid = false;
  bool x_swap = false;
  const uint32_t* w = nullptr;    // cols words {w[2p+1], w[2p]}
  const uint32_t* x = nullptr;    // rows / 2 words
  const uint32_t* acc = nullptr;  // cols words; null means +0
  // Shown in waves: the tile whose rows enter, and its operation.
  uint64_t tile = 0;
  uint32_t op_id = 0;
};

struct WaveOptions {
  std::string path;          // FST file
  int depth = 1;             // levels of hierarchy below the array's top
  uint64_t clock_hz = 0;     // of the array, for the time base
  uint64_t start_cycle = 0;  // simulated time of the first cycle dumped
  // Dumping stops before the disk has less room: the FST writer ends the whole process on a full
  // disk.
  uint64_t min_free_bytes = uint64_t{64} << 20;
};

// Throws std::runtime_error if a dump to options.path could not begin, or another run writes it.
// Creates the file.
void check_wave_file(const WaveOptions& options);

class RtlArray {
 public:
  virtual ~RtlArray() = default;

  const spec::MxuShape& shape() const { return shape_; }

  virtual void reset() = 0;
  // Applies the inputs and a rising edge. Outputs are then those of the next cycle.
  virtual void step(const RtlArrayInput& input) = 0;
  virtual bool y_valid() const = 0;
  virtual const uint32_t* y() const = 0;  // cols words, valid until the next step
  virtual bool busy() const = 0;

  // Dumps every cycle from here on; throws std::runtime_error as check_wave_file does.
  virtual void open_waves(const WaveOptions& options) = 0;
  virtual void set_wave_cycle(
      uint64_t cycle) = 0;  // simulated time of the next step; must not go back
  virtual void close_waves() = 0;
  // Why the last dump ended early; empty if it did not.
  virtual const std::string& wave_error() const = 0;

 protected:
  explicit RtlArray(const spec::MxuShape& shape) : shape_(shape) {}

 private:
  const spec::MxuShape shape_;
};

// `path` names its scope in waves ("board.chip0.core1.mxu0"). Throws std::runtime_error that lists
// the built-in sizes if `shape` is not one of them, or if the host lacks AVX2.
std::unique_ptr<RtlArray> make_rtl_array(const spec::MxuShape& shape,
                                         const std::string& path = "mxu");

}  // namespace tpu::model
