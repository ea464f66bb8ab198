// scatter, by what is cheapest for its shape:
//   one update a batch entry   y = select(iota == start, body(x, u), x)
//   small targets, one reducer y = x (+) reduce over updates of select(iota == start, u, identity)
//   one window of a large x    w = dynamic_slice(x, start)
//                              y = dynamic_update_slice(x, select(inside, body(w, u), w), start)
//   body gives the update      y = indexed_write(x, list, u): the last update of an element stays
//   else                       rounds of as many updates as fit into VMEM: read the windows,
//                              combine them with their updates in order, write them back; updates
//                              of equal windows meet in the window of the last of them
// The last two transpose x first, where its windows have longer runs of neighbors then.
// A window that is partly outside of the operand has list value -1: it is left out as a whole.
#include <algorithm>
#include <optional>
#include <unordered_map>

#include "legalize/index_space.hpp"
#include "legalize/legalize.hpp"

namespace tpu::compiler::legalization {

namespace {

constexpr int64_t kComparedPerUpdate = 8192;           // target elements, in one loop: as a round
constexpr int64_t kComparedInAll = int64_t{1} << 26;   // keeps the host's work in bounds
constexpr int64_t kComparedInVmem = int64_t{1} << 19;  // of all updates: 2 MB of f32
constexpr int64_t kRoundCycles = 900, kUpdateCycles = 25;  // of rounds
constexpr int64_t kSmallTarget = int64_t{1} << 16;         // elements: rewritten as a whole
constexpr int64_t kRoundBytes = int64_t{2} << 20;          // of windows in one round
constexpr int64_t kMostScatterRounds = 1024;
constexpr int64_t kFewRecords = 64, kWindowOfRounds = 1 << 14;  // few large windows: a round each

class Scatter {
 public:
  Scatter(Op& op, Rewriter& rw)
      : op_(op),
        a_(op.as<ScatterAttrs>()),
        b_(rw),
        rw_(rw),
        n_(op.results.size()),
        targets_(op.operands.begin(), op.operands.begin() + static_cast<ptrdiff_t>(n_)),
        updates_(op.operands.begin() + static_cast<ptrdiff_t>(n_) + 1, op.operands.end()) {}

  std::vector<Value*> run() {
    if (updates_[0]->type.count() == 0 || targets_[0]->type.count() == 0) {
      return targets_;
    }
    if (targets_[0]->type.count() > INT32_MAX) {
      throw Error("a target of more than 2^31 - 1 elements cannot be indexed; cut it into parts",
                  "stablehlo.scatter", op_.loc);
    }
    IndexSpace space = prepared();
    if (auto made = by_comparing(space); !made.empty()) {
      return made;
    }
    if (space.count() == 1 && !rewriting_is_cheaper(space)) {
      return one_window(space);
    }
    // Read and written: two transposes of each target.
    const Dims order = order_for_runs(targets_[0]->type, space.window(), space.count(), 2);
    if (!order.empty()) {
      return in_other_order(space, order);
    }
    return by_list(space);
  }

  // Nothing if comparing is not the cheapest way.
  std::vector<Value*> run_by_comparing() {
    if (updates_[0]->type.count() == 0 || targets_[0]->type.count() > INT32_MAX) {
      return {};
    }
    IndexSpace space = prepared();
    return by_comparing(space);
  }

 private:
  std::vector<Value*> by_list(IndexSpace& space) {
    if (gives_update()) {
      return {write(targets_[0], space.places(false, 1), updates_[0], space.window())};
    }
    return rounds(space);
  }

  // Targets with their dims in `order`, in which windows have longer runs. Updates of an element
  // keep their order.
  std::vector<Value*> in_other_order(const IndexSpace& space, const Dims& order) {
    Dims of_updates = given_order(space.records().size());
    for (const int64_t d : order) {
      of_updates.push_back(static_cast<int64_t>(space.records().size()) + d);
    }
    for (Value*& u : updates_) {
      u = b_.transpose(u, of_updates);
    }
    for (Value*& t : targets_) {
      t = b_.transpose(t, order);
    }
    IndexSpace moved = space_of(order, space.window());
    std::vector<Value*> made = by_list(moved);
    const Dims back = places_in(order, given_order(order.size()));
    for (Value*& v : made) {
      v = b_.transpose(v, back);
    }
    return made;
  }

