#include "passes/repeats.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace tpu::compiler {

namespace {

// Periods that are tried: those that most pairs of neighbouring equal elements have.
constexpr size_t kTried = 64;
constexpr size_t kFrequent = 512;  // places of an element

std::vector<size_t> likely_periods(std::span<const uint32_t> list, size_t shortest) {
  std::unordered_map<uint32_t, std::vector<size_t>> places;
  for (size_t i = 0; i < list.size(); ++i) {
    places[list[i]].push_back(i);
  }
  std::map<size_t, size_t> votes;  // ordered: equal numbers of votes go to the shorter period
  for (const auto& [element, at] : places) {
    for (size_t i = 1; i < at.size() && at.size() <= kFrequent; ++i) {
      ++votes[at[i] - at[i - 1]];
    }
  }
  votes.erase(votes.begin(), votes.lower_bound(shortest));
  std::vector<std::pair<size_t, size_t>> by_votes(votes.begin(), votes.end());
  std::ranges::stable_sort(by_votes, std::greater<>(), &std::pair<size_t, size_t>::second);
  by_votes.resize(std::min(by_votes.size(), kTried));
  std::vector<size_t> periods;
  for (const auto& [period, count] : by_votes) {
    periods.push_back(period);
  }
  return periods;
}

void add_runs(std::span<const uint32_t> list, size_t period, size_t fewest,
              std::vector<Repeat>& out) {
  size_t equal = 0;  // elements in front of i that the list has again one period later
  for (size_t i = 0; i + period <= list.size(); ++i) {
    if (i + period < list.size() && list[i] == list[i + period]) {
      ++equal;
      continue;
    }
    const size_t count = equal / period + 1;
    if (count >= fewest) {
      out.push_back({i - equal, period, count, equal % period});
    }
    equal = 0;
  }
}

}  // namespace

std::vector<Repeat> find_repeats(std::span<const uint32_t> list, size_t shortest, size_t fewest,
                                 const std::function<bool(const Repeat&)>& wanted) {
  std::vector<Repeat> found;
  for (const size_t period : likely_periods(list, shortest)) {
    add_runs(list, period, fewest, found);
  }
  if (wanted) {
    std::erase_if(found, [&](const Repeat& r) { return !wanted(r); });
  }
  std::ranges::stable_sort(found, [](const Repeat& a, const Repeat& b) {
    const size_t saved_a = (a.count - 1) * a.period, saved_b = (b.count - 1) * b.period;
    return saved_a != saved_b ? saved_a > saved_b : a.period < b.period;
  });
  std::vector<Repeat> kept;
  for (const Repeat& r : found) {
    if (std::ranges::none_of(
            kept, [&](const Repeat& k) { return r.first < k.end() && k.first < r.end(); })) {
      kept.push_back(r);
    }
  }
  std::ranges::sort(kept, {}, &Repeat::first);
  return kept;
}

}  // namespace tpu::compiler
