// Choice of tiles by cost: cycles of the matrix units against bytes from and to HBM.
#include "plan/contraction_plan.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "arith/mxu_timing.hpp"
#include "board/board_loader.hpp"
#include "command/cost.hpp"
#include "plan/piece.hpp"
#include "program/estimate.hpp"

namespace tpu::compiler {

namespace {

using CDim = Contraction::Dim;

constexpr int64_t kNarrow = 2;  // bytes of what most epilogues stream

// Cuts worth a try: from whole to single iterations, at most `loops` dims whole or cut.
std::vector<Cut> candidates(const std::vector<CDim>& dims, size_t loops,
                            const std::function<int64_t(size_t)>& granule) {
  std::vector<Cut> out;
  if (dims.empty()) {
    return {{0, 1}};
  }
  for (size_t a = dims.size() > loops ? dims.size() - loops : 0; a < dims.size(); ++a) {
    const int64_t n = dims[a].n, g = granule(a);
    int64_t last = 0;
    if (g <= 0) {
      continue;
    }
    for (int64_t pieces = 1; pieces <= n; pieces += std::max<int64_t>(1, pieces / 2)) {
      const int64_t size = std::min(n, round_up(ceil_div(n, pieces), g));
      if (size != last) {
        out.push_back({a, size});
      }
      last = size;
      if (size <= g) {
        break;
      }
    }
    if (last > g) {
      out.push_back({a, g});
    }
  }
  return out;
}

Block largest(const std::vector<CDim>& dims, const Cut& cut) {
  Block b{Dims(dims.size(), 0), Dims(dims.size(), 1)};
  for (size_t i = cut.axis; i < dims.size(); ++i) {
    b.count[i] = i == cut.axis ? cut.size : dims[i].n;
  }
  return b;
}

int64_t block_count(const std::vector<CDim>& dims, const Cut& cut) {
  int64_t n = 1;
  for (size_t i = 0; i < dims.size() && i <= cut.axis; ++i) {
    n *= i == cut.axis ? ceil_div(dims[i].n, cut.size) : dims[i].n;
  }
  return n;
}

// Block of an operand in VMEM, and the cycles that its DMA costs.
struct Load {
  int64_t bytes = 0;
  double cycles = 0;
  double runs = 0;  // contiguous pieces of memory
};

class Chooser {
 public:
  Chooser(const Mapping& w, const TileLimits& limits, const spec::BoardParams& board)
      : w_(w), c_(w.c), limits_(limits), board_(board), hbm_(hbm_bytes_per_cycle(board)) {}

  // Of the cuts within 2 % of the cheapest, the one with the fewest commands and the longest runs
  // in memory: to a simulating host, ten thousand runs are as dear as a command and its packed
  // weights.
  std::optional<TileChoice> run() {
    auto rows = candidates(c_.m, 4, [&](size_t a) { return a + 1 == c_.m.size() ? 8 : 1; });
    auto cols = candidates(
        c_.n, 2, [&](size_t a) { return a + 1 == c_.n.size() ? board_.mxu.cols : int64_t{1}; });
    if (limits_.pieced == TileLimits::Pieced::kRows) {
      rows = inside_of_pieces(c_.m, std::move(rows));
    } else if (limits_.pieced == TileLimits::Pieced::kColumns) {
      cols = inside_of_pieces(c_.n, std::move(cols));
    }
    search(rows, cols);
    if (found_.empty()) {  // down to single rows and columns
      const auto one = [](size_t) { return int64_t{1}; };
      search(candidates(c_.m, 4, one), candidates(c_.n, 2, one));
    }
    if (found_.empty()) {
      return std::nullopt;
    }
    const double equal = limits_.stream_bytes > 0 ? 1 : 1.02;
    const auto cheaper = [](const Found& a, const Found& b) {
      return a.choice.cycles < b.choice.cycles;
    };
    const double limit =
        std::min_element(found_.begin(), found_.end(), cheaper)->choice.cycles * equal;
    constexpr double kRun = 1e-4;
    const auto order = [](const Found& f) {
      return std::pair(f.commands + kRun * f.runs, f.choice.cycles);
    };
    const Found* best = nullptr;
    for (const Found& f : found_) {
      if (f.choice.cycles <= limit && (best == nullptr || order(f) < order(*best))) {
        best = &f;
      }
    }
    return best->choice;
  }

