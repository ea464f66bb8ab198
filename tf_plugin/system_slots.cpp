// The ops of TPU_SYSTEM (tf.tpu.experimental.initialize_tpu_system), and what belongs to a host.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "abi/executor.h"
#include "abi/ops.h"
#include "answer.hpp"
#include "embedding.hpp"
#include "errors.hpp"
#include "feed_queues.hpp"
#include "format/proto_writer.hpp"
#include "process_board.hpp"
#include "steps.hpp"
#include "system.hpp"

struct XLA_TpuMeshState {};
struct XLA_TpuEmbeddingEngineState {};
// While an operation of TensorFlow launches.
struct XLA_TpuNodeContext {
  tpu::tensorflow::Steps::Operation operation{tpu::tensorflow::Steps::get()};
};

// Gives out the cores in turn (TPUPartitionedCall).
struct TfTpu_OrdinalSelector {
  tpu::base::Mutex mutex;
  int64_t next TPU_GUARDED_BY(mutex) = 0;
  int64_t requests TPU_GUARDED_BY(mutex) = 0;
  int cores_per_replica = 1;
};

namespace tpu::tensorflow {
namespace {

std::atomic<bool> configured = false;

// Cores that wait for the others get an error.
void leave_all(const std::string& why) {
  std::vector<int> all;
  for (const SE_TpuTopology_Core& core : places().cores) {
    all.push_back(core.id);
  }
  Steps::get().fail_all();
  EmbeddingEngine::get().cancel(why);
  FeedQueues::get().cancel(why);
  System::get().runtime().leave(all, {driver::ErrorCode::kCancelled, why});
}

void give_bytes(const std::string& bytes, char** to, size_t* size) {
  *to = static_cast<char*>(std::malloc(bytes.size() + 1));
  std::memcpy(*to, bytes.c_str(), bytes.size() + 1);
  *size = bytes.size();
}

void put_packed(spec::ProtoWriter& to, uint32_t field, const std::vector<int>& numbers) {
  std::string packed;  // numbers below 128 take a byte
  for (const int number : numbers) {
    packed.push_back(static_cast<char>(number));
  }
  to.text(field, packed);
}

// TopologyProto (tensorflow/core/protobuf/tpu/topology.proto).
std::string topology_message() {
  enum : uint32_t {
    kMeshShape = 1,
    kTasks = 2,
    kDevicesPerTask = 3,
    kCoordinates = 4,
    kHardwareFeature = 5,
  };
  enum : uint32_t { kEmbeddingFeature = 1 };  // of TPUHardwareFeature
  constexpr uint64_t kV1 = 1;                 // tables that TPUEmbedding configures
  const Places& board = places();
  spec::ProtoWriter message;
  put_packed(message, kMeshShape, {board.chips_x, board.chips_y, 1, board.cores_per_chip});
  message.number(kTasks, 1);
  message.number(kDevicesPerTask, board.cores.size());
  std::vector<int> coordinates;
  for (const SE_TpuTopology_Core& core : board.cores) {
    coordinates.insert(coordinates.end(), {core.x, core.y, 0, core.index});
  }
  put_packed(message, kCoordinates, coordinates);
  message.message(kHardwareFeature, [&] { message.number(kEmbeddingFeature, kV1); });
  return message.take();
}

}  // namespace
}  // namespace tpu::tensorflow

using namespace tpu::tensorflow;  // NOLINT: the slots below are all of this file

extern "C" {

void ConfigureDistributedTpuOp_DoWork(ConfigureDistributedTpuOp_DoWork_Params* params) {
  answer(__func__, params->status, [&] {
    if (params->num_cores_per_host_size != 1) {
      tpu::pjrt::throw_unimplemented("a TPU system of " +
                                     std::to_string(params->num_cores_per_host_size) +
                                     " hosts: expected one host");
    }
    // What another program has left goes, and what this one has. TensorFlow warns of that.
    leave_all("the TPU system was initialized again");
    System::get().memory().forget();
    EmbeddingEngine::get().reset();
    FeedQueues::get().clear();
    Stream::forget_errors();  // of steps that TensorFlow has cancelled, which nobody asked for
    configured = true;
    give_bytes("tpuboard", params->host_config_output, params->host_config_output_size);
  });
}

void InitializeHostForDistributedTpuOp_DoWork(
    InitializeHostForDistributedTpuOp_DoWork_Params* params) {
  answer(__func__, params->status, [&] {
    const size_t count = places().cores.size();
    auto* const ids = static_cast<int32_t*>(std::malloc(count * sizeof(int32_t)));
    for (size_t i = 0; i < count; ++i) {
      ids[i] = static_cast<int32_t>(i);
    }
    *params->core_id_output = ids;
    *params->core_id_output_size = count;
  });
}

void WaitForDistributedTpuOp_DoWork(WaitForDistributedTpuOp_DoWork_Params* params) {
  answer(__func__, params->status, [&] {
    give_bytes(topology_message(), params->tpu_topology_output, params->tpu_topology_output_size);
  });
}

void SetGlobalTPUArrayOp_DoWork(size_t /*topology_size*/, const char* /*topology*/,
                                TF_Status* /*status*/) {}

void DisconnectDistributedTpuChipsOp_DoWork(int32_t* chips, TF_Status* status) {
  answer(__func__, status, [&] {
    *chips = places().chips;
    configured = false;
  });
}

void TpuConfigurationApi_FreeCharArray(char* output) { std::free(output); }

void TpuConfigurationApi_FreeInt32Array(int32_t* output) { std::free(output); }

bool TpuConfigurationApi_HasTPUPodState() { return configured; }

void TpuConfigurationApi_TpusPerHost(int32_t* tpus, TF_Status* status) {
  answer(__func__, status, [&] { *tpus = static_cast<int32_t>(places().cores.size()); });
}

void TpuConfigurationApi_TpuMemoryLimit(int64_t* limit, TF_Status* status) {
  answer(__func__, status,
         [&] { *limit = static_cast<int64_t>(System::get().runtime().device_info(0).hbm_bytes); });
}

// Of compiled programs that TensorFlow keeps.
void TpuConfigurationApi_RemoteCompilationCacheSizeInBytes(int64_t* size) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  *size = kGiB;
}

