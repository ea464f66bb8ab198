// System: the board as TensorFlow's TPU system. It is opened by the first call that needs it, and
// stays open until the process exits. What the opaque handles of the interface point to.
#pragma once

#include <memory>
#include <vector>

#include "memory.hpp"
#include "stream.hpp"

/// A core. Its executor is the same object.
struct SE_StreamExecutor {
  int device = 0;
};
struct SE_TpuTopology_Core {
  int id = 0;
  int x = 0, y = 0;  ///< of its chip
  int index = 0;     ///< in its chip
};
struct SE_Stream {
  tpu::tensorflow::Stream stream;
};
struct SE_Event {
  tpu::driver::Event event;
};

namespace tpu::tensorflow {

/// Numbers of the board, known without opening it.
struct Places {
  int chips = 0, chips_x = 0, chips_y = 0, cores_per_chip = 0;
  std::vector<SE_TpuTopology_Core> cores;
};
/// Throws driver::Error for a board file that cannot be used.
Places& places();
/// Without cores for such a board file, of which stderr then has a line.
Places& places_or_none() noexcept;

class System {
 public:
  /// Opens the board. Throws driver::Error; a call that failed can be repeated.
  static System& get();

  const pjrt::Runtime& runtime() const { return runtime_; }
  Memory& memory() { return memory_; }
  /// Throws InvalidArgument for a number that no core has.
  SE_StreamExecutor& executor(int device);

 private:
  explicit System(const pjrt::Runtime& runtime);

  const pjrt::Runtime& runtime_;
  Memory memory_;
  std::vector<std::unique_ptr<SE_StreamExecutor>> executors_;
};

/// The one process-wide name of our platform.
inline char platform_id;

}  // namespace tpu::tensorflow
