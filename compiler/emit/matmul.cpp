// Commands of one block of a contraction: matmul on one or several units, sums to bf16.
#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "emit/contract.hpp"
#include "emit/exchange/inflight.hpp"

namespace tpu::compiler {

namespace {

// One loop of a command; strides in bytes.
struct Walk {
  int64_t n = 1, a = 0, b = 0;
};

// Merges loops whose strides nest.
void merge(std::vector<Walk>& w) {
  std::erase_if(w, [](const Walk& d) { return d.n == 1; });
  for (size_t i = w.size(); i-- > 1;) {
    if (w[i - 1].a == w[i].n * w[i].a && w[i - 1].b == w[i].n * w[i].b) {
      w[i].n *= w[i - 1].n;
      w.erase(w.begin() + static_cast<ptrdiff_t>(i) - 1);
    }
  }
}

std::vector<int64_t> counts(const std::vector<Walk>& w) {
  std::vector<int64_t> out;
  for (const Walk& d : w) {
    out.push_back(d.n);
  }
  return out;
}

// The innermost loops stand last in the command's fields.
void set_loops(spec::MatmulCommand& c, const std::vector<Walk>& rows, const std::vector<Walk>& cols,
               const std::vector<Walk>& taps, const std::vector<Walk>& run) {
  const auto put = [](const std::vector<Walk>& w, auto& n_field, auto* a_field, auto& b_field) {
    n_field.fill(1);
    const size_t shift = n_field.size() - w.size();
    for (size_t i = 0; i < w.size(); ++i) {
      n_field[shift + i] = static_cast<uint32_t>(w[i].n);
      if (a_field != nullptr) {
        (*a_field)[shift + i] = static_cast<int32_t>(w[i].a);
      }
      b_field[shift + i] = static_cast<int32_t>(w[i].b);
    }
  };
  put(rows, c.m, &c.m_lhs, c.m_out);
  put(taps, c.t, &c.t_lhs, c.t_rhs);
  put(run, c.k, static_cast<decltype(&c.k_rhs)>(nullptr), c.k_rhs);
  put(cols, c.n, &c.n_rhs, c.n_out);
}

// A block as loops: rows, columns, and the two parts of k: the mapping's run, and what is outside
// of it.
struct Walks {
  std::vector<Walk> rows, cols, taps, run;
};

Walks walks_of(const DotPlan& p, const Tile& left, const Tile& right, const Tile& out,
               const Block& m, const Block& n, const Block& k) {
  const Contraction& c = p.w.c;
  Walks w;
  if (p.beside.n > 1) {
    w.rows.push_back({p.beside.n, left.batch, p.beside.out_rows});
    w.cols.push_back({p.beside.n, right.batch, p.beside.out_cols});
  }
  for (size_t i = 0; i < c.m.size(); ++i) {
    w.rows.push_back({m.count[i], left.free[i], out.free[i]});
  }
  for (size_t i = 0; i < c.n.size(); ++i) {
    w.cols.push_back({n.count[i], right.free[i], out.k[i]});
  }
  for (size_t i = 0; i < c.k.size(); ++i) {
    (i + p.w.run < c.k.size() ? w.taps : w.run).push_back({k.count[i], left.k[i], right.k[i]});
  }
  for (auto* walks : {&w.rows, &w.cols, &w.taps, &w.run}) {
    merge(*walks);
  }
  if (w.rows.size() > 4 || w.cols.size() > 2 || w.taps.size() > 3 || w.run.size() > 3) {
    throw Error("internal: a block of a contraction has too many strides");
  }
  return w;
}

int64_t iterations(const std::vector<Walk>& w) {
  return std::accumulate(w.begin(), w.end(), int64_t{1},
                         [](int64_t n, const Walk& d) { return n * d.n; });
}

}  // namespace

void matmul(EmitContext& ctx, const DotPlan& p, const Tile& left, const Tile& right,
            const Tile& out, const Block& m, const Block& n, const Block& k, bool accumulate,
            size_t turn, uint32_t id) {
  advance_inflight(ctx);
  const Contraction& c = p.w.c;
  const auto [rows, cols, taps, run] = walks_of(p, left, right, out, m, n, k);
  const int64_t k_tiles = iterations(taps) * ceil_div(iterations(run), ctx.board.mxu.rows);
  const UnitShare share = share_units(counts(rows), counts(cols), k_tiles, ctx.board);
  // What the units share: rows, outer or inner columns, in order of the units.
  const bool shared = share.by != UnitShare::By::kNone, by_rows = share.by == UnitShare::By::kRows;
  const size_t dim = share.by == UnitShare::By::kColumns ? cols.size() - 1 : 0;
  const int64_t all = shared ? (by_rows ? rows : cols)[dim].n : 1, each = shared ? share.each : 1;
  for (int64_t from = 0; from < all; from += each) {
    std::vector<Walk> r = rows, n_w = cols;
    int64_t lhs_at = left.address, rhs_at = right.address, out_at = out.address;
    if (shared) {
      Walk& d = (by_rows ? r : n_w)[dim];
      (by_rows ? lhs_at : rhs_at) += from * d.a;
      out_at += from * d.b;
      d.n = std::min(each, all - from);
    }
    const size_t unit =
        shared ? static_cast<size_t>(from / each) : turn % static_cast<size_t>(ctx.board.core.mxus);
    auto cmd = make_command<spec::MatmulCommand>(spec::Opcode::kMatmul, spec::kMxuQueues[unit], id);
    cmd.out = vmem_addr(out_at);
    cmd.lhs = vmem_addr(lhs_at);
    cmd.rhs = vmem_addr(rhs_at);
    cmd.lhs_type = static_cast<uint8_t>(isa_elem(c.lhs->type.elem));
    cmd.rhs_type = static_cast<uint8_t>(isa_elem(c.rhs->type.elem));
    set_loops(cmd, r, n_w, taps, run);
    const bool transposed = std::abs(cmd.n_rhs[1]) > std::abs(cmd.k_rhs[2]) && cmd.k[2] > 1;
    cmd.head.flags = static_cast<uint8_t>((accumulate ? cmd.kAccumulate : 0) |
                                          (transposed ? cmd.kRhsTransposed : 0));
    Command command;
    command.body = cmd;
    ctx.sink.append(std::move(command));
  }
}

// f32 to bf16, dense.
void convert_tile(CommandSink& sink, int64_t from, int64_t to, int64_t count, uint32_t id) {
  VpuProgram program;
  program.header.registers = 1;
  program.header.section[4] = 2;
  spec::VpuInsn load_insn{static_cast<uint8_t>(spec::VpuOp::kLoad), 0, 0, 0, 0};
  spec::VpuInsn store_insn{static_cast<uint8_t>(spec::VpuOp::kStore), 0, 0, 0, 1};
  program.code = {load_insn, store_insn};
  auto c = flat_vpu_kernel(count, id);
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
  command.program = sink.listing.add_program(std::move(program));
  command.body = c;
  sink.append(std::move(command));
}

}  // namespace tpu::compiler
