// Names that are like one that there is not, for error texts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tpu::spec {

// Characters to insert, remove or replace until `a` is `b`.
inline size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

// Which of `names` is meant by one that is typed wrong, by one character and a quarter of all at
// most; empty: none.
template <class Names>
std::string closest_name(std::string_view name, const Names& names) {
  size_t too_many = 2 + name.size() / 4;
  std::string closest;
  for (const auto& each : names) {
    if (const size_t edits = edit_distance(name, each); edits < too_many) {
      closest = each;
      too_many = edits;
    }
  }
  return closest;
}

// Up to four of `names`, the most similar first, with commas between them.
template <class Names>
std::string near_names(std::string_view name, const Names& names) {
  constexpr size_t kListed = 4;
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const auto& each : names) {
    ranked.emplace_back(edit_distance(name, each), each);
  }
  std::ranges::sort(ranked);
  std::string text;
  for (size_t i = 0; i < std::min(kListed, ranked.size()); ++i) {
    text += (i == 0 ? "" : ", ") + ranked[i].second;
  }
  return text;
}

}  // namespace tpu::spec
