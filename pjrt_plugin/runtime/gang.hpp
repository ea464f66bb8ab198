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
  uint64_t number;  // counts the launches of the group, from 1; those with names by themselves
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
  std::string late_text(double limit, const OwnerText& owner) const {
    std::vector<std::string> names, owners;
    for (const size_t p : missing()) {
      names.push_back(fmt::format("{} {} (TPU:{})",
                                  program.compiled->import.partitions > 1 ? "partition" : "replica",
                                  p, program.devices[p]));
      const std::string of = owner ? owner(program.devices[p]) : "";
      if (!of.empty() && std::ranges::find(owners, of) == owners.end()) {
        owners.push_back(of);
      }
    }
    return fmt::format(
        "{}: {} did not launch it within {:g} s, for which the others have waited{}{}; each of "
        "them must launch the same programs in the same order (TPUBOARD_REPLICA_LIMIT sets the "
        "time)",
        text(), fmt::join(names, ", "), limit, owners.empty() ? "" : "; they belong to ",
        fmt::join(owners, ", "));
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
  std::map<std::string, Gang> named;
  uint64_t named_so_far = 0;

  /// The next launch of a partition is one that no partition has asked for. All partitions that
  /// lack one lack the same.
  bool lacks(size_t partition, const std::string& meets) const {
    return meets.empty() ? first + gangs.size() <= asked[partition] : !named.contains(meets);
  }
  void forget_met() {
    while (!gangs.empty() && gangs.front().all_asked()) {
      gangs.pop_front();
      ++first;
    }
    std::erase_if(named, [](const auto& entry) { return entry.second.all_asked(); });
  }
  /// Launches with names stay: shares that are still on their way get the error.
  void count_anew() {
    asked.assign(asked.size(), 0);
    gangs.clear();
    first = 0;
  }
  /// The launch with this name, from its first share on, which has the spare one.
  Gang& with_name(const std::string& meets, const Program& program, Spare& spare) {
    if (const auto at = named.find(meets); at != named.end()) {
      return at->second;
    }
    forget_failed();
    return named.emplace(meets, new_gang(++named_so_far, program, spare)).first->second;
  }
  /// The next launch of the partition, with a number.
  Gang& with_next_number(size_t partition, const Program& program, Spare& spare) {
    const uint64_t number = asked[partition];
    if (first + gangs.size() <= number) {
      gangs.push_back(new_gang(first + gangs.size() + 1, program, spare));
    }
    ++asked[partition];  // behind what can throw
    return gangs[number - first];
  }
  static Gang new_gang(uint64_t number, const Program& program, Spare& spare) {
    const size_t devices = program.devices.size();
    return {.program = program,
            .number = number,
            .launch = std::move(spare),
            .asked = std::vector<bool>(devices),
            .last = Clock::now(),
            .error = {},
            .programs = Programs(devices)};
  }
  /// Of those that have failed, whose other shares may never come: the oldest.
  void forget_failed() {
    constexpr size_t kKept = 64;
    std::vector<uint64_t> failed;
    for (const auto& [name, gang] : named) {
      if (gang.error) {
        failed.push_back(gang.number);
      }
    }
    if (failed.size() > kKept) {
      std::ranges::sort(failed);
      std::erase_if(named, [last = failed[failed.size() - kKept]](const auto& entry) {
        return entry.second.error && entry.second.number < last;
      });
    }
  }
  std::vector<Gang*> all() {
    std::vector<Gang*> found;
    for (Gang& gang : gangs) {
      found.push_back(&gang);
    }
    for (auto& [name, gang] : named) {
      found.push_back(&gang);
    }
    return found;
  }
};

}  // namespace tpu::pjrt