  // `order`: of the dims of the scatter's operands in targets_; `window`: in dims of the operands.
  IndexSpace space_of(const Dims& order, const Dims& window) {
    return {b_,
            op_.operands[n_],
            a_.index_vector_dim,
            places_in(order, a_.scatter_dims_to_operand_dims),
            places_in(order, a_.input_batching_dims),
            a_.scatter_indices_batching_dims,
            targets_[0]->type.dims,
            in_order(window, order)};
  }

  IndexSpace prepared() {
    IndexSpace space = space_of(given_order(targets_[0]->type.dims.size()), window());
    for (Value*& u : updates_) {
      u = arrange(space, u);
    }
    return space;
  }

  std::vector<Value*> by_comparing(IndexSpace& space) {
    if (!can_compare(space)) {
      return {};
    }
    const int64_t target = targets_[0]->type.count(), batch = batch_count(space);
    const bool cheap = target / batch <= kComparedPerUpdate;
    // What is made of a splat alone need not be an array: whatever reads it compares for itself, as
    // the gradient of a cross entropy does.
    const bool made =
        std::ranges::all_of(targets_, [](const Value* t) { return splat_of(t) != nullptr; });
    if (space.count() == batch && (cheap || made || target <= kSmallTarget)) {
      return one_update(space);
    }
    if (n_ == 1 && reducer() && cheap && comparing_is_cheaper(space, batch)) {
      return {compared(space)};
    }
    return {};
  }

  // Against rounds, in cycles that were measured with 16 to 4,096 updates of 1 to 512 elements.
  // Where a target has several dims, its sums do not share a loop with what they add: that is an
  // array, which has to fit into VMEM or goes through HBM.
  bool comparing_is_cheaper(const IndexSpace& space, int64_t batch) const {
    constexpr int64_t kInOneLoop = 320, kInVmem = 210, kInHbm = 80;  // elements a cycle
    const int64_t compared = targets_[0]->type.count() * (space.count() / batch);
    const bool one_loop =
        std::ranges::count_if(targets_[0]->type.dims, [](int64_t n) { return n > 1; }) <= 1;
    const int64_t a_cycle = one_loop ? kInOneLoop : compared <= kComparedInVmem ? kInVmem : kInHbm;
    return compared <= kComparedInAll &&
           compared / a_cycle <= kRoundCycles + kUpdateCycles * space.count();
  }

  Dims window() const {
    Dims sorted = a_.update_window_dims, out;
    std::sort(sorted.begin(), sorted.end());
    size_t next = 0;
    for (int64_t d = 0; d < targets_[0]->type.rank(); ++d) {
      const bool one = contains(a_.inserted_window_dims, d) || contains(a_.input_batching_dims, d);
      out.push_back(one ? 1 : updates_[0]->type.dims[static_cast<size_t>(sorted[next++])]);
    }
    return out;
  }

  // Updates as records, then the window in dims of the operand.
  Value* arrange(const IndexSpace& space, Value* u) {
    Dims perm, inner, dims = space.records();
    for (int64_t d = 0; d < u->type.rank(); ++d) {
      (contains(a_.update_window_dims, d) ? inner : perm).push_back(d);
    }
    perm.insert(perm.end(), inner.begin(), inner.end());
    u = std::is_sorted(perm.begin(), perm.end()) ? u : b_.transpose(u, perm);
    dims.insert(dims.end(), space.window().begin(), space.window().end());
    return b_.reshape(u, dims);
  }

  // The body returns its second argument.
  bool gives_update() const {
    const Region& body = *op_.regions[0];
    return n_ == 1 && body.terminator()->operands[0] == body.args[1].get();
  }

  std::optional<Kind> reducer() const { return simple_reducer(*op_.regions[0]); }

