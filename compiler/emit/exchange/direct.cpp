// all_gather, all_to_all and collective_permute: every core sends its pieces straight to their
// places in memory of the others, step by step; a step is a permutation of all cores. What differs
// between cores (partner, offsets) is looked up by the core number into registers. Credits and
// arrivals have a channel for each permutation: a semaphore is then signalled by one core alone, in
// program order.
#include <algorithm>

#include "emit/context.hpp"
#include "plan/exchange/direct_plan.hpp"

namespace tpu::compiler {

namespace {

using spec::ScalarOp;

// Temporaries: a command takes their value at issue.
constexpr int kSrc = kFirstOffsetRegister + 1;
constexpr int kDst = kFirstOffsetRegister + 2;

// reg = step * values[core]
void look_up_offset(EmitContext& ctx, int reg, const std::vector<int64_t>& values, int64_t step) {
  ctx.channels.look_up(reg, values);
  ctx.sink.insn(ScalarOp::kMuli, reg, reg, 0, static_cast<int32_t>(step));
}

// Some iterations of the outermost loop of all pieces.
struct Part {
  std::vector<CopyDim> dims;
  int64_t src = 0, dst = 0;             // bytes to its first one
  std::vector<MemRange> reads, writes;  // of any member
};

// The bytes of `whole` that the iterations [from, to) touch, each `pitch` bytes: those of pieces
// that are `step` bytes apart.
std::vector<MemRange> ranges_of_part(MemRange whole, int64_t step, size_t members, int64_t pitch,
                                     int64_t from, int64_t to) {
  const bool one_behind_the_other = step > pitch;  // else side by side
  whole.lo += from * pitch;
  whole.hi = whole.lo + (to - from) * pitch;
  std::vector<MemRange> ranges{whole};
  for (size_t i = 1; one_behind_the_other && i < members; ++i) {
    whole.lo += step;
    whole.hi += step;
    ranges.push_back(whole);
  }
  return ranges;
}

std::vector<Part> parts_of(const DirectPlan& p, const GroupSteps& steps) {
  if (steps.parts == 1) {
    return {{steps.dims, 0, 0, {p.reads}, {p.writes}}};
  }
  const size_t cut = cut_loop(steps.dims), members = steps.receivers.size();
  const CopyDim& loop = steps.dims[cut];
  const PieceOrder order{nullptr, 1, loop.n, steps.parts};
  std::vector<Part> parts;
  for (int64_t i = 0; i < steps.parts; ++i) {
    const int64_t from = order.begin_of(i), to = order.begin_of(i + 1);
    Part part{steps.dims, from * loop.src, from * loop.dst,
              ranges_of_part(p.reads, steps.src_step, members, loop.src, from, to),
              ranges_of_part(p.writes, steps.dst_step, members, loop.dst, from, to)};
    part.dims[cut].n = to - from;
    parts.push_back(std::move(part));
  }
  return parts;
}

// A part of the pieces of one step; no link: to this core itself.
void send_part(EmitContext& ctx, const DirectPlan& p, const GroupSteps& steps, const Part& part,
               const Link* link, const std::vector<int64_t>& receivers, uint32_t id) {
  spec::Addr src = p.src, dst = p.dst;
  src.offset += part.src;
  dst.offset += part.dst;
  if (steps.src_step != 0) {
    std::vector<int64_t> positions;
    for (const int64_t c : receivers) {
      positions.push_back(steps.position[static_cast<size_t>(c)]);
    }
    look_up_offset(ctx, kSrc, positions, steps.src_step);
    src.reg = kSrc;
  }
  look_up_offset(ctx, kDst, steps.position, steps.dst_step);
  dst.reg = static_cast<uint8_t>(steps.dst_step == 0 ? 0 : kDst);
  std::vector<MemRange> windows = part.reads;
  if (link == nullptr) {
    windows.insert(windows.end(), part.writes.begin(), part.writes.end());
  }
  ctx.channels.move_box(link, src, dst, p.unit, part.dims, windows, id);
}

// A receiver grants its memory once, for all parts.
void exchange_pieces(EmitContext& ctx, const DirectPlan& p, const GroupSteps& steps, uint32_t id) {
  const size_t members = steps.receivers.size();
  const std::vector<Part> parts = parts_of(p, steps);
  std::vector<int> granted;
  for (size_t d = 1; d < members; ++d) {
    granted.push_back(
        ctx.channels.grant(ctx.channels.permutation_link(steps.receivers[d], true), p.writes, id));
  }
  for (const Part& part : parts) {
    for (size_t d = 1; d < members; ++d) {
      Link link = ctx.channels.permutation_link(steps.receivers[d], false);
      link.taken = &part != &parts.front();
      send_part(ctx, p, steps, part, &link, steps.receivers[d], id);
    }
    send_part(ctx, p, steps, part, nullptr, steps.receivers[0], id);
  }
  for (const Part& part : parts) {
    for (size_t d = 1; d < members; ++d) {
      ctx.channels.receive({ctx.channels.permutation_channel(steps.receivers[d]), 0}, part.writes,
                           granted[d - 1], id);
    }
  }
}

// Loads a piece into `slot`, and points kSrc to it or, on cores that send nothing, to the zeros.
void stage_piece(EmitContext& ctx, const PermuteSteps& steps, const spec::Addr& from, int64_t slot,
                 const CopyDim& run, uint32_t id) {
  ctx.sink.copy(from, vmem_addr(slot), run.src, {run}, id);
  look_up_offset(ctx, kSrc, steps.sends, slot - steps.zero);
}

void permute(EmitContext& ctx, const DirectPlan& p, const PermuteSteps& steps, uint32_t id) {
  if (steps.partial) {
    ctx.sink.fill(vmem_addr(steps.zero), p.unit, steps.piece_bytes / p.unit, 0, id);
  }
  for (int64_t at = 0, number = 0; at < p.bytes; at += steps.piece_bytes, ++number) {
    const int64_t now = std::min(steps.piece_bytes, p.bytes - at);
    spec::Addr from = p.src, there = p.dst;
    from.offset += at;
    there.offset += at;
    MemRange landing = p.writes;
    landing.lo += at;
    landing.hi = landing.lo + now;
    const int granted =
        ctx.channels.grant(ctx.channels.permutation_link(steps.receiver, true), landing, id);
    const CopyDim run{now / p.unit, p.unit, p.unit};
    std::vector<MemRange> windows{p.reads};
    if (steps.partial) {
      const int64_t slot = steps.staged[static_cast<size_t>(number % 2)];
      stage_piece(ctx, steps, from, slot, run, id);
      from = offset_by(vmem_addr(steps.zero), kSrc);
      windows = {vmem_range(steps.zero, now, false), vmem_range(slot, now, false)};
    }
    const Link link = ctx.channels.permutation_link(steps.receiver, false);
    ctx.channels.move_box(&link, from, there, p.unit, {run}, windows, id);
    ctx.channels.receive({ctx.channels.permutation_channel(steps.receiver), 0}, {landing}, granted,
                         id);
  }
}

}  // namespace

void emit_direct(EmitContext& ctx, const Step& step, const std::vector<DirectPlan>& plans) {
  if (step.kernel->exchange().leaves_early) {
    ctx.leaving_early.insert(step.op_id);
  }
  for (const DirectPlan& p : plans) {
    ctx.sink.run(p.before);
    if (const auto* steps = std::get_if<GroupSteps>(&p.steps)) {
      exchange_pieces(ctx, p, *steps, step.op_id);
    } else {
      permute(ctx, p, std::get<PermuteSteps>(p.steps), step.op_id);
    }
    ctx.sink.run(p.after);
  }
}

}  // namespace tpu::compiler
