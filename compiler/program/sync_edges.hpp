// Edges between commands, and how they get into the headers of a listing.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "program/listing.hpp"

namespace tpu::compiler {

struct SyncEdge {
  int from, to;          // item indices of the listing, with its fences, before insertion
  bool carried = false;  // `to` waits in the next iteration
  int count = 1;         // of signals: those of a credit, which a settle takes
};

// What a signal adds, and what a wait asks for, at most.
inline constexpr int kMostSignalled = std::numeric_limits<decltype(spec::Signal::value)>::max();
inline constexpr int kMostAwaited = std::numeric_limits<decltype(spec::Wait::value)>::max();

// Puts the waits and signals of the edges, each with its semaphore, into the headers of the
// commands; what does not fit goes to nops of the same queue. A wait of the sequencer comes behind
// its item. Fences without an edge go.
void write_edges(Listing& listing, const std::vector<SyncEdge>& edges,
                 const std::vector<int>& semaphores);

}  // namespace tpu::compiler