 private:
  // The cuts whose blocks divide a piece, and some more of them; all if there are none.
  std::vector<Cut> inside_of_pieces(const std::vector<CDim>& dims, std::vector<Cut> cuts) const {
    constexpr int64_t kMostParts = 8;  // of a piece
    const auto divides = [&](const Cut& cut) {
      return limits_.piece_rows % largest(dims, cut).iterations() == 0 &&
             dims[cut.axis].n % cut.size == 0;
    };
    int64_t inside = 1;  // iterations of the loops inside of the axis
    std::vector<Cut> found;
    for (size_t axis = dims.size(); axis-- > 0 && limits_.piece_rows % inside == 0;) {
      const int64_t rows = limits_.piece_rows / inside;
      for (int64_t parts = 1; parts <= std::min(rows, kMostParts); ++parts) {
        if (rows % parts == 0 && rows / parts <= dims[axis].n) {
          cuts.push_back({axis, rows / parts});
        }
      }
      inside *= dims[axis].n;
    }
    std::ranges::copy_if(cuts, std::back_inserter(found), divides);
    return found.empty() ? cuts : found;
  }

  struct Found {
    TileChoice choice;
    double commands = 0;
    double runs = 0;
  };

  void search(const std::vector<Cut>& rows, const std::vector<Cut>& cols) {
    for (const Cut& k : depths()) {
      std::vector<Load> right;
      for (const Cut& n : cols) {
        right.push_back(load(c_.n, n, k, &CDim::rhs, c_.rhs, limits_.rhs_whole));
      }
      for (const Cut& m : rows) {
        const Load left = load(c_.m, m, k, &CDim::lhs, c_.lhs, limits_.lhs_whole);
        for (size_t i = 0; i < cols.size(); ++i) {
          weigh({m, cols[i], k, false, 0}, left, right[i]);
        }
      }
    }
  }

  std::vector<Cut> depths() const {
    if (w_.chunk > 0) {
      return {{w_.chunk_dim, w_.chunk}};
    }
    const size_t taps = c_.k.size() - w_.run;
    std::vector<Cut> out = candidates(c_.k, w_.run + 3, [&](size_t a) {
      return a < taps ? int64_t{1} : a == taps && w_.run == 1 ? board_.mxu.rows : int64_t{0};
    });
    if (w_.run > 0 && (w_.run > 1 || taps > 0)) {
      out.push_back({taps, c_.k[taps].n});
    }
    return out;
  }

  Load load(const std::vector<CDim>& free, const Cut& cut, const Cut& k, int64_t CDim::*stride,
            const Value* v, bool whole) const {
    if (whole) {
      return {};
    }
    std::vector<BoxLoop> loops;
    const Block a = largest(free, cut), b = largest(c_.k, k);
    for (size_t i = 0; i < free.size(); ++i) {
      loops.push_back({a.count[i], free[i].*stride});
    }
    for (size_t i = 0; i < c_.k.size(); ++i) {
      loops.push_back({b.count[i], c_.k[i].*stride});
    }
    const TileBox box = make_box(loops, false);
    const int64_t bytes = elem_bytes(v->type.elem);
    int64_t run = 1;  // contiguous elements
    for (size_t i = box.dims.size(); i-- > 0 && box.dims[i].src == run;) {
      run *= box.dims[i].n;
    }
    const double waste = static_cast<double>(round_up(run * bytes, board_.dma.granule_bytes)) /
                         static_cast<double>(run * bytes);
    return {round_up(box.elements * bytes, kAlign),
            static_cast<double>(box.elements * bytes) * waste / hbm_,
            static_cast<double>(box.elements) / static_cast<double>(run)};
  }

  int64_t k_tiles(const Cut& cut) const {
    const Block b = largest(c_.k, cut);
    int64_t taps = 1, k = 1;
    for (size_t i = 0; i < c_.k.size(); ++i) {
      (i + w_.run < c_.k.size() ? taps : k) *= b.count[i];
    }
    return taps * ceil_div(k, board_.mxu.rows);
  }

