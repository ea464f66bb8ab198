// all_reduce by pairwise exchange: partner = core id xor mask, own value plus the partner's.
// Small buckets: doubling, masks ascending (core, x, y), the whole bucket every time; the sum of an
// element is ((0+1)+(2+3))+((4+5)+(6+7)). Large ones: halving (halving.cpp). Streamed buckets
// go piece by piece from home to home; packed ones lie in VMEM as a whole.
#include <algorithm>

#include "emit/exchange/inflight.hpp"
#include "vpu/vpu_build.hpp"

namespace tpu::compiler {

namespace {

constexpr int64_t kSmallBytes = 64 * 1024;

}  // namespace

namespace {

// Shares of packed pieces, in the order of the spans.
std::vector<std::vector<Share>> cut_pieces(const Kernel& k, int64_t limit) {
  std::vector<std::vector<Share>> pieces;
  int64_t used = limit;  // opens a piece at once
  for (const Span& span : k.exchange().spans) {
    const int64_t end = span.from + span.bytes;
    for (int64_t from = span.from; from < end;) {
      if (used + std::min(end - from, limit) > limit) {
        pieces.emplace_back();
        used = 0;
      }
      const int64_t bytes = std::min(end - from, limit - used);
      pieces.back().push_back({span.value, from, bytes, used});
      used += bytes;
      from += bytes;
    }
  }
  return pieces;
}

}  // namespace

SumProgram sum_program(CommandSink& sink, const Op& op) {
  const Elem elem = op.operand_type(0).elem;
  VpuProgram sum;
  sum.header.registers = 2;
  sum.header.section[kBody] = 4;
  const auto insn = [&](spec::VpuOp o, int rd, int rs1, int rs2, uint32_t imm) {
    sum.code.push_back({static_cast<uint8_t>(o), static_cast<uint8_t>(rd),
                        static_cast<uint8_t>(rs1), static_cast<uint8_t>(rs2), imm});
  };
  insn(spec::VpuOp::kLoad, 0, 0, 0, 0);
  insn(spec::VpuOp::kLoad, 1, 0, 0, 1);
  insn(reduce_op(op, *simple_reducer(*op.regions[0]), elem), 0, 0, 1, 0);
  insn(spec::VpuOp::kStore, 0, 0, 0, 2);
  return {sink.listing.add_program(std::move(sum)), static_cast<uint8_t>(isa_elem(elem)),
          elem_bytes(elem)};
}

void combine(CommandSink& sink, const SumProgram& p, const spec::Addr& a, const spec::Addr& b,
             const spec::Addr& out, int64_t bytes, std::vector<MemRange> windows, uint32_t id) {
  const int64_t count = bytes / p.elem_bytes;
  auto c = flat_vpu_kernel(count, id);
  Command command;
  for (const spec::Addr& addr : {a, b, out}) {
    spec::VpuAccess access{};
    access.addr = addr;
    access.type = p.type;
    access.lane = static_cast<int32_t>(p.elem_bytes);
    access.loop[3] = static_cast<int32_t>(1024 * p.elem_bytes);
    command.accesses.push_back(access);
  }
  command.program = p.program;
  command.body = c;
  command.windows = std::move(windows);
  sink.append(std::move(command));
}

namespace {

// Returns where the sum lies, in one of the landing areas that it takes; nothing: too little VMEM.
std::optional<int64_t> exchange_doubling(EmitContext& ctx, InflightExchange& r, int64_t own) {
  const std::vector<int64_t>& masks = r.exchange.masks;
  std::vector<int64_t> landing;
  std::vector<int> granted;
  for (const int64_t mask : masks) {
    const auto area = take(ctx, r.bytes);
    if (!area) {
      return std::nullopt;
    }
    landing.push_back(*area);
    r.memory.push_back(*area);
    granted.push_back(
        ctx.channels.grant(ctx.channels.mask_link(mask), vmem_range(*area, r.bytes, true), r.id));
  }
  for (size_t s = 0; s < masks.size(); ++s) {
    const int64_t there = landing[s];
    ctx.channels.send(ctx.channels.mask_link(masks[s]), vmem_addr(own), vmem_addr(there), r.bytes,
                      r.unit, vmem_range(own, r.bytes, false), r.id);
    ctx.channels.receive(ctx.channels.mask_link(masks[s]), vmem_range(there, r.bytes, true),
                         granted[s], r.id);
    // The sum replaces what arrived: the bucket may still be on its way out.
    combine(ctx.sink, r.sum, vmem_addr(own), vmem_addr(there), vmem_addr(there), r.bytes, {}, r.id);
    own = there;
  }
  return own;
}

}  // namespace

// Results of a packed exchange: buffers that stay inside the area are returned, others go home.
static std::vector<Buffer*> place_packed(EmitContext& ctx, const Kernel& k,
                                         const std::vector<Share>& shares, int64_t result,
                                         const InflightExchange& run) {
  std::vector<Buffer*> inside;
  for (const Share& s : shares) {
    Buffer& b = ctx.memory.at(k.writes[s.value]);
    if (s.bytes == b.bytes && b.bytes <= ctx.memory.whole_limit()) {
      b.vmem = result + s.at;
      inside.push_back(&b);
      if (b.must_store) {
        store(ctx, b, run.id);
      }
      continue;
    }
    if (b.vmem < 0) {
      ctx.memory.give_home(b);
      b.in_hbm = b.in_hbm || s.from + s.bytes == b.bytes;
    }
    ctx.sink.copy_bytes(vmem_addr(result + s.at), place_of(b, s.from), s.bytes, run.unit, run.id);
    if (b.vmem >= 0 && b.must_store && s.from + s.bytes == b.bytes) {
      store(ctx, b, run.id);
    }
  }
  return inside;
}

// Small values and rests, in one area. Results that are complete stay in it.
static bool emit_packed(EmitContext& ctx, const Kernel& k, const Exchange& exchange,
                        const std::vector<Share>& shares) {
  const Op& op = *k.ops[0];
  const auto stages = static_cast<int64_t>(exchange.stages());
  const int64_t used = shares.back().at + shares.back().bytes, grain = kAlign << stages;
  const bool halving = stages > 0 && used > kSmallBytes;
  const int64_t count = halving ? (used + ctx.kernels.piece - 1) / ctx.kernels.piece : 1;
  InflightExchange run;
  run.kernel = &k;
  run.exchange = exchange;
  run.bytes = round_up((used + count - 1) / count, grain);
  run.unit = elem_bytes(op.operand_type(0).elem);
  run.sum = sum_program(ctx.sink, op);
  run.id = ctx.ops.id(k);
  run.in_place = true;
  const auto area = take(ctx, run.bytes * count);
  if (!area) {
    return false;
  }
  const int64_t bucket = *area;
  for (const Share& s : shares) {
    const Buffer& b = ctx.memory.at(k.reads[s.value]);
    const spec::Addr src = place_of(b, s.from);
    ctx.sink.copy_bytes(src, vmem_addr(bucket + s.at), s.bytes, run.unit, run.id);
  }
  if (used < run.bytes * count) {
    ctx.sink.fill(vmem_addr(bucket + used), run.unit, (run.bytes * count - used) / run.unit, 0,
                  run.id);
  }
  int64_t result = bucket;
  if (halving) {
    for (int64_t i = 0; i < count; ++i) {
      run.buckets.push_back(bucket + i * run.bytes);
      run.parts.emplace_back();
      run.parts.back().used = run.bytes;
    }
    const bool fits = take_memory(ctx.memory, run);
    ctx.run_moves();
    if (!fits) {
      return false;
    }
    stage_registers(ctx.sink, exchange);
    half_registers(ctx.sink, run);
    while (run.round < run.rounds()) {
      run_round(ctx, run);
    }
  } else if (stages > 0) {
    const auto sum = exchange_doubling(ctx, run, bucket);
    if (!sum) {
      return false;
    }
    result = *sum;
  }
  run.memory.push_back(bucket);
  const std::vector<Buffer*> inside = place_packed(ctx, k, shares, result, run);
  for (const int64_t address : run.memory) {
    if (address != result || inside.empty()) {
      ctx.memory.give(address);
    }
  }
  if (!inside.empty()) {  // they share its memory
    ctx.memory.share(result, inside);
  }
  return true;
}

bool emit_all_reduce(EmitContext& ctx, const Kernel& k) {
  finish_inflight(ctx);  // exchanges use the same channels, one after the other
  if (k.exchange().streamed) {
    return start_inflight(ctx, k);
  }
  const Exchange exchange = exchange_of(*k.ops[0], ctx.module.num_cores);
  const int64_t grain = kAlign << exchange.stages();
  const int64_t limit = std::max(ctx.board.core.vmem_kib * 1024 / 4 / grain, int64_t{1}) * grain;
  for (const std::vector<Share>& shares : cut_pieces(k, limit)) {
    if (!emit_packed(ctx, k, exchange, shares)) {
      return false;
    }
  }
  return true;
}

}  // namespace tpu::compiler
