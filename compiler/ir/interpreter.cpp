// Interpreter: regions, reductions, control flow and collectives over all cores; single ops are
// eval.cpp's.
#include "ir/interpreter.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>

#include "arith/flush_mode.hpp"
#include "ir/elements.hpp"
#include "ir/lifted_body.hpp"

namespace tpu::compiler {
namespace {

using eval::Env;
using eval::LiftedBody;
using eval::Ref;
using eval::share;

[[noreturn]] void fail(const Op& op, const std::string& message) {
  throw Error(message, source_name(op.kind), op.loc);
}

struct Core {
  int64_t id = 0;
  Env env;
};
using Cores = std::vector<Core*>;

class Interpreter {
 public:
  Interpreter(const Module& module, const EvalOptions& options, const ValueHook& hook)
      : module_(module), options_(options), hook_(hook) {}

  std::vector<std::vector<Tensor>> run(const std::vector<std::vector<Tensor>>& args) {
    const Region& body = module_.main->body;
    std::vector<Core> storage(static_cast<size_t>(module_.num_cores));
    Cores cores;
    if (args.size() != storage.size()) {
      throw Error("the program runs on " + std::to_string(storage.size()) +
                  " cores, found arguments for " + std::to_string(args.size()));
    }
    for (size_t c = 0; c < storage.size(); ++c) {
      storage[c].id = static_cast<int64_t>(c);
      if (args[c].size() != body.args.size()) {
        throw Error("the program takes " + std::to_string(body.args.size()) + " arguments, found " +
                    std::to_string(args[c].size()));
      }
      for (size_t i = 0; i < args[c].size(); ++i) {
        if (args[c][i].type != body.args[i]->type) {
          throw Error("argument " + std::to_string(i) + " must be " +
                      to_string(body.args[i]->type) + ", not " + to_string(args[c][i].type));
        }
        storage[c].env[body.args[i].get()] = share(args[c][i]);
      }
      cores.push_back(&storage[c]);
    }
    const auto results = region(body, cores);
    std::vector<std::vector<Tensor>> out(results.size());
    for (size_t c = 0; c < out.size(); ++c) {
      for (const Ref& r : results[c]) {
        out[c].push_back(*r);
      }
    }
    return out;
  }

 private:
  using Results = std::vector<std::vector<Ref>>;  // [core of the list][value]

  Results region(const Region& r, const Cores& cores) {
    for (const auto& op : r.ops) {
      if (op->kind == Kind::kReturn) {
        return gather_values(op->operands, cores);
      }
      if (!hook_ || &r != &module_.main->body) {
        one_op(*op, cores);
      } else if (!shown_op(*op, cores)) {
        return {};
      }
    }
    throw Error("a region does not end with a return");
  }

  // False: the hook wants no more.
  bool shown_op(const Op& op, const Cores& cores) {
    bool covered = true;
    std::vector<Core> magnitudes;
    try {
      magnitudes = sums_of_magnitudes(op, cores);
      one_op(op, cores);
    } catch (const Error&) {
      covered = false;
    }
    for (size_t c = 0; c < cores.size(); ++c) {
      for (const auto& result : op.results) {
        Ref& value = cores[c]->env[result.get()];
        MadeValue made;
        if (covered) {
          made.value = *value;
        }
        if (covered && !magnitudes.empty()) {
          made.magnitude = *magnitudes[c].env.at(result.get());
        }
        if (!hook_(c, *result, made)) {
          return false;
        }
        value = share(std::move(made.value.value()));
      }
    }
    return true;
  }

  static bool adds_terms(const Op& op) {
    switch (op.kind) {
      case Kind::kDotGeneral:
      case Kind::kConvolution:
        return true;
      case Kind::kReduce:
      case Kind::kReduceWindow:
      case Kind::kAllReduce:
      case Kind::kReduceScatter:
      case Kind::kScatter:
      case Kind::kIndexedCombine:
        return simple_reducer(*op.regions[0]) == Kind::kAdd;
        TPU_CASES(SOURCE, ELEMENTWISE, SHAPE, CONTROL, HOST, WHOLE, MATRIX, CALL, SIZED, GLOBAL,
                  END)
      case Kind::kFft:
      case Kind::kSelectAndScatter:
      case Kind::kIndexedRead:
      case Kind::kIndexedWrite:
      case Kind::kSort:
      case Kind::kMap:
      case Kind::kAllGather:
      case Kind::kAllToAll:
      case Kind::kCollectiveBroadcast:
      case Kind::kCollectivePermute:
        return false;
    }
    return false;
  }