  // Every place of a window can be told by equality: indexed dims have windows of one element,
  // the others are covered whole.
  bool can_compare(const IndexSpace& space) const {
    const Dims& dims = targets_[0]->type.dims;
    for (size_t d = 0; d < dims.size(); ++d) {
      const bool one =
          std::any_of(space.axes().begin(), space.axes().end(),
                      [&](const IndexSpace::Axis& x) { return x.dim == static_cast<int64_t>(d); });
      if (space.window()[d] != dims[d] && (!one || space.window()[d] != 1)) {
        return false;
      }
    }
    return true;
  }

  static int64_t batch_count(const IndexSpace& space) {
    int64_t n = 1;
    for (const IndexSpace::Axis& axis : space.axes()) {
      n *= axis.record >= 0 ? axis.limit + 1 : 1;
    }
    return n;
  }

  // Domain: records that are not batching dims, then the target's dims.
  struct Domain {
    Dims dims;         // of the domain
    Dims of_records;   // where each record dim lies
    Dims of_target;    // where each target dim lies
    Dims update_dims;  // domain dims that only updates have
    Value* hit = nullptr;
    std::vector<Value*> updates;
  };

  Domain domain(IndexSpace& space) {
    Domain m;
    m.of_records.assign(space.records().size(), -1);
    for (const IndexSpace::Axis& axis : space.axes()) {
      if (axis.record >= 0) {
        m.of_records[static_cast<size_t>(axis.record)] = -2 - axis.dim;
      }
    }
    for (size_t r = 0; r < space.records().size(); ++r) {
      if (m.of_records[r] == -1) {
        m.of_records[r] = static_cast<int64_t>(m.dims.size());
        m.update_dims.push_back(m.of_records[r]);
        m.dims.push_back(space.records()[r]);
      }
    }
    const auto free = static_cast<int64_t>(m.dims.size());
    for (size_t d = 0; d < targets_[0]->type.dims.size(); ++d) {
      m.of_target.push_back(free + static_cast<int64_t>(d));
      m.dims.push_back(targets_[0]->type.dims[d]);
    }
    for (int64_t& r : m.of_records) {
      r = r <= -2 ? free - 2 - r : r;
    }
    for (const IndexSpace::Axis& axis : space.axes()) {
      if (axis.record >= 0) {
        continue;
      }
      // -1 equals no position: left out. A dim without a choice still decides by that.
      Value* start =
          b_.select(axis.inside, axis.start, b_.splat_int({Elem::kI32, space.records()}, -1));
      Value* at = b_.broadcast(start, m.dims, m.of_records);
      Value* here = axis.limit > 0
                        ? b_.compare(CompareDirection::kEq, b_.iota(at->type, free + axis.dim), at)
                        : b_.compare(CompareDirection::kEq, at, b_.splat_int(at->type, 0));
      m.hit = m.hit == nullptr ? here : b_.logical_and(m.hit, here);
    }
    if (m.hit == nullptr) {
      m.hit = b_.splat_int({Elem::kI1, m.dims}, 1);
    }
    for (Value* u : updates_) {
      m.updates.push_back(spread(space, m, u));
    }
    return m;
  }

  // An update over the domain: window dims of one element are repeated.
  Value* spread(const IndexSpace& space, const Domain& m, Value* u) {
    Dims dims = space.records(), where = m.of_records;
    for (size_t d = 0; d < space.window().size(); ++d) {
      if (space.window()[d] != 1) {
        dims.push_back(space.window()[d]);
        where.push_back(m.of_target[d]);
      }
    }
    return b_.broadcast(b_.reshape(u, dims), m.dims, where);
  }

  // A window that the program places is read and selected from before it is written: three passes
  // over it, where an indexed write passes over it once and over the whole target twice.
  bool rewriting_is_cheaper(const IndexSpace& space) const {
    const int64_t target = targets_[0]->type.count();
    return gives_update() && constant_of(op_.operands[n_]) == nullptr &&
           (target <= kSmallTarget || 2 * space.window_elements() > target);
  }