  void weigh(TileChoice t, const Load& left, const Load& right) {
    const Block m = largest(c_.m, t.m), n = largest(c_.n, t.n), k = largest(c_.k, t.k);
    const int64_t mb = block_count(c_.m, t.m), nb = block_count(c_.n, t.n),
                  kb = block_count(c_.k, t.k);
    const int64_t rows = m.iterations(), cols = n.iterations(), depth = k.iterations();
    if ((limits_.whole_vectors && !fills_vectors(t, mb, rows)) ||
        (limits_.whole_columns && (w_.transpose_out ? mb : nb) > 1)) {
      return;
    }
    // VMEM.
    const auto slots = [](int64_t loads) { return loads > 1 ? 2 : 1; };
    const int64_t l = elem_bytes(c_.lhs->type.elem);
    int64_t need = left.bytes * slots(mb * kb) + right.bytes * slots(nb * kb);
    if (w_.transposes()) {
      need += round_up(rows * depth * l, kAlign) * slots(mb * kb);
    }
    if (w_.gathers()) {
      need += round_up(rows * depth * l, kAlign) * slots(mb * kb);
    }
    need += w_.transposes_box() ? left.bytes * slots(mb * kb) : 0;
    if (!limits_.direct_out) {
      const int64_t out = round_up(rows * cols * 4, kAlign);
      int64_t copies = 1 + (limits_.narrow_out ? 1 : 0) + (w_.transpose_out ? 1 : 0);
      need += out * copies * slots(mb * nb);
    }
    need += rows * cols * (limits_.epilogue_bytes * slots(mb * nb) + limits_.local_bytes);
    if (need > limits_.budget) {
      return;
    }
    // Cycles.
    const double filled = static_cast<double>(Contraction::count(c_.m)) /
                          static_cast<double>(mb * rows);  // the last block may be shorter
    const double mxu = (share_units(m.count, n.count, k_tiles(t.k), board_).cycles +
                        (kb > 1 ? accumulation(rows) : 0)) *
                       static_cast<double>(mb * nb * kb) * filled;
    const double out_bytes =
        limits_.out_whole
            ? 0
            : static_cast<double>(Contraction::count(c_.m) * Contraction::count(c_.n)) *
                  (limits_.narrow_out ? 2 : 4);
    const double out_runs =
        limits_.out_whole ? 0 : static_cast<double>(mb * nb) * output_runs(m, n);
    const auto width = static_cast<double>(board_.mxu.cols);
    const double transpose = w_.transposes()       ? static_cast<double>(rows * depth) / width
                             : w_.transposes_box() ? static_cast<double>(left.bytes / l) / width
                                                   : 0;
    const double transpose_out =
        w_.transpose_out
            ? static_cast<double>(Contraction::count(c_.m) * Contraction::count(c_.n)) / width
            : 0;
    const double epilogue = static_cast<double>(Contraction::count(c_.m) *
                                                Contraction::count(c_.n) * limits_.epilogue_bytes) *
                            waste(out_run(m, n) * kNarrow) / hbm_;
    for (const bool rows_outside : {false, true}) {
      if (rows_outside && limits_.whole_vectors && nb > 1) {
        continue;  // reductions are carried along the rows
      }
      int64_t lhs_again = rows_outside ? (kb == 1 ? 1 : nb) : (mb * kb == 1 ? 1 : nb);
      int64_t rhs_again = rows_outside ? (nb * kb == 1 ? 1 : mb) : (kb == 1 ? 1 : mb);
      if (limits_.pieced == TileLimits::Pieced::kRows && kb == 1) {  // columns come for each piece
        rhs_again = std::max(rhs_again, std::min(limits_.pieces, mb));
      } else if (limits_.pieced == TileLimits::Pieced::kColumns && kb == 1) {
        lhs_again = std::max(lhs_again, std::min(limits_.pieces, nb));
      }
      const auto lhs_loads = static_cast<double>(mb * kb * lhs_again),
                 rhs_loads = static_cast<double>(nb * kb * rhs_again);
      const double dma =
          lhs_loads * left.cycles * filled + rhs_loads * right.cycles + out_bytes / hbm_ + epilogue;
      // What nothing hides: of the first batch alone, since the next one comes while that runs.
      const double first =
          (left.cycles + right.cycles + out_bytes / hbm_ / static_cast<double>(mb * nb)) /
          static_cast<double>(Contraction::count(c_.batch));
      const double commands = static_cast<double>(mb * nb * kb) + (left.bytes > 0 ? lhs_loads : 0) +
                              (right.bytes > 0 ? rhs_loads : 0);
      t.rows_outside = rows_outside;
      t.cycles =
          limits_.stream_bytes > 0
              ? streamed(mxu, dma, static_cast<double>(mb * nb * kb), left.bytes + right.bytes) +
                    60 * commands
              : std::max({mxu, dma, lhs_loads * transpose + transpose_out}) + first + 60 * commands;
      found_.push_back({t, commands, lhs_loads * left.runs + rhs_loads * right.runs + out_runs});
    }
  }

