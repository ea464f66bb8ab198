// Pass `random_bits`: see random_bits.hpp.
#include "passes/random_bits.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <ranges>

#include "arith/flush_mode.hpp"
#include "ir/comparison.hpp"
#include "ir/eval.hpp"
#include "passes/rewriter.hpp"

namespace tpu::compiler {
namespace {

// ---- Counters

constexpr int64_t kMaxPosition = int64_t{1} << 31;  // what the vector unit's index reaches

// offset + sum of stride[d] * index[d], whose largest value is `most`; never negative.
struct Position {
  Dims stride;
  int64_t offset = 0, most = 0;
};

// Nothing if some value might not fit the element type, or is beyond what this pass asks for.
std::optional<Position> bounded(Position p, const Type& type) {
  constexpr int64_t kLargest = int64_t{1} << 48;  // products of two such sizes are not made
  p.most = p.offset;
  for (size_t d = 0; d < p.stride.size(); ++d) {
    const int64_t steps = type.dims[d] - 1;
    if (p.stride[d] < 0 || (p.stride[d] > 0 && steps > (kLargest - p.most) / p.stride[d])) {
      return std::nullopt;
    }
    p.most += p.stride[d] * steps;
  }
  const int64_t bits = 8 * elem_bytes(type.elem) - (is_signed(type.elem) ? 1 : 0);
  const bool fits = bits > 48 || p.most < int64_t{1} << bits;
  return p.offset >= 0 && fits ? std::optional(std::move(p)) : std::nullopt;
}

// `ops`: how many may still be looked at.
std::optional<Position> position_of(const Value* v, int& ops) {
  const Type& type = v->type;
  if (v->def == nullptr || !is_integer(type.elem) || type.count() == 0 || --ops < 0) {
    return std::nullopt;
  }
  if (const Dense* d = splat_of(v)) {
    constexpr int64_t kLargest = int64_t{1} << 40;
    const int64_t value = d->as_int(0);
    return value < 0 || value > kLargest ? std::nullopt
                                         : bounded({Dims(type.dims.size(), 0), value, 0}, type);
  }
  const Op& op = *v->def;
  const auto operand = [&](size_t i) { return position_of(op.operands[i], ops); };
  switch (op.kind) {
    case Kind::kIota: {
      Position p{Dims(type.dims.size(), 0), 0, 0};
      p.stride[static_cast<size_t>(op.as<DimAttrs>().dim)] = 1;
      return bounded(std::move(p), type);
    }
    case Kind::kReshape: {  // what this pass makes of a sum of iotas
      const Value* flat = op.operands[0];
      const bool counts =
          flat->def != nullptr && flat->def->kind == Kind::kIota && flat->type.dims.size() == 1;
      return counts ? bounded({row_major_strides(type.dims), 0, 0}, type) : std::nullopt;
    }
    case Kind::kConvert: {
      auto p = operand(0);
      return p ? bounded(std::move(*p), type) : std::nullopt;
    }
    case Kind::kAdd: {
      auto a = operand(0);
      const auto b = a ? operand(1) : std::nullopt;
      if (!b) {
        return std::nullopt;
      }
      for (size_t d = 0; d < a->stride.size(); ++d) {
        a->stride[d] += b->stride[d];
      }
      a->offset += b->offset;
      return bounded(std::move(*a), type);
    }
    case Kind::kMultiply: {
      const bool splat_first = splat_of(op.operands[0]) != nullptr;
      const Dense* factor = splat_of(op.operands[splat_first ? 0 : 1]);
      auto p = factor == nullptr ? std::nullopt : operand(splat_first ? 1 : 0);
      constexpr int64_t kLargest = int64_t{1} << 31;
      if (!p || factor->as_int(0) < 0 || factor->as_int(0) > kLargest || p->most > kLargest) {
        return std::nullopt;
      }
      for (int64_t& s : p->stride) {
        s *= factor->as_int(0);
      }
      p->offset *= factor->as_int(0);
      return bounded(std::move(*p), type);
    }
    default:  // not known to be a position
      return std::nullopt;
  }
}

std::optional<Position> position_of(const Value* v) {
  int ops = 64;  // far more than the position in an array of any rank has
  return position_of(v, ops);
}

// True if the values are 0, 1, 2, .. in the order of memory.
bool counts_elements(const Position& p, const Dims& dims) {
  const Dims pitch = row_major_strides(dims);
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] > 1 && p.stride[d] != pitch[d]) {
      return false;
    }
  }
  return p.offset == 0;
}

Value* element_numbers(const Type& type, Rewriter& rw) {
  const int64_t count = type.count();
  Value* flat = rw.make(Kind::kIota, {}, {type.elem, {count}}, DimAttrs{0});
  return type.dims.size() == 1 ? flat : rw.make(Kind::kReshape, {flat}, type);
}