  // A dynamic_update_slice changes a window where it lies, if nothing else reads the target later.
  // Its start is clamped: a window that is partly outside gets back what was there.
  std::vector<Value*> one_window(IndexSpace& space) {
    const Dims& window = space.window();
    std::vector<Value*> starts(window.size(), b_.splat_int({Elem::kI32, {}}, 0));
    Value* inside = nullptr;
    for (const IndexSpace::Axis& axis : space.axes()) {
      starts[static_cast<size_t>(axis.dim)] = b_.reshape(space.clamped(axis), {});
      if (axis.inside != nullptr) {
        inside = inside == nullptr ? axis.inside : b_.logical_and(inside, axis.inside);
      }
    }
    const auto placed = [&](std::vector<Value*> operands) {
      operands.insert(operands.end(), starts.begin(), starts.end());
      return operands;
    };
    std::vector<Value*> args;
    for (Value* t : targets_) {
      const Type type{t->type.elem, window};
      args.push_back(rw_.make(Kind::kDynamicSlice, placed({t}), type, DimsAttrs{window}));
    }
    for (Value* u : updates_) {
      args.push_back(b_.reshape(u, window));
    }
    std::vector<Value*> made = b_.apply(*op_.regions[0], args, window);
    for (size_t i = 0; i < n_; ++i) {
      Value* v = made[i];
      if (inside != nullptr) {
        v = b_.select(b_.broadcast_scalar(b_.reshape(inside, {}), window), v, args[i]);
      }
      made[i] = rw_.make(Kind::kDynamicUpdateSlice, placed({targets_[i], v}), targets_[i]->type,
                         NoAttrs{});
    }
    return made;
  }

  // At most one update for each element of the target: domain without the records of one entry.
  std::vector<Value*> one_update(IndexSpace& space) {
    const Domain m = domain(space);
    const Dims& dims = targets_[0]->type.dims;
    std::vector<Value*> args = targets_;
    for (Value* u : m.updates) {
      args.push_back(b_.reshape(u, dims));
    }
    const std::vector<Value*> made = b_.apply(*op_.regions[0], args, dims);
    Value* hit = b_.reshape(m.hit, dims);
    std::vector<Value*> out;
    for (size_t i = 0; i < n_; ++i) {
      out.push_back(b_.select(hit, made[i], targets_[i]));
    }
    return out;
  }

  Value* compared(IndexSpace& space) {
    const Domain m = domain(space);
    const Kind kind = *reducer();
    Value* x = targets_[0];
    const Elem e = x->type.elem;
    Value* none = identity(kind, {e, {}});
    Value* u = b_.select(m.hit, m.updates[0], identity(kind, m.updates[0]->type));
    Value* sum = b_.reduce(kind, u, none, m.update_dims);
    Value* y = b_.binary(kind, x, sum);
    if (!is_float(e)) {
      return y;
    }
    // Without an update all bits stay, those of -0, NaNs and subnormals too.
    return b_.select(b_.compare(CompareDirection::kEq, sum, identity(kind, sum->type)), x, y);
  }

  Value* identity(Kind kind, const Type& type) {
    const Elem e = type.elem;
    const int64_t bits = 8 * elem_bytes(e) - (is_signed(e) ? 1 : 0);
    const auto top = e == Elem::kI1 ? int64_t{1}
                     : bits == 64   ? int64_t{-1}
                                    : static_cast<int64_t>((uint64_t{1} << bits) - 1);
    switch (kind) {
      case Kind::kMultiply:
        return b_.splat_int(type, 1);
      case Kind::kAnd:
        return b_.splat_int(type, e == Elem::kI1 ? 1 : -1);
      case Kind::kMaximum:
        return is_float(e)    ? b_.splat(type, -__builtin_inf())
               : is_signed(e) ? b_.splat_int(type, -top - 1)
                              : b_.splat_int(type, 0);
      case Kind::kMinimum:
        return is_float(e) ? b_.splat(type, __builtin_inf()) : b_.splat_int(type, top);
      case Kind::kAdd:
      case Kind::kOr:
      case Kind::kXor:
        return b_.splat_int(type, 0);
      default:
        throw Error("internal: the identity of this reducer is not known", source_name(kind));
    }
  }