  // A command of a few rows waits for the sums of the one before, and is shorter than their way.
  double accumulation(int64_t rows) const {
    const spec::MxuShape s = spec::mxu_shape(board_);
    const auto interval = static_cast<int64_t>(spec::mxu_interval(s, 1));
    return rows > kFewRows ? 0
                           : static_cast<double>(static_cast<int64_t>(spec::mxu_latency(s)) + 1 +
                                                 rows - interval);
  }

  // A block of weights takes its slot for its load, the latency of a DMA and its product. Loads in
  // flight together end together, so each of them waits for its share of the latency. The last
  // product is what nothing hides, since the first loads run beside earlier kernels.
  double streamed(double mxu, double dma, double blocks, int64_t block_bytes) const {
    const auto fixed = static_cast<double>(spec::cycles_from_ns(board_, board_.dma.in_fixed_ns));
    const double latency = static_cast<double>(spec::mxu_latency(spec::mxu_shape(board_))) + fixed;
    dma += blocks * fixed / static_cast<double>(board_.dma.in_flight);
    const auto slots = std::min(blocks, static_cast<double>(slots_of_blocks(limits_, block_bytes)));
    return std::max({mxu, dma, (mxu + dma + blocks * latency) / slots}) + mxu / blocks;
  }

  // Contiguous pieces of a block of the output.
  double output_runs(const Block& m, const Block& n) const {
    std::vector<std::pair<int64_t, int64_t>> dims;  // stride, iterations
    for (size_t i = 0; i < c_.m.size(); ++i) {
      dims.emplace_back(c_.m[i].out, m.count[i]);
    }
    for (size_t i = 0; i < c_.n.size(); ++i) {
      dims.emplace_back(c_.n[i].out, n.count[i]);
    }
    std::sort(dims.begin(), dims.end());
    int64_t run = 1, all = 1;
    for (const auto& [stride, count] : dims) {
      run *= stride == run ? count : 1;
      all *= count;
    }
    return static_cast<double>(all) / static_cast<double>(run);
  }

  // What a run of so many bytes costs, of the granules that it touches.
  double waste(int64_t bytes) const {
    return static_cast<double>(round_up(bytes, board_.dma.granule_bytes)) /
           static_cast<double>(bytes);
  }

  // Elements of a block that follow each other in the result.
  int64_t out_run(const Block& m, const Block& n) const {
    int64_t run = 1;
    for (bool longer = true; longer;) {
      longer = false;
      for (const auto& [dims, block] : {std::pair{&c_.m, &m}, {&c_.n, &n}}) {
        for (size_t i = 0; i < dims->size(); ++i) {
          if ((*dims)[i].out == run && block->count[i] > 1) {
            run *= block->count[i];
            longer = block->count[i] == (*dims)[i].n;
            break;
          }
        }
        if (longer) {
          break;
        }
      }
    }
    return run;
  }

  // Blocks of rows that are whole vectors, the last one at least one of them.
  bool fills_vectors(const TileChoice& t, int64_t mb, int64_t rows) const {
    const CDim* cut = c_.m.empty() ? nullptr : &c_.m[t.m.axis];
    const int64_t tail = cut == nullptr ? 0 : cut->n % t.m.size * (rows / t.m.size);
    return mb == 1 ||
           (rows % kSublanes == 0 &&
            (tail == 0 || (t.m.axis == 0 && tail >= kSublanes) || tail % kSublanes == 0));
  }

