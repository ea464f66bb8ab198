// A launch whose devices ask for it one by one, those of one set of devices, and a program that was
// made of several: what gangs.cpp and joined_launches.cpp work with.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/gangs.hpp"

namespace tpu::pjrt {

struct Gangs::Gang {
  Program program;  // of the first that asked
  uint64_t number;  // counts the launches of the group, from 1
  std::shared_ptr<WaitingLaunch> launch;
  std::vector<bool> asked;  // by partition
  Clock::time_point last;   // somebody has asked
  std::optional<driver::Error> error;
  Programs programs;  // by partition

  bool differs() const {
    return std::ranges::any_of(programs, [this](const auto& other) {
      return other->fingerprint != programs[0]->fingerprint;
    });
  }
  bool is_late() const { return !error && !all_asked(); }
  bool all_asked() const {
    return std::ranges::all_of(asked, [](bool has) { return has; });
  }
  std::vector<size_t> missing() const {
    std::vector<size_t> places;
    for (size_t p = 0; p < asked.size(); ++p) {
      if (!asked[p]) {
        places.push_back(p);
      }
    }
    return places;
  }
  // "launch 3 of jit_step on TPU:0, TPU:1"
  std::string text() const {
    std::vector<std::string> names;
    for (const int device : program.devices) {
      names.push_back(fmt::format("TPU:{}", device));
    }
    return fmt::format("launch {} of {} on {}", number, launch->name(), fmt::join(names, ", "));
  }
  std::string late_text(double limit) const {
    std::vector<std::string> names;
    for (const size_t p : missing()) {
      names.push_back(fmt::format("{} {} (TPU:{})",
                                  program.compiled->import.partitions > 1 ? "partition" : "replica",
                                  p, program.devices[p]));
    }
    return fmt::format(
        "{}: {} did not launch it within {:g} s, for which the others have waited; each of them "
        "must launch the same programs in the same order (TPUBOARD_REPLICA_LIMIT sets the time)",
        text(), fmt::join(names, ", "), limit);
  }
};

// One program of those of several replicas.
struct Gangs::Joined {
  /// As the program of a launch on these devices.
  static WaitingLaunch::Program program_of(const driver::Board& board,
                                           const std::vector<int>& devices,
                                           std::shared_ptr<Joined> joined);

  std::vector<std::weak_ptr<const client::CompiledProgram>> sources;
  client::JoinedPrograms programs;
  std::shared_ptr<const std::vector<std::vector<GivenArgument>>> arguments;
  base::Mutex mutex;
  driver::Executable loaded TPU_GUARDED_BY(mutex);
};

struct Gangs::Group {
  std::vector<uint64_t> asked;  // launches by partition
  std::deque<Gang> gangs;       // those that somebody has not asked for yet
  uint64_t first = 0;           // number of launches in front of them

  /// The next launch of a partition is one that no partition has asked for. All partitions that
  /// lack one lack the same.
  bool lacks(size_t partition) const { return first + gangs.size() <= asked[partition]; }
  void forget_met() {
    while (!gangs.empty() && gangs.front().all_asked()) {
      gangs.pop_front();
      ++first;
    }
  }
};

}  // namespace tpu::pjrt
