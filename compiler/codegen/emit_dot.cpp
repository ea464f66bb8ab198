// Contractions: blocks of rows x columns x depth on both matrix units. Operands stay in VMEM as a
// whole if they fit, else blocks stream through two slots. Depth is cut at multiples of the array's
// rows, so the order of a sum is that of one uncut command. Columns (or rows) are shared out over
// the two units; depth never is.
#include <algorithm>
#include <array>

#include "codegen/emitter.hpp"

namespace tpu::compiler {

namespace {

int64_t stride_or(const std::vector<Contraction::Dim>& dims, int64_t Contraction::Dim::*member,
                  int64_t fallback) {
  return dims.empty() ? fallback : dims[0].*member;
}

}  // namespace

struct Emitter::DotPlan {
  const Contraction* dot = nullptr;
  int64_t rows = 1, cols = 1, depth = 1;
  int64_t lhs_bytes = 4, rhs_bytes = 4;                                      // of an element
  int64_t m_lhs = 0, k_lhs = 0, k_rhs = 0, n_rhs = 0, m_out = 0, n_out = 0;  // elements
  int64_t block_rows = 1, block_cols = 1, block_depth = 1;
  bool lhs_whole = false, rhs_whole = false, out_whole = false;
  bool turn_lhs = false;    // rows are contiguous in memory: the transpose unit turns them
  bool narrow_out = false;  // bf16 result: f32 in VMEM first
  std::array<int64_t, 2> lhs_slot{-1, -1}, rhs_slot{-1, -1}, out_slot{-1, -1}, sum_slot{-1, -1},
      turn_slot{-1, -1};
  int64_t lhs_count = 0, rhs_count = 0, out_count = 0;  // blocks so far
  std::vector<int64_t> temporary;
  // Strides of the commands' operands in VMEM, bytes; set per block.
  int64_t cm_lhs = 0, ck_rhs = 0, cn_rhs = 0, cm_out = 0, cn_out = 0;
};

void Emitter::plan_dot(const Kernel& k, DotPlan& p) {
  const Contraction& d = k.dot;
  p.dot = &d;
  p.rows = Contraction::count(d.m);
  p.cols = Contraction::count(d.n);
  p.depth = Contraction::count(d.k);
  p.lhs_bytes = elem_bytes(d.lhs->type.elem);
  p.rhs_bytes = elem_bytes(d.rhs->type.elem);
  using Dim = Contraction::Dim;
  p.m_lhs = stride_or(d.m, &Dim::lhs, 0);
  p.k_lhs = stride_or(d.k, &Dim::lhs, 1);
  p.k_rhs = stride_or(d.k, &Dim::rhs, 1);
  p.n_rhs = stride_or(d.n, &Dim::rhs, 1);
  p.m_out = stride_or(d.m, &Dim::out, p.cols);
  p.n_out = stride_or(d.n, &Dim::out, 1);
  p.turn_lhs = p.k_lhs != 1;
  p.narrow_out = k.out->type.elem == Elem::kBf16;
  p.block_rows = p.rows;
  p.block_cols = p.cols;
  p.block_depth = p.depth;

  const int64_t limit = resident_limit();
  Buffer &lhs = buffer(d.lhs), &rhs = buffer(d.rhs), &out = buffer(k.out);
  p.lhs_whole = lhs.vmem >= 0 || lhs.bytes <= limit;
  p.rhs_whole = rhs.vmem >= 0 || rhs.bytes <= limit;
  p.out_whole = out.bytes <= limit / (p.narrow_out ? 2 : 1);
  // Blocks: at most this many bytes for each side.
  const int64_t cap = board_.core.vmem_kib * 1024 / 16;
  const int64_t array_rows = board_.mxu.rows;
  const auto halve = [](int64_t& n, int64_t g) {
    const int64_t half = round_up((n + 1) / 2, g);
    n = half < n ? half : std::max<int64_t>(n - g, 1);
  };
  const int64_t width = std::max<int64_t>(p.lhs_bytes, 4);
  while (!p.rhs_whole && p.block_depth * p.block_cols * p.rhs_bytes > cap) {
    if (p.block_cols > board_.mxu.cols || (p.block_cols > 8 && p.block_depth <= array_rows)) {
      halve(p.block_cols, p.block_cols > board_.mxu.cols ? board_.mxu.cols : 8);
    } else if (p.block_depth > array_rows) {
      halve(p.block_depth, array_rows);
    } else {
      halve(p.block_cols, 1);
    }
  }
  const bool lhs_blocks = !p.lhs_whole || p.turn_lhs;
  while (lhs_blocks && p.block_rows * p.block_depth * width > cap) {
    if (p.block_rows > 64 || (p.block_rows > 1 && p.block_depth <= array_rows)) {
      halve(p.block_rows, p.block_rows > 8 ? 8 : 1);
    } else {
      halve(p.block_depth, array_rows);
    }
  }
  while ((!p.out_whole || p.narrow_out) && p.block_rows * p.block_cols * 4 > cap) {
    if (p.block_rows > 8) {
      halve(p.block_rows, 8);
    } else {
      halve(p.block_cols, 8);
    }
  }
}

void Emitter::emit_dot(const Kernel& k) {
  const uint32_t id = op_id(k);
  DotPlan p;
  plan_dot(k, p);
  const int64_t batches = Contraction::count(k.dot.batch);
  Buffer &lhs = buffer(k.dot.lhs), &rhs = buffer(k.dot.rhs), &out = buffer(k.out);
  pinned_ = {&lhs, &rhs, &out};
  if (out.bytes == 0) {
    return;
  }
  try {
    const auto slots = [&](std::array<int64_t, 2>& slot, int64_t bytes) {
      for (int64_t& s : slot) {
        s = take(bytes);
        p.temporary.push_back(s);
      }
    };
    if (p.out_whole) {
      out.vmem = take(out.bytes);
    }
    if (p.depth == 0) {  // an empty sum
      if (!p.out_whole) {
        too_large(k);
      }
      fill(vmem_addr(out.vmem), elem_bytes(k.out->type.elem), k.out->type.count(), 0, id);
    } else {
      if (p.lhs_whole) {
        load(lhs, id);
      } else {
        slots(p.lhs_slot, p.block_rows * p.block_depth * p.lhs_bytes);
      }
      if (p.rhs_whole) {
        load(rhs, id);
      } else {
        slots(p.rhs_slot, p.block_cols * p.block_depth * p.rhs_bytes);
      }
      if (p.turn_lhs) {
        slots(p.turn_slot, p.block_rows * p.block_depth * p.lhs_bytes);
      }
      if (!p.out_whole || p.narrow_out) {
        slots(p.out_slot, p.block_rows * p.block_cols * elem_bytes(k.out->type.elem));
      }
      if (p.narrow_out) {
        slots(p.sum_slot, p.block_rows * p.block_cols * 4);
      }
      for (int64_t b = 0; b < batches; ++b) {
        dot_tile(k, p, b, id);
      }
    }
  } catch (const VmemFull&) {
    too_large(k);
  }
  matmul_flops += static_cast<uint64_t>(2 * batches * p.rows * p.cols * p.depth);
  if (p.out_whole) {
    if (out.must_store) {
      store(out, id);
    }
  } else {
    out.in_hbm = true;
  }
  for (const int64_t address : p.temporary) {
    give(address);
  }
  pinned_.clear();
}

// All blocks of one batch element: columns outermost (weights are the larger side), then rows, then
// depth.
void Emitter::dot_tile(const Kernel& k, DotPlan& p, int64_t batch, uint32_t id) {
  Buffer &lhs = buffer(k.dot.lhs), &rhs = buffer(k.dot.rhs), &out = buffer(k.out);
  int64_t lhs_base = k.dot.lhs_offset, rhs_base = k.dot.rhs_offset, out_base = 0, rest = batch;
  for (size_t i = k.dot.batch.size(); i-- > 0;) {
    const Contraction::Dim& d = k.dot.batch[i];
    lhs_base += (rest % d.n) * d.lhs;
    rhs_base += (rest % d.n) * d.rhs;
    out_base += (rest % d.n) * d.out;
    rest /= d.n;
  }
  const int64_t out_bytes = elem_bytes(k.out->type.elem);
  // A matrix block in VMEM: address, strides of its two dims (bytes).
  struct Block {
    int64_t address, major, minor;
  };
  const auto stream = [&](const Buffer& b, int64_t base, int64_t rows, int64_t row_stride,
                          int64_t cols, int64_t col_stride, int64_t bytes, int64_t slot) {
    // Kept in the order of memory: the smaller stride becomes the inner dim.
    const bool rows_outer = row_stride >= col_stride || cols == 1;
    const int64_t outer = rows_outer ? rows : cols, inner = rows_outer ? cols : rows;
    copy(hbm(b, base * bytes), vmem_addr(slot), bytes,
         {{outer, (rows_outer ? row_stride : col_stride) * bytes, inner * bytes},
          {inner, (rows_outer ? col_stride : row_stride) * bytes, bytes}},
         id);
    return rows_outer ? Block{slot, inner * bytes, bytes} : Block{slot, bytes, inner * bytes};
  };
  int64_t last_rhs = -1;
  Block right{};
  for (int64_t n = 0; n < p.cols; n += p.block_cols) {
    const int64_t cols = std::min(p.block_cols, p.cols - n);
    for (int64_t m = 0; m < p.rows; m += p.block_rows) {
      const int64_t rows = std::min(p.block_rows, p.rows - m);
      const int64_t turn = p.out_count++ & 1;
      const int64_t direct = p.out_whole
                                 ? out.vmem + (out_base + m * p.m_out + n * p.n_out) * out_bytes
                                 : p.out_slot[static_cast<size_t>(turn)];
      // A block of its own is dense in the order of the output's memory.
      const bool rows_outer = p.m_out >= p.n_out;
      const int64_t dense_m = rows_outer ? cols : 1, dense_n = rows_outer ? 1 : rows;
      const bool own = p.narrow_out || !p.out_whole;
      const int64_t sum = p.narrow_out ? p.sum_slot[static_cast<size_t>(turn)] : direct;
      p.cm_out = (own ? dense_m : p.m_out) * 4;
      p.cn_out = (own ? dense_n : p.n_out) * 4;
      for (int64_t d = 0; d < p.depth; d += p.block_depth) {
        const int64_t depth = std::min(p.block_depth, p.depth - d);
        Block left{lhs.vmem + (lhs_base + m * p.m_lhs + d * p.k_lhs) * p.lhs_bytes,
                   p.m_lhs * p.lhs_bytes, p.k_lhs * p.lhs_bytes};
        if (!p.lhs_whole) {
          left = stream(lhs, lhs_base + m * p.m_lhs + d * p.k_lhs, rows, p.m_lhs, depth, p.k_lhs,
                        p.lhs_bytes, p.lhs_slot[static_cast<size_t>(p.lhs_count & 1)]);
        }
        if (p.turn_lhs) {
          auto c =
              make_command<spec::TransposeCommand>(spec::Opcode::kTranspose, spec::Queue::kXlu, id);
          const int64_t slot = p.turn_slot[static_cast<size_t>(p.lhs_count & 1)];
          c.src = vmem_addr(left.address);
          c.dst = vmem_addr(slot);
          c.elem_bytes = static_cast<uint32_t>(p.lhs_bytes);
          c.rows = static_cast<uint32_t>(depth);
          c.cols = static_cast<uint32_t>(rows);
          c.batch = 1;
          c.src_pitch = static_cast<int32_t>(left.minor);
          c.dst_pitch = static_cast<int32_t>(depth * p.lhs_bytes);
          Command command;
          command.body = c;
          listing.append(std::move(command));
          left = {slot, depth * p.lhs_bytes, p.lhs_bytes};
        }
        ++p.lhs_count;
        if (p.rhs_whole) {
          right = {rhs.vmem + (rhs_base + d * p.k_rhs + n * p.n_rhs) * p.rhs_bytes,
                   p.k_rhs * p.rhs_bytes, p.n_rhs * p.rhs_bytes};
        } else if (last_rhs != n * p.depth + d) {
          last_rhs = n * p.depth + d;
          right = stream(rhs, rhs_base + d * p.k_rhs + n * p.n_rhs, depth, p.k_rhs, cols, p.n_rhs,
                         p.rhs_bytes, p.rhs_slot[static_cast<size_t>(p.rhs_count++ & 1)]);
        }
        p.cm_lhs = left.major;
        p.ck_rhs = right.major;
        p.cn_rhs = right.minor;
        matmul(p, left.address, right.address, sum, rows, cols, depth, d > 0, id);
      }
      if (p.narrow_out) {
        // The converted block is dense; a whole output takes it by a local copy.
        const bool all = p.out_whole && rows == p.rows && cols == p.cols;
        const int64_t to = all ? direct : p.out_slot[static_cast<size_t>(turn)];
        convert_tile(sum, to, rows * cols, id);
        if (p.out_whole && !all) {
          copy(vmem_addr(to), vmem_addr(direct), out_bytes,
               {{rows, dense_m * out_bytes, p.m_out * out_bytes},
                {cols, dense_n * out_bytes, p.n_out * out_bytes}},
               id);
        }
      }
      if (!p.out_whole) {
        give_home(out);
        copy(vmem_addr(direct), hbm(out, (out_base + m * p.m_out + n * p.n_out) * out_bytes),
             out_bytes,
             rows_outer ? std::vector<CopyDim>{{rows, dense_m * out_bytes, p.m_out * out_bytes},
                                               {cols, out_bytes, p.n_out * out_bytes}}
                        : std::vector<CopyDim>{{cols, dense_n * out_bytes, p.n_out * out_bytes},
                                               {rows, out_bytes, p.m_out * out_bytes}},
             id);
      }
    }
  }
}

// One block on one or both units: columns are shared out if both get a full tile, else rows.
void Emitter::matmul(const DotPlan& p, int64_t lhs, int64_t rhs, int64_t out, int64_t rows,
                     int64_t cols, int64_t depth, bool accumulate, uint32_t id) {
  const int64_t tile = board_.mxu.cols;
  const int64_t units = board_.core.mxus;
  const bool by_cols = units > 1 && cols > tile;
  const bool by_rows = units > 1 && !by_cols && rows >= 16;
  const int64_t tiles = (cols + tile - 1) / tile;
  const int64_t first_cols = by_cols ? (tiles + 1) / 2 * tile : cols;
  const int64_t first_rows = by_rows ? round_up((rows + 1) / 2, 8) : rows;
  for (int64_t u = 0; u < (by_cols || by_rows ? 2 : 1); ++u) {
    const int64_t n0 = by_cols ? u * first_cols : 0, m0 = by_rows ? u * first_rows : 0;
    auto c = make_command<spec::MatmulCommand>(
        spec::Opcode::kMatmul, u == 0 ? spec::Queue::kMxu0 : spec::Queue::kMxu1, id);
    c.head.flags = static_cast<uint8_t>((accumulate ? 1 : 0) | (p.cn_rhs > p.ck_rhs ? 2 : 0));
    c.out = vmem_addr(out + m0 * p.cm_out + n0 * p.cn_out);
    c.lhs = vmem_addr(lhs + m0 * p.cm_lhs);
    c.rhs = vmem_addr(rhs + n0 * p.cn_rhs);
    c.lhs_type = static_cast<uint8_t>(isa_elem(p.dot->lhs->type.elem));
    c.rhs_type = static_cast<uint8_t>(isa_elem(p.dot->rhs->type.elem));
    c.m = {1, 1, 1, static_cast<uint32_t>(by_rows ? (u == 0 ? first_rows : rows - m0) : rows)};
    c.m_lhs[3] = static_cast<int32_t>(p.cm_lhs);
    c.m_out[3] = static_cast<int32_t>(p.cm_out);
    c.t.fill(1);
    c.k = {1, 1, static_cast<uint32_t>(depth)};
    c.k_rhs[2] = static_cast<int32_t>(p.ck_rhs);
    c.n = {1, static_cast<uint32_t>(by_cols ? (u == 0 ? first_cols : cols - n0) : cols)};
    c.n_rhs[1] = static_cast<int32_t>(p.cn_rhs);
    c.n_out[1] = static_cast<int32_t>(p.cn_out);
    Command command;
    command.body = c;
    listing.append(std::move(command));
  }
}

// f32 to bf16, dense.
void Emitter::convert_tile(int64_t from, int64_t to, int64_t count, uint32_t id) {
  VpuProgram program;
  program.header.registers = 1;
  program.header.section[4] = 2;
  spec::VpuInsn load{static_cast<uint8_t>(spec::VpuOp::kLoad), 0, 0, 0, 0};
  spec::VpuInsn store{static_cast<uint8_t>(spec::VpuOp::kStore), 0, 0, 0, 1};
  program.code = {load, store};
  auto c = make_command<spec::VpuKernelCommand>(spec::Opcode::kVpuKernel, spec::Queue::kVpu, id);
  c.head.flags = 1;
  c.row_loop = 255;
  c.col_loop = 3;
  c.loops = {1, 1, 1, static_cast<uint32_t>((count + 1023) / 1024)};
  c.rows = 1;
  c.cols = static_cast<uint32_t>(count);
  Command command;
  for (const bool out : {false, true}) {
    spec::VpuAccess a{};
    const int32_t bytes = out ? 2 : 4;
    a.addr = vmem_addr(out ? to : from);
    a.type = static_cast<uint8_t>(out ? spec::Elem::kBf16 : spec::Elem::kF32);
    a.lane = bytes;
    a.loop[3] = 1024 * bytes;
    command.accesses.push_back(a);
  }
  command.program = listing.add_program(std::move(program));
  command.body = c;
  listing.append(std::move(command));
}

}  // namespace tpu::compiler
