// C interface of TensorFlow's TPU library: the ops of TPU_SYSTEM, compilation of replicated
// functions, and their launches. types.h.
#pragma once

#include <optional>

#include "abi/types.h"

struct TfTpu_OrdinalSelector;
struct TpuEmbedding_TensorBatchFixedState;

enum TpuProgramShardingType { kInvalid = 0, kMain, kSharding, kUnsharding };

struct TpuProgramFingerprint {
  const char* bytes;
  size_t size;
};
using TpuExecutableSerializedProto = TpuSerializedProto;
using CompilerMetadataSerializedProto = TpuSerializedProto;

struct XLA_DeviceAssignment {
  const char* bytes;
  size_t size;
};

struct CompilationCacheKeyProperty {
  const char* config_prefix;
  const char* shapes_prefix;
  const char* function_name;
  uint64_t mlir_module_fingerprint;
  const int32_t* device_ids;
  size_t device_ids_size;
  int32_t guaranteed_constants_size;
  uint64_t function_library_fingerprint;
  int32_t num_cores_per_replica;
  int32_t num_replicas;
  const XLA_TpuMeshState* mesh_state;
  uint64_t session_id;
  void* resource_mgr;
};

// Texts are of malloc(), and come back to TpuCompile_DestroyCompilationCacheKey.
struct CompilationCacheKeyResult {
  const char* key;
  const char* debug_string;
};

struct TpuPartitionedCall_Params {
  bool input_shape_opt;
  bool group_tensors_for_packing;
  int32_t minimum_input_tensors_packing;
  int32_t minimum_output_tensors_packing;
  bool enable_auto_xla_input_sharding;
  int32_t auto_xla_input_sharding_dim;
  bool enable_variable_deduplication;
};

// tf_rendezvous_c_api.h of TensorFlow: the rendezvous of a step, and how tensors go through it.
struct TF_RendezvousThunk {
  void* rendezvous;
  void* send_func;
  void* async_recv_func;
  void* start_abort_func;
};
struct SE_OutsideCompilationParams {
  char* device_name;
  char* rendezvous_key;  // of the operation that compiled the program, its frame and iteration
  TF_RendezvousThunk* rendezvous;
  TpuSerializedProto host_transfers;
};

struct TpuExecutable_LoadProgramAndEnqueueToStream_Params {
  int32_t struct_size;
  void* priv;
  const XLA_TpuProgram* program;
  SE_DeviceMemoryBase* arguments;
  size_t arguments_len;
  SE_DeviceMemoryBase* result;
  size_t cross_program_prefetch_addrs_len;
  SE_DeviceMemoryBase* cross_program_prefetch_addrs;
  size_t cross_program_prefetch_offsets_len;
  const uint32_t* cross_program_prefetch_offsets;
  int32_t rng_seed;
  XLA_DeviceAssignment* device_assignment;
  SE_Stream* stream;
  SE_OutsideCompilationParams* outside_compilation_params;
  TF_Status* status;
};

struct ConfigureDistributedTpuOp_DoWork_Params {
  int32_t struct_size;
  void* priv;
  size_t num_cores_per_host_size;
  const int32_t* num_cores_per_host;
  size_t server_address_size;
  const char* server_address;
  size_t* host_config_output_size;
  char** host_config_output;
  TF_Status* status;
};

struct WaitForDistributedTpuOp_DoWork_Params {
  int32_t struct_size;
  void* priv;
  size_t num_hosts;
  size_t num_cores_per_host;
  const int32_t** host_ordinal_to_global_core_id_map;
  void* tpu_mesh_common_state;
  size_t* tpu_topology_output_size;
  char** tpu_topology_output;
  TF_Status* status;
};

struct InitializeHostForDistributedTpuOp_DoWork_Params {
  int32_t struct_size;
  void* priv;
  size_t tpu_host_config_size;
  const char* tpu_host_config;
  bool enable_whole_mesh_compilations;
  bool is_master_worker;
  size_t* core_id_output_size;
  int32_t** core_id_output;
  TF_Status* status;
};

struct TpuConfigurationApi_CompilationCacheServerAddrFromConfig_Params {
  int32_t struct_size;
  void* priv;
  size_t tpu_host_config_size;
  const char* tpu_host_config;
  size_t* server_address_output_size;
  char** server_address_output;
  TF_Status* status;
};