  Value* read(Value* table, Value* list, const Dims& window) {
    Type type{table->type.elem, list->type.dims};
    type.dims.insert(type.dims.end(), window.begin(), window.end());
    return rw_.make(Kind::kIndexedRead, {table, list}, type, IndexedAttrs{window});
  }

  // `updates` may have any shape of list.dims + window elements.
  Value* write(Value* target, Value* list, Value* updates, const Dims& window) {
    Dims dims = list->type.dims;
    dims.insert(dims.end(), window.begin(), window.end());
    return rw_.make(Kind::kIndexedWrite, {target, list, b_.reshape(updates, dims)}, target->type,
                    IndexedAttrs{window});
  }

  // The updates as rows: place of each in units, values [rows, width]. Windows are equal or
  // disjoint.
  struct Rows {
    Value* places = nullptr;
    std::vector<Value*> updates;
    Dims window;
    int64_t unit = 1;

    int64_t count() const { return places->type.dims[0]; }
    int64_t width() const { return Type{Elem::kI8, window}.count(); }
  };

  // Windows of several elements in a dim where they can begin anywhere could overlap in part: with
  // `split` they are cut into windows of one element there, in ascending order.
  Rows rows_of(IndexSpace& space, bool split) {
    Rows r;
    r.window = space.window();
    r.unit = space.unit();
    const Dims strides = row_major_strides(targets_[0]->type.dims);
    Dims shape{space.count()}, dims;
    for (const IndexSpace::Axis& axis : space.axes()) {
      int64_t& size = r.window[static_cast<size_t>(axis.dim)];
      if (split && axis.limit > 0 && size > 1) {
        dims.push_back(axis.dim);
        shape.push_back(size);
        size = 1;
      }
    }
    Value* base =
        b_.broadcast(b_.reshape(space.places(false, r.unit), {space.count()}), shape, {0});
    Value* at = base;
    Dims perm{0};
    for (size_t i = 0; i < dims.size(); ++i) {
      const int64_t step = strides[static_cast<size_t>(dims[i])] / r.unit;
      Value* more = b_.iota(base->type, static_cast<int64_t>(i) + 1);
      at = b_.add(at, step == 1 ? more : b_.mul(more, b_.splat_int(base->type, step)));
      perm.push_back(dims[i] + 1);
    }
    if (!dims.empty()) {
      Value* inside = b_.compare(CompareDirection::kGe, base, b_.splat_int(base->type, 0));
      at = b_.select(inside, at, b_.splat_int(base->type, -1));
    }
    const int64_t count = at->type.count();
    r.places = b_.reshape(at, {count});
    for (int64_t d = 0; d < static_cast<int64_t>(r.window.size()); ++d) {
      if (!contains(dims, d)) {
        perm.push_back(d + 1);
      }
    }
    Dims whole{space.count()};
    whole.insert(whole.end(), space.window().begin(), space.window().end());
    for (Value* u : updates_) {
      u = b_.reshape(u, whole);
      u = dims.empty() ? u : b_.transpose(u, perm);
      r.updates.push_back(b_.reshape(u, {count, r.width()}));
    }
    return r;
  }

  std::vector<Value*> rounds(IndexSpace& space) {
    // One update a round needs no order between windows.
    const bool alone = a_.unique_indices ||
                       (space.count() <= kFewRecords && space.window_elements() > kWindowOfRounds);
    const Rows all = rows_of(space, !alone);
    const int64_t records = all.count();
    int64_t bytes = 0;
    for (const Value* t : targets_) {
      bytes += all.width() * elem_bytes(t->type.elem);
    }
    const int64_t step = a_.unique_indices ? records
                         : alone           ? 1
                                           : std::clamp<int64_t>(kRoundBytes / bytes, 1, records);
    if ((records + step - 1) / step > kMostScatterRounds) {
      throw Error(
          "the scatter needs more than " + std::to_string(kMostScatterRounds) +
              " passes over its updates; pass unique_indices=True if no index occurs twice, "
              "or scatter fewer or smaller windows at a time",
          "stablehlo.scatter", op_.loc);
    }
    std::vector<Value*> targets = targets_;
    for (int64_t at = 0; at < records; at += step) {
      const int64_t end = std::min(records, at + step);
      Rows part = all;
      if (records != step) {
        part.places = b_.slice_dim(all.places, 0, at, end);
        for (Value*& u : part.updates) {
          u = b_.slice_dim(u, 0, at, end);
        }
      }
      targets = round(std::move(targets), part);
    }
    return targets;
  }