  // Of a sum of floats: the cores with the op done on the magnitudes of its operands; else nothing.
  std::vector<Core> sums_of_magnitudes(const Op& op, const Cores& cores) {
    if (!adds_terms(op) || !is_float(op.type().elem)) {
      return {};
    }
    std::vector<Core> storage;
    for (const Core* core : cores) {
      Core& copy = storage.emplace_back(*core);
      for (const Value* operand : op.operands) {
        if (is_float(operand->type.elem)) {
          copy.env[operand] = share(magnitude_of(*core->env.at(operand)));
        }
      }
    }
    Cores copies;
    for (Core& core : storage) {
      copies.push_back(&core);
    }
    one_op(op, copies);
    return storage;
  }

  static Tensor magnitude_of(const Tensor& tensor) {
    std::vector<float> numbers = eval::load_floats(tensor);
    for (float& number : numbers) {
      number = std::fabs(number);
    }
    Tensor out = make_tensor(tensor.type);
    eval::store_floats(numbers, out);
    return out;
  }

  static Results gather_values(const std::vector<Value*>& values, const Cores& cores) {
    Results out;
    for (const Core* core : cores) {
      out.emplace_back();
      for (const Value* v : values) {
        out.back().push_back(core->env.at(v));
      }
    }
    return out;
  }

  void one_op(const Op& op, const Cores& cores) {
    if (is_collective(op.kind)) {
      collective(op, cores);
      return;
    }
    switch (op.kind) {
      case Kind::kWhile:
        return loop(op, cores);
      case Kind::kIf:
      case Kind::kCase:
        return branch(op, cores);
      case Kind::kOptimizationBarrier:
        for (Core* core : cores) {
          for (size_t i = 0; i < op.operands.size(); ++i) {
            core->env[op.result(i)] = core->env.at(op.operands[i]);
          }
        }
        return;
        TPU_CASES(SOURCE, ELEMENTWISE, CONTRACTION, BODY, COLLECTIVE, HOST, WHOLE, MATRIX, CALL,
                  SIZED, GLOBAL, END)
      case Kind::kBroadcastInDim:
      case Kind::kConcatenate:
      case Kind::kDynamicSlice:
      case Kind::kDynamicUpdateSlice:
      case Kind::kGather:
      case Kind::kPad:
      case Kind::kReshape:
      case Kind::kReverse:
      case Kind::kSlice:
      case Kind::kTranspose:
      case Kind::kWindow:
        break;
    }
    for (Core* core : cores) {
      Tensors in;
      for (const Value* v : op.operands) {
        in.push_back(core->env.at(v).get());
      }
      if (op.kind == Kind::kReduce || eval::has_whole_op(op.kind)) {
        auto out = op.kind == Kind::kReduce ? reduce(op, in, core->env)
                                            : eval::whole_op(op, in, core->env);
        for (size_t i = 0; i < out.size(); ++i) {
          core->env[op.result(i)] = share(std::move(out[i]));
        }
      } else if (op.kind == Kind::kScatter || op.kind == Kind::kIndexedCombine) {
        LiftedBody body(op, *op.regions[0], eval::scatter_window_elements(op), core->env);
        auto out = eval::scatter(op, in, [&](const auto& args) { return body.run(args); });
        for (size_t i = 0; i < out.size(); ++i) {
          core->env[op.result(i)] = share(std::move(out[i]));
        }
      } else if (op.kind == Kind::kPartitionId || op.kind == Kind::kReplicaId) {
        core->env[op.result()] = share(to_tensor(make_splat_int(op.type(), core->id)));
      } else {
        core->env[op.result()] = share(eval_op(op, in, options_));
      }
    }
  }

