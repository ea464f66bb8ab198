#include "passes/least_cut.hpp"

#include <algorithm>

namespace tpu::compiler {

LeastCut::LeastCut(size_t nodes) : edges_of_(nodes + 2) {}

void LeastCut::add(size_t from, size_t to, int64_t capacity) {
  edges_of_[from].push_back(edges_.size());
  edges_.push_back({to, capacity});
  edges_of_[to].push_back(edges_.size());
  edges_.push_back({from, 0});
}

// Distances from the source along edges that are not full; false: the sink is not reached.
bool LeastCut::find_levels() {
  level_.assign(edges_of_.size(), -1);
  std::vector<size_t> front = {source()};
  level_[source()] = 0;
  for (size_t at = 0; at < front.size(); ++at) {
    for (const size_t e : edges_of_[front[at]]) {
      if (edges_[e].left > 0 && level_[edges_[e].to] < 0) {
        level_[edges_[e].to] = level_[front[at]] + 1;
        front.push_back(edges_[e].to);
      }
    }
  }
  return level_[sink()] >= 0;
}

// Along one path; as deep as the longest chain of ops of a layer.
int64_t LeastCut::push(size_t node, int64_t most) {
  if (node == sink()) {
    return most;
  }
  for (; next_[node] < edges_of_[node].size(); ++next_[node]) {
    const size_t e = edges_of_[node][next_[node]];
    if (edges_[e].left <= 0 || level_[edges_[e].to] != level_[node] + 1) {
      continue;
    }
    const int64_t pushed = push(edges_[e].to, std::min(most, edges_[e].left));
    if (pushed > 0) {
      edges_[e].left -= pushed;
      edges_[e ^ 1].left += pushed;
      return pushed;
    }
  }
  return 0;
}

std::vector<bool> LeastCut::behind() {
  while (find_levels()) {
    next_.assign(edges_of_.size(), 0);
    while (push(source(), kAll) > 0) {
    }
  }
  // What reaches the sink along edges that are not full.
  std::vector<bool> reaches(edges_of_.size());
  std::vector<size_t> front = {sink()};
  reaches[sink()] = true;
  for (size_t at = 0; at < front.size(); ++at) {
    for (const size_t e : edges_of_[front[at]]) {
      const size_t from = edges_[e].to;  // of the opposite edge
      if (edges_[e ^ 1].left > 0 && !reaches[from]) {
        reaches[from] = true;
        front.push_back(from);
      }
    }
  }
  reaches.resize(edges_of_.size() - 2);
  return reaches;
}

}  // namespace tpu::compiler
