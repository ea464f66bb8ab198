// Reads a wave file back, for tests.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tpu::test {

struct WaveChange {
  uint64_t time;  // in the unit of the file
  std::string value;
  bool operator==(const WaveChange&) const = default;
};
// By full name of the signal, without the range of its bits; changes in order of time. Values are
// bits, or the names that an enum of the file gives them.
using WaveChanges = std::map<std::string, std::vector<WaveChange>>;

// Empty when the file cannot be read.
WaveChanges read_fst(const std::string& path);

}  // namespace tpu::test
