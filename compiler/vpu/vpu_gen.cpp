// Instruction building for loop nests; operation selection is in vpu_select.cpp, registers in
// vpu_registers.cpp.
#include "vpu/vpu_gen.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "vpu/vpu_build.hpp"
#include "vpu/vpu_sums.hpp"

namespace tpu::compiler {

using spec::VpuOp;

std::vector<int> command_order(const Nest& nest) {
  std::vector<int> order;
  for (const bool reduced : {false, true}) {
    for (size_t l = 0; l < nest.loops.size(); ++l) {
      if (nest.loops[l].reduced == reduced) {
        order.push_back(static_cast<int>(l));
      }
    }
  }
  return order;
}

namespace {

bool is_row_of_lanes(const View& v, int col_loop, const std::vector<int>& inside_lanes) {
  return v.stride[static_cast<size_t>(col_loop)] != 0 &&
         std::all_of(inside_lanes.begin(), inside_lanes.end(),
                     [&](int l) { return v.stride[static_cast<size_t>(l)] == 0; });
}

}  // namespace

int count_rows_of_lanes(const Nest& nest, int col_loop, const std::vector<int>& inside_lanes) {
  return static_cast<int>(std::count_if(
      nest.accesses.begin(), nest.accesses.end(),
      [&](const NestAccess& a) { return is_row_of_lanes(a.view, col_loop, inside_lanes); }));
}

spec::Elem isa_elem(Elem e) {
  switch (e) {
    case Elem::kF32:
      return spec::Elem::kF32;
    case Elem::kBf16:
      return spec::Elem::kBf16;
    case Elem::kI32:
      return spec::Elem::kI32;
    case Elem::kU32:
      return spec::Elem::kUi32;
    case Elem::kI8:
      return spec::Elem::kI8;
    case Elem::kU8:
      return spec::Elem::kUi8;
    case Elem::kI1:
      return spec::Elem::kI1;
    case Elem::kI16:
      return spec::Elem::kI16;
    case Elem::kU16:
      return spec::Elem::kUi16;
    case Elem::kI64:
      return spec::Elem::kI64;
    case Elem::kU64:
      return spec::Elem::kUi64;
    default:
      throw Error("element type " + std::string(elem_name(e)) + " has no core representation");
  }
}

namespace {

class Generator {
 public:
  Generator(const Nest& nest, const VpuGenOptions& options) : nest_(nest), options_(options) {
    int reduced = 0;
    for (const Loop& l : nest.loops) {
      reduced += l.reduced ? 1 : 0;
    }
    // Sections around the reduced loops, which are the innermost ones.
    enter_ = static_cast<int>(kBody) - reduced;
    leave_ = static_cast<int>(kBody) + reduced;
  }

  VpuGenResult run() {
    mark_live();
    for (size_t i = 0; i < nest_.nodes.size(); ++i) {
      if (live_.contains(static_cast<int>(i))) {
        node(static_cast<int>(i));
      }
    }
    VpuGenResult out;
    out.program = allocate();
    out.roles = roles_;
    out.uses_partition = uses_partition_;
    return out;
  }

 private:
  // With sums outside of the body, unless it would make more again for want of registers.
  VpuProgram allocate() const {
    constexpr int kMostSums = 16;
    VpuSections moved = sections_;
    int next = next_;
    VpuProgram plain = allocate_registers(sections_, next_);
    if (move_invariant_sums(moved, next, kMostSums)) {
      try {
        VpuProgram program = allocate_registers(moved, next);
        if (program.header.section[kBody] < plain.header.section[kBody]) {
          return program;
        }
      } catch (const OutOfRegisters&) {  // the body keeps them
        return plain;
      }
    }
    return plain;
  }

  void mark_live() {
    std::vector<int> work(options_.stores);
    while (!work.empty()) {
      const int n = work.back();
      work.pop_back();
      if (!live_.insert(n).second) {
        continue;
      }
      for (const Operand& o : nest_.nodes[static_cast<size_t>(n)].in) {
        if (o.kind == Operand::Kind::kNode) {
          work.push_back(o.index);
        }
      }
    }
  }

