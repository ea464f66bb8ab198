// Loops whose engines stay busy from one iteration to the next: fences in place of drains.
//   before   drain; label; loop 9 times; body; drain; counter; branch; end
//   after    credits and enters of the queues; label; loop 9 times; body; counter; branch; end;
//            leaves and settles of the queues
// A fence is a nop of a queue, so it stands in the order of that queue. What an iteration needs of
// the one before it has semaphores of its own (insert_semaphores): each iteration signals as often
// as it takes, the credits signal for the first iteration, the settles take what the last one
// signalled. So they are zero after the loop by construction, for any two or more iterations.
// The enters order commands before the loop and commands in it, once; the leaves order commands in
// it and commands after it.
#pragma once

#include <array>
#include <vector>

#include "program/listing.hpp"

namespace tpu::compiler {

struct FlowingLoop {
  // The drains at the entry and at the back edge; the body lies between them.
  int first = -1, last = -1;
  // Items of the fences, by queue; -1: the queue has no command in the body.
  std::array<int, spec::kQueueCount> credit, enter, leave, settle;
};

// Finds the loops that are marked as `flows`, puts their fences in and marks their drains, in the
// order of the listing. Left alone is a loop that needs a drain: with another loop, a branch or a
// drain in its body, with SMEM that the sequencer writes and a command reads, or one that runs less
// than twice. What other cores do with a body is in the windows and waits of its commands: the
// iterations are ordered as the same code written out.
std::vector<FlowingLoop> add_loop_fences(Listing& listing);

// Drains the loop again, and puts nothing in place of its fences.
void drop_loop_fences(Listing& listing, const FlowingLoop& loop);

}  // namespace tpu::compiler
