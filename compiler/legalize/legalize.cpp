// Dispatch of the pass `legalize`: see legalize.hpp.
#include "legalize/legalize.hpp"

#include <algorithm>

#include "legalize/int64/split_wide.hpp"
#include "legalize/int64/wide_collectives.hpp"

namespace tpu::compiler {
namespace {

constexpr int kMaxRounds = 16;  // families build on each other at most a few levels deep

std::vector<Value*> legalize_op(Op& op, Rewriter& rw, int64_t cores) {
  switch (op.kind) {
    case Kind::kConvolution:
      return legalization::convolution(op, rw);
    case Kind::kDotGeneral:
      return legalization::dot_general(op, rw);
    case Kind::kReduce:
      return legalization::reduce(op, rw);
    case Kind::kReduceWindow:
      return legalization::reduce_window(op, rw);
    case Kind::kSelectAndScatter:
      return legalization::select_and_scatter(op, rw);
    case Kind::kSort:
      return legalization::sort(op, rw);
    case Kind::kCompare:
      return legalization::compare_total_order(op, rw);
    case Kind::kBatchNormTraining:
    case Kind::kBatchNormInference:
    case Kind::kBatchNormGrad:
      return legalization::batch_norm(op, rw);
    case Kind::kMap:
      return legalization::map(op, rw);
    case Kind::kAllGather:
    case Kind::kAllReduce:
    case Kind::kAllToAll:
    case Kind::kCollectiveBroadcast:
    case Kind::kReduceScatter:
      return legalization::collective(op, rw, cores);
    case Kind::kCollectivePermute:
      return legalization::permute(op, rw);
    case Kind::kGather:
      return legalization::gather(op, rw);
    case Kind::kScatter:
      return legalization::scatter(op, rw);
    case Kind::kBitcastConvert:
      return legalization::bitcast(op, rw);
    default:
      return {};
  }
}

bool is_int64(const Value* v) { return v->type.elem == Elem::kI64 || v->type.elem == Elem::kU64; }

// Contractions and windows of 64-bit integers become elementwise ops and sums first: those have
// halves. So do reductions over cores whose body has no halves.
std::vector<Value*> legalize_wide_op(Op& op, Rewriter& rw, int64_t cores) {
  const bool wide = std::any_of(op.operands.begin(), op.operands.end(), is_int64) ||
                    (!op.results.empty() && is_int64(op.result(0)));
  switch (op.kind) {
    case Kind::kConvolution:
    case Kind::kDotGeneral:
    case Kind::kMap:
    case Kind::kSelectAndScatter:
      return wide ? legalize_op(op, rw, cores) : std::vector<Value*>{};
    case Kind::kAllGather:
    case Kind::kAllToAll:
      return wide && op.operands.size() > 1 ? legalization::collective_by_operand(op, rw)
                                            : std::vector<Value*>{};
    case Kind::kAllReduce:
    case Kind::kReduceScatter:
      if (wide && op.operands.size() > 1) {
        return legalization::collective_by_operand(op, rw);
      }
      return wide && !reduces_by_halves(op) ? legalization::collective(op, rw, cores)
                                            : std::vector<Value*>{};
    default:
      return {};
  }
}

}  // namespace

void expand_batch_norms(Module& module) {
  Rewriter().run(module.main->body, [](Op& op, Rewriter& rw) {
    const bool normalises = op.kind == Kind::kBatchNormTraining ||
                            op.kind == Kind::kBatchNormInference || op.kind == Kind::kBatchNormGrad;
    return normalises ? legalization::batch_norm(op, rw) : std::vector<Value*>{};
  });
}

void expand_vector_products(Module& module) {
  Rewriter().run(module.main->body, legalization::vector_product);
}

bool legalize_wide(Module& module) {
  Rewriter().run(module.main->body, legalization::random);
  for (int round = 0; round < kMaxRounds; ++round) {
    if (!Rewriter().run(module.main->body, [&](Op& op, Rewriter& rw) {
          return legalize_wide_op(op, rw, module.num_cores);
        })) {
      break;
    }
  }
  return split_wide(module);
}

bool legalize(Module& module) {
  bool any = false;
  bool changed = true;
  for (int round = 0; changed && round < kMaxRounds; ++round) {
    Rewriter rw;
    changed = rw.run(module.main->body, [&](Op& op, Rewriter& rewriter) {
      return legalize_op(op, rewriter, module.num_cores);
    });
    any = any || changed;
  }
  return any;
}

}  // namespace tpu::compiler