struct TpuConfigurationApi_GetServerAddressAndPort_Params {
  int32_t struct_size;
  void* priv;
  size_t* server_address_output_size;
  char** server_address_output;
  int* port_output;
  TF_Status* status;
};

// The tables of TPUEmbedding. Texts that a function gives are of malloc().
struct TpuEmbeddingEngineParameters {
  FloatListRef** parameters[8];  // by array and table
  size_t num_tables;
};

struct TpuEmbeddingEngine_ExecutePartitioner_Params {
  int32_t struct_size;
  void* priv;
  TpuSerializedProto tpu_embedding_config;
  size_t* common_config_size;
  char** common_config;
  TF_Status* status;
};

struct TpuEmbeddingEngine_ConfigureMemory_Params {
  int32_t struct_size;
  void* priv;
  int num_inputs;
  size_t common_config_size;
  const char* common_config;
  size_t* memory_config_size;
  char** memory_config;
  TF_Status* status;
};

struct TpuEmbeddingEngine_CollateMemory_Params {
  int32_t struct_size;
  void* priv;
  size_t memory_configs_size;
  const TpuSerializedProto* memory_configs;
  size_t* merged_memory_config_size;
  char** merged_memory_config;
  TF_Status* status;
};

struct TpuEmbeddingEngine_ConfigureHost_Params {
  int32_t struct_size;
  void* priv;
  int num_inputs;
  size_t common_config_size;
  const char* common_config;
  size_t memory_config_size;
  const char* memory_config;
  TpuSerializedProto tpu_embedding_config;
  size_t* network_config_size;
  char** network_config;
  TF_Status* status;
};

struct TpuEmbeddingEngine_ConnectHosts_Params {
  int32_t struct_size;
  void* priv;
  size_t network_configs_size;
  const TpuSerializedProto* network_configs;
  TF_Status* status;
};

struct TpuEmbeddingEngine_Finalize_Params {
  int32_t struct_size;
  void* priv;
  const XLA_TpuMeshState* tpu_mesh_state;
  size_t common_config_size;
  const char* common_config;
  size_t memory_config_size;
  const char* memory_config;
  TF_Status* status;
};

struct TpuEmbeddingEngine_IsInitialized_Params {
  int32_t struct_size;
  void* priv;
  size_t config_string_size;
  const char* config_string;
  bool* is_tpu_embedding_initialized;
  TF_Status* status;
};

struct TpuEmbeddingEngine_EnqueueTensorBatch_Params {
  int32_t struct_size;
  void* priv;
  int32_t mode;  // of TPUEmbeddingConfiguration
  int32_t local_device_ordinal;
  TpuEmbedding_TensorBatchFixedState* fixed_state;
  TF_Tensor** sample_indices_tensors;
  size_t sample_indices_tensors_size;
  TF_Tensor** embedding_indices_tensors;
  size_t embedding_indices_tensors_size;
  TF_Tensor** aggregation_weights_tensors;
  size_t aggregation_weights_tensors_size;
  TF_Status* status;
};

struct TpuEmbedding_TensorBatchFixedState_Create_Params {
  int32_t struct_size;
  void* priv;
  size_t combiners_size;
  char** combiners;  // by table
  TF_Status* status;
};

struct TpuEmbeddingEngine_RecvActivationsComputation_Params {
  int32_t struct_size;
  void* priv;
  TpuSerializedProto tpu_embedding_config;
  TpuSerializedProto embedding_partitions;
  TpuSerializedProto hbm_buffers_config;
  TpuSerializedProto tpu_topology;
  XLA_Shape* deduplication_data_shape;
  TpuSerializedProto* op_sharding;
  TpuSerializedProto* xla_computation;
  TF_Status* status;
};

struct TpuEmbeddingEngine_RecvTPUEmbeddingDeduplicationDataComputation_Params {
  int32_t struct_size;
  void* priv;
  TpuSerializedProto tpu_embedding_config;
  TpuSerializedProto embedding_partitions;
  TpuSerializedProto hbm_buffers_config;
  TpuSerializedProto tpu_topology;
  TpuSerializedProto* op_sharding;
  TpuSerializedProto* xla_computation;
  TF_Status* status;
};

