// Transfers to other cores, moved up to where their data are made.
//   before   mxu: block 0; dma_out: store 0; mxu: block 1; dma_out: store 1; remote: send 0, send 1
//   after    mxu: block 0; dma_out: store 0; remote: send 0; mxu: block 1; dma_out: store 1; ..
// An exchange comes behind the kernel that makes its operand. Its transfers go up in the listing,
// as far as no command between touches their bytes or registers, and in their order: behind the
// store of the last block that they read. The credits go with them. Waits for arrivals stay
// (late_arrivals.hpp). Nothing passes a transfer of another exchange, or the end of a straight-line
// piece, so each wait still comes behind its cause in the order that all cores share.
#pragma once

#include <set>

#include "program/listing.hpp"

namespace tpu::compiler {

// Before await_late. `exchanges`: op ids of those whose transfers go up.
void depart_early(Listing& listing, const std::set<uint32_t>& exchanges);

}  // namespace tpu::compiler
