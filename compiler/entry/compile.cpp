// Import, passes and code generation in a row: see compile.hpp.
#include "entry/compile.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "board/board_loader.hpp"
#include "entry/codegen.hpp"
#include "entry/pipeline.hpp"
#include "export/stablehlo_text.hpp"
#include "import/data_parallel.hpp"
#include "import/import.hpp"
#include "ir/error_kinds.hpp"
#include "ir/verify.hpp"
#include "kernel/buckets.hpp"
#include "kernel/kernel_passes.hpp"
#include "legalize/dot_parts.hpp"
#include "passes/inline.hpp"
#include "passes/rematerialise.hpp"
#include "plan/scratch.hpp"

namespace tpu::compiler {

namespace {

// Empty: they are sharded.
std::vector<std::string> why_unsharded(const exe::ExecutableT& e, const spec::BoardParams& board,
                                       const CompileOptions& options) {
  if (e.sharded_update_bytes > 0) {
    return {};
  }
  if (options.update_sharding == UpdateSharding::kOff) {
    return {options.keep_values ? "the values of all operations are kept" : "it is switched off"};
  }
  if (options.update_sharding == UpdateSharding::kAuto && !rules_of(options.style).shard_updates) {
    return {"the style " + std::string(name_of(options.style)) +
            " shards updates only with --update-sharding=on"};
  }
  if (e.partitions == 1) {
    return {"the program runs on one core"};
  }
  if (e.notes.empty()) {
    return {"no array that is summed over the cores (jax.lax.psum) has " +
            std::to_string(exchange_piece_bytes(board)) + " bytes or more"};
  }
  return e.notes;
}

std::string moved_line(const MovedArray& m) {
  return "sharding: " + std::string(kind_name(m.kind)) + " of " + to_string(m.type) + ", " +
         std::to_string(m.bytes) + " bytes a core, for " + m.op + " at " + to_string(*m.loc);
}

// Ops that are cut into parts, one after the other; the share of all that a core takes from which
// on that is worth it, and how many parts all of it makes. Ops of equal layers are cut together
// where one of them alone is too small.
constexpr int kMostCuts = 32;
constexpr double kLeastShare = 1.0 / 16;
constexpr double kPartsOfAll = 16;

constexpr int kMostFits = 6;  // compilations of a program that does not fit into HBM

// The error of a program that does not fit, with what would make it smaller. `fitted`: what
// computing values again gives, if it was not asked for.
HbmExhausted with_advice(const HbmExhausted& error, const Module& module,
                         const spec::BoardParams& board, const CompileOptions& options,
                         const std::string& fitted) {
  if (error.peak().alive.empty()) {
    return error;
  }
  std::string text = error.message();
  if (!options.fit) {
    text +=
        "\n  `tpuc --fit auto` (TPUBOARD_FIT=auto) computes values again in place of keeping them" +
        fitted;
  } else if (options.least_memory) {
    text += "\n  without values that can be computed again from others where they are used";
  }
  if (const auto cores = spec::core_count(board); module.num_cores < cores) {
    const int64_t limit = usable_hbm(board, options.hbm_bytes);
    const int64_t alive = error.peak().bytes;
    const int64_t kept = limit + error.peak().excess - alive;
    const int64_t share = alive * module.num_cores / cores;
    text += "\n  the batch cut over " + std::to_string(cores) + " cores: about " +
            std::to_string(kept + share) + " bytes a core";
    if (kept + share > limit) {
      text += ", still too much; cut the weights too";
    }
  }
  return {Error(text, error.op(), error.loc()), error.peak()};
}

bool has_exchange(const Region& region) {
  return std::ranges::any_of(region.ops, [](const auto& op) {
    return op->kind == Kind::kAllGather || op->kind == Kind::kAllToAll ||
           op->kind == Kind::kCollectivePermute ||
           std::ranges::any_of(op->regions, [](const auto& inner) { return has_exchange(*inner); });
  });
}

// Nothing: it cannot, for example since it is too long or needs more HBM than there is.
std::optional<exe::ExecutableT> generate_if_possible(const Module& module,
                                                     const spec::BoardParams& board,
                                                     const CompileOptions& options,
                                                     const Watchers& watchers) {
  try {
    return generate(module, board, options, watchers);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// With exchanges in pieces beside products, if the estimate says that this is faster. Pieces need
// more commands and more HBM than whole exchanges: each way may be the only one that fits.
exe::ExecutableT generate_faster(const Module& module, const spec::BoardParams& board,
                                 const CompileOptions& options, const Watchers& watchers) {
  CompileOptions whole = options;
  whole.pieced_exchanges = false;
  if (!options.pieced_exchanges || !has_exchange(module.main->body)) {
    return generate(module, board, options, watchers);
  }
  Watchers of_pieces = watchers;
  bool pieced = false;
  of_pieces.pieced = &pieced;
  std::optional<exe::ExecutableT> e;
  try {
    e = generate(module, board, options, of_pieces);
  } catch (const HbmExhausted&) {
    throw;  // answered with whole exchanges, too, but other ways come first
  } catch (const Error&) {
    if (!pieced) {
      throw;
    }
    return generate(module, board, whole, watchers);
  }
  if (!pieced) {
    return *std::move(e);
  }
  whole.dump = nullptr;
  const auto other = generate_if_possible(module, board, whole, {watchers.progress});
  if (!other || e->estimated_cycles < other->estimated_cycles) {
    return *std::move(e);
  }
  whole.dump = options.dump;  // again, for those who listen
  return generate(module, board, whole, watchers);
}

// Whether the error of a program that does not fit says what it needs with values computed again:
// takes as long as compiling it so.
enum class NeedWhenFitted : bool { kUnknown, kSaid };

// A program that does not fit into HBM is compiled again: with transfers that it waits for, with
// whole exchanges, with exchanges where they are, then with constants and cheap values where they
// are used, then with values computed again, those alive when most of HBM is in use.
exe::ExecutableT generate_in_memory(Module& module, const spec::BoardParams& board,
                                    CompileOptions& options, const Watchers& watchers,
                                    NeedWhenFitted need);

// What the program needs if values are computed again, which changes the module.
std::string need_when_fitted(Module& module, const spec::BoardParams& board, CompileOptions options,
                             const Watchers& watchers) {
  options.fit = true;
  options.dump = nullptr;
  try {
    const exe::ExecutableT e =
        generate_in_memory(module, board, options, {watchers.progress}, NeedWhenFitted::kUnknown);
    return ": " + std::to_string(e.hbm_bytes + e.image.size()) + " bytes then, which fits";
  } catch (const HbmExhausted& e) {
    const int64_t limit = usable_hbm(board, options.hbm_bytes);
    return ": at least " + std::to_string(limit + e.peak().excess) + " bytes then, still too much";
  } catch (const ProgramTooLong&) {
    return ", which makes it too long unless parts of it become loops";
  } catch (const Error&) {
    return "";  // its reader asked for something else
  }
}

exe::ExecutableT generate_in_memory(Module& module, const spec::BoardParams& board,
                                    CompileOptions& options, const Watchers& watchers,
                                    NeedWhenFitted need) {
  for (int tries = 1;;) {
    Watchers of_transfers = watchers;
    bool beside = false;
    of_transfers.beside = &beside;
    try {
      return generate_faster(module, board, options, of_transfers);
    } catch (const HbmExhausted& e) {
      if (options.host_beside && beside) {
        options.host_beside = false;
        continue;
      }
      if (options.early_exchanges && has_exchange(module.main->body)) {
        (options.pieced_exchanges ? options.pieced_exchanges : options.early_exchanges) = false;
        continue;
      }
      const int64_t again = options.least_memory ? rematerialise(module, e.peak()) : 0;
      if (again > 0) {
        module.notes.push_back("memory: values of " + std::to_string(again) +
                               " bytes are computed again where they are read late");
      }
      const bool stuck = options.least_memory && again == 0;
      if (!options.fit || e.peak().alive.empty() || tries == kMostFits || stuck) {
        const bool more = need == NeedWhenFitted::kSaid && !options.fit && !e.peak().alive.empty();
        throw with_advice(e, module, board, options,
                          more ? need_when_fitted(module, board, options, watchers) : "");
      }
      options.least_memory = true;
      ++tries;
    }
  }
}

// What makes the program too long becomes a loop.
exe::ExecutableT generate_in_loops(Module& module, const spec::BoardParams& board,
                                   CompileOptions options, const Watchers& watchers,
                                   NeedWhenFitted need) {
  for (int cuts = 0;; ++cuts) {
    try {
      return generate_in_memory(module, board, options, watchers, need);
    } catch (const ProgramTooLong& e) {
      const std::vector<const Op*> dots =
          e.share() < kLeastShare ? equal_dots(module, e.most()) : std::vector<const Op*>{e.most()};
      const double share = e.share() * static_cast<double>(dots.size());
      const auto parts = static_cast<int64_t>(share * kPartsOfAll) + 1;
      if (cuts == kMostCuts || share < kLeastShare || !loop_over_dot_parts(module, dots, parts)) {
        throw;
      }
      verify(module);
    }
  }
}

// What the text of a partitioned program says.
Module copy_of_main(const Module& m) {
  Module copy;
  copy.name = m.name;
  copy.mesh = m.mesh;
  copy.num_cores = m.num_cores;
  copy.main = std::make_unique<Function>();
  copy.main->args = m.main->args;
  copy.main->results = m.main->results;
  ValueMap same;
  for (const auto& arg : m.main->body.args) {
    same[arg.get()] = copy.main->body.add_arg(arg->type);
  }
  for (const auto& op : m.main->body.ops) {
    clone_op(*op, copy.main->body, same);
  }
  return copy;
}

std::string text_with_joined_sums(Module module, const spec::BoardParams& board) {
  join_buckets(module.main->body, exchange_piece_bytes(board));
  return stablehlo_text(module);
}

// With whoever partitions its custom calls.
Module imported(std::span<const std::byte> artifact, const std::string& name, ImportOptions options,
                const FrameworkPartitioner& partitioner, uint64_t rng_seed = 0) {
  options.own_partitioning = static_cast<bool>(partitioner);
  Module module = import_program(artifact, name, options);
  if (partitioner) {
    module.partitioner = [partitioner, rng_seed, cores = module.num_cores,
                          asked = uint64_t{0}](const PartitionRequest& request) mutable {
      FrameworkPart part = partitioner(request);
      Module program = import_program(part.artifact, request.target, {.partitions = cores});
      program.rng_seed = rng_seed + ++asked;  // other numbers than those of the program around it
      run_passes(program, part_passes());
      return PartitionedOp{std::move(program.main), std::move(part.operand_tiles),
                           std::move(part.result_tiles)};
    };
  }
  return module;
}

}  // namespace

std::vector<std::string> describe_moved(const std::vector<MovedArray>& moved) {
  std::vector<const MovedArray*> arrays;
  int64_t sums = 0, sum_bytes = 0;
  for (const MovedArray& m : moved) {
    if (m.kind == Kind::kAllReduce || m.kind == Kind::kReduceScatter) {
      ++sums;
      sum_bytes += m.bytes;
    } else {
      arrays.push_back(&m);
    }
  }
  std::vector<std::string> lines;
  if (sums > 0) {
    lines.push_back("sharding: " + std::to_string(sums) + " cross-core reductions, " +
                    std::to_string(sum_bytes) + " bytes a core");
  }
  std::stable_sort(arrays.begin(), arrays.end(),
                   [](const auto* a, const auto* b) { return a->bytes > b->bytes; });
  std::vector<std::pair<std::string, int64_t>> equal;  // lines, and how many arrays each is of
  for (const MovedArray* m : arrays) {
    const std::string line = moved_line(*m);
    const auto known = std::ranges::find(equal, line, &std::pair<std::string, int64_t>::first);
    if (known == equal.end()) {
      equal.emplace_back(line, 1);
    } else {
      ++known->second;
    }
  }
  for (const auto& [line, count] : equal) {
    lines.push_back(line + (count > 1 ? " (" + std::to_string(count) + " times)" : ""));
  }
  return lines;
}

std::vector<std::string> describe_rolled(const std::vector<RolledLayers>& rolled) {
  std::vector<std::string> lines;
  for (const RolledLayers& r : rolled) {
    lines.push_back("layers: " + std::to_string(r.layers) + " equal ones of " +
                    std::to_string(r.ops) + " operations, from " + to_string(*r.loc) +
                    " on, are a loop");
  }
  return lines;
}

std::vector<std::string> stages() {
  std::vector<std::string> names = {"import"};
  for (const Pass& pass : compile_passes()) {
    names.push_back(pass.name());
  }
  const std::vector<std::string> kernel_passes = kernel_pass_names();
  names.insert(names.end(), kernel_passes.begin(), kernel_passes.end());
  names.insert(names.end(), {"kernels", "memory", "listing"});
  return names;
}

namespace {

// A program whose loops gather for the next iteration, and that is too long so, or does not fit.
struct PipelinedTooLarge {};

enum class LoopGathers : uint8_t {
  kInTheirIteration,
  kPipelined,
  kPipelinedIfItFits  // throws PipelinedTooLarge
};

Compiled compile_module(Module module, const spec::BoardParams& board,
                        const CompileOptions& options, LoopGathers gathers) {
  Compiled out;
  bool pipelined = false;
  const GraphPasses all = compile_passes(
      {.rules = rules_of(options.style),
       .pipelined = gathers == LoopGathers::kInTheirIteration ? nullptr : &pipelined,
       .finite = options.watch_finite ? &out.report.finite : nullptr,
       .keep_values = options.keep_values,
       .rolled = options.roll_layers == RollLayers::kOn && !options.keep_values ? &out.report.rolled
                                                                                : nullptr});
  module.rng_seed = options.rng_seed;
  Progress progress(options.progress);
  for (const Pass& pass : all) {
    progress.expect(pass.name(), pass.weight());
  }
  expect_stages(progress);
  PassReport* const report = options.stats ? &out.report.passes : nullptr;
  PassOptions passes;
  passes.report = report;
  passes.before = [&](const Pass& pass) { progress.begin(pass.name()); };
  passes.after = [&](const std::string& pass, const Module& m) {
    if (options.core_text && pass == canonical_passes().back().name()) {
      out.report.core_text = text_with_joined_sums(copy_of_main(m), board);
    }
    if (wants_dump(options, pass)) {
      options.dump(pass, print(m, true));
    }
  };
  if (!options.data_parallel.empty()) {
    cut_batch(module, options.data_parallel,
              options.cores.empty() ? spec::core_count(board)
                                    : static_cast<int64_t>(options.cores.size()));
  }
  run_passes(module, all, passes);
  CompileOptions code = options;
  if (module.num_cores == 1 && options.import.replicas > 1) {
    code.cores.clear();  // replicas that each run it by themselves
  }
  if (options.keep_values) {
    code.update_sharding = UpdateSharding::kOff;  // cores would keep parts of what they update
  }
  std::vector<std::string> loop_copies;
  const bool may_give_up = pipelined && gathers == LoopGathers::kPipelinedIfItFits;
  code.fit = code.fit && !may_give_up;  // values computed again cost more than such gathers save
  try {
    out.executable =
        generate_in_loops(module, board, code, {&progress, report, &loop_copies},
                          may_give_up ? NeedWhenFitted::kUnknown : NeedWhenFitted::kSaid);
  } catch (const Error& e) {
    const bool too_large = dynamic_cast<const HbmExhausted*>(&e) != nullptr ||
                           dynamic_cast<const ProgramTooLong*>(&e) != nullptr;
    if (may_give_up && too_large) {
      throw PipelinedTooLarge{};
    }
    throw;
  }
  out.report.moved = std::move(module.moved);
  out.report.graph = std::move(module);
  out.report.unsharded = why_unsharded(out.executable, board, code);
  std::vector<std::string>& notes = out.executable.notes;
  notes.insert(notes.end(), out.report.graph.notes.begin(), out.report.graph.notes.end());
  notes.insert(notes.end(), loop_copies.begin(), loop_copies.end());
  return out;
}

}  // namespace

Compiled compile(Module module, const spec::BoardParams& board, const CompileOptions& options) {
  return compile_module(std::move(module), board, options, LoopGathers::kPipelined);
}

Compiled compile(const std::function<Module()>& import, const spec::BoardParams& board,
                 const CompileOptions& options) {
  const auto attempt = [&](const CompileOptions& how) {
    try {
      return compile_module(import(), board, how, LoopGathers::kPipelinedIfItFits);
    } catch (const PipelinedTooLarge&) {
      return compile_module(import(), board, how, LoopGathers::kInTheirIteration);
    }
  };
  if (options.roll_layers != RollLayers::kAuto) {
    return attempt(options);
  }
  CompileOptions how = options;
  how.roll_layers = RollLayers::kOff;
  try {
    return attempt(how);
  } catch (const ProgramTooLong& too_long) {
    how.roll_layers = RollLayers::kOn;
    try {
      return attempt(how);
    } catch (const Error& in_loops) {
      if (in_loops.message() == too_long.message()) {
        throw too_long;
      }
      const Error both(
          too_long.message() + "\n  with loops of its equal layers: " + in_loops.what(),
          too_long.op(), too_long.loc());
      if (dynamic_cast<const HbmExhausted*>(&in_loops) != nullptr) {
        throw HbmExhausted(both, {});  // its peak names values of a module that is gone
      }
      throw ProgramTooLong(both, nullptr, too_long.share());
    }
  }
}

Compiled compile(std::span<const std::byte> artifact, const std::string& name,
                 const spec::BoardParams& board, const CompileOptions& options) {
  return compile(
      [&] {
        return imported(artifact, name, options.import, options.partitioner, options.rng_seed);
      },
      board, options);
}

JoinedReplicas joined_program(const std::vector<std::span<const std::byte>>& artifacts,
                              const ImportOptions& options) {
  std::vector<Module> programs;
  for (const auto artifact : artifacts) {
    Module& program = programs.emplace_back(imported(artifact, "", options, {}));
    if (program.num_cores != static_cast<int64_t>(artifacts.size()) || options.partitions > 1) {
      throw Contradiction("programs of " + std::to_string(artifacts.size()) +
                          " replicas that differ must be of as many cores, found one of " +
                          std::to_string(program.num_cores));
    }
    inline_calls(program);
  }
  JoinedReplicas joined = join_replicas(programs);
  verify(joined.module);
  return joined;
}

std::string core_program_text(std::span<const std::byte> artifact, const spec::BoardParams& board,
                              const ImportOptions& options,
                              const FrameworkPartitioner& partitioner) {
  Module module = imported(artifact, "", options, partitioner);
  run_passes(module, canonical_passes());
  return text_with_joined_sums(std::move(module), board);
}

ProgramInterface interface_of(std::span<const std::byte> artifact) {
  const Module module = import_program(artifact, "");
  ProgramInterface found{module.num_cores, {}, module.main->results.size()};
  for (const ArgInfo& argument : module.main->args) {
    found.arguments.push_back(argument.name);
  }
  return found;
}

std::vector<std::vector<Dims>> argument_parts(std::span<const std::byte> artifact,
                                              const ImportOptions& options) {
  const Module module = import_program(artifact, "", options);
  std::vector<std::vector<Dims>> all;
  for (size_t i = 0; i < module.main->args.size(); ++i) {
    const auto& wanted = module.main->args[i].wanted;
    std::vector<Dims>& parts = all.emplace_back();
    for (int64_t core = 0; wanted && core < module.mesh.size(); ++core) {
      const size_t rank = module.main->body.args[i]->type.dims.size();
      parts.push_back(wanted->sharding.shard_index(module.mesh, core, rank));
    }
  }
  return all;
}

}  // namespace tpu::compiler
