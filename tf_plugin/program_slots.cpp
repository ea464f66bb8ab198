// Replicated functions: their compilation, what TensorFlow asks of a program, and their launches,
// core by core. Each core's call brings its own share, in the order of its stream; the launch is
// submitted with the last of them (pjrt_plugin/runtime/gangs.hpp).
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <optional>

#include "abi/ops.h"
#include "answer.hpp"
#include "embedding.hpp"
#include "errors.hpp"
#include "failed_program.hpp"
#include "feed_queues.hpp"
#include "host_transfers.hpp"
#include "launch.hpp"
#include "lowering_library.hpp"
#include "messages.hpp"
#include "proto_wire.hpp"
#include "steps.hpp"

struct XLA_TpuProgram {
  std::shared_ptr<const tpu::tensorflow::Program> program;  // null: of TpuProgram_New, or failed
  tpu::tensorflow::Lowered lowered = {};                    // without its HLO
  std::optional<TF_Status> failure = {};                    // of its compilation: of each launch
  std::string fingerprint = {};
  size_t core = 0;           // of its replica, where the cores of one have different arrays
  bool takes_batch = false;  // of TPUEmbedding; only said of one that failed
  bool feeds_host = false;   // an outfeed, likewise
};

namespace tpu::tensorflow {
namespace {

using Launch = TpuExecutable_LoadProgramAndEnqueueToStream_Params;

// Messages whose only field is empty: the caller takes no empty bytes.
constexpr char kNoTransfers[] = {0x12, 0x00}, kNoModule[] = {0x0a, 0x00};

// An argument list comes and a program goes with one of these addresses for each array.
void add_arrays(uint64_t address, std::vector<uint64_t>& arrays) {
  Memory& memory = System::get().memory();
  if (!std::holds_alternative<TupleTable>(memory.contents(address))) {
    arrays.push_back(address);
    return;
  }
  for (const uint64_t member : memory.table(address).members) {
    add_arrays(member, arrays);
  }
}

// Of a program whose request does not say them.
std::vector<int> default_devices(int replicas, int cores_per_replica) {
  const auto cores = static_cast<int>(places().cores.size());
  if (replicas * cores_per_replica > cores) {
    pjrt::throw_invalid(fmt::format(
        "a function on {} replicas of {} cores: the board has {} cores; use fewer replicas",
        replicas, cores_per_replica, cores));
  }
  std::vector<int> devices(static_cast<size_t>(replicas * cores_per_replica));
  std::iota(devices.begin(), devices.end(), 0);
  return devices;
}

std::unique_ptr<XLA_TpuProgram> compile(std::string_view request) {
  auto made = std::make_unique<XLA_TpuProgram>();
  Lowered& lowered = made->lowered;
  lowered = lower(request);
  const int parts = lowered.replicas * lowered.cores_per_replica;
  if (lowered.devices.size() != static_cast<size_t>(parts)) {
    lowered.devices = default_devices(lowered.replicas, lowered.cores_per_replica);
  }
  const std::string hlo = std::move(lowered.hlo);
  lowered.hlo.clear();
  made->program = std::make_shared<const Program>(client::compile_program(
      std::as_bytes(std::span(hlo)),
      {.cores = parts > 1 ? lowered.devices : std::vector<int>{},
       .import = {.replicas = lowered.replicas, .partitions = lowered.cores_per_replica}}));
  made->fingerprint = made->program->compiled().fingerprint;
  return made;
}

// One for all cores of a replica, or one for each.
std::vector<std::unique_ptr<XLA_TpuProgram>> by_core(std::unique_ptr<XLA_TpuProgram> made) {
  std::vector<std::unique_ptr<XLA_TpuProgram>> all;
  for (size_t core = 0; core < made->lowered.cores.size(); ++core) {
    auto& one = all.emplace_back(std::make_unique<XLA_TpuProgram>(*made));
    one->core = core;
    one->lowered.executable_info = one->lowered.cores[core].executable_info;
    one->fingerprint += " " + std::to_string(core);
  }
  if (all.empty()) {
    all.push_back(std::move(made));
  }
  return all;
}

// The graph has the operation of TPUEmbedding.dequeue().
bool takes_batch(std::string_view request) {
  return request.find("RecvTPUEmbeddingActivations") != std::string_view::npos;
}

// The cores on which the step has enqueued its batch have it, and others may not.
void lose_batch(const TF_Status& error) {
  EmbeddingEngine::get().lose(
      StatusError({error.code, "its step was not compiled: " + error.message}));
}

// The graph has an OutfeedEnqueue or an OutfeedEnqueueTuple.
bool feeds_host(std::string_view request) {
  return request.find("OutfeedEnqueue") != std::string_view::npos;
}

StatusError not_compiled(const TF_Status& error) {
  return StatusError({error.code, "the step was not compiled: " + error.message});
}

std::unique_ptr<XLA_TpuProgram> failed_program(const TF_Status& error, std::string_view request) {
  static std::atomic<int> failures = 0;
  auto failed = std::make_unique<XLA_TpuProgram>();
  failed->failure = error;
  failed->fingerprint = "failed " + std::to_string(++failures);
  try {
    failed->lowered.executable_info = info_of_request(request);
  } catch (...) {  // the request itself is damaged
    failed->lowered.executable_info = info_of_request("");
  }
  failed->lowered.metadata.assign(kNoModule, sizeof kNoModule);
  failed->takes_batch = takes_batch(request);
  if (failed->takes_batch) {
    lose_batch(error);
  }
  failed->feeds_host = feeds_host(request);
  if (failed->feeds_host) {  // TensorFlow may launch it nowhere
    FeedQueues::get().fail_all(static_cast<int>(places().cores.size()), not_compiled(error));
  }
  pjrt::CallLog::note("the compilation failed: " + error.message);
  return failed;
}

// The program has the error of a compilation (failed_program.hpp).
std::unique_ptr<XLA_TpuProgram> compile_or_fail_later(std::string_view request) {
  const auto working = System::get().runtime().host_work();
  try {
    return compile(request);
  } catch (...) {
    return failed_program(status_of_exception(), request);
  }
}

// DeviceAssignmentProto: for each core of a replica, the devices of its replicas. Those of a
// replica come beside each other, as the partitions of a program are.
std::vector<int> assigned_devices(const XLA_DeviceAssignment* assignment) {
  enum : uint32_t { kComputationDevices = 3, kReplicaDeviceIds = 1 };
  std::vector<std::vector<int>> by_core;
  if (assignment == nullptr || assignment->size == 0) {
    return {};
  }
  pjrt::Reader message({assignment->bytes, assignment->size});
  while (const auto field = message.next()) {
    if (field->number != kComputationDevices) {
      continue;
    }
    std::vector<int>& devices = by_core.emplace_back();
    pjrt::Reader computation(field->bytes);
    while (const auto ids = computation.next()) {
      if (ids->number != kReplicaDeviceIds) {
        continue;
      }
      if (ids->wire == pjrt::kVarint) {
        devices.push_back(static_cast<int>(ids->value));
        continue;
      }
      pjrt::Reader packed(ids->bytes);
      while (!packed.done()) {
        devices.push_back(static_cast<int>(packed.varint()));
      }
    }
  }
  std::vector<int> devices;
  for (size_t replica = 0; !by_core.empty() && replica < by_core[0].size(); ++replica) {
    for (const std::vector<int>& of_core : by_core) {
      devices.push_back(of_core.at(replica));
    }
  }
  return devices;
}

// Of the program, by partition: those of the compilation, if the launch does not name as many.
std::vector<int> devices_of(const Launch& params) {
  const XLA_TpuProgram& given = *params.program;
  if (given.program->executable().partitions <= 1) {
    return {params.stream->stream.device()};
  }
  std::vector<int> devices = assigned_devices(params.device_assignment);
  const bool all = devices.size() == given.lowered.devices.size();
  return all ? devices : given.lowered.devices;
}

bool any_here(const std::vector<int>& positions) {
  return std::ranges::any_of(positions, [](int position) { return position >= 0; });
}

// What the core has, in the order of the program. `positions`: CoreInterface.
std::vector<uint64_t> of_program(const std::vector<uint64_t>& own,
                                 const std::vector<int>& positions) {
  std::vector<uint64_t> all;
  for (const int position : positions) {
    all.push_back(position < 0 ? Program::Launch::kElsewhere
                               : own.at(static_cast<size_t>(position)));
  }
  return all;
}

// Empty: of one core, or TensorFlow does not say which launch it is.
std::string meeting_of(const Launch& params, const std::vector<int>& devices) {
  const SE_OutsideCompilationParams* const step = params.outside_compilation_params;
  if (devices.size() == 1 || step == nullptr || step->rendezvous == nullptr ||
      step->rendezvous_key == nullptr) {
    return "";
  }
  const auto hold = [&]() -> std::shared_ptr<const void> {
    std::shared_ptr<HostSide> host = host_side(*step);
    return host != nullptr && host->keeps_rendezvous() ? host : nullptr;
  };
  return Steps::get().share({step->rendezvous->rendezvous, step->rendezvous_key},
                            params.stream->stream.device(), devices.size(), hold);
}

void add_arguments(const Launch& params, Program::Launch& launch) {
  const XLA_TpuProgram& given = *params.program;
  if (given.lowered.seeded) {
    launch.seed = static_cast<uint32_t>(params.rng_seed);
  }
  launch.dynamic = given.lowered.dynamic_results;
  // Nothing is written into the table of an empty tuple.
  const exe::ExecutableT& program = given.program->executable();
  const CoreInterface* const core =
      given.lowered.cores.empty() ? nullptr : &given.lowered.cores.at(given.core);
  const size_t own_arguments = given.lowered.embedding_arguments + (launch.seed ? 1 : 0);
  const bool takes =
      core != nullptr ? any_here(core->arguments) : program.args.size() > own_arguments;
  const bool gives = core != nullptr ? any_here(core->results)
                                     : program.results.size() > given.lowered.embedding_results;
  for (size_t i = 0; i < params.arguments_len && takes; ++i) {
    add_arrays(address_of(params.arguments[i]), launch.arguments);
  }
  if (gives) {
    add_arrays(address_of(*params.result), launch.results);
  }
  if (core != nullptr) {
    launch.arguments = of_program(launch.arguments, core->arguments);
    launch.results = of_program(launch.results, core->results);
  }
}

// Of a program that computes on the host, too; null for one that has feeds alone.
std::shared_ptr<HostSide> host_of(const Launch& params) {
  const XLA_TpuProgram& given = *params.program;
  if (std::ranges::all_of(given.lowered.host_transfers, &HostTransfer::feed)) {
    return nullptr;
  }
  if (params.outside_compilation_params == nullptr) {
    pjrt::throw_invalid(given.program->executable().name +
                        ": the program computes on the host, and its launch does not say where");
  }
  return host_side(*params.outside_compilation_params);
}

// `number`: of FeedQueues::begin(), for a program with feeds.
void add_host(const Launch& params, std::optional<uint64_t> number, Program::Launch& launch) {
  const std::vector<HostTransfer>& transfers = params.program->lowered.host_transfers;
  if (transfers.empty()) {
    return;
  }
  const std::shared_ptr<HostSide> host = host_of(params);
  const int device = params.stream->stream.device();
  launch.on_host_call =
      host_call_handler(host, device, std::make_shared<const std::vector<HostTransfer>>(transfers));
  launch.on_failure = [host, device, number](const driver::Error& error) {
    if (number) {
      FeedQueues::get().fail(device, *number, error);
    }
    if (host != nullptr) {
      const std::unique_ptr<PJRT_Error> code(pjrt::new_error(error));
      host->abort(static_cast<int>(code->code), code->message);
    }
  };
}

[[noreturn]] void fail_launch(const XLA_TpuProgram& given, int device) {
  if (given.takes_batch) {
    lose_batch(*given.failure);  // nobody else takes it
  }
  if (given.feeds_host) {
    FeedQueues& feeds = FeedQueues::get();
    feeds.fail(device, feeds.begin(device), not_compiled(*given.failure));
  }
  throw StatusError(*given.failure);
}

void launch(const Launch& params, std::optional<uint64_t> number) {
  const XLA_TpuProgram& given = *params.program;
  if (given.program == nullptr) {
    pjrt::throw_invalid(
        "the launch of a program that was not compiled: expected one of "
        "TpuCompile_CompileAndBuild");
  }
  Stream& stream = params.stream->stream;
  Program::Launch launch;
  // By these the others are told when something below fails.
  launch.devices = given.program->executable().partitions > 1 ? given.lowered.devices
                                                              : std::vector<int>{stream.device()};
  launch.meets = meeting_of(params, launch.devices);
  std::unique_ptr<EmbeddingStep> embeddings;
  const uint64_t losses = EmbeddingEngine::get().losses();
  try {
    launch.devices = devices_of(params);
    add_arguments(params, launch);
    add_host(params, number, launch);
    if (given.lowered.embedding_arguments > 0) {
      embeddings = std::make_unique<EmbeddingStep>(
          stream.device(), given.lowered.embedding_arguments, given.lowered.embedding_results);
      launch.arguments.insert(launch.arguments.end(), embeddings->arguments().begin(),
                              embeddings->arguments().end());
      launch.embedding_results = embeddings->results();
    }
  } catch (...) {
    given.program->refuse(stream, launch);
    if (given.lowered.embedding_arguments > 0 && !embeddings) {  // other cores have the batch
      EmbeddingEngine::get().lose_since(losses, StatusError(status_of_exception()));
    }
    throw;
  }
  given.program->launch(stream, launch);
  if (embeddings) {
    embeddings->launched(!given.lowered.host_transfers.empty());
  }
}

void launch(const Launch& params) {
  const XLA_TpuProgram& given = *params.program;
  const int device = params.stream->stream.device();
  if (given.failure) {
    fail_launch(given, device);
  }
  if (std::ranges::none_of(given.lowered.host_transfers, &HostTransfer::feed)) {
    return launch(params, std::nullopt);
  }
  const uint64_t number = FeedQueues::get().begin(device);
  try {
    launch(params, number);
  } catch (...) {
    FeedQueues::get().fail(device, number, StatusError(status_of_exception()));
    throw;
  }
}

std::string key_text(const CompilationCacheKeyProperty& property) {
  std::string ids;
  for (size_t i = 0; i < property.device_ids_size; ++i) {
    ids += (i == 0 ? "" : ",") + std::to_string(property.device_ids[i]);
  }
  std::string text;
  const auto given = [](const char* bytes) { return std::string(bytes != nullptr ? bytes : ""); };
  for (const std::string& part :
       {given(property.function_name), given(property.config_prefix), given(property.shapes_prefix),
        std::to_string(property.mlir_module_fingerprint),
        std::to_string(property.function_library_fingerprint),
        std::to_string(property.num_replicas), std::to_string(property.num_cores_per_replica),
        std::to_string(property.guaranteed_constants_size), ids}) {
    text += (text.empty() ? "" : ":") + part;
  }
  return text;
}

}  // namespace
}  // namespace tpu::tensorflow

