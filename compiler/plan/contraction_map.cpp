// How the matrix unit reads a contraction: which side streams, which dims are taps, what the
// transpose unit or a DMA inside VMEM must do first. Chosen by the cycles of a reference core.
#include <algorithm>
#include <cstdlib>
#include <optional>

#include "arith/reference_core.hpp"
#include "command/cost.hpp"
#include "kernel/contraction.hpp"
#include "plan/tile_box.hpp"

namespace tpu::compiler {

namespace {

using CDim = Contraction::Dim;
using Array = decltype(spec::BoardParams::mxu);
constexpr int64_t kMaxRunStrides = 3;  // of the weights along a run

using spec::ReferenceCore;  // the order of sums follows from the mapping, not from the board

// k ascending in memory of the rows, outermost first; m and n by their strides in the operands.
void order_loops(Contraction& c) {
  for (CDim& d : c.k) {
    if (d.lhs < 0 || (d.lhs == 0 && d.rhs < 0)) {
      c.lhs_offset += (d.n - 1) * d.lhs;
      c.rhs_offset += (d.n - 1) * d.rhs;
      d.lhs = -d.lhs;
      d.rhs = -d.rhs;
    }
  }
  // Broadcast dims of the rows go outside: they repeat the whole row.
  std::stable_sort(c.k.begin(), c.k.end(), [](const CDim& a, const CDim& b) {
    return (a.lhs == 0) != (b.lhs == 0) ? a.lhs == 0 : a.lhs > b.lhs;
  });
  std::stable_sort(c.m.begin(), c.m.end(),
                   [](const CDim& a, const CDim& b) { return std::abs(a.lhs) > std::abs(b.lhs); });
  std::stable_sort(c.n.begin(), c.n.end(),
                   [](const CDim& a, const CDim& b) { return std::abs(a.rhs) > std::abs(b.rhs); });
  for (auto* dims : {&c.batch, &c.m, &c.n, &c.k}) {
    merge_dims(*dims);
  }
}

// Innermost k dims that lie as one dense run in the rows.
size_t dense_run(const Contraction& c) {
  int64_t next = 1;
  size_t run = 0;
  while (run < c.k.size() && c.k[c.k.size() - 1 - run].lhs == next) {
    next *= c.k[c.k.size() - 1 - run].n;
    ++run;
  }
  return run;
}

// At most so many innermost dims that the weights can be walked through them in three strides.
size_t limit_run(const Contraction& c, size_t run) {
  int64_t strides = 0;
  for (size_t i = 0; i < run; ++i) {
    const CDim& d = c.k[c.k.size() - 1 - i];
    const bool joins = i > 0 && d.rhs == c.k[c.k.size() - i].rhs * c.k[c.k.size() - i].n;
    if (!joins && ++strides > kMaxRunStrides) {
      return i;
    }
  }
  return run;
}

// [K][M] in the rows' memory: the k dims are one loop, the m dims inside of it one run.
bool is_transposed(const Contraction& c) {
  if (c.k.empty() || c.k.back().lhs == 0) {
    return false;
  }
  for (size_t i = c.k.size(); i-- > 1;) {
    if (c.k[i - 1].lhs != c.k[i].n * c.k[i].lhs) {
      return false;
    }
  }
  const int64_t inside = c.k.back().lhs, whole = inside * Contraction::count(c.k);
  int64_t next = 1;
  for (size_t i = c.m.size(); i-- > 0;) {
    const int64_t s = std::abs(c.m[i].lhs);
    if (s >= inside) {
      if (s < whole) {
        return false;  // interleaved with k
      }
      continue;
    }
    if (c.m[i].lhs != next) {
      return false;
    }
    next *= c.m[i].n;
  }
  return next > 1 && next <= inside;
}

// The k dim of the largest stride, brought innermost, if all other loops lie inside of it: a box of
// the operand is [that dim][others] then. (Many images of few channels: a run along the images
// needs no copy of overlapping windows.)
std::optional<Contraction> box_transposed(Contraction c) {
  const auto first = std::find_if(c.k.begin(), c.k.end(), [](const CDim& d) { return d.lhs > 0; });
  if (first == c.k.end() || c.k.size() < 2) {
    return std::nullopt;
  }
  int64_t reach = 0;
  for (const auto* dims : {&c.m, &c.k}) {
    for (const CDim& d : *dims) {
      reach += &d == &*first ? 0 : std::abs(d.lhs) * (d.n - 1);
    }
  }
  if (reach >= first->lhs) {
    return std::nullopt;
  }
  std::rotate(first, std::next(first), c.k.end());
  return c;
}

int64_t k_tiles(const Contraction& c, size_t run, int64_t array_rows) {
  int64_t taps = 1, k = 1;
  for (size_t i = 0; i < c.k.size(); ++i) {
    (i + run < c.k.size() ? taps : k) *= c.k[i].n;
  }
  return taps * ceil_div(k, array_rows);
}

int64_t n_tiles(const Contraction& c, int64_t array_cols) {
  return c.n.empty() ? 1
                     : Contraction::count(c.n) / c.n.back().n * ceil_div(c.n.back().n, array_cols);
}

struct LocalDma {
  int64_t granule = ReferenceCore::kGranuleBytes;
  double bytes_per_cycle = ReferenceCore::kLocalBytesPerCycle;
};

// Cycles of a DMA inside VMEM that packs the rows densely with `inner` as the innermost dims.
double gather_cycles(const Contraction& c, const std::vector<CDim>& inner,
                     const std::vector<CDim>& outer, const LocalDma& dma = {}) {
  int64_t run = 1;
  for (const auto* dims : {&inner, &outer}) {
    for (size_t i = dims->size(); i-- > 0;) {
      if ((*dims)[i].lhs != run) {
        break;
      }
      run *= (*dims)[i].n;
    }
    if (run < Contraction::count(inner)) {
      break;
    }
  }
  const int64_t bytes = run * elem_bytes(c.lhs->type.elem);
  const auto runs = static_cast<double>(Contraction::count(inner) * Contraction::count(outer)) /
                    static_cast<double>(run);
  return runs * static_cast<double>(ceil_div(bytes, dma.granule) * dma.granule) /
         dma.bytes_per_cycle;
}

// Elements of an operand's block: all of m (or n), `k` iterations of the k dims from `first` on.
int64_t block_elements(const std::vector<CDim>& free, const std::vector<CDim>& k, size_t first,
                       int64_t count, int64_t CDim::*stride) {
  std::vector<BoxLoop> loops;
  for (const CDim& d : free) {
    loops.push_back({d.n, d.*stride});
  }
  for (size_t i = first; i < k.size(); ++i) {
    loops.push_back({i == first ? count : k[i].n, k[i].*stride});
  }
  return make_box(loops, false).elements;
}

double cost_of(const Mapping& w, const Array& array) {
  const Contraction& c = w.c;
  const auto m = static_cast<double>(Contraction::count(c.m)),
             k = static_cast<double>(Contraction::count(c.k)),
             n = static_cast<double>(Contraction::count(c.n));
  const auto tiles_n = n_tiles(c, array.cols);
  double mxu = static_cast<double>(k_tiles(c, w.run, array.rows) * tiles_n) *
               std::max(m, ReferenceCore::kInterval);
  if (tiles_n > 1 || m >= 2 * ReferenceCore::kInterval) {
    mxu /= ReferenceCore::kUnits;
  }
  const double width = static_cast<double>(array.cols);
  const auto blocks = [&](double a, double b) {
    return std::max(1.0, a / width) * std::max(1.0, b / width) * width;
  };
  double xlu = w.transposes() ? blocks(m, k) : 0;
  if (w.transposes_box()) {
    xlu = static_cast<double>(block_elements(c.m, c.k, 0, c.k[0].n, &CDim::lhs)) / width;
  }
  xlu += w.transpose_out ? blocks(m, n) : 0;
  double dma = 0;
  if (w.rows == Mapping::Rows::kGather) {
    dma = gather_cycles(c, c.k, c.m);
  } else if (w.rows == Mapping::Rows::kGatherTranspose) {
    dma = gather_cycles(c, c.m, c.k);
  }
  return static_cast<double>(Contraction::count(c.batch)) *
         (std::max({mxu, xlu, dma}) + 0.05 * (mxu + xlu + dma));
}

// A run that is too long for VMEM is cut. The cut is part of the order of the sum, so boards of the
// reference's VMEM or more cut alike: whole K tiles where possible, in a share of VMEM. A board
// with less cuts shorter where it must.
void choose_chunk(Mapping& w, const spec::BoardParams& board) {
  const Contraction& c = w.c;
  const size_t first = c.k.size() - w.run;
  const bool direct = w.rows == Mapping::Rows::kDirect;
  if (w.run == 0 || (w.run == 1 && !w.gathers())) {
    return;  // cut anywhere at multiples of the array's rows
  }
  // Rows and columns of the smallest block that is still worth a command.
  const int64_t m = std::min<int64_t>(Contraction::count(c.m), direct ? 8 : 512),
                n = std::min<int64_t>(Contraction::count(c.n), direct ? 128 : 512);
  const int64_t limit = std::min(board.core.vmem_kib * 1024, ReferenceCore::kVmemBytes) / 2;
  const auto fits = [&](size_t dim,
                        int64_t count) {  // two slots each: rows, transposed rows, weights
    int64_t k = count;
    for (size_t i = dim + 1; i < c.k.size(); ++i) {
      k *= c.k[i].n;
    }
    const int64_t rows = std::min(m * k, block_elements(c.m, c.k, dim, count, &CDim::lhs)) * 2 +
                         (direct ? 0 : m * k * 2) +
                         (w.rows == Mapping::Rows::kGatherTranspose ? m * k * 2 : 0);
    const int64_t weights = std::min(n * k, block_elements(c.n, c.k, dim, count, &CDim::rhs)) * 2;
    return rows * elem_bytes(c.lhs->type.elem) + weights * elem_bytes(c.rhs->type.elem) <= limit;
  };
  if (fits(first, c.k[first].n)) {
    return;
  }
  int64_t inside = 1;
  for (size_t i = first; i < c.k.size(); ++i) {
    inside *= c.k[i].n;
  }
  for (size_t i = first; i < c.k.size(); ++i) {
    inside /= c.k[i].n;
    if (i + 1 < c.k.size() && !fits(i, 1)) {
      continue;
    }
    double best = 0;
    w.chunk_dim = i;
    for (int64_t count = 1; count <= c.k[i].n && (count == 1 || fits(i, count)); ++count) {
      const int64_t k = count * inside;
      const double use = static_cast<double>(k) / static_cast<double>(ceil_div(k, board.mxu.rows));
      if (use >= best * 1.0001) {
        best = use;
        w.chunk = count;
      }
    }
    return;
  }
}

// A convolution of 64 features, 3 x 3 taps: each row of the kernel is a run of 192, a tile of 128
// and one of 64. With the rows one behind the other it is a run of 576: five tiles for six.
//
// Runs of whole segments end where they did, and the empty segments that turn a last -0 into +0
// stand at the end of both. So the sum stays as it is, and this choice, unlike the others, may
// depend on the board.
void span_taps(Mapping& w, const spec::BoardParams& board) {
  Mapping packed = w;
  packed.rows = Mapping::Rows::kGather;
  packed.run = w.c.k.size();
  int64_t run = 1, taps = 1;
  for (size_t i = 0; i < w.c.k.size(); ++i) {
    (i + w.run < w.c.k.size() ? taps : run) *= w.c.k[i].n;
  }
  choose_chunk(packed, board);
  if (w.rows != Mapping::Rows::kDirect || w.run == 0 || w.chunk + packed.chunk > 0 ||
      limit_run(w.c, packed.run) < packed.run || run % spec::mxu_shape(board).segment_rows() != 0 ||
      taps * run % board.mxu.rows == 0) {
    return;
  }
  const LocalDma board_dma = {board.dma.granule_bytes,
                              static_cast<double>(board.dma.local_bytes_per_cycle)};
  const auto stream = static_cast<double>(Contraction::count(w.c.m) * n_tiles(w.c, board.mxu.cols));
  const auto mxu = [&](const Mapping& x) {
    return stream * static_cast<double>(k_tiles(x.c, x.run, board.mxu.rows)) /
           static_cast<double>(board.core.mxus);
  };
  if (std::max(mxu(packed), gather_cycles(w.c, w.c.k, w.c.m, board_dma)) < mxu(w)) {
    w = packed;
  }
}

void try_rows(const Contraction& c, Mapping::Rows rows, size_t run, const Array& array,
              Mapping& best) {
  Mapping w;
  w.c = c;
  w.rows = rows;
  w.run = limit_run(c, run);
  const auto unit = [](const std::vector<CDim>& dims) {
    return std::any_of(dims.begin(), dims.end(), [](const CDim& d) { return d.out == 1; });
  };
  w.transpose_out = unit(c.m) && !unit(c.n) && Contraction::count(c.n) > 1;
  w.cost = cost_of(w, array);
  if (best.cost == 0 || w.cost < best.cost * 0.999) {
    best = w;
  }
}

}  // namespace

Mapping map_contraction(const Contraction& given, const spec::BoardParams& board) {
  Mapping best;
  const bool any = weights_can_load(given) || weights_can_load(swapped(given));
  for (const bool swap : {false, true}) {
    Contraction c = swap ? swapped(given) : given;
    if (any && !weights_can_load(c)) {
      continue;
    }
    order_loops(c);
    const size_t dense = dense_run(c);
    using Rows = Mapping::Rows;
    if (dense > 0 || c.k.empty()) {
      try_rows(c, Rows::kDirect, dense, board.mxu, best);
    }
    if (is_transposed(c)) {
      try_rows(c, Rows::kTranspose, c.k.size(), board.mxu, best);
    }
    if (!c.k.empty()) {
      try_rows(c, Rows::kGather, c.k.size(), board.mxu, best);
      if (!c.m.empty()) {
        try_rows(c, Rows::kGatherTranspose, c.k.size(), board.mxu, best);
      }
      if (const auto transposed = box_transposed(c)) {
        try_rows(*transposed, Rows::kTransposeBox, 1, board.mxu, best);
      }
    }
  }
  choose_chunk(best, board);
  if (given.span_taps) {
    span_taps(best, board);
  }
  return best;
}

}  // namespace tpu::compiler