// Sums of iotas, and their conversions.
std::vector<Value*> counter(const Op& op, Rewriter& rw) {
  const Type& type = op.type();
  const auto p = position_of(op.result());
  if (!p || p->most >= kMaxPosition || !counts_elements(*p, type.dims)) {
    return {};
  }
  return {element_numbers(type, rw)};
}

std::vector<Value*> upper_bits(const Op& op, Rewriter& rw) {
  const Dense* by = splat_of(op.operands[1]);
  const auto p = by == nullptr ? std::nullopt : position_of(op.operands[0]);
  const int64_t bits = by == nullptr ? 0 : by->as_int(0);
  if (!p || bits < 0 || (bits < 48 && p->most >> bits != 0)) {
    return {};
  }
  return {rw.constant(make_splat_int(op.type(), 0))};
}

// ---- Keys

// A slice of arrays beside each other that lies in one of them: a word of a key.
std::vector<Value*> part_of(const Op& op, Rewriter& rw) {
  const Op* joined = op.operands[0]->def;
  if (joined == nullptr || joined->kind != Kind::kConcatenate) {
    return {};
  }
  SliceAttrs a = op.as<SliceAttrs>();
  const auto dim = static_cast<size_t>(joined->as<DimAttrs>().dim);
  for (Value* part : joined->operands) {
    const int64_t size = part->type.dims[dim];
    if (a.start[dim] < size) {
      if (a.limit[dim] > size) {
        return {};
      }
      return {rw.make(Kind::kSlice, {part}, op.type(), a)};
    }
    a.start[dim] -= size;
    a.limit[dim] -= size;
  }
  return {};
}

// ---- Thresholds

// A number made of the upper bits of `bits`, by steps that never descend.
struct Drawn {
  Value* bits = nullptr;
  int64_t cut = 0;               // lower bits that do not count
  std::vector<const Op*> steps;  // from the number of the upper bits to the result
};

bool is_finite_splat(const Value* v) {
  const Dense* d = splat_of(v);
  return d != nullptr && is_float(v->type.elem) && std::isfinite(d->as_double(0));
}

bool is_positive_splat(const Value* v) {
  return is_finite_splat(v) && splat_of(v)->as_double(0) > 0;
}

// The operand that the op's result grows with, the others being constants; null: no such op.
Value* grows_with(const Op& op) {
  const auto either = [&](bool (*constant)(const Value*)) -> Value* {
    for (const size_t i : {0u, 1u}) {
      if (constant(op.operands[1 - i])) {
        return op.operands[i];
      }
    }
    return nullptr;
  };
  switch (op.kind) {
    case Kind::kConvert:
      return op.operands[0];
    case Kind::kSubtract:
      return is_finite_splat(op.operands[1]) ? op.operands[0] : nullptr;
    case Kind::kAdd:
    case Kind::kMaximum:
    case Kind::kMinimum:
      return either(is_finite_splat);
    case Kind::kMultiply:
      return either(is_positive_splat);
    case Kind::kMultiplyAdd:
      return is_positive_splat(op.operands[1]) && is_finite_splat(op.operands[2]) ? op.operands[0]
                                                                                  : nullptr;
    default:  // may descend
      return nullptr;
  }
}

// `or` with bits that the shifted number does not have.
Value* below(const Op& marked, int64_t width) {
  for (const size_t i : {0u, 1u}) {
    const Dense* high = splat_of(marked.operands[1 - i]);
    if (high != nullptr && (high->as_int(0) & ((int64_t{1} << width) - 1)) == 0) {
      return marked.operands[i];
    }
  }
  return nullptr;
}

// The operand of a bitcast whose elements are as wide; null: it joins elements, or cuts them.
Value* same_bits(const Op& bitcast) {
  Value* from = bitcast.operands[0];
  return elem_bytes(from->type.elem) == elem_bytes(bitcast.type().elem) ? from : nullptr;
}

std::optional<Drawn> drawn_from(Value* v) {
  Drawn out;
  while (v != nullptr && v->def != nullptr && is_float(v->type.elem)) {
    const Op& op = *v->def;
    out.steps.insert(out.steps.begin(), &op);
    v = op.kind == Kind::kBitcastConvert ? same_bits(op) : grows_with(op);
  }
  if (v == nullptr || v->def == nullptr || !is_unsigned(v->type.elem) ||
      elem_bytes(v->type.elem) > 4) {
    return std::nullopt;
  }
  const Op* marked = v->def->kind == Kind::kOr ? v->def : nullptr;
  for (Value* number : marked == nullptr ? std::vector<Value*>{v} : marked->operands) {
    const Op* shift = number->def;
    const Dense* by = shift == nullptr || shift->kind != Kind::kShiftRightLogical
                          ? nullptr
                          : splat_of(shift->operands[1]);
    const int64_t width = 8 * elem_bytes(v->type.elem);
    if (by == nullptr || by->as_int(0) <= 0 || by->as_int(0) >= width) {
      continue;
    }
    out.bits = shift->operands[0];
    out.cut = by->as_int(0);
    if (marked != nullptr) {
      if (below(*marked, width - out.cut) != number) {
        continue;
      }
      out.steps.insert(out.steps.begin(), marked);
    }
    return out;
  }
  return std::nullopt;
}