struct TpuEmbeddingEngine_SendTPUEmbeddingGradientsComputation_Params {
  int32_t struct_size;
  void* priv;
  int32_t num_inputs;
  TpuSerializedProto tpu_embedding_config;
  TpuSerializedProto embedding_partitions;
  TpuSerializedProto hbm_buffers_config;
  TpuSerializedProto tpu_topology;
  XLA_Shape* learning_rate_tuple_shape;
  XLA_Shape* deduplication_data_shape;
  XLA_Shape* gradient_tuple_shape;
  TpuSerializedProto* op_sharding;
  TpuSerializedProto* xla_computation;
  TF_Status* status;
};

#pragma GCC visibility push(default)
extern "C" {

void ConfigureDistributedTpuOp_DoWork(ConfigureDistributedTpuOp_DoWork_Params* params);
void WaitForDistributedTpuOp_DoWork(WaitForDistributedTpuOp_DoWork_Params* params);
void InitializeHostForDistributedTpuOp_DoWork(
    InitializeHostForDistributedTpuOp_DoWork_Params* params);
void SetGlobalTPUArrayOp_DoWork(size_t topology_size, const char* topology, TF_Status* status);
void DisconnectDistributedTpuChipsOp_DoWork(int32_t* chips, TF_Status* status);

void TpuConfigurationApi_FreeCharArray(char* output);
void TpuConfigurationApi_FreeInt32Array(int32_t* output);
bool TpuConfigurationApi_HasTPUPodState();
void TpuConfigurationApi_TpusPerHost(int32_t* tpus, TF_Status* status);
void TpuConfigurationApi_TpuMemoryLimit(int64_t* limit, TF_Status* status);
void TpuConfigurationApi_RemoteCompilationCacheSizeInBytes(int64_t* size);
void TpuConfigurationApi_CompilationCacheServerAddressFromConfig(
    TpuConfigurationApi_CompilationCacheServerAddrFromConfig_Params* params);
void TpuConfigurationApi_GetServerAddressAndPort(
    TpuConfigurationApi_GetServerAddressAndPort_Params* params);

XLA_TpuMeshState* TpuMeshState_Create();
void TpuMeshState_Free(XLA_TpuMeshState* state);
void* TpuMeshState_MeshCommonState(XLA_TpuMeshState* state);
XLA_TpuEmbeddingEngineState* TpuEmbeddingEngineState_Create();
void TpuEmbeddingEngineState_Free(XLA_TpuEmbeddingEngineState* state);
void* TpuEmbeddingEngineState_GetState(XLA_TpuEmbeddingEngineState* state);

void TpuEmbeddingEngine_ExecutePartitioner(TpuEmbeddingEngine_ExecutePartitioner_Params* params);
void TpuEmbeddingEngine_ConfigureMemory(TpuEmbeddingEngine_ConfigureMemory_Params* params);
void TpuEmbeddingEngine_CollateMemory(TpuEmbeddingEngine_CollateMemory_Params* params);
void TpuEmbeddingEngine_ConfigureHost(TpuEmbeddingEngine_ConfigureHost_Params* params);
void TpuEmbeddingEngine_ConnectHosts(TpuEmbeddingEngine_ConnectHosts_Params* params);
void TpuEmbeddingEngine_Finalize(TpuEmbeddingEngine_Finalize_Params* params);
void TpuEmbeddingEngine_IsInitialized(TpuEmbeddingEngine_IsInitialized_Params* params);
void TpuEmbeddingEngine_WriteParameters(TpuEmbeddingEngineParameters* params, TF_Status* status);
void TpuEmbeddingEngine_ReadParameters(TpuEmbeddingEngineParameters* params, TF_Status* status);
void TpuEmbeddingEngine_EnqueueTensorBatch(TpuEmbeddingEngine_EnqueueTensorBatch_Params* params);
TpuEmbedding_TensorBatchFixedState* TpuEmbeddingTensorBatchFixedState_Create(
    TpuEmbedding_TensorBatchFixedState_Create_Params* params);
void TpuEmbeddingTensorBatchFixedState_Destroy(TpuEmbedding_TensorBatchFixedState* state);
void TpuEmbeddingEngine_RecvActivationsComputation(
    TpuEmbeddingEngine_RecvActivationsComputation_Params* params);
void TpuEmbeddingEngine_RecvTPUEmbeddingDeduplicationDataComputation(
    TpuEmbeddingEngine_RecvTPUEmbeddingDeduplicationDataComputation_Params* params);
void TpuEmbeddingEngine_SendTPUEmbeddingGradientsComputation(
    TpuEmbeddingEngine_SendTPUEmbeddingGradientsComputation_Params* params);

XLA_TpuNodeContext* TpuNodeContext_Create(int device_ordinal, TF_Status* status);
void TpuNodeContext_Free(XLA_TpuNodeContext* context);
void TpuNodeContext_Initialize(int device_ordinal, TF_Status* status);
void TpuNodeContext_CloseTpuHost(TF_Status* status);
bool TpuNodeContext_CompactionSupported(int device_ordinal);

int TpuTopology_AvailableCoreCount(const XLA_TpuMeshState* state, TpuCoreTypeEnum type);
int TpuTopology_AvailableCoresPerChip(TpuCoreTypeEnum type);
const SE_TpuTopology* TpuUtil_GetTopologyPtr();
size_t TpuUtil_GetXlaPadSizeFromTpuTopology();
void TpuNetUtil_RecycleUnusedPort(int port);
void TfTpu_InitializeTpuModelServer();
void TfTpu_GetTpuPartitionedCallParams(TpuPartitionedCall_Params* params);

void TfTpuOrdinalSelector_Create(TfTpu_OrdinalSelector** selector, int num_cores_per_replica);
void TfTpuOrdinalSelector_Destroy(TfTpu_OrdinalSelector* selector);
void TfTpuOrdinalSelector_GetOrdinal(TfTpu_OrdinalSelector* selector, std::optional<uint64_t> key,
                                     int64_t* request, int64_t* ordinal);
void TfTpuOrdinalSelector_DequeueFromCoreSelector(TfTpu_OrdinalSelector* selector,
                                                  int32_t device_ordinal, int64_t request);

bool TpuCompile_IsTpuCompilationEnabled();
bool TpuCompile_ShouldTpuCompileOpIgnoreCancellation();
CompilationCacheKeyResult TpuCompile_CreateCompilationCacheKey(
    CompilationCacheKeyProperty property);
void TpuCompile_DestroyCompilationCacheKey(CompilationCacheKeyResult result);
uint64_t TpuCompile_CreateGuaranteedConstFingerprint(uint64_t fingerprint, const char* data,
                                                     size_t size);
void TpuCompile_CompileAndBuild(TpuSerializedProto request, const XLA_TpuMeshState* state,
                                XLA_TpuProgram** programs[], size_t* count, TF_Status* status);

XLA_TpuProgram* TpuProgram_New();
void TpuProgram_Free(XLA_TpuProgram* program);
XLA_TpuProgram** TpuProgram_NewArray(size_t count);
void TpuProgram_FreeArray(XLA_TpuProgram* programs[]);
void TpuProgram_UnloadAndDestroy(XLA_TpuProgram* program, TF_Status* status);
int64_t TpuProgram_GetProgramSize(const XLA_TpuProgram* program);
bool TpuProgram_LogProgramMemorySummary(const XLA_TpuProgram* program);
void TpuProgram_GetExecutableInfo(const XLA_TpuProgram* program, TpuSerializedProto* info,
                                  TF_Status* status);
void TpuProgram_GetHostTransferInfo(const XLA_TpuProgram* program, TpuSerializedProto* info,
                                    TF_Status* status);
void TpuProgram_GetHloMetadata(const XLA_TpuProgram* program, TpuSerializedProto* metadata,
                               TF_Status* status);
void TpuProgram_GetMayModifyVariables(const XLA_TpuProgram* program, bool* modifies);
bool TpuProgram_HasSharding(const XLA_TpuProgram* program);
XLA_TpuProgram* TpuProgram_GetTpuProgram(XLA_TpuProgram* program, TpuProgramShardingType type);
TpuProgramFingerprint TpuProgram_GetFingerprint(const XLA_TpuProgram* program);
void TpuProgram_DestroyFingerprint(TpuProgramFingerprint fingerprint);

void TpuExecutable_LoadProgramAndEnqueueToStream(
    TpuExecutable_LoadProgramAndEnqueueToStream_Params* params);
void TpuExecute_GetTpuEmbeddingMemoryAllocations(int device_ordinal, SE_DeviceMemoryBase** memory,
                                                 size_t* count, TF_Status* status);
void TpuExecute_FreeTpuEmbeddingMemoryAllocations(int device_ordinal, SE_DeviceMemoryBase* memory);

}  // extern "C"
#pragma GCC visibility pop
