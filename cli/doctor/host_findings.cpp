// /proc, /sys and limits of this process, as the kernel shows them; what cannot be read is left
// out.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gnu/libc-version.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "check/host_room.hpp"
#include "cli/doctor/finding.hpp"
#include "cli/host_limits.hpp"
#include "terminal/counted.hpp"

namespace tpu::driver {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
// The perceptron of `tpuboard demo` takes a third of it.
constexpr double kLeastMemory = 1 * kGiB;
constexpr uint64_t kLeastFiles = 256;

// The value behind "name:" in a file of such lines; empty: none.
std::string line_value(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon != std::string::npos && line.compare(0, name.size(), name) == 0) {
      const size_t value = line.find_first_not_of(" \t", colon + 1);
      return value == std::string::npos ? std::string() : line.substr(value);
    }
  }
  return {};
}

// A number that is alone in a file; none for "max".
std::optional<double> number_in(const std::string& path) {
  std::ifstream file(path);
  double number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

void look_at_processor(Findings& found) {
  utsname kernel{};
  uname(&kernel);
  const std::string model = line_value("/proc/cpuinfo", "model name");
  const std::vector<std::string> simd = host_simd();
  const std::string text =
      fmt::format("{}{}, {}", kernel.machine, model.empty() ? "" : ", " + model,
                  simd.empty() ? "no AVX2" : fmt::format("{}", fmt::join(simd, ", ")));
  if (simd.empty()) {
    found.push_back({Level::kWarning, "processor", text,
                     "simulation is slow, and units do not run as Verilog; use a host with AVX2 "
                     "(in a virtual machine: pass the processor of the host through)"});
  } else if (simd.front() == "neon") {
    found.push_back({Level::kNote, "processor", text,
                     "runs of vector instructions and control harts are interpreted: no code "
                     "generator for this processor; results and cycles are the same"});
  } else {
    found.push_back({Level::kOk, "processor", text, ""});
  }
  found.push_back(
      {Level::kOk, "system",
       fmt::format("{} {}, glibc {}", kernel.sysname, kernel.release, gnu_get_libc_version()), ""});
}

// Of the control group, in cores; none: no limit.
std::optional<double> core_quota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0;
  double period = 0;
  return file >> quota >> period && period > 0 ? std::optional(quota / period) : std::nullopt;
}

// Those that the process may use; 0: the kernel does not say. A host can have more than the 1,024
// of a cpu_set_t: the kernel rejects a set that is too small for it.
int usable_cores() {
  constexpr size_t kMost = size_t{1} << 20;
  int count = 0;
  for (size_t room = CPU_SETSIZE; count == 0 && room <= kMost; room *= 2) {
    cpu_set_t* const mask = CPU_ALLOC(room);
    if (mask == nullptr) {
      return 0;
    }
    const size_t bytes = CPU_ALLOC_SIZE(room);
    const int error = sched_getaffinity(0, bytes, mask) == 0 ? 0 : errno;
    count = error == 0 ? CPU_COUNT_S(bytes, mask) : 0;
    CPU_FREE(mask);
    if (error != 0 && error != EINVAL) {
      return 0;
    }
  }
  return count;
}

void look_at_cores(Findings& found) {
  const int cores = usable_cores();
  if (cores == 0) {
    return;
  }
  const std::optional<double> quota = core_quota();
  std::string text = spec::counted(cores, "core");
  if (quota) {
    text += fmt::format(", of which the control group gives {:.1f}", *quota);
  }
  const bool is_one = cores < 2 || (quota && *quota < 2);
  found.push_back(
      {is_one ? Level::kNote : Level::kOk, "cores", text,
       is_one ? "two cores or more are faster: one simulates, the others compute" : ""});
}

void look_at_memory(Findings& found) {
  const uint64_t room = host_room();
  if (room == std::numeric_limits<uint64_t>::max()) {
    return;
  }
  const auto free = static_cast<double>(room);
  const std::string text = fmt::format("{:.1f} GiB available", free / kGiB);
  const bool is_little = free < kLeastMemory;
  found.push_back({is_little ? Level::kWarning : Level::kOk, "memory", text,
                   is_little ? "a board needs memory for all that its programs write; close other "
                               "programs, or raise the limit of the container"
                             : ""});
  if (number_in("/proc/sys/vm/overcommit_memory") == 2.0) {
    found.push_back({Level::kWarning, "memory", "vm.overcommit_memory is 2",
                     "programs can run out of memory that is free; set it to 0 or 1 (sysctl)"});
  }
}

struct Limit {
  int resource;  // as getrlimit() takes it
  const char* name;
  uint64_t least;  // below it a warning
  double unit;
  const char* unit_name;
  const char* advice;
};
constexpr double kKiB = 1024;
// With 2 GiB the perceptron of the demo fails, with 4 GiB it trains.
constexpr uint64_t kLeastAddresses = uint64_t{4} << 30;
constexpr std::array<Limit, 3> kLimits = {{
    {RLIMIT_AS, "address space (ulimit -v)", kLeastAddresses, kKiB, "KiB",
     "programs can run out of memory that is free; ulimit -v unlimited"},
    {RLIMIT_NOFILE, "open files (ulimit -n)", kLeastFiles, 1, "files",
     "pods and servers need more; ulimit -n 1024"},
    {RLIMIT_FSIZE, "size of files (ulimit -f)", uint64_t{1} << 30, kKiB, "KiB",
     "waveforms and snapshots can be larger; ulimit -f unlimited"},
}};

void look_at_limits(Findings& found) {
  bool is_limited = false;
  for (const Limit& limit : kLimits) {
    rlimit value{};
    if (getrlimit(static_cast<__rlimit_resource_t>(limit.resource), &value) == 0 &&
        value.rlim_cur != RLIM_INFINITY && value.rlim_cur < limit.least) {
      is_limited = true;
      found.push_back(
          {Level::kWarning, "limits",
           fmt::format("{}: {:.0f} {}", limit.name,
                       static_cast<double>(value.rlim_cur) / limit.unit, limit.unit_name),
           limit.advice});
    }
  }
  if (!is_limited) {
    found.push_back({Level::kOk, "limits", "address space, open files and size of files", ""});
  }
}

}  // namespace

void look_at_host(Findings& found) {
  look_at_processor(found);
  look_at_cores(found);
  look_at_memory(found);
  look_at_limits(found);
}

}  // namespace tpu::driver