// What the steps make of `number`.
Tensor made_of(const Drawn& drawn, int64_t number) {
  Tensor at = to_tensor(make_splat_int({drawn.bits->type.elem, {}}, number));
  const Value* from = nullptr;
  for (const Op* op : drawn.steps) {
    std::vector<Tensor> others(op->operands.size());
    Tensors in;
    bool taken = false;
    for (size_t i = 0; i < op->operands.size(); ++i) {
      const Value* v = op->operands[i];
      const Dense* splat = splat_of(v);
      if (splat == nullptr || (v == from && !taken)) {
        in.push_back(&at);
        taken = true;
        continue;
      }
      Dense one = *splat;
      one.type.dims = {};
      one.splat = false;
      others[i] = to_tensor(one);
      in.push_back(&others[i]);
    }
    at = eval::elementwise(*op, in, {});
    at.type.dims.clear();  // some ops take it from the graph
    from = op->result();
  }
  return at;
}

double as_double(const Tensor& t) {
  Tensor copy = t;
  return to_dense(std::move(copy)).as_double(0);
}

// Numbers from which the comparison holds or, if it holds for small ones, no longer holds.
int64_t bound_of(const Drawn& drawn, CompareDirection direction, double limit, int64_t numbers) {
  const auto beyond = [&](int64_t number) {
    const double x = as_double(made_of(drawn, number));
    const bool strict = direction == CompareDirection::kGt || direction == CompareDirection::kLe;
    return strict ? x > limit : x >= limit;
  };
  const auto all = std::views::iota(int64_t{0}, numbers);
  return static_cast<int64_t>(std::ranges::partition_point(all, std::not_fn(beyond)) - all.begin());
}

std::vector<Value*> threshold(const Op& op, Rewriter& rw) {
  const auto& attrs = op.as<CompareAttrs>();
  const bool limit_first = splat_of(op.operands[0]) != nullptr;
  Value* x = op.operands[limit_first ? 1 : 0];
  const Value* limit = op.operands[limit_first ? 0 : 1];
  const CompareDirection direction = limit_first ? mirrored(attrs.direction) : attrs.direction;
  if (attrs.type == CompareType::kTotalOrder || direction == CompareDirection::kEq ||
      direction == CompareDirection::kNe || !is_finite_splat(limit)) {
    return {};
  }
  const auto drawn = drawn_from(x);
  if (!drawn) {
    return {};
  }
  const int64_t numbers = int64_t{1} << (8 * elem_bytes(drawn->bits->type.elem) - drawn->cut);
  // The numbers from the first to the last, before the other steps, are finite and not negative
  // where both ends are: their bits ascend.
  const auto ends_are_plain = [&] {
    Drawn start = *drawn;
    const size_t marked = start.steps.front()->kind == Kind::kOr ? 2 : 1;
    start.steps.resize(marked);
    for (const int64_t end : {int64_t{0}, numbers - 1}) {
      const double first = as_double(made_of(start, end)), last = as_double(made_of(*drawn, end));
      if (!(first >= 0) || std::signbit(first) || !std::isfinite(first) || !std::isfinite(last)) {
        return false;
      }
    }
    return true;
  };
  if (!ends_are_plain()) {
    return {};
  }
  const int64_t bound = bound_of(*drawn, direction, splat_of(limit)->as_double(0), numbers);
  const bool below = direction == CompareDirection::kLt || direction == CompareDirection::kLe;
  if (bound == 0 || bound == numbers) {
    return {rw.constant(make_splat_int(op.type(), (bound == numbers) == below ? 1 : 0))};
  }
  Value* least = rw.constant(make_splat_int(drawn->bits->type, bound << drawn->cut));
  const CompareAttrs as_bits{below ? CompareDirection::kLt : CompareDirection::kGe,
                             CompareType::kUnsigned};
  return {rw.make(Kind::kCompare, {drawn->bits, least}, op.type(), as_bits)};
}

std::vector<Value*> shorten(const Op& op, Rewriter& rw) {
  switch (op.kind) {
    case Kind::kAdd:
    case Kind::kConvert:
      return is_integer(op.type().elem) ? counter(op, rw) : std::vector<Value*>{};
    case Kind::kShiftRightLogical:
      return upper_bits(op, rw);
    case Kind::kSlice:
      return part_of(op, rw);
    case Kind::kCompare:
      return is_float(op.operand_type(0).elem) ? threshold(op, rw) : std::vector<Value*>{};
    default:  // nothing to shorten
      return {};
  }
}

}  // namespace

bool shorten_random_bits(Module& module) {
  const spec::ScopedFlushMode flush;
  return Rewriter().run(module.main->body,
                        [](const Op& op, Rewriter& rw) { return shorten(op, rw); });
}

}  // namespace tpu::compiler
