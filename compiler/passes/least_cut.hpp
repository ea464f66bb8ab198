// The least cut between a source and a sink of a graph with capacities (Dinic's algorithm).
// Of equal ones it is the one nearest to the sink.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace tpu::compiler {

class LeastCut {
 public:
  static constexpr int64_t kAll = std::numeric_limits<int64_t>::max() / 4;  // never cut

  explicit LeastCut(size_t nodes);

  void add(size_t from, size_t to, int64_t capacity);
  void from_source(size_t node, int64_t capacity = kAll) { add(source(), node, capacity); }
  void to_sink(size_t node) { add(node, sink(), kAll); }

  // By node: true if it is on the sink's side. Once.
  std::vector<bool> behind();

 private:
  struct Edge {
    size_t to = 0;
    int64_t left = 0;  // capacity
  };

  size_t source() const { return edges_of_.size() - 2; }
  size_t sink() const { return edges_of_.size() - 1; }
  bool find_levels();
  int64_t push(size_t node, int64_t most);

  std::vector<Edge> edges_;  // each with its opposite next to it
  std::vector<std::vector<size_t>> edges_of_;
  std::vector<int> level_;
  std::vector<size_t> next_;  // edge of a node that is tried next
};

}  // namespace tpu::compiler
