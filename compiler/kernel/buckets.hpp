// Which all_reduce ops travel together, and when. Every value is cut at whole pieces: these are
// streamed, one behind the other, as soon as a bucket (of 4 MiB) is ready (in the order in which
// the gradients become ready); what is left over of all values, and small values, is packed into
// one exchange behind the last. Where an element travels depends on the sizes of the values and the
// board alone, since the order of its sum does (docs/numerics.md).
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::compiler {

struct Bucket {
  std::vector<const Op*> ops;
  bool streamed = false;  // whole pieces of each; else rests
};

// An op of the graph, or a bucket of collectives.
struct OrderStep {
  const Op* op = nullptr;
  int bucket = -1;
};

struct BucketOrder {
  std::vector<Bucket> buckets;
  std::vector<OrderStep> steps;  // without `return`
};

inline constexpr int64_t kBucketBytes = 4 * 1024 * 1024;  // hides the latencies of its exchange

// Bytes of one streamed piece.
int64_t exchange_piece_bytes(const spec::BoardParams& board);

// Bytes of a value that travel in whole pieces.
inline int64_t streamed_bytes(const Type& type, int64_t piece) {
  return type.bytes() / piece * piece;
}

// Program order of a region, each bucket behind the last operand that it needs. Throws Error for a
// reduction that no exchange can do.
// `bucket_bytes`: of whole pieces that are ready before a bucket is closed.
BucketOrder order_buckets(const Region& body, int64_t piece, int64_t bucket_bytes = kBucketBytes);

// Each bucket as one all_reduce of several arrays, where its last array is ready: what the cores
// exchange, for readers of the graph. A value that travels in two buckets is in the later one.
void join_buckets(Region& body, int64_t piece);

}  // namespace tpu::compiler