  // Operands with the reduced dimensions in front, so that step r is one dense block.
  static std::vector<Tensor> reduce(const Op& op, const Tensors& in, const Env& env) {
    const size_t n = op.results.size();
    const Dims& dims = op.as<DimsAttrs>().dims;
    Dims order = dims;
    int64_t steps = 1;
    for (const int64_t d : dims) {
      steps *= in[0]->type.dims[static_cast<size_t>(d)];
    }
    for (int64_t d = 0; d < in[0]->type.rank(); ++d) {
      if (std::find(dims.begin(), dims.end(), d) == dims.end()) {
        order.push_back(d);
      }
    }
    const int64_t count = op.type().count();
    LiftedBody body(op, *op.regions[0], count, env);
    std::vector<Tensor> blocks, acc;
    for (size_t i = 0; i < n; ++i) {
      blocks.push_back(permuted(*in[i], order));
      acc.push_back(block_of(blocks[i], 0, steps == 0 ? 0 : count));
    }
    const auto combined = [&](const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
      std::vector<const Tensor*> args;
      for (const Tensor& t : a) {
        args.push_back(&t);
      }
      for (const Tensor& t : b) {
        args.push_back(&t);
      }
      return body.run(args);
    };
    for (int64_t s = 1; s < steps; ++s) {
      std::vector<Tensor> x;
      for (const Tensor& b : blocks) {
        x.push_back(block_of(b, s, count));
      }
      acc = combined(acc, x);
    }
    std::vector<Tensor> init;
    for (size_t i = 0; i < n; ++i) {
      init.push_back(to_tensor({{in[n + i]->type.elem, {count}},
                                true,
                                std::make_shared<const std::vector<std::byte>>(in[n + i]->data)}));
    }
    if (steps == 0) {
      acc = std::move(init);
    } else {
      acc = simple_reducer(*op.regions[0]) ? combined(acc, init) : combined(init, acc);
    }
    for (size_t i = 0; i < n; ++i) {
      acc[i].type = op.type(i);
    }
    return acc;
  }

  static Tensor permuted(const Tensor& t, const Dims& order) {
    Region scratch;
    Value* v = scratch.add_arg(t.type);
    Type type{t.type.elem, {}};
    for (const int64_t d : order) {
      type.dims.push_back(t.type.dims[static_cast<size_t>(d)]);
    }
    const Op* op = scratch.append(Kind::kTranspose, {v}, {type}, DimsAttrs{order}, unknown_loc());
    return eval::shape(*op, {&t});
  }

  static Tensor block_of(const Tensor& t, int64_t index, int64_t count) {
    Tensor out = make_tensor({t.type.elem, {count}});
    if (!out.data.empty()) {
      std::memcpy(out.data.data(), t.data.data() + static_cast<size_t>(index) * out.data.size(),
                  out.data.size());
    }
    return out;
  }

  static void set_args(const Region& r, Core& core, const std::vector<Ref>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      core.env[r.args[i].get()] = values[i];
    }
  }

  // Cores whose condition has become false wait for the others.
  void loop(const Op& op, const Cores& cores) {
    std::unordered_map<Core*, std::vector<Ref>> state;
    const Results start = gather_values(op.operands, cores);
    for (size_t c = 0; c < cores.size(); ++c) {
      state[cores[c]] = start[c];
    }
    Cores active = cores;
    while (!active.empty()) {
      for (Core* core : active) {
        set_args(*op.regions[0], *core, state[core]);
      }
      const Results go = region(*op.regions[0], active);
      Cores still;
      for (size_t c = 0; c < active.size(); ++c) {
        if (eval::int_at(*go[c][0], 0) != 0) {
          still.push_back(active[c]);
        }
      }
      active = still;
      for (Core* core : active) {
        set_args(*op.regions[1], *core, state[core]);
      }
      if (!active.empty()) {
        const Results next = region(*op.regions[1], active);
        for (size_t c = 0; c < active.size(); ++c) {
          state[active[c]] = next[c];
        }
      }
    }
    for (Core* core : cores) {
      for (size_t i = 0; i < op.results.size(); ++i) {
        core->env[op.result(i)] = state[core][i];
      }
    }
  }

  void branch(const Op& op, const Cores& cores) {
    std::vector<Cores> taken(op.regions.size());
    for (Core* core : cores) {
      const int64_t v = eval::int_at(*core->env.at(op.operands[0]), 0);
      const auto last = static_cast<int64_t>(op.regions.size()) - 1;
      const int64_t r = op.kind == Kind::kIf ? (v != 0 ? 0 : 1) : (v < 0 || v > last ? last : v);
      taken[static_cast<size_t>(r)].push_back(core);
    }
    for (size_t r = 0; r < taken.size(); ++r) {
      if (taken[r].empty()) {
        continue;
      }
      const Results out = region(*op.regions[r], taken[r]);
      for (size_t c = 0; c < taken[r].size(); ++c) {
        for (size_t i = 0; i < op.results.size(); ++i) {
          taken[r][c]->env[op.result(i)] = out[c][i];
        }
      }
    }
  }

