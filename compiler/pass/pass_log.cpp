// See pass_log.hpp.
#include "pass/pass_log.hpp"

#include <algorithm>

namespace tpu::compiler {

void PassLog::gave_up(std::string_view why, int64_t times) {
  const auto at = reasons_.find(why);
  if (at == reasons_.end()) {
    reasons_.emplace(why, times);
  } else {
    at->second += times;
  }
}

void PassStats::add(double run_seconds, int64_t size_before, int64_t size_after, int64_t new_ones,
                    const PassLog& log) {
  before = runs == 0 ? size_before : before;
  ++runs;
  seconds += run_seconds;
  after = size_after;
  const int64_t added = new_ones < 0 ? std::max<int64_t>(0, size_after - size_before) : new_ones;
  made += added;
  removed += size_before + added - size_after;
  for (const auto& [why, times] : log.reasons()) {
    gave_up[why] += times;
  }
}

PassStats& PassReport::of(std::string_view pass, std::string_view unit) {
  const auto at = std::find_if(passes_.begin(), passes_.end(),
                               [&](const PassStats& s) { return s.pass == pass; });
  if (at != passes_.end()) {
    return *at;
  }
  PassStats& stats = passes_.emplace_back();
  stats.pass = pass;
  stats.unit = unit;
  return stats;
}

}  // namespace tpu::compiler