  std::vector<Value*> round(std::vector<Value*> targets, const Rows& rows) {
    const Type list_type = rows.places->type;
    const int64_t records = rows.count(), width = rows.width();
    Value* zero = b_.splat_int(list_type, 0);
    Value* none = b_.splat_int(list_type, -1);
    Value* inside = b_.compare(CompareDirection::kGe, rows.places, zero);
    Value* somewhere = b_.max(rows.places, zero);
    const auto scaled = [&](Value* v, int64_t by) {
      return by == 1 ? v : b_.mul(v, b_.splat_int(list_type, by));
    };
    Value* first = scaled(somewhere, rows.unit);
    std::vector<Value*> args;
    for (Value* t : targets) {
      args.push_back(b_.reshape(read(t, first, rows.window), {records, width}));
    }
    args.insert(args.end(), rows.updates.begin(), rows.updates.end());
    std::vector<Value*> made;
    Value* written = inside;
    if (a_.unique_indices || records == 1) {
      made = b_.apply(*op_.regions[0], args, {records, width});
    } else {
      // The last update of each window, found by writing update numbers to a table of windows.
      Value* number = b_.iota(list_type, 0);
      const int64_t windows = (targets[0]->type.count() + rows.unit - 1) / rows.unit;
      Value* table = write(b_.splat_int({Elem::kI32, {windows}}, 0), rows.places, number, Dims{1});
      Value* last = b_.reshape(read(table, somewhere, {1}), {records});
      written = b_.logical_and(inside, b_.compare(CompareDirection::kEq, last, number));
      made = combine(args, b_.select(inside, scaled(last, width), none), width);
    }
    Value* list = b_.select(written, first, none);
    for (size_t i = 0; i < n_; ++i) {
      targets[i] = write(targets[i], list, made[i], rows.window);
    }
    return targets;
  }

  // args: windows, then updates, all [records, width]; places: element of the windows.
  std::vector<Value*> combine(std::vector<Value*> args, Value* places, int64_t width) {
    args.insert(args.begin() + static_cast<ptrdiff_t>(n_), places);
    std::vector<Type> types;
    const int64_t count = args[0]->type.count(), records = places->type.dims[0];
    for (size_t i = 0; i < args.size(); ++i) {
      if (i < n_) {
        args[i] = b_.reshape(args[i], {count});
        types.push_back(args[i]->type);
      } else if (i > n_) {
        args[i] = b_.reshape(args[i], {records, width});
      }
    }
    Op* made = rw_.make(Kind::kIndexedCombine, args, types[0], IndexedAttrs{{width}})->def;
    for (size_t i = 1; i < n_; ++i) {
      made->add_result(types[i]);
    }
    ValueMap map;
    clone_region(*op_.regions[0], *made, map);
    std::vector<Value*> out;
    for (const auto& r : made->results) {
      out.push_back(r.get());
    }
    return out;
  }

  Op& op_;
  const ScatterAttrs& a_;
  Builder b_;
  Rewriter& rw_;
  const size_t n_;
  std::vector<Value*> targets_, updates_;
};

}  // namespace

std::vector<Value*> scatter(Op& op, Rewriter& rw) { return Scatter(op, rw).run(); }

std::vector<Value*> scatter_by_comparing(Op& op, Rewriter& rw) {
  return Scatter(op, rw).run_by_comparing();
}

}  // namespace tpu::compiler::legalization
