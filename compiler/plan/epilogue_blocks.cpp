// See epilogue_blocks.hpp.
#include "plan/epilogue_blocks.hpp"

#include <algorithm>

#include "plan/piece.hpp"

namespace tpu::compiler {

// A nest over rows alone: the loops that the block has of them.
static std::optional<NestBlock> row_block(const Nest& nest, const Contraction& c,
                                          const Block& batch, const Block& m, const Block& n,
                                          int64_t columns) {
  Contraction rows;
  Block none, of_rows;
  const auto add = [&](const std::vector<Contraction::Dim>& dims, const Block& block) {
    for (size_t i = 0; i < dims.size(); ++i) {
      Contraction::Dim d = dims[i];
      if (d.out < columns) {
        if (block.count[i] != d.n) {
          return false;
        }
        continue;
      }
      if (d.out % columns != 0) {
        return false;
      }
      d.out /= columns;
      rows.m.push_back(d);
      of_rows.start.push_back(block.start[i]);
      of_rows.count.push_back(block.count[i]);
    }
    return true;
  };
  if (!add(c.batch, batch) || !add(c.m, m) || !add(c.n, n)) {
    return std::nullopt;
  }
  return nest_block(nest, rows, none, of_rows, none, Dims(rows.m.size(), 0), {});
}

std::optional<NestBlock> nest_block(const Nest& nest, const Contraction& c, const Block& batch,
                                    const Block& m, const Block& n, const Dims& m_at,
                                    const Dims& n_at) {
  const int64_t all = c.results();
  if (nest.elements() < all) {
    return row_block(nest, c, batch, m, n, all / nest.elements());
  }
  struct Part {
    int64_t step, count, stride;
  };
  const size_t loops = nest.loops.size();
  const Dims pitch = nest.identity().stride;
  std::vector<std::vector<Part>> parts(loops);
  NestBlock out{Dims(loops, 0), Dims(loops, 1), Dims(loops, 0)};
  const auto add = [&](const Contraction::Dim& d, int64_t start, int64_t count, int64_t stride) {
    if (d.n == 1) {
      return true;
    }
    size_t l = 0;
    while (l < loops && pitch[l] > d.out) {
      ++l;
    }
    if (l == loops || d.out % pitch[l] != 0 || d.out / pitch[l] * (d.n - 1) >= nest.loops[l].n) {
      return false;
    }
    out.start[l] += start * (d.out / pitch[l]);
    if (count > 1) {
      parts[l].push_back({d.out / pitch[l], count, stride});
    }
    return true;
  };
  for (size_t i = 0; i < c.batch.size(); ++i) {
    if (!add(c.batch[i], batch.start[i], 1, 0)) {
      return std::nullopt;
    }
  }
  for (size_t i = 0; i < c.m.size(); ++i) {
    if (!add(c.m[i], m.start[i], m.count[i], m_at[i])) {
      return std::nullopt;
    }
  }
  for (size_t i = 0; i < c.n.size(); ++i) {
    if (!add(c.n[i], n.start[i], n.count[i], n_at[i])) {
      return std::nullopt;
    }
  }
  for (size_t l = 0; l < loops; ++l) {
    std::sort(parts[l].begin(), parts[l].end(),
              [](const Part& a, const Part& b) { return a.step < b.step; });
    for (const Part& p : parts[l]) {
      out.stride[l] = out.count[l] == 1 ? p.stride : out.stride[l];
      if (p.step != out.count[l] || p.stride != out.stride[l] * out.count[l]) {
        return std::nullopt;  // gaps
      }
      out.count[l] *= p.count;
    }
  }
  return out;
}

bool holds_reductions(const Nest& nest, const std::vector<NestBlock>& blocks) {
  return std::all_of(blocks.begin(), blocks.end(), [&](const NestBlock& b) {
    for (size_t l = 0; l < nest.loops.size(); ++l) {
      if (nest.loops[l].reduced && b.count[l] != nest.loops[l].n) {
        return false;
      }
    }
    return true;
  });
}

bool carries_reductions(const Nest& nest, const std::vector<NestBlock>& blocks) {
  int64_t next = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const NestBlock& b = blocks[i];
    const bool last = b.start[0] + b.count[0] == nest.loops[0].n;
    if (b.start[0] != next || (!last && b.count[0] % kSublanes != 0) ||
        (b.start[0] > 0 && b.count[0] < kSublanes) ||
        (next > 0 &&
         (b.start[1] != blocks[i - 1].start[1] || b.count[1] != blocks[i - 1].count[1]))) {
      return false;
    }
    next = last ? 0 : b.start[0] + b.count[0];
  }
  return next == 0;
}

}  // namespace tpu::compiler
