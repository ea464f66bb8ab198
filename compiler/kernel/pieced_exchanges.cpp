// See pieced_exchanges.hpp.
#include "kernel/pieced_exchanges.hpp"

#include <algorithm>

namespace tpu::compiler {

namespace {

using CDim = Contraction::Dim;

constexpr int64_t kMostPieces = 4;      // transfers of all pieces must find room in a queue
constexpr size_t kMostMembers = 16;     // of a group, for the same reason
constexpr int64_t kLeastRows = 128;     // of a block that keeps the matrix units busy
constexpr double kLeastExposed = 8000;  // cycles: less is latency

// The outermost loop of what a member has, in the array that arrives or leaves.
std::optional<PieceOrder> order_of(const Op& op, bool arrives) {
  const auto& a = op.as<CollectiveAttrs>();
  Dims piece = op.operand_type(0).dims;
  const Dims strides = row_major_strides(arrives ? op.type().dims : piece);
  if (op.kind == Kind::kAllToAll) {
    piece[static_cast<size_t>(a.dim)] /= static_cast<int64_t>(a.groups[0].size());
  }
  const auto outer = std::ranges::find_if(piece, [](int64_t n) { return n > 1; });
  if (outer == piece.end()) {
    return std::nullopt;
  }
  const auto d = static_cast<size_t>(outer - piece.begin());
  return PieceOrder{arrives ? op.result() : op.operands[0], strides[d], *outer};
}

}  // namespace

int64_t PiecedSide::iterations_of_row(const PieceOrder& order) const {
  int64_t inside = 1;
  for (const CDim& d : *dims) {
    inside *= d.*stride < order.stride ? d.n : 1;
  }
  return inside;
}

std::optional<PiecedSide> pieced_side(const Contraction& c, const PieceOrder& order, bool arrives) {
  std::vector<PiecedSide> sides;
  if (!arrives || c.lhs == order.array) {
    sides.push_back({&c.m, arrives ? &CDim::lhs : &CDim::out, arrives ? c.lhs_offset : 0});
  }
  if (!arrives || c.rhs == order.array) {
    sides.push_back({&c.n, arrives ? &CDim::rhs : &CDim::out, arrives ? c.rhs_offset : 0});
  }
  std::erase_if(sides, [&](const PiecedSide& s) {
    return std::ranges::none_of(
        *s.dims, [&](const CDim& d) { return d.n > 1 && d.*s.stride * d.n > order.stride; });
  });
  if (sides.size() != 1 || Contraction::count(c.batch) > 1 || c.lhs == c.rhs ||
      std::ranges::any_of(*sides[0].dims, [&](const CDim& d) { return d.*sides[0].stride < 0; })) {
    return std::nullopt;
  }
  return sides[0];
}

double exchange_in_pieces(Kernel& exchange, Kernel& product, double exposed, double beside) {
  const Op& op = *exchange.ops[0];
  if (product.kind != KernelClass::kContract || exposed < kLeastExposed ||
      op.kind == Kind::kCollectivePermute || exchange.reads.size() != 1 ||
      op.as<CollectiveAttrs>().groups[0].size() > kMostMembers) {
    return 0;
  }
  auto& part = product.as<ContractPart>();
  const bool arrives = part.dot.lhs == op.result() || part.dot.rhs == op.result();
  std::optional<PieceOrder> order = order_of(op, arrives);
  if (!order || (arrives ? part.arriving : part.leaving)) {
    return 0;
  }
  order->array = arrives ? op.result() : exchange.reads[0];
  const auto side = pieced_side(part.dot, *order, arrives);
  if (!side || (!arrives && order->array->type.count() != part.dot.results())) {
    return 0;
  }
  order->pieces = std::min(
      {kMostPieces, order->period, order->period * side->iterations_of_row(*order) / kLeastRows});
  if (order->pieces < 2) {
    return 0;
  }
  order->worth = std::min(exposed, beside) * (1 - 1 / static_cast<double>(order->pieces));
  auto& sent = exchange.as<ExchangePart>();
  sent.pieces = std::max(sent.pieces, order->pieces);
  sent.overlaps = true;
  if (arrives) {
    part.arriving = order;
  } else {
    sent.leaves_early = true;
    part.leaving = order;
    part.exchanged = op.result();
  }
  return order->worth;
}

}  // namespace tpu::compiler