  bool stored(int n) const {
    return std::find(options_.stores.begin(), options_.stores.end(), n) != options_.stores.end();
  }

  void node(int n) {
    const Node& node = nest_.nodes[static_cast<size_t>(n)];
    if (node.op->kind == Kind::kReduce) {
      reduce(n, node);
      return;
    }
    std::vector<int> in;
    std::vector<Type> types;
    if (node.copy) {
      in = {operand(node.in[0], node.op->type().elem, kBody)};
      value_[n] = in[0];
    } else {
      for (size_t i = 0; i < node.in.size(); ++i) {
        in.push_back(operand(node.in[i], node.op->operand_type(i).elem, kBody));
      }
      VpuSelector select(sections_[kBody], next_);
      value_[n] = select.elementwise(*node.op, in);
    }
    if (stored(n)) {
      store(value_[n], access({AccessRole::Kind::kStore, n}), spec::VpuStoreMode::kAll, kBody);
    }
  }

  void reduce(int n, const Node& node) {
    const Op& op = *node.op;
    const Elem elem = op.type().elem;
    const Kind kind = *simple_reducer(*op.regions[0]);
    const uint32_t identity = reduce_identity(op, kind, elem);
    const VpuOp combine = reduce_op(op, kind, elem);
    if (enter_ == leave_) {  // reduced dims of one element only
      VpuSelector body(sections_[kBody], next_);
      const int x = operand(node.in[0], elem, kBody);
      const int one = body.make(VpuOp::kImm, -1, -1, -1, identity);
      finish(n, node, body.make(combine, one, x), combine, identity);
      return;
    }
    VpuSelector enter(sections_[static_cast<size_t>(enter_)], next_);
    const int carry = options_.first && options_.last ? -1 : access({AccessRole::Kind::kCarry, n});
    const int acc = next_++;
    if (options_.first) {
      enter.put(VpuOp::kImm, acc, 0, 0, 0, identity);
    } else {
      enter.put(VpuOp::kLoad, acc, 0, 0, 0, static_cast<uint32_t>(carry));
    }
    VpuSelector body(sections_[kBody], next_);
    int x = operand(node.in[0], elem, kBody);
    if (masks_lanes()) {
      x = body.make(VpuOp::kMaskid, x, 0, 0, identity);
    }
    body.put(combine, acc, acc, x, 0, 0);  // accumulators are written in place
    VpuSelector leave(sections_[static_cast<size_t>(leave_)], next_);
    if (!options_.last) {
      store(acc, carry, spec::VpuStoreMode::kAll, static_cast<size_t>(leave_));
      return;
    }
    const auto tree = static_cast<uint32_t>(reduce_tree(op, kind, elem));
    int y = acc;
    if (reduces_lanes()) {
      y = leave.make(VpuOp::kLred, y, 0, 0, tree);
    }
    if (reduces_sublanes()) {
      y = leave.make(VpuOp::kSred, y, 0, 0, tree);
    }
    finish(n, node, y, combine, identity);
  }

  // Combines the init value last, and stores.
  void finish(int n, const Node& node, int y, VpuOp combine, uint32_t identity) {
    const auto section = static_cast<size_t>(leave_);
    VpuSelector leave(sections_[section], next_);
    const Operand& init = node.in[1];
    if (init.kind != Operand::Kind::kImmediate || init.immediate != identity) {
      const int i = operand(init, node.op->type().elem, section);
      y = leave.make(combine, y, i, 0, 0);
    }
    using Mode = spec::VpuStoreMode;
    const Mode mode = reduces_lanes() ? (reduces_sublanes() ? Mode::kElement0 : Mode::kLane0)
                                      : (reduces_sublanes() ? Mode::kSublane0 : Mode::kAll);
    store(y, access({AccessRole::Kind::kReduceStore, n}), mode, section);
  }

  bool loop_reduced(int l) const { return l >= 0 && nest_.loops[static_cast<size_t>(l)].reduced; }
  bool reduces_lanes() const { return loop_reduced(options_.col_loop); }
  bool reduces_sublanes() const {
    return options_.flat ? reduces_lanes() : loop_reduced(options_.row_loop);
  }
  bool masks_lanes() const { return reduces_lanes() || reduces_sublanes(); }

