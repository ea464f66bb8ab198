// Programs of a board: loading them. An Executable runs them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tpu/board_facet.hpp"
#include "tpu/executable.hpp"

namespace tpu::exe {
struct ExecutableT;
}

namespace tpu::driver {

/// Loads programs onto cores.
class ProgramFacet : public virtual BoardFacet {
 public:
  /// Loads a program from a file or from bytes and waits until it is there. A program for one core
  /// goes to `device`, others to the cores for which they were compiled. Throws InvalidArgument for
  /// a file that cannot be read or is damaged, or a program for another board, ResourceExhausted
  /// when HBM is used up, or program ids by what has been launched.
  Executable load(const std::string& path, int device = 0) const;
  /// The same from the bytes of such a file. `file`: the program that `tpuboard run` would take for
  /// them, which texts name that say how to run it again; empty: not known.
  Executable load(std::span<const std::byte> bytes, int device = 0,
                  const std::string& file = {}) const;
  /// As above, on `devices` in the order of the program's partitions (empty: as compiled), and
  /// without waiting for the board: launches come after the load, and fail when it fails. A
  /// program of one core runs on any device, others on the cores for which they were compiled.
  Executable load(std::span<const std::byte> bytes, const std::vector<int>& devices) const;
  /// The same of a program in memory as the compiler makes it, which nobody changes any more and
  /// which is not copied. It may be loaded on many groups of devices.
  Executable load(std::shared_ptr<const exe::ExecutableT> executable,
                  const std::vector<int>& devices) const;

 private:
  Executable load(std::shared_ptr<const exe::ExecutableT> executable, const std::string& file,
                  const std::vector<int>& devices, bool wait) const;
};

}  // namespace tpu::driver
