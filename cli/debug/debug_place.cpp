// Moves.
#include "cli/debug/debug_place.hpp"

#include <algorithm>

namespace tpu::driver {

void DebugPlace::look_at(size_t core) {
  core_ = core;
  passed_.clear();
  for (size_t value = 0; value < run_.kept().values.size(); ++value) {
    if (const auto maker = run_.maker(value, core)) {
      passed_.push_back({*maker, value});
    }
  }
  std::stable_sort(passed_.begin(), passed_.end(),
                   [](const Passed& a, const Passed& b) { return a.command < b.command; });
}

size_t DebugPlace::passed_count() const {
  const auto end = std::partition_point(passed_.begin(), passed_.end(), [&](const Passed& passed) {
    return passed.command < behind_;
  });
  return static_cast<size_t>(end - passed_.begin());
}

std::optional<size_t> DebugPlace::value() const {
  const size_t passed = passed_count();
  return passed == 0 ? std::nullopt : std::optional(passed_[passed - 1].value);
}

std::vector<size_t> DebugPlace::values_of(size_t command) const {
  std::vector<size_t> values;
  for (const Passed& passed : passed_) {
    if (passed.command == command) {
      values.push_back(passed.value);
    }
  }
  return values;
}

bool DebugPlace::to_value(size_t value) {
  const auto maker = run_.maker(value, core_);
  if (maker) {
    to_command(*maker);
  }
  return maker.has_value();
}

bool DebugPlace::move_values(uint64_t count, bool forth) {
  const size_t passed = passed_count();
  const size_t left = forth ? passed_.size() - passed : (passed == 0 ? 0 : passed - 1);
  const auto moved = static_cast<size_t>(std::min<uint64_t>(left, count));
  if (moved == 0) {
    return false;
  }
  to_command(passed_[forth ? passed + moved - 1 : passed - moved - 1].command);
  return true;
}

bool DebugPlace::move_commands(uint64_t count, bool forth) {
  const auto& commands = run_.commands();
  uint64_t moved = 0;
  size_t place = behind_;
  for (size_t at = behind_; moved < count && (forth ? at < commands.size() : at > 1);) {
    at = forth ? at + 1 : at - 1;
    if (commands[at - 1].core == device()) {
      place = at;
      ++moved;
    }
  }
  behind_ = place;
  return moved > 0;
}

}  // namespace tpu::driver
