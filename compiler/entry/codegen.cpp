// Pipeline of the back half: kernels, commands, semaphores, image, executable.
#include "entry/codegen.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <span>
#include <utility>

#include "board/board_loader.hpp"
#include "emit/emit.hpp"
#include "ir/error_kinds.hpp"
#include "kernel/kernel_passes.hpp"
#include "plan/scratch.hpp"
#include "program/early_departures.hpp"
#include "program/encode.hpp"
#include "program/estimate.hpp"
#include "program/late_arrivals.hpp"
#include "program/semaphores.hpp"
#include "terminal/counted.hpp"
#include "vpu/vpu_gen.hpp"

namespace tpu::compiler {

namespace {

exe::Elem exe_elem(Elem elem) {
  return is_complex(elem)     ? exe::Elem::c64
         : elem == Elem::kF64 ? exe::Elem::f64
                              : static_cast<exe::Elem>(isa_elem(elem));
}

// The array of an argument or result as the host sees it.
template <typename Info>
Type host_type(const Info& info) {
  Type type = info.global;
  if (info.is_complex) {
    type.elem = Elem::kComplex64;
    type.dims.pop_back();
  }
  if (info.is_double) {
    type.elem = Elem::kF64;
  }
  return type;
}

std::unique_ptr<exe::TensorT> tensor(const Module& module, const Type& global, const Type& local,
                                     const Sharding& sharding, const std::string& name, int slot) {
  auto t = std::make_unique<exe::TensorT>();
  t->name = name;
  t->elem = exe_elem(global.elem);
  t->global_dims = global.dims;
  t->local_dims = Dims(local.dims.begin(),  // without the parts of a complex element
                       local.dims.begin() + static_cast<ptrdiff_t>(global.dims.size()));
  t->replicated = sharding.is_replicated();
  t->slot = static_cast<uint32_t>(slot);
  std::vector<uint16_t> terms;
  for (int64_t core = 0; core < module.num_cores; ++core) {
    const Dims index = t->replicated ? Dims(global.dims.size(), 0)
                                     : sharding.shard_index(module.mesh, core, global.dims.size());
    for (size_t d = 0; d < global.dims.size(); ++d) {
      t->offsets.push_back(index[d] * local.dims[d]);
    }
    if (!sharding.unreduced.empty()) {
      terms.push_back(static_cast<uint16_t>(sharding.term_index(module.mesh, core)));
    }
  }
  exe::set_terms(*t, terms);
  return t;
}

std::vector<uint8_t> bytes_of(std::span<const std::byte> bytes) {
  const auto* first = reinterpret_cast<const uint8_t*>(bytes.data());
  return {first, first + bytes.size()};
}

// Core of the board of each partition.
std::vector<int> cores_of(const Module& module, const spec::BoardParams& board,
                          const CompileOptions& options) {
  const auto cores = static_cast<int>(spec::core_count(board));
  if (module.num_cores > cores) {
    throw Error("the program runs on " + spec::counted(module.num_cores, "core") + "; board " +
                board.board.name + " has " + std::to_string(cores) + "; use a smaller mesh");
  }
  std::vector<int> of = options.cores;
  if (of.empty()) {
    of.resize(static_cast<size_t>(module.num_cores));
    std::iota(of.begin(), of.end(), 0);
  }
  if (static_cast<int64_t>(of.size()) != module.num_cores) {
    throw Error("the program runs on " + spec::counted(module.num_cores, "core") +
                " and the list names " + std::to_string(of.size()) + "; name one for each");
  }
  std::set<int> used;
  for (const int core : of) {
    if (core < 0 || core >= cores) {
      throw Error("there is no core " + std::to_string(core) + "; board " + board.board.name +
                  " has the cores 0.." + std::to_string(cores - 1));
    }
    if (!used.insert(core).second) {
      throw Error("core " + std::to_string(core) + " is named twice");
    }
  }
  return of;
}

// What the executable's format cannot hold is refused here, where its source line is known.
void check_format(const Module& module) {
  const Function& main = *module.main;
  const auto check = [](const Type& global, const std::string& what, const std::string& name,
                        const std::string& op, const LocRef& loc) {
    if (global.dims.size() > exe::kMaxRank) {
      throw Error(what + (name.empty() ? "" : " (" + name + ")") + " has " +
                      std::to_string(global.dims.size()) + " dimensions; an executable holds " +
                      "arrays of at most " + std::to_string(exe::kMaxRank) +
                      "; reshape it to fewer",
                  op, loc);
    }
  };
  for (size_t i = 0; i < main.args.size(); ++i) {
    check(host_type(main.args[i]), "argument " + std::to_string(parameter_number(main.args, i)),
          main.args[i].name, "", main.loc);
  }
  const Op* ret = main.body.terminator();
  for (size_t i = 0; i < ret->operands.size(); ++i) {
    const Op* def = ret->operands[i]->def;
    check(host_type(main.results[i]), "result " + std::to_string(parameter_number(main.results, i)),
          main.results[i].name, def == nullptr ? "" : std::string(kind_name(def->kind)),
          def == nullptr ? main.loc : def->loc);
  }
}

void own(exe::TensorT& tensor, const ShardedState& state, const Module& module) {
  int64_t elements = 1;
  for (const int64_t d : tensor.local_dims) {
    elements *= d;
  }
  std::vector<uint16_t> owners;
  for (const OwnedRun& run : owned_runs(state, elements, module.num_cores)) {
    tensor.owned_elements.push_back(static_cast<uint64_t>(run.elements));
    owners.push_back(static_cast<uint16_t>(run.core));
  }
  exe::set_owners(tensor, owners);
}

void add_parameters(exe::ExecutableT& e, const Module& module,
                    const std::vector<int>& result_slots) {
  const Function& main = *module.main;
  const Op* ret = main.body.terminator();
  for (size_t i = 0; i < main.args.size(); ++i) {
    const ArgInfo& info = main.args[i];
    if (info.part == WordPart::kHigh) {
      continue;  // behind the low words, in their slot
    }
    e.args.push_back(tensor(module, host_type(info), main.body.args[i]->type, info.sharding,
                            info.name, static_cast<int>(e.args.size())));
    e.args.back()->donated_to = info.alias_result < 0
                                    ? -1
                                    : static_cast<int>(parameter_number(
                                          main.results, static_cast<size_t>(info.alias_result)));
    e.args.back()->layout.assign(info.layout.begin(), info.layout.end());
    e.args.back()->memory = static_cast<exe::MemoryKind>(info.memory);
  }
  for (size_t i = 0; i < main.results.size(); ++i) {
    const ResultInfo& info = main.results[i];
    if (info.part != WordPart::kHigh) {
      e.results.push_back(tensor(module, host_type(info), ret->operands[i]->type, info.sharding,
                                 info.name, result_slots[i]));
      e.results.back()->layout.assign(info.layout.begin(), info.layout.end());
      e.results.back()->memory = static_cast<exe::MemoryKind>(info.memory);
    }
  }
}

void add_slots(exe::ExecutableT& e, const Listing& listing) {
  for (const SlotInfo& s : listing.slots) {
    auto slot = std::make_unique<exe::SlotT>();
    slot->kind = s.kind;
    slot->bytes = s.bytes;
    slot->index = s.index;
    e.slots.push_back(std::move(slot));
    e.hbm_bytes += s.bytes;
  }
}

void add_tables(exe::ExecutableT& e, const EmittedProgram& emitted) {
  for (const std::vector<std::byte>& bytes : emitted.constants) {
    auto c = std::make_unique<exe::ConstantT>();
    c->data = bytes_of(bytes);
    e.constants.push_back(std::move(c));
  }
  for (const exe::OpInfoT& op : emitted.ops) {
    e.ops.push_back(std::make_unique<exe::OpInfoT>(op));
  }
}

void add_temporaries(exe::ExecutableT& e, const Scratch& scratch) {
  for (const Scratch::Temporary& t : scratch.all()) {
    auto temporary = std::make_unique<exe::TemporaryT>();
    temporary->offset = static_cast<uint64_t>(t.offset);
    temporary->bytes = static_cast<uint64_t>(t.bytes);
    temporary->from = static_cast<uint32_t>(t.from);
    temporary->to = t.to == INT_MAX ? UINT32_MAX : static_cast<uint32_t>(t.to);
    temporary->op = t.op_id;
    temporary->elem =
        t.value == nullptr ? exe::Elem::ui8 : static_cast<exe::Elem>(isa_elem(t.value->type.elem));
    temporary->dims = t.value == nullptr ? std::vector<int64_t>{t.bytes} : t.value->type.dims;
    e.temporaries.push_back(std::move(temporary));
  }
}

void add_host_calls(exe::ExecutableT& e, const Listing& listing) {
  for (const HostCall& made : listing.host_calls) {
    const auto& attrs = made.op->as<HostAttrs>();
    auto call = std::make_unique<exe::HostCallT>();
    call->channel = attrs.channel;
    call->to_host = made.op->kind == Kind::kSend;
    call->partition = static_cast<int32_t>(attrs.partition);
    call->elem = exe_elem(attrs.array.elem);
    call->dims = attrs.array.dims;
    call->slot = static_cast<uint32_t>(made.place.slot);
    call->offset = static_cast<uint64_t>(made.place.offset);
    call->op = made.op_id;
    call->memory = attrs.memory;
    call->index = attrs.index;
    call->stage = made.stage;
    e.host_calls.push_back(std::move(call));
  }
}

// Of the stages behind the kernel passes, in percent of a compilation (Pass::weight()).
constexpr std::pair<const char*, double> kStages[] = {
    {"commands", 15}, {"semaphores", 12}, {"image", 2}, {"estimate", 24}};

void add_estimate(exe::ExecutableT& e, const ProgramEstimate& estimate) {
  e.estimated_cycles = estimate.cycles;
  e.vector_ops = estimate.work.vector_ops;
  e.hbm_read_bytes = estimate.work.hbm_read_bytes;
  e.hbm_written_bytes = estimate.work.hbm_written_bytes;
  e.link_bytes = estimate.work.link_bytes;
}

KernelProgram kernels_of(const Module& module, const spec::BoardParams& board,
                         const CompileOptions& options, const Watchers& watchers,
                         ShardReport& report) {
  KernelContext context{module, board};
  const StyleRules rules = rules_of(options.style);
  context.shard_updates = options.update_sharding == UpdateSharding::kOn ||
                          (rules.shard_updates && options.update_sharding == UpdateSharding::kAuto);
  context.least_memory = options.least_memory;
  context.early_exchanges = rules.overlap_kernels && options.early_exchanges;
  context.pieced_exchanges = options.pieced_exchanges;
  context.host_beside = rules.overlap_kernels && options.host_beside;
  context.one_result = !rules.many_results;
  context.epilogues.by_columns = rules.epilogues_by_columns;
  context.tiles_span_taps = rules.tiles_span_taps;
  if (!rules.sums_together) {
    context.bucket_bytes = 1;  // full with the first array
  }
  context.only_faster = options.update_sharding == UpdateSharding::kAuto;
  KernelPassOptions passes;
  passes.report = watchers.passes;
  double behind = 0;
  const double all = kernel_pass_weight();
  passes.before = [&](const KernelPass& pass) {
    watchers.progress->within(behind / all);
    behind += pass.weight();
  };
  passes.after = [&](const std::string& pass, const KernelProgram& program) {
    if (wants_dump(options, pass)) {
      options.dump(pass, print(program));
    }
  };
  watchers.progress->begin("kernels");
  KernelProgram kernels = run_kernel_passes(context, passes);
  report = std::move(context.sharded);
  return kernels;
}

EmitRules emit_rules(const CompileOptions& options) {
  const StyleRules rules = rules_of(options.style);
  return {.overlap = rules.overlap_kernels,
          .keep_values = rules.values_in_vmem,
          .hbm_bytes = options.hbm_bytes};
}

// Arrays and instructions of a program that has been planned.
void check_memory(const exe::ExecutableT& e, const EmittedProgram& emitted,
                  const spec::BoardParams& board, const CompileOptions& options) {
  const int64_t limit = usable_hbm(board, options.hbm_bytes);
  const auto code = static_cast<int64_t>(e.image.size());
  const int64_t needed = static_cast<int64_t>(e.hbm_bytes) + code;
  if (needed <= limit) {
    return;
  }
  MemoryPeak peak{.excess = needed - limit};
  for (const Scratch::Temporary& t : emitted.scratch.peak()) {
    if (t.value != nullptr) {
      peak.bytes += t.bytes;
      peak.alive.push_back(t.value);
    }
  }
  throw HbmExhausted(
      Error("the program needs " + std::to_string(needed) + " bytes of HBM, " + has_text(limit) +
            ":\n  instructions: " + std::to_string(code) + " bytes\n" + emitted.memory()),
      std::move(peak));
}

}  // namespace

bool wants_dump(const CompileOptions& options, const std::string& stage) {
  return options.dump && std::find(options.dump_after.begin(), options.dump_after.end(), stage) !=
                             options.dump_after.end();
}

void expect_stages(Progress& progress) {
  progress.expect("kernels", kernel_pass_weight());
  for (const auto& [stage, weight] : kStages) {
    progress.expect(stage, weight);
  }
}

exe::ExecutableT generate(const Module& module, const spec::BoardParams& board,
                          const CompileOptions& options) {
  Progress progress(options.progress);
  expect_stages(progress);
  return generate(module, board, options, {&progress});
}

exe::ExecutableT generate(const Module& module, const spec::BoardParams& board,
                          const CompileOptions& options, const Watchers& watchers) {
  Progress& progress = *watchers.progress;
  const std::vector<int> cores = cores_of(module, board, options);
  check_format(module);
  ShardReport report;
  KernelProgram kernels = kernels_of(module, board, options, watchers, report);
  if (watchers.pieced != nullptr) {
    for_each_kernel(kernels, [&](const Kernel& k) { *watchers.pieced |= k.exchange().pieces > 1; });
  }
  if (watchers.beside != nullptr) {
    for_each_kernel(kernels, [&](const Kernel& k) {
      *watchers.beside |= k.kind == KernelClass::kHost && k.host().stage == HostStage::kStart;
    });
  }
  progress.begin("commands");
  EmittedProgram emitted = emit_program(
      module, kernels, board, cores, [&](double done) { progress.within(done); },
      emit_rules(options));
  if (watchers.loop_copies != nullptr) {
    *watchers.loop_copies = emitted.loop_copies;
  }
  if (wants_dump(options, "kernels")) {
    options.dump("kernels", print(kernels));
  }
  Listing& listing = emitted.listing;
  progress.begin("semaphores");
  if (rules_of(options.style).overlap_kernels) {
    depart_early(listing, emitted.leaving_early);
    emitted.first_remote_semaphore = await_late(listing, emitted.first_remote_semaphore);
  }
  insert_semaphores(listing, emitted.first_remote_semaphore,
                    [&](double done) { progress.within(done); });
  progress.begin("image");
  exe::ExecutableT e;
  e.name = module.name;
  e.isa_version = spec::kIsaVersion;
  e.wide_layout = exe::WideLayout::planes;
  e.board_name = board.board.name;
  e.board_hash = spec::board_hash(board);
  e.partitions = static_cast<uint32_t>(module.num_cores);
  exe::set_cores(e, {options.cores.begin(), options.cores.end()});
  ImageInfo info;
  info.slots = static_cast<uint32_t>(listing.slots.size());
  info.cores = e.partitions;
  info.board_hash = e.board_hash;
  e.image = bytes_of(encode_image(listing, info));
  add_parameters(e, module, emitted.result_slots);
  add_slots(e, listing);
  check_memory(e, emitted, board, options);
  add_tables(e, emitted);
  add_host_calls(e, listing);
  add_temporaries(e, emitted.scratch);
  for (const ShardedState& state : kernels.sharded) {
    const Function& main = *module.main;
    own(*e.args[parameter_number(main.args, state.argument)], state, module);
    own(*e.results[parameter_number(main.results, state.result)], state, module);
  }
  e.sharded_update_bytes = static_cast<uint64_t>(report.bytes);
  e.notes = report.notes;
  e.matmul_flops = emitted.matmul_flops;
  e.vmem_peak_bytes = static_cast<uint64_t>(emitted.vmem_peak);
  progress.begin("estimate");
  add_estimate(e, estimate_program(std::as_bytes(std::span(e.image)), cores, board));
  if (wants_dump(options, "memory")) {
    options.dump("memory", emitted.memory() + "\n");
  }
  if (wants_dump(options, "listing")) {
    options.dump("listing", print(listing));
  }
  return e;
}

}  // namespace tpu::compiler