using namespace tpu::tensorflow;  // NOLINT: the slots below are all of this file

extern "C" {

bool TpuCompile_IsTpuCompilationEnabled() { return true; }

// A compilation ends by itself: nothing ends the process for it.
bool TpuCompile_ShouldTpuCompileOpIgnoreCancellation() { return true; }

// Each step asks for the key of its program before it launches.
CompilationCacheKeyResult TpuCompile_CreateCompilationCacheKey(
    CompilationCacheKeyProperty property) {
  Steps::get().begin();
  std::string text;
  answer(__func__, nullptr, [&] { text = key_text(property); });
  return {::strdup(text.c_str()), ::strdup(text.c_str())};
}

void TpuCompile_DestroyCompilationCacheKey(CompilationCacheKeyResult result) {
  std::free(const_cast<char*>(result.key));
  std::free(const_cast<char*>(result.debug_string));
}

uint64_t TpuCompile_CreateGuaranteedConstFingerprint(uint64_t fingerprint, const char* data,
                                                     size_t size) {
  constexpr uint64_t kPrime = 0x100000001b3;  // FNV-1a
  for (const char byte : std::string_view(data, size)) {
    fingerprint = (fingerprint ^ static_cast<unsigned char>(byte)) * kPrime;
  }
  return fingerprint;
}

void TpuCompile_CompileAndBuild(TpuSerializedProto request, const XLA_TpuMeshState* /*state*/,
                                XLA_TpuProgram** programs[], size_t* count, TF_Status* status) {
  *programs = nullptr;
  *count = 0;
  answer(__func__, status, [&] {
    auto made = by_core(compile_or_fail_later(view_of(request)));
    *programs = TpuProgram_NewArray(made.size());
    if (made[0]->failure) {
      fail_when_freed(*programs, status, *made[0]->failure);
    }
    for (auto& program : made) {
      (*programs)[(*count)++] = program.release();
    }
  });
}

XLA_TpuProgram* TpuProgram_New() { return new XLA_TpuProgram; }

void TpuProgram_Free(XLA_TpuProgram* program) { delete program; }

XLA_TpuProgram** TpuProgram_NewArray(size_t count) {
  return new XLA_TpuProgram* [count] {};
}

void TpuProgram_FreeArray(XLA_TpuProgram* programs[]) {
  array_is_freed(programs);
  delete[] programs;
}

// Launches in flight keep what they need.
void TpuProgram_UnloadAndDestroy(XLA_TpuProgram* program, TF_Status* status) {
  answer(__func__, status, [&] {
    const std::unique_ptr<XLA_TpuProgram> last(program);
    if (last->program != nullptr) {
      last->program->unload();
    }
  });
}

int64_t TpuProgram_GetProgramSize(const XLA_TpuProgram* program) {
  int64_t size = 0;
  answer(__func__, nullptr, [&] {
    if (program->program != nullptr) {
      size = static_cast<int64_t>(program->program->compiled().artifact.size());
    }
  });
  return size;
}

bool TpuProgram_LogProgramMemorySummary(const XLA_TpuProgram* /*program*/) { return true; }

void TpuProgram_GetExecutableInfo(const XLA_TpuProgram* program, TpuSerializedProto* info,
                                  TF_Status* status) {
  answer(__func__, status, [&] { *info = new_message(program->lowered.executable_info); });
}

void TpuProgram_GetHostTransferInfo(const XLA_TpuProgram* /*program*/, TpuSerializedProto* info,
                                    TF_Status* status) {
  answer(__func__, status, [&] { *info = new_message({kNoTransfers, sizeof kNoTransfers}); });
}

void TpuProgram_GetHloMetadata(const XLA_TpuProgram* program, TpuSerializedProto* metadata,
                               TF_Status* status) {
  answer(__func__, status, [&] { *metadata = new_message(program->lowered.metadata); });
}

void TpuProgram_GetMayModifyVariables(const XLA_TpuProgram* program, bool* modifies) {
  *modifies = program->lowered.modifies_variables;
}

bool TpuProgram_HasSharding(const XLA_TpuProgram* /*program*/) { return false; }

XLA_TpuProgram* TpuProgram_GetTpuProgram(XLA_TpuProgram* program, TpuProgramShardingType type) {
  return type == kMain ? program : nullptr;
}

TpuProgramFingerprint TpuProgram_GetFingerprint(const XLA_TpuProgram* program) {
  return {program->fingerprint.data(), program->fingerprint.size()};
}

void TpuProgram_DestroyFingerprint(TpuProgramFingerprint /*fingerprint*/) {}  // of the program

void TpuExecutable_LoadProgramAndEnqueueToStream(
    TpuExecutable_LoadProgramAndEnqueueToStream_Params* params) {
  answer(__func__, params->status, [&] { launch(*params); });
}

// There is no memory for embeddings.
void TpuExecute_GetTpuEmbeddingMemoryAllocations(int /*device_ordinal*/,
                                                 SE_DeviceMemoryBase** memory, size_t* count,
                                                 TF_Status* /*status*/) {
  *memory = nullptr;
  *count = 0;
}

void TpuExecute_FreeTpuEmbeddingMemoryAllocations(int /*device_ordinal*/,
                                                  SE_DeviceMemoryBase* /*memory*/) {}

}  // extern "C"