// The cache of compiled programs is in the process of the only host: no other one asks for it.
void TpuConfigurationApi_GetServerAddressAndPort(
    TpuConfigurationApi_GetServerAddressAndPort_Params* params) {
  answer(__func__, params->status, [&] {
    give_bytes("localhost", params->server_address_output, params->server_address_output_size);
    constexpr int kNoPort = 0;
    *params->port_output = kNoPort;
  });
}

void TpuConfigurationApi_CompilationCacheServerAddressFromConfig(
    TpuConfigurationApi_CompilationCacheServerAddrFromConfig_Params* params) {
  answer(__func__, params->status, [&] {
    give_bytes("localhost", params->server_address_output, params->server_address_output_size);
  });
}

XLA_TpuMeshState* TpuMeshState_Create() { return new XLA_TpuMeshState; }

void TpuMeshState_Free(XLA_TpuMeshState* state) { delete state; }

void* TpuMeshState_MeshCommonState(XLA_TpuMeshState* state) { return state; }

XLA_TpuEmbeddingEngineState* TpuEmbeddingEngineState_Create() {
  return new XLA_TpuEmbeddingEngineState;
}

void TpuEmbeddingEngineState_Free(XLA_TpuEmbeddingEngineState* state) { delete state; }

void* TpuEmbeddingEngineState_GetState(XLA_TpuEmbeddingEngineState* state) { return state; }

XLA_TpuNodeContext* TpuNodeContext_Create(int device_ordinal, TF_Status* status) {
  XLA_TpuNodeContext* context = nullptr;
  answer(__func__, status, [&] {
    System::get().executor(device_ordinal);
    context = new XLA_TpuNodeContext;
  });
  return context;
}

void TpuNodeContext_Free(XLA_TpuNodeContext* context) { delete context; }

void TpuNodeContext_Initialize(int device_ordinal, TF_Status* status) {
  answer(__func__, status, [&] { System::get().executor(device_ordinal); });
}

// TensorFlow cancels a step whose ops have failed.
void TpuNodeContext_CloseTpuHost(TF_Status* status) {
  answer(__func__, status, [] { leave_all("the step was cancelled"); });
}

bool TpuNodeContext_CompactionSupported(int /*device_ordinal*/) { return false; }

size_t TpuUtil_GetXlaPadSizeFromTpuTopology() { return 0; }

void TpuNetUtil_RecycleUnusedPort(int /*port*/) {}

void TfTpu_InitializeTpuModelServer() {}

void TfTpu_GetTpuPartitionedCallParams(TpuPartitionedCall_Params* params) { *params = {}; }

void TfTpuOrdinalSelector_Create(TfTpu_OrdinalSelector** selector, int num_cores_per_replica) {
  *selector = new TfTpu_OrdinalSelector;
  (*selector)->cores_per_replica = std::max(num_cores_per_replica, 1);
}

void TfTpuOrdinalSelector_Destroy(TfTpu_OrdinalSelector* selector) { delete selector; }

void TfTpuOrdinalSelector_GetOrdinal(TfTpu_OrdinalSelector* selector, std::optional<uint64_t> key,
                                     int64_t* request, int64_t* ordinal) {
  const auto cores = static_cast<int64_t>(places_or_none().cores.size());
  // A replica of more cores than there are is an error where its program is compiled.
  const int64_t replicas = std::max<int64_t>(cores / selector->cores_per_replica, 1);
  const tpu::base::MutexLock lock(selector->mutex);
  const int64_t replica = key ? static_cast<int64_t>(*key % static_cast<uint64_t>(replicas))
                              : selector->next++ % replicas;
  *request = selector->requests++;
  *ordinal = replica * selector->cores_per_replica;
}

void TfTpuOrdinalSelector_DequeueFromCoreSelector(TfTpu_OrdinalSelector* /*selector*/,
                                                  int32_t /*device_ordinal*/, int64_t /*request*/) {
}

void TpuAsyncCollectiveOffloadHelper_Init() {}

void TpuAsyncCollectiveOffloadHelper_Shutdown() {}

}  // extern "C"