  int access(AccessRole role) {
    roles_.push_back(role);
    return static_cast<int>(roles_.size()) - 1;
  }

  void store(int reg, int access, spec::VpuStoreMode mode, size_t section) {
    VpuSelector s(sections_[section], next_);
    s.put(VpuOp::kStore, -1, reg, 0, 0, static_cast<uint32_t>(access), static_cast<uint8_t>(mode));
  }

  static bool invariant(const View& v) {
    return std::all_of(v.stride.begin(), v.stride.end(), [](int64_t s) { return s == 0; });
  }

  // Virtual register that holds the operand in `section`.
  int operand(const Operand& o, Elem elem, size_t section) {
    VpuSelector here(sections_[section], next_);
    switch (o.kind) {
      case Operand::Kind::kNode:
        return value_.at(o.index);
      case Operand::Kind::kImmediate:
        return here.make(VpuOp::kImm, -1, -1, -1, o.immediate);
      case Operand::Kind::kPartition: {
        uses_partition_ = true;
        return here.make(VpuOp::kScalar, -1, -1, -1, 0);
      }
      case Operand::Kind::kIndex: {
        const auto key = std::pair{o.index, elem};
        if (!indexes_.contains(key)) {
          const int a = access({AccessRole::Kind::kIndex, o.index});
          int r = here.make(VpuOp::kIndex, -1, -1, -1, static_cast<uint32_t>(a));
          if (is_float(elem)) {
            r = here.make(VpuOp::kI2f, r, -1, -1, 0);
            if (elem == Elem::kBf16) {
              r = here.make(VpuOp::kRbf16, r, -1, -1, 0);
            }
          } else {
            r = here.narrow(r, elem);  // a long iota of a narrow type wraps
          }
          indexes_[key] = r;
        }
        return indexes_.at(key);
      }
      case Operand::Kind::kAccess:
        break;
    }
    const View& view = nest_.accesses[static_cast<size_t>(o.index)].view;
    const bool hoist = invariant(view) && hoisted_ < kMaxHoisted;
    const bool of_lanes = section == kBody && !options_.inside_lanes.empty() &&
                          is_row_of_lanes(view, options_.col_loop, options_.inside_lanes);
    const size_t outer = kBody - options_.inside_lanes.size();  // in the iterations of the lanes
    const bool row = of_lanes && (rows_of_lanes_ < kMaxRowsOfLanes ||
                                  loads_.contains(std::pair{o.index, outer}));
    const size_t at = hoist ? 0 : row ? outer : section;
    const auto key = std::pair{o.index, at};
    if (!loads_.contains(key)) {
      hoisted_ += hoist ? 1 : 0;
      rows_of_lanes_ += row ? 1 : 0;
      VpuSelector there(sections_[at], next_);
      const int a = access({AccessRole::Kind::kLoad, o.index});
      loads_[key] = there.make(VpuOp::kLoad, -1, -1, -1, static_cast<uint32_t>(a));
    }
    return loads_.at(key);
  }

  static constexpr int kMaxHoisted = 8, kMaxRowsOfLanes = 12;

  const Nest& nest_;
  const VpuGenOptions& options_;
  int enter_ = kBody, leave_ = kBody;
  int next_ = 0;
  int hoisted_ = 0, rows_of_lanes_ = 0;
  bool uses_partition_ = false;
  VpuSections sections_;
  std::set<int> live_;
  std::map<int, int> value_;
  std::map<std::pair<int, size_t>, int> loads_;
  std::map<std::pair<int, Elem>, int> indexes_;
  std::vector<AccessRole> roles_;
};

}  // namespace

VpuGenResult generate_vpu(const Nest& nest, const VpuGenOptions& options) {
  if (!options.inside_lanes.empty()) {
    try {
      return Generator(nest, options).run();
    } catch (const OutOfRegisters&) {  // then they are loaded where they are read
      VpuGenOptions plain = options;
      plain.inside_lanes.clear();
      return Generator(nest, plain).run();
    }
  }
  return Generator(nest, options).run();
}

}  // namespace tpu::compiler
