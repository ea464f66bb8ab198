#include "plan/exchange/direct_plan.hpp"

#include <algorithm>

namespace tpu::compiler {

namespace {

constexpr int64_t kZeroPieceBytes = 512 * 1024;
constexpr int64_t kMostExchanged = UINT32_MAX;  // along one stride of a command
constexpr int64_t kPage = 4096;                 // pieces begin where pages do

MemRange whole_range(const Buffer& b, bool write) {
  MemRange r;
  r.write = write;
  if (b.vmem >= 0) {
    r.lo = b.vmem;
  } else {
    r.space = spec::Space::kHbm;
    r.slot = b.slot;
    r.lo = b.offset;
  }
  r.hi = r.lo + b.bytes;
  return r;
}

// True if another kernel reads what is sent before what arrives is read.
bool read_before(const Residency& memory, const Buffer& sent, const Buffer& arrives) {
  return !arrives.reads.empty() && memory.next_read(sent) < arrives.reads.front();
}

// Strides of a piece of operand `i`, and what the positions stand for.
void lay_out_pieces(const Op& op, size_t i, GroupSteps& steps) {
  const auto& a = op.as<CollectiveAttrs>();
  const auto n = static_cast<int64_t>(a.groups[0].size());
  const int64_t bytes = elem_bytes(op.type(i).elem);
  Dims piece = op.operand_type(i).dims;
  const Dims src = row_major_strides(piece), dst = row_major_strides(op.type(i).dims);
  if (op.kind == Kind::kAllToAll) {
    const auto split = static_cast<size_t>(a.dim), concat = static_cast<size_t>(a.concat_dim);
    piece[split] /= n;
    steps.src_step = piece[split] * src[split] * bytes;
    steps.dst_step = piece[concat] * dst[concat] * bytes;
  } else {
    const auto dim = static_cast<size_t>(a.dim);
    steps.dst_step = piece[dim] * dst[dim] * bytes;
  }
  for (size_t d = 0; d < piece.size(); ++d) {
    steps.dims.push_back({piece[d], src[d] * bytes, dst[d] * bytes});
  }
  for (const CopyDim& d : merged(steps.dims)) {
    if (d.n > kMostExchanged) {
      throw Error("an exchange of " + to_string(op.operand_type(i)) + " moves " +
                      std::to_string(d.n) + " elements along one stride, a command at most " +
                      std::to_string(kMostExchanged) + "; exchange less at a time",
                  source_name(op.kind), op.loc);
    }
  }
  if (std::max(steps.src_step, steps.dst_step) > INT32_MAX) {
    throw Error("a piece of more than 2 GiB for each core is not supported", source_name(op.kind),
                op.loc);
  }
}

GroupSteps group_steps(const Op& op, size_t i, int64_t cores) {
  GroupSteps steps;
  lay_out_pieces(op, i, steps);
  const Groups& groups = op.as<CollectiveAttrs>().groups;
  steps.position.resize(static_cast<size_t>(cores));
  steps.receivers.resize(groups[0].size(), std::vector<int64_t>(static_cast<size_t>(cores)));
  for (const auto& group : groups) {
    const size_t n = group.size();
    const bool power = (n & (n - 1)) == 0;
    for (size_t p = 0; p < n; ++p) {
      const auto core = static_cast<size_t>(group[p]);
      steps.position[core] = static_cast<int64_t>(p);
      for (size_t d = 0; d < n; ++d) {
        steps.receivers[d][core] = group[power ? p ^ d : (p + d) % n];
      }
    }
  }
  return steps;
}

// The end of each chain of pairs sends to its beginning, a core without a pair to itself: no core
// waits for one that the pairs do not tie to it, and that may be in another branch.
PermuteSteps pair_all(const Op& op, int64_t count) {
  const auto cores = static_cast<size_t>(count);
  PermuteSteps steps;
  steps.receiver.assign(cores, -1);
  steps.sends.assign(cores, 0);
  std::vector<bool> receives(cores, false);
  for (const auto& p : op.as<PermuteAttrs>().pairs) {
    steps.receiver[static_cast<size_t>(p[0])] = p[1];
    steps.sends[static_cast<size_t>(p[0])] = 1;
    receives[static_cast<size_t>(p[1])] = true;
  }
  for (size_t first = 0; first < cores; ++first) {
    if (receives[first]) {
      continue;
    }
    size_t last = first;
    while (steps.sends[last] != 0) {
      last = static_cast<size_t>(steps.receiver[last]);
    }
    steps.receiver[last] = static_cast<int64_t>(first);
    steps.partial = true;
  }
  return steps;
}

std::optional<PermuteSteps> permute_steps(const Op& op, int64_t cores, const DirectPlan& plan,
                                          const spec::BoardParams& board, Residency& memory) {
  PermuteSteps steps = pair_all(op, cores);
  if (!steps.partial) {
    steps.piece_bytes = std::min(plan.bytes, kMostExchanged / kPage * kPage * plan.unit);
    return steps;
  }
  steps.piece_bytes = std::min({plan.bytes, kZeroPieceBytes, board.core.vmem_kib * 1024 / 8}) /
                      plan.unit * plan.unit;
  for (int64_t* area : {&steps.zero, &steps.staged[0], &steps.staged[1]}) {
    const auto address = memory.take(steps.piece_bytes);
    if (!address) {
      return std::nullopt;
    }
    *area = *address;
  }
  for (const int64_t area : {steps.zero, steps.staged[0], steps.staged[1]}) {
    memory.give(area);
  }
  return steps;
}

}  // namespace

size_t cut_loop(const std::vector<CopyDim>& dims) {
  const auto outer = std::ranges::find_if(dims, [](const CopyDim& d) { return d.n > 1; });
  return outer == dims.end() ? 0 : static_cast<size_t>(outer - dims.begin());
}

std::optional<std::vector<DirectPlan>> plan_direct(const Kernel& k, int64_t cores,
                                                   const spec::BoardParams& board,
                                                   Residency& memory, uint32_t op_id) {
  const Op& op = *k.ops[0];
  Reservation whole(memory);
  std::vector<DirectPlan> plans;
  for (size_t i = 0; i < k.reads.size(); ++i) {
    Buffer& in = memory.at(k.reads[i]);
    Buffer& out = memory.at(op.result(i));
    memory.pins().pin({&in, &out});
    // VMEM of an exchange beside other kernels would be in their way: what they put there would
    // wait for the transfers.
    const bool overlaps = k.exchange().overlaps;
    if (overlaps && in.bytes > kKeptBytes && !in.locked && !read_before(memory, in, out)) {
      leave_vmem(memory, in, op_id);
    }
    if (overlaps && out.bytes > kKeptBytes && out.target < 0) {
      memory.give_home(out);
    } else {
      place_result(memory, out);
    }
    DirectPlan& plan = plans.emplace_back();
    plan.src = place_of(in);
    plan.dst = place_of(out);
    plan.reads = whole_range(in, false);
    plan.writes = whole_range(out, true);
    plan.bytes = in.bytes;
    plan.unit = elem_bytes(op.type(i).elem);
    if (op.kind == Kind::kCollectivePermute) {
      auto steps = permute_steps(op, cores, plan, board, memory);
      if (!steps) {
        return std::nullopt;
      }
      plan.steps = std::move(*steps);
    } else {
      GroupSteps steps = group_steps(op, i, cores);
      steps.parts = std::min(k.exchange().pieces, steps.dims[cut_loop(steps.dims)].n);
      plan.steps = std::move(steps);
    }
    plan.before = memory.take_moves();
    finish_result(memory, out, op_id);
    plan.after = memory.take_moves();
  }
  memory.pins().clear();
  whole.keep();
  return plans;
}

}  // namespace tpu::compiler
