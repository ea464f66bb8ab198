// Pass `static_sizes`: see static_sizes.hpp. Sizes that the program computes of constants are
// evaluated for it; the rest of the graph stays as it is.
#include "passes/static_sizes.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>

#include "arith/flush_mode.hpp"
#include "ir/eval.hpp"
#include "ir/verify_types.hpp"
#include "passes/rewriter.hpp"

namespace tpu::compiler {
namespace {

constexpr int64_t kMostSize = (int64_t{1} << 31) - 1;  // as attributes have it

bool takes_sizes(Kind kind) {
  return kind == Kind::kDynamicPad || kind == Kind::kRealDynamicSlice ||
         kind == Kind::kDynamicConv || kind == Kind::kSetDimensionSize;
}

bool takes_sizes(const Region& region) {
  bool any = false;
  walk(region, [&](const Op& op) { any = any || takes_sizes(op.kind); });
  return any;
}

// What is known of integers before the program runs.
class KnownSizes {
 public:
  // Null: nothing.
  const Tensor* find(const Value* value, int depth = 0) {
    const auto it = known_.find(value);
    if (it == known_.end()) {
      std::optional<Tensor> found = evaluate(value, depth);
      return address(known_[value] = std::move(found));
    }
    return address(it->second);
  }

 private:
  static constexpr int kDeepest = 500;
  static constexpr int64_t kMostElements = 4096;

  static const Tensor* address(const std::optional<Tensor>& t) { return t ? &*t : nullptr; }

  std::optional<Tensor> evaluate(const Value* value, int depth) {
    const Elem elem = value->type.elem;
    if (value->def == nullptr || depth > kDeepest || !can_eval(value->def->kind) ||
        !(is_integer(elem) || elem == Elem::kI1) || value->type.count() > kMostElements) {
      return std::nullopt;
    }
    Tensors in;
    for (const Value* operand : value->def->operands) {
      in.push_back(find(operand, depth + 1));
      if (in.back() == nullptr) {
        return std::nullopt;
      }
    }
    return value->def->kind == Kind::kConstant ? to_tensor(value->def->as<ConstantAttrs>().value)
                                               : eval_op(*value->def, in, {});
  }

