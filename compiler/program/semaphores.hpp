// insert_semaphores: orders all conflicting accesses of a listing.
//   before   dma_in: v0 <- slot0          vpu: v0 -> v1         dma_out: slot1 <- v1
//   after    dma_in ... signal s0         vpu wait s0 signal s1 dma_out wait s1
// Edges are read-after-write, write-after-read and write-after-write on byte ranges. An edge is
// dropped if the consumer's queue already knows the producer (vector clocks; latest candidate
// first), so what stays is the transitive reduction. One semaphore for each ordered pair of queues:
// a kept edge is one signal of 1 and one wait that takes 1; the k-th wait meets the k-th signal,
// since both queues are in order. All semaphores are zero at the end.
// A drain ends a straight-line piece: the sequencer waits for the last command of every queue (by
// one semaphore, which counts them), so all semaphores are zero there and nothing is carried over a
// label or branch. Waits of the sequencer for single commands have a semaphore for each queue.
// Loops with fences (loop_fences.hpp) have no drains. Their edges come of two iterations one behind
// the other: those inside of the second one are those inside of the first one, and those between
// the two are carried. Carried edges have semaphores of their own, one for each ordered pair of
// queues, whose k-th wait of an iteration meets the k-th signal of the one before.
#pragma once

#include <functional>

#include "program/sync_edges.hpp"

namespace tpu::compiler {

struct SyncResult {
  std::vector<SyncEdge> edges;
  int semaphores = 0;  // used for pairs of queues: numbers 0 .. semaphores-1
};

// Changes the listing: fills waits and signals, adds nops where a command needs more than two.
// Loops that are marked as `flows` get fences, if there are semaphores for them.
// `limit`: first semaphore number that must not be used. `progress` is called now and then with the
// share of the items that are behind. Throws Error when there are too few.
SyncResult insert_semaphores(Listing& listing, int limit,
                             const std::function<void(double done)>& progress = {});

}  // namespace tpu::compiler