  void collective(const Op& op, const Cores& cores) {
    if (static_cast<int64_t>(cores.size()) != module_.num_cores) {
      fail(
          op,
          "only some cores reach this collective; the condition around it must have the same value "
          "on all cores");
    }
    if (op.kind == Kind::kCollectivePermute) {
      for (Core* core : cores) {
        core->env[op.result()] = share(make_tensor(op.type()));
      }
      for (const auto& p : op.as<PermuteAttrs>().pairs) {
        cores[static_cast<size_t>(p[1])]->env[op.result()] =
            cores[static_cast<size_t>(p[0])]->env.at(op.operands[0]);
      }
      return;
    }
    for (size_t i = 0; i < op.operands.size(); ++i) {
      if (op.kind == Kind::kCollectiveBroadcast) {  // zeros outside of all groups
        for (Core* core : cores) {
          core->env[op.result(i)] = share(make_tensor(op.type(i)));
        }
      }
      for (const auto& group : op.as<CollectiveAttrs>().groups) {
        std::vector<Ref> parts;
        for (const int64_t core : group) {
          parts.push_back(cores[static_cast<size_t>(core)]->env.at(op.operands[i]));
        }
        for (size_t g = 0; g < group.size(); ++g) {
          cores[static_cast<size_t>(group[g])]->env[op.result(i)] = share(member(op, i, parts, g));
        }
      }
    }
  }

  // What member `g` of a group gets.
  Tensor member(const Op& op, size_t result, const std::vector<Ref>& parts, size_t g) const {
    const auto& a = op.as<CollectiveAttrs>();
    switch (op.kind) {
      case Kind::kAllReduce:
        return combined(op, parts);
      case Kind::kReduceScatter:
        return part(combined(op, parts), a.dim, parts.size(), g);
      case Kind::kAllGather:
        return joined(parts, a.dim, op.type(result));
      case Kind::kAllToAll: {
        std::vector<Ref> pieces;
        for (const Ref& p : parts) {
          pieces.push_back(share(part(*p, a.dim, parts.size(), g)));
        }
        return joined(pieces, a.concat_dim, op.type(result));
      }
      case Kind::kCollectiveBroadcast:
        return *parts[0];
      default:
        fail(op, "the interpreter does not support this op");
    }
  }

  // Pairwise: ((0+1)+(2+3))+((4+5)+(6+7)); a lone last part goes up unchanged.
  static Tensor combined(const Op& op, const std::vector<Ref>& parts) {
    std::vector<Tensor> level;
    for (const Ref& p : parts) {
      level.push_back(*p);
    }
    const Type type = parts[0]->type;
    const Env none;
    LiftedBody body(op, *op.regions[0], type.count(), none);
    while (level.size() > 1) {
      std::vector<Tensor> next;
      for (size_t i = 0; i + 1 < level.size(); i += 2) {
        next.push_back(std::move(body.run({&level[i], &level[i + 1]})[0]));
      }
      if (level.size() % 2 != 0) {
        next.push_back(std::move(level.back()));
      }
      level = std::move(next);
    }
    level[0].type = type;
    return std::move(level[0]);
  }

  static Tensor part(const Tensor& t, int64_t dim, size_t parts, size_t index) {
    const auto d = static_cast<size_t>(dim);
    Type type = t.type;
    type.dims[d] /= static_cast<int64_t>(parts);
    SliceAttrs a{Dims(type.dims.size(), 0), type.dims, Dims(type.dims.size(), 1)};
    a.start[d] = type.dims[d] * static_cast<int64_t>(index);
    a.limit[d] = a.start[d] + type.dims[d];
    Region scratch;
    Value* v = scratch.add_arg(t.type);
    return eval::shape(*scratch.append(Kind::kSlice, {v}, {type}, a, unknown_loc()), {&t});
  }

  static Tensor joined(const std::vector<Ref>& parts, int64_t dim, const Type& type) {
    Region scratch;
    std::vector<Value*> values;
    Tensors in;
    for (const Ref& p : parts) {
      values.push_back(scratch.add_arg(p->type));
      in.push_back(p.get());
    }
    return eval::shape(
        *scratch.append(Kind::kConcatenate, values, {type}, DimAttrs{dim}, unknown_loc()), in);
  }

  const Module& module_;
  const EvalOptions& options_;
  const ValueHook& hook_;
};

}  // namespace

std::vector<std::vector<Tensor>> interpret(const Module& module,
                                           const std::vector<std::vector<Tensor>>& args,
                                           const EvalOptions& options, const ValueHook& hook) {
  const spec::ScopedFlushMode flush;
  return Interpreter(module, options, hook).run(args);
}

}  // namespace tpu::compiler
