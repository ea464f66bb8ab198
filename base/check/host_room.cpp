// What the kernel says of free memory, and the limits of the control groups around the process.
#include "check/host_room.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();

// The number behind `key` in a file of lines "key number ..."; an empty key: the first number.
uint64_t number_in(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    uint64_t number = 0;
    if ((key.empty() || (words >> word && word == key)) && words >> number) {
      return number;
    }
  }
  return kUnknown;
}

// Free and what the kernel would take back first.
uint64_t machine_room() {
  constexpr uint64_t kKibi = 1024;
  const uint64_t available = number_in("/proc/meminfo", "MemAvailable:");
  const uint64_t swap = number_in("/proc/meminfo", "SwapFree:");
  return available == kUnknown ? kUnknown : (available + (swap == kUnknown ? 0 : swap)) * kKibi;
}

// Of one control group (version 2); kUnknown without a limit.
uint64_t group_room(const fs::path& group) {
  const uint64_t limit = number_in(group / "memory.max", "");
  const uint64_t used = number_in(group / "memory.current", "");
  if (limit == kUnknown || used == kUnknown) {
    return kUnknown;
  }
  const uint64_t cache = number_in(group / "memory.stat", "inactive_file");
  const uint64_t taken = used - std::min(used, cache == kUnknown ? 0 : cache);
  return limit - std::min(limit, taken);
}

uint64_t groups_room() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line) && !line.starts_with("0::")) {
  }
  uint64_t room = kUnknown;
  if (line.starts_with("0::/")) {
    const fs::path root = "/sys/fs/cgroup";
    for (fs::path group = root / line.substr(4); group != root; group = group.parent_path()) {
      room = std::min(room, group_room(group));
    }
    room = std::min(room, group_room(root));
  }
  return room;
}

}  // namespace

uint64_t host_room() { return std::min(machine_room(), groups_room()); }

void need_host_room(uint64_t bytes, const std::string& what) {
  if (bytes < kSmallHostBytes) {
    return;
  }
  if (const uint64_t room = host_room(); bytes > room) {
    throw Error(
        ErrorCode::kResourceExhausted,
        fmt::format("{} takes {} bytes of host memory, {} are free; use smaller arrays or a "
                    "host with more memory",
                    what, bytes, room));
  }
}

HostArray host_array(DType dtype, const Shape& shape, const std::string& what) {
  const uint64_t bytes = byte_count(dtype, shape);
  const std::string type = type_text(dtype, shape);
  need_host_room(bytes, what.empty() ? type : fmt::format("{} ({})", what, type));
  return {dtype, shape, std::vector<std::byte>(bytes)};
}

}  // namespace tpu::driver
