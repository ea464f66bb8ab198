#include "plan/loop_plan.hpp"

#include <algorithm>

#include "plan/joined_streams.hpp"

namespace tpu::compiler {

namespace {

constexpr int64_t kLeastSummedRows = 64;           // of a tile of a sum over rows, if rows are cut
constexpr int64_t kStreamPieceBytes = 512 * 1024;  // of one streamed operand and tile
constexpr int64_t kMostIterations = int64_t{1} << 30;  // of a loop of one command

bool contains(const std::vector<const Value*>& list, const Value* v) {
  return std::find(list.begin(), list.end(), v) != list.end();
}

// Accumulators pass from tile to tile as whole blocks, so a reduced tail shorter than a block goes
// with the tile before it: iterations that this adds.
int64_t short_tail(const Loop& loop, int64_t tile, int64_t block) {
  const int64_t tail = loop.n % tile;
  return loop.reduced && loop.n > tile && tail < block ? tail : 0;
}

}  // namespace

// Rows and columns of blocks: the innermost loops.
void choose_roles(const Nest& nest, VpuGenOptions& o) {
  const int n = static_cast<int>(nest.loops.size());
  o.flat = n <= 1;
  o.col_loop = n - 1;
  if (n > 1) {
    o.row_loop = n - 2;
  }
}

namespace {

// Where the innermost loops would leave most lanes empty, others take their place (tiles cut those
// in front of `outermost`); not with a reduction, whose order depends on them. True if the roles
// have changed.
bool fill_lanes(const Nest& nest, int outermost, VpuGenOptions& o) {
  const int n = static_cast<int>(nest.loops.size());
  if (o.flat || nest.has_reduce) {
    return false;
  }
  const auto lanes_used = [&](int row, int col) {
    const auto used = [](int64_t count, int64_t block) {
      return static_cast<double>(count) / static_cast<double>(round_up(count, block));
    };
    return used(nest.loops[static_cast<size_t>(row)].n, kSublanes) *
           used(nest.loops[static_cast<size_t>(col)].n, kLanes);
  };
  constexpr double kWorth = 2, kBetter = 1.25;  // lanes at a stride are slower to load
  const VpuGenOptions before = o;
  double best = lanes_used(o.row_loop, o.col_loop) * kWorth;
  for (int col = n; col-- > outermost;) {
    for (int row = n; row-- > outermost;) {
      if (row != col && lanes_used(row, col) > best) {
        best = lanes_used(row, col) * kBetter;
        o.row_loop = row;
        o.col_loop = col;
      }
    }
  }
  return o.row_loop != before.row_loop || o.col_loop != before.col_loop;
}

// True if a tile is shorter than a block.
bool cuts_blocks(const Nest& nest, const VpuGenOptions& o, const Dims& tile) {
  const auto cut = [&](int l) {
    const int64_t n = nest.loops[static_cast<size_t>(l)].n;
    return tile[static_cast<size_t>(l)] < std::min(n, granule(o, l));
  };
  return cut(o.row_loop) || cut(o.col_loop);
}

// Where the lanes' loop stands outermost in the command, operands that differ along the lanes
// alone, such as the kernel of a depthwise convolution, are loaded once for all rows. A few of them
// hide behind the arithmetic.
void load_rows_outside(const Nest& nest, size_t outside, std::vector<int>& order,
                       VpuGenOptions& o) {
  constexpr int kWorth = 4;
  o.inside_lanes.clear();
  const auto first = order.begin() + static_cast<ptrdiff_t>(outside);
  const auto lanes = std::find(first, order.end(), o.col_loop);
  if (o.flat || nest.has_reduce || lanes == order.end()) {
    return;
  }
  std::vector<int> others(first, order.end());
  std::erase(others, o.col_loop);
  if (count_rows_of_lanes(nest, o.col_loop, others) >= kWorth) {
    std::rotate(first, lanes, lanes + 1);
    o.inside_lanes = std::move(others);
  }
}

}  // namespace

// The command holds four loops: kept loops of few iterations go outside of it.
std::vector<int> choose_order(const Nest& nest, VpuGenOptions& o) {
  constexpr size_t kCommandLoops = 4;
  std::vector<int> order = command_order(nest);
  size_t outside = 0;
  for (size_t excess = order.size(); excess > kCommandLoops; --excess) {
    size_t least = order.size();
    for (size_t i = outside; i < order.size(); ++i) {
      const Loop& loop = nest.loops[static_cast<size_t>(order[i])];
      const bool fixed = loop.reduced || order[i] == o.row_loop || order[i] == o.col_loop;
      if (!fixed &&
          (least == order.size() || loop.n < nest.loops[static_cast<size_t>(order[least])].n)) {
        least = i;
      }
    }
    if (least == order.size()) {
      break;
    }
    const auto begin = order.begin();
    std::rotate(begin + static_cast<ptrdiff_t>(outside), begin + static_cast<ptrdiff_t>(least),
                begin + static_cast<ptrdiff_t>(least) + 1);
    ++outside;
  }
  load_rows_outside(nest, outside, order, o);
  return order;
}

static bool tile_fits(const LoopPlan& plan, const spec::BoardParams& board) {
  // What is broadcast takes no memory, but the counts of a command end somewhere.
  if (std::any_of(plan.tile.begin(), plan.tile.end(),
                  [](int64_t n) { return n > kMostIterations; })) {
    return false;
  }
  const Dims zero(plan.tile.size(), 0);
  int64_t total = 0;
  for (const Stream& s : plan.streams) {
    const int64_t bytes = make_piece(s.view, zero, plan.tile, s.output, s.reach).elements *
                          elem_bytes(s.value->type.elem);
    if (bytes > plan.piece_limit) {
      return false;
    }
    total += 2 * round_up(bytes, kAlign);
  }
  return total <= board.core.vmem_kib * 1024 * 5 / 8;
}

// Chooses iterations per tile. False if even the smallest tile does not fit.
static bool cut_tiles(const Kernel& k, const spec::BoardParams& board, LoopPlan& plan) {
  const Nest& nest = k.loop().nest;
  plan.tile.clear();
  for (const Loop& l : nest.loops) {
    plan.tile.push_back(l.n);
  }
  const size_t excess = plan.order.size() > 4 ? plan.order.size() - 4 : 0;
  for (size_t i = 0; i < excess; ++i) {
    if (nest.loops[static_cast<size_t>(plan.order[i])].reduced) {
      throw Error(
          "the reduction needs more than 4 loops; transpose its operand so that the reduced "
          "dimensions are adjacent, or reduce in several steps",
          source_name(k.ops.back()->kind), k.ops.back()->loc);
    }
  }
  // Sums over the outer loops of memory, such as those of a batch norm: the sum is cut first, since
  // a cut of the loops inside of it makes short runs. Each tile loads and stores the accumulators,
  // so it should hold some blocks of rows.
  int64_t inside = 1;  // rows of one iteration
  for (size_t l = 1; l < nest.loops.size() && nest.loops[l].reduced; ++l) {
    inside *= nest.loops[l].n;
  }
  for (size_t l = 0; l < nest.loops.size() && nest.loops[l].reduced; ++l) {
    inside /= l > 0 ? nest.loops[l].n : 1;
    const int64_t g = granule(plan.options, static_cast<int>(l));
    while (!tile_fits(plan, board) && plan.tile[l] > 1 &&
           plan.tile[l] / 2 * inside >= kLeastSummedRows) {
      const int64_t half = round_up((plan.tile[l] + 1) / 2, g);
      if (half >= plan.tile[l]) {
        break;
      }
      plan.tile[l] = half;
    }
  }
  for (const bool fine : {false, true}) {
    for (const int l : plan.cut_order) {
      const Loop& loop = nest.loops[static_cast<size_t>(l)];
      int64_t& c = plan.tile[static_cast<size_t>(l)];
      const int64_t g = fine && !loop.reduced ? 1 : granule(plan.options, l);
      while (!tile_fits(plan, board) && c > g) {
        c = std::max(g, round_up((c + 1) / 2, g) < c ? round_up((c + 1) / 2, g) : c - g);
      }
    }
    if (tile_fits(plan, board)) {
      return true;
    }
  }
  return false;
}

bool choose_streams(const Kernel& k, Residency& memory, const spec::BoardParams& board,
                    LoopPlan& plan) {
  plan.in_stream.assign(k.loop().nest.accesses.size(), -1);
  plan.out_stream.clear();
  plan.streams.clear();
  plan.whole.clear();
  const int64_t small = std::min<int64_t>(64 * 1024, memory.whole_limit() / 4);
  int64_t whole_bytes = 0;
  const auto stays = [&](const Buffer& b) {
    if (contains(plan.forced, b.value) || (k.loop().first > 0 && b.vmem < 0 && b.bytes > small)) {
      return false;
    }
    return b.vmem >= 0 || b.bytes <= small ||
           (memory.next_read(b) != INT32_MAX && b.bytes <= memory.kept_limit());
  };
  const auto whole = [&](Buffer& b) {
    if (std::find(plan.whole.begin(), plan.whole.end(), b.value) == plan.whole.end()) {
      plan.whole.push_back(b.value);
      whole_bytes += b.bytes;
    }
  };
  for (size_t i = 0; i < k.loop().nest.accesses.size(); ++i) {
    Buffer& b = memory.at(k.loop().nest.accesses[i].value);
    if (b.value == plan.from_tile) {
      plan.in_stream[i] = kFromTile;
      continue;
    }
    if (stays(b)) {
      whole(b);
      continue;
    }
    if (plan.in_stream[i] >= 0) {
      continue;  // with an access before it
    }
    plan.in_stream[i] = static_cast<int>(plan.streams.size());
    plan.streams.push_back({b.value, k.loop().nest.accesses[i].view, false, 0, 0, {}});
    if (plan.join) {
      join_stream(k.loop().nest, i, plan);
    }
  }
  for (size_t n = 0; n < k.loop().nest.nodes.size(); ++n) {
    const Op* op = k.loop().nest.nodes[n].op;
    if (std::find(k.writes.begin(), k.writes.end(), op->result()) == k.writes.end()) {
      continue;
    }
    Buffer& b = memory.at(op->result());
    if (stays(b)) {
      whole(b);
      continue;
    }
    plan.out_stream[static_cast<int>(n)] = static_cast<int>(plan.streams.size());
    plan.streams.push_back(
        {b.value,
         {k.loop().first, store_strides(k.loop().nest, op->kind == Kind::kReduce)},
         true,
         0,
         0,
         {}});
  }
  return whole_bytes <= board.core.vmem_kib * 1024 * 3 / 4;
}

namespace {

// Two slots for each stream, if there are several tiles.
bool place_streams(const Kernel& k, Residency& memory, bool many, LoopPlan& plan) {
  const Dims zero(plan.tile.size(), 0);
  for (Stream& s : plan.streams) {
    if (s.shared) {
      continue;  // it has slots
    }
    Dims longest = plan.tile;
    for (size_t l = 0; l < longest.size(); ++l) {
      longest[l] += short_tail(k.loop().nest.loops[l], plan.tile[l],
                               granule(plan.options, static_cast<int>(l)));
    }
    s.slot_bytes = make_piece(s.view, zero, longest, s.output, s.reach).elements *
                   elem_bytes(s.value->type.elem);
    for (int i = 0; i < (many && !s.local ? 2 : 1); ++i) {
      const auto slot = memory.take(s.slot_bytes);
      if (!slot) {
        return false;
      }
      s.slots.push_back(*slot);
      plan.temporary.push_back(*slot);
    }
  }
  return true;
}

// Accumulators between the tiles of a reduction that is cut.
bool place_carry(const Kernel& k, Residency& memory, LoopPlan& plan) {
  int64_t blocks = 1;
  for (size_t l = 0; l < plan.tile.size(); ++l) {
    if (!k.loop().nest.loops[l].reduced) {
      const int64_t g = granule(plan.options, static_cast<int>(l));
      blocks *= (plan.tile[l] + 2 * g - 2) / g;
    }
  }
  int64_t reduces = 0;
  for (const Node& n : k.loop().nest.nodes) {
    reduces += n.op->kind == Kind::kReduce ? 1 : 0;
  }
  plan.carry_bytes = blocks * kBlockBytes;
  const auto carry = memory.take(plan.carry_bytes * reduces);
  if (carry) {
    plan.carry = *carry;
    plan.temporary.push_back(*carry);
  }
  return carry.has_value();
}

}  // namespace

bool place_loop(const Kernel& k, Residency& memory, LoopPlan& plan, uint32_t id) {
  for (const Value* v : plan.whole) {
    memory.pins().add(memory.at(v));
  }
  for (const Value* v : plan.whole) {
    Buffer& b = memory.at(v);
    const bool made = std::find(k.writes.begin(), k.writes.end(), v) != k.writes.end();
    if (b.vmem < 0 && !(made ? memory.place(b) : load(memory, b, id))) {
      return false;
    }
  }
  bool many = false;
  plan.cut_reduce = false;
  for (size_t l = 0; l < plan.tile.size(); ++l) {
    many = many || plan.tile[l] < k.loop().nest.loops[l].n;
    plan.cut_reduce = plan.cut_reduce ||
                      (k.loop().nest.loops[l].reduced && plan.tile[l] < k.loop().nest.loops[l].n);
  }
  return place_streams(k, memory, many, plan) && (!plan.cut_reduce || place_carry(k, memory, plan));
}

static void forget_places(LoopPlan& plan) {
  plan.temporary.clear();
  for (Stream& s : plan.streams) {
    s.slots.clear();
  }
}

void release_loop(Residency& memory, LoopPlan& plan) {
  for (const int64_t address : plan.temporary) {
    memory.give(address);
  }
  plan.temporary.clear();
  memory.pins().clear();
}

std::vector<int> stored_nodes(const Kernel& k) {
  std::vector<int> stored;
  for (size_t n = 0; n < k.loop().nest.nodes.size(); ++n) {
    if (std::find(k.writes.begin(), k.writes.end(), k.loop().nest.nodes[n].op->result()) !=
        k.writes.end()) {
      stored.push_back(static_cast<int>(n));
    }
  }
  return stored;
}

void choose_program(const Kernel& k, LoopPlan& plan) {
  choose_roles(k.loop().nest, plan.options);
  plan.order = choose_order(k.loop().nest, plan.options);
  plan.options.stores = stored_nodes(k);
}

// Of the whole values, the largest that may leave VMEM.
static const Value* largest_whole(Residency& memory, const LoopPlan& plan) {
  const Value* largest = nullptr;
  for (const Value* v : plan.whole) {
    if (!memory.at(v).locked && memory.at(v).target < 0 &&
        (largest == nullptr || memory.at(v).bytes > memory.at(largest).bytes)) {
      largest = v;
    }
  }
  return largest;
}

// True if a plan without joined streams loads much less.
static bool apart_is_better(const Kernel& k, Residency& memory, const spec::BoardParams& board,
                            const LoopPlan& joined) {
  constexpr int64_t kWorth = 4;
  const Nest& nest = k.loop().nest;
  if (std::none_of(joined.streams.begin(), joined.streams.end(),
                   [](const Stream& s) { return s.reach > 0; })) {
    return false;
  }
  LoopPlan apart = joined;
  apart.join = false;
  return choose_streams(k, memory, board, apart) && cut_tiles(k, board, apart) &&
         kWorth * loaded_bytes(nest, apart, board) < loaded_bytes(nest, joined, board);
}

std::optional<LoopPlan> plan_loop(const Kernel& k, Residency& memory,
                                  const spec::BoardParams& board, uint32_t id) {
  LoopPlan plan;
  choose_program(k, plan);
  bool other_lanes = fill_lanes(k.loop().nest, 0, plan.options);
  plan.order = choose_order(k.loop().nest, plan.options);
  plan.cut_order = command_order(k.loop().nest);
  plan.piece_limit = std::min(kStreamPieceBytes, board.core.vmem_kib * 1024 / 16);
  for (;;) {
    const bool planned = choose_streams(k, memory, board, plan);
    const bool fits = planned && cut_tiles(k, board, plan);
    const int inner = std::max(static_cast<int>(k.loop().nest.loops.size()) - 3, 0);
    if (planned && other_lanes && !plan.streams.empty() &&
        std::min(plan.options.row_loop, plan.options.col_loop) < inner) {
      choose_roles(k.loop().nest, plan.options);
      other_lanes = fill_lanes(k.loop().nest, inner, plan.options);
      plan.order = choose_order(k.loop().nest, plan.options);
      continue;
    }
    if (planned && other_lanes && cuts_blocks(k.loop().nest, plan.options, plan.tile)) {
      choose_roles(k.loop().nest, plan.options);
      plan.order = choose_order(k.loop().nest, plan.options);
      other_lanes = false;
      continue;
    }
    if (fits && plan.join && apart_is_better(k, memory, board, plan)) {
      plan.join = false;
      continue;
    }
    if (fits) {
      Reservation attempt(memory);
      for (const Value* v : plan.forced) {
        leave_vmem(memory, memory.at(v), id);
      }
      if (place_loop(k, memory, plan, id)) {
        attempt.keep();
        return plan;
      }
      forget_places(plan);
    }
    // Too much at once: the largest whole buffer streams; then smaller pieces.
    const Value* largest = largest_whole(memory, plan);
    if (largest != nullptr && memory.at(largest).bytes > plan.piece_limit) {
      plan.forced.push_back(largest);
    } else if (plan.piece_limit > 1024) {
      plan.piece_limit /= 2;
    } else {
      return std::nullopt;
    }
  }
}

void for_each_tile(const Kernel& k, const LoopPlan& plan,
                   const std::function<void(const Dims&, const Dims&, bool, bool)>& fn) {
  std::vector<int64_t> tiles;
  for (const int l : plan.cut_order) {
    const int64_t n = k.loop().nest.loops[static_cast<size_t>(l)].n,
                  c = plan.tile[static_cast<size_t>(l)];
    int64_t t = (n + c - 1) / c;
    if (short_tail(k.loop().nest.loops[static_cast<size_t>(l)], c, granule(plan.options, l)) > 0) {
      --t;
    }
    tiles.push_back(t);
  }
  std::vector<int64_t> at(tiles.size(), 0);
  for (;;) {
    Dims start(plan.tile.size(), 0), count(plan.tile.size(), 1);
    bool first = true, last = true;
    for (size_t i = 0; i < tiles.size(); ++i) {
      const auto l = static_cast<size_t>(plan.cut_order[i]);
      start[l] = at[i] * plan.tile[l];
      count[l] = at[i] == tiles[i] - 1 ? k.loop().nest.loops[l].n - start[l] : plan.tile[l];
      if (k.loop().nest.loops[l].reduced) {
        first = first && at[i] == 0;
        last = last && at[i] == tiles[i] - 1;
      }
    }
    fn(start, count, first, last);
    size_t i = tiles.size();
    while (i > 0 && ++at[i - 1] == tiles[i - 1]) {
      at[--i] = 0;
    }
    if (i == 0) {
      break;
    }
  }
}

}  // namespace tpu::compiler