  const Mapping& w_;
  const Contraction& c_;
  const TileLimits& limits_;
  const spec::BoardParams& board_;
  const double hbm_;  // bytes a cycle
  std::vector<Found> found_;
};

}  // namespace

int64_t Block::iterations() const {
  return std::accumulate(count.begin(), count.end(), int64_t{1}, std::multiplies<>());
}

std::vector<Block> blocks_of(const std::vector<CDim>& dims, const Cut& cut) {
  std::vector<Block> out;
  Block b = largest(dims, cut);
  if (dims.empty()) {
    return {b};
  }
  for (bool more = true; more;) {
    b.count[cut.axis] = std::min(cut.size, dims[cut.axis].n - b.start[cut.axis]);
    out.push_back(b);
    size_t i = cut.axis + 1;
    while (i > 0) {
      --i;
      b.start[i] += i == cut.axis ? cut.size : 1;
      if (b.start[i] < dims[i].n) {
        break;
      }
      b.start[i] = 0;
      more = i > 0;
    }
  }
  return out;
}

UnitShare share_units(const std::vector<int64_t>& m, const std::vector<int64_t>& n, int64_t k_tiles,
                      const spec::BoardParams& board) {
  using By = UnitShare::By;
  const spec::MxuShape s = spec::mxu_shape(board);
  const auto product = [](const std::vector<int64_t>& v) {
    return std::accumulate(v.begin(), v.end(), int64_t{1}, std::multiplies<>());
  };
  const int64_t rows = product(m), inner = n.empty() ? 1 : n.back();
  const int64_t outer = product(n) / std::max<int64_t>(inner, 1);
  const auto cycles = [&](int64_t r, int64_t n_outer, int64_t n_inner) {
    spec::MxuExtent e;
    e.rows = static_cast<uint64_t>(r);
    e.k = static_cast<uint64_t>(k_tiles * board.mxu.rows);
    e.n_outer = static_cast<uint64_t>(n_outer);
    e.n_inner = static_cast<uint64_t>(n_inner);
    return static_cast<double>(spec::mxu_command_timing(s, e).free_at);
  };
  UnitShare best{By::kNone, 0, cycles(rows, outer, inner)};
  if (board.core.mxus < 2) {
    return best;
  }
  const auto offer = [&](By by, int64_t each, double c) {
    if (c < best.cycles * 0.999) {
      best = {by, each, c};
    }
  };
  const int64_t tiles = ceil_div(inner, board.mxu.cols);
  if (n.size() > 1 && n[0] > 1 && outer == n[0]) {
    const int64_t each = ceil_div(n[0], board.core.mxus);
    offer(By::kOuterColumns, each, cycles(rows, each, inner));
  }
  if (tiles > 1) {
    const int64_t each = ceil_div(tiles, board.core.mxus) * board.mxu.cols;
    offer(By::kColumns, each, cycles(rows, outer, each));
  }
  // Rows of the outermost dim that has any to share.
  const auto it = std::find_if(m.begin(), m.end(), [](int64_t d) { return d > 1; });
  if (it != m.end()) {
    const int64_t inside = product(std::vector<int64_t>(it + 1, m.end()));
    int64_t each = ceil_div(*it, board.core.mxus);
    if (inside == 1) {
      each = std::min(round_up(each, 8), *it);
    }
    if (each < *it) {
      offer(By::kRows, each, cycles(each * inside, outer, inner));
    }
  }
  return best;
}

int64_t slots_of_blocks(const TileLimits& limits, int64_t bytes) {
  const int64_t each = std::max<int64_t>(bytes, 1);
  // More of them share HBM until the first one is there, and the products wait for it.
  constexpr int64_t kMostOfBatches = 5;
  return std::max({int64_t{2}, limits.stream_bytes / each,
                   std::min(kMostOfBatches, limits.batch_bytes / each)});
}

std::optional<TileChoice> choose_tiles(const Mapping& w, const TileLimits& limits,
                                       const spec::BoardParams& board) {
  return Chooser(w, limits, board).run();
}

int64_t offset_of(const std::vector<CDim>& dims, const Block& b, int64_t CDim::*stride) {
  int64_t at = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    at += b.start[i] * (dims[i].*stride);
  }
  return at;
}

}  // namespace tpu::compiler
