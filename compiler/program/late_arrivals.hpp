// Waits for transfers from other cores, moved to where their data are needed.
//   before   remote: send k; vpu: wait for k; mxu: products of q; vpu: softmax; dma_in: load k
//   after    remote: send k; mxu: products of q; vpu: softmax; dma_in: wait for k; load k
// An exchange ends with a nop that waits for the arrival (Channels::receive). Where it stands, its
// queue waits, and with it everything behind. It moves down to the first command that touches the
// bytes, into the queue of that command, but not out of its straight-line piece. So the transfer
// runs beside what stands between.
// A semaphore has one queue that waits for it: arrivals that other queues wait for get semaphores
// of their own, and the sends signal these. Arrivals of one channel keep their order.
// Every wait still comes behind its cause in the order of the listing, which all cores share, so
// that no core can wait for ever.
#pragma once

#include "program/listing.hpp"

namespace tpu::compiler {

// Before insert_semaphores. `first_remote`: semaphores from this number on belong to channels.
// Returns what that number is then: lower where arrivals got more.
int await_late(Listing& listing, int first_remote);

}  // namespace tpu::compiler