  std::unordered_map<const Value*, std::optional<Tensor>> known_;  // addresses stay
};

std::optional<Dims> sizes(const Op& op, size_t operand, KnownSizes& known) {
  const Tensor* t = known.find(op.operands[operand]);
  if (t == nullptr) {
    return std::nullopt;
  }
  const Dense d = to_dense(*t);
  Dims out;
  for (int64_t i = 0; i < d.type.count(); ++i) {
    out.push_back(d.as_int(i));
    if (out.back() > kMostSize || out.back() < -kMostSize) {
      throw Error("a size of " + std::to_string(out.back()) + " is out of range");
    }
  }
  return out;
}

void become(Op& op, Kind kind, Attrs attrs, size_t operands, Rewriter& rw) {
  op.kind = kind;
  op.attrs = std::move(attrs);
  op.operands.resize(operands);
  rw.changed();
}

void pad(Op& op, KnownSizes& known, Rewriter& rw) {
  const auto low = sizes(op, 2, known), high = sizes(op, 3, known), interior = sizes(op, 4, known);
  if (low && high && interior) {
    become(op, Kind::kPad, PadAttrs{*low, *high, *interior}, 2, rw);
  }
}

void convolution(Op& op, KnownSizes& known, Rewriter& rw) {
  if (const auto padding = sizes(op, 2, known)) {
    ConvAttrs attrs = op.as<ConvAttrs>();
    attrs.pad_low.clear();
    attrs.pad_high.clear();
    for (size_t i = 0; i < padding->size(); i += 2) {
      attrs.pad_low.push_back((*padding)[i]);
      attrs.pad_high.push_back((*padding)[i + 1]);
    }
    become(op, Kind::kConvolution, std::move(attrs), 2, rw);
  }
}

// The result's shape says how many elements are taken, so that a start that is unknown is that of a
// window of a known size.
std::vector<Value*> slice(Op& op, KnownSizes& known, Rewriter& rw) {
  const auto start = sizes(op, 1, known), limit = sizes(op, 2, known), stride = sizes(op, 3, known);
  if (!stride) {
    return {};
  }
  const Type& in = op.operand_type(0);
  const Dims zero(in.dims.size(), 0);
  Dims window, end;
  for (size_t d = 0; d < in.dims.size(); ++d) {
    const int64_t n = op.type().dims[d];
    window.push_back(n == 0 ? 0 : (n - 1) * std::max<int64_t>((*stride)[d], 0) + 1);
    end.push_back(start ? (*start)[d] + window[d] : 0);
  }
  if (start) {
    become(op, Kind::kSlice, SliceAttrs{*start, limit.value_or(end), *stride}, 1, rw);
    return {};
  }
  std::vector<Value*> operands = {op.operands[0]};
  const Elem index = op.operand_type(1).elem;
  for (size_t d = 0; d < in.dims.size(); ++d) {
    const auto at = static_cast<int64_t>(d);
    Value* one =
        rw.make(Kind::kSlice, {op.operands[1]}, {index, {1}}, SliceAttrs{{at}, {at + 1}, {1}});
    operands.push_back(rw.make(Kind::kReshape, {one}, {index, {}}));
  }
  Value* taken =
      rw.make(Kind::kDynamicSlice, std::move(operands), {in.elem, window}, DimsAttrs{window});
  verify_types(*taken->def, Module{});
  return {rw.make(Kind::kSlice, {taken}, op.type(), SliceAttrs{zero, window, *stride})};
}

std::vector<Value*> dimension_size(Op& op, KnownSizes& known, Rewriter& rw) {
  const auto size = sizes(op, 1, known);
  if (!size) {
    return {};
  }
  const int64_t whole = op.type().dims[static_cast<size_t>(op.as<DimAttrs>().dim)];
  if (size->front() != whole) {
    throw Error("a dimension of " + std::to_string(whole) + " elements cannot have " +
                std::to_string(size->front()) +
                " of them: dynamic shapes are not supported; slice or mask the array");
  }
  rw.changed();
  return {op.operands[0]};
}

std::vector<Value*> make_static(Op& op, KnownSizes& known, Rewriter& rw) {
  const Kind kind = op.kind;
  std::vector<Value*> made;
  switch (kind) {
    case Kind::kDynamicPad:
      pad(op, known, rw);
      break;
    case Kind::kDynamicConv:
      convolution(op, known, rw);
      break;
    case Kind::kRealDynamicSlice:
      made = slice(op, known, rw);
      break;
    case Kind::kSetDimensionSize:
      return dimension_size(op, known, rw);
    default:  // has no sizes as operands
      return {};
  }
  if (!takes_sizes(op.kind) || !made.empty()) {
    try {
      verify_types(made.empty() ? op : *made[0]->def, Module{});
    } catch (const Error& e) {
      throw Error(e.message(), source_name(kind), e.loc());  // what the program calls it
    }
  }
  return made;
}

[[noreturn]] void fail_unknown(const Region& region) {
  const Op* first = nullptr;
  walk(region,
       [&](const Op& op) { first = first == nullptr && takes_sizes(op.kind) ? &op : first; });
  throw Error(
      "its sizes are not known before the program runs; compute them of constants and of shapes, "
      "or export the program for fixed sizes",
      source_name(first->kind), first->loc);
}

}  // namespace

bool make_sizes_static(Module& module) {
  Region& body = module.main->body;
  if (!takes_sizes(body)) {
    return false;
  }
  const spec::ScopedFlushMode flush;
  KnownSizes known;
  Rewriter().run(body, [&](Op& op, Rewriter& rw) { return make_static(op, known, rw); });
  if (takes_sizes(body)) {
    fail_unknown(body);
  }
  return true;
}

}  // namespace tpu::compiler
