// Structs of the C interface between TensorFlow and its TPU library, as tensorflow-tpu 2.20 has
// them. Layouts and names are facts of the interface; tests/tensorflow/abi_test.py compares each
// field with the headers of an installed wheel. 2.19 has one other struct, which tests get with
// TPU_TF_INTERFACE_2_19; the library finds its fields by client_version.hpp. docs/tensorflow.md.
#pragma once

#include <cstddef>
#include <cstdint>

struct TSL_Status;  // ours: answer.hpp
using TF_Status = TSL_Status;

struct SE_Platform;
struct SE_StreamExecutor;
struct SE_Stream;
struct SE_Event;
struct SE_TpuTopology;
struct SE_TpuTopology_Core;
using SE_TpuTopology_Host = SE_TpuTopology_Core;
struct Tpu_Compiler;
struct SE_Executable;
struct SE_ExecutableSerializationHandle;
struct SE_OutsideCompilationParams;
struct XLA_TransferManager;
struct XLA_ComputationPlacer;
struct XLA_TpuMeshState;
struct XLA_TpuNodeContext;
struct XLA_TpuEmbeddingEngineState;
struct TF_Tensor;
struct XLA_TpuProgram;

struct FloatListRef {
  float* ptr;  // not owned
  int64_t size;
};

enum TpuCoreTypeEnum { kTensorCore, kEmbeddingV1, kEmbeddingV2 };
enum TpuVersionEnum { kUnknownTpuVersion, kTpuV2, kTpuV3, kTpuV4, kTpuV5 };

struct TpuRuntimeVersion {
  int version[3];
  const char* metadata;
  size_t metadata_size;
};

// Bytes of a message. Those in an answer are of `new char[]`, and belong to the caller.
struct TpuSerializedProto {
  const char* bytes;
  size_t size;
};

struct SE_PlatformId {
  void* id;
};
using SE_StatusCallback = TF_Status* (*)(void*);

struct SE_DeviceMemoryBase {
  void* opaque;
  uint64_t size;
  uint64_t payload;
};

struct SE_ScopedDeviceMemory {
  SE_DeviceMemoryBase wrapped;
  int device_ordinal;
};

struct SE_AllocatorStats {
  int64_t num_allocs;
  int64_t bytes_in_use;
  int64_t peak_bytes_in_use;
  int64_t largest_alloc_size;
  bool has_bytes_limit;
  int64_t bytes_limit;
  int64_t bytes_reserved;
  int64_t peak_bytes_reserved;
  bool has_bytes_reservable_limit;
  int64_t bytes_reservable_limit;
  int64_t largest_free_block_bytes;
};

using SE_AllocateFn = void (*)(void* ctx, int device_ordinal, uint64_t size, bool retry_on_failure,
                               int64_t memory_space, SE_ScopedDeviceMemory* result,
                               TF_Status* status);
using SE_DeallocateFn = void (*)(void* ctx, SE_DeviceMemoryBase* base, int device_ordinal,
                                 TF_Status* status);

struct SE_DeviceMemoryAllocator {
  SE_Platform* platform;
  void* ctx;
  SE_AllocateFn allocate;
  SE_DeallocateFn deallocate;
};

// Texts are of malloc(), and belong to the description.
struct SE_DeviceDescription {
  char* device_vendor;
  char* platform_version;
  char* driver_version;
  char* runtime_version;
  char* pci_bus_id;
  char* name;
  int64_t thread_dim_limit_x;
  int64_t thread_dim_limit_y;
  int64_t thread_dim_limit_z;
  int64_t block_dim_limit_x;
  int64_t block_dim_limit_y;
  int64_t block_dim_limit_z;
  int64_t threads_per_core_limit;
  int64_t threads_per_block_limit;
  int64_t threads_per_warp;
  int64_t registers_per_core_limit;
  int64_t registers_per_block_limit;
  int64_t device_address_bits;
  int64_t device_memory_size;
  int64_t memory_bandwidth;
  int64_t shared_memory_per_core;
  int64_t shared_memory_per_block;
  float clock_rate_ghz;
  int cuda_compute_capability_major;
  int cuda_compute_capability_minor;
  int numa_node;
  int core_count;
  bool ecc_enabled;
};

struct SE_ExecutableRunOptions {
  SE_DeviceMemoryAllocator allocator;
  int device_ordinal;
  SE_Stream* stream;
  SE_Stream* host_to_device_stream;
  TpuSerializedProto device_assignment;
  int rng_seed;
  int64_t run_id;
  int launch_id;
};

struct SE_MaybeOwningDeviceMemory {
  SE_DeviceMemoryBase memory;
  bool owned;
  int device_ordinal;  // if owned, as the allocator
  SE_DeviceMemoryAllocator allocator;
};

// Lists of at most six members lie in the struct, others are of `new[]`.
constexpr int64_t kTpuInlined = 6;

template <typename T>
struct TpuList {
  union {
    T* heap;
    T inlined[kTpuInlined];
  };
  int64_t size;
};
using IntList = TpuList<int>;
using Int64List = TpuList<int64_t>;
using BoolList = TpuList<bool>;

struct FloatListRef;
struct TpuEmbeddingEngineParameters;

struct XLA_Tile {
  Int64List dimensions;
};
using TileList = TpuList<XLA_Tile>;

struct XLA_Layout {
  Int64List minor_to_major;
#ifdef TPU_TF_INTERFACE_2_19
  IntList dim_level_types;
  IntList dim_unique;
  IntList dim_ordered;
#endif
  TileList tiles;
  int index_primitive_type;
  int pointer_primitive_type;
  int64_t element_size_in_bits;
  int64_t memory_space;
  int64_t dynamic_shape_metadata_prefix_bytes;
  int64_t tail_padding_alignment_in_elements;
};

struct XLA_Shape {
  int element_type;
  Int64List dimensions;
  BoolList dynamic_dimensions;
  XLA_Shape* tuple_shapes;
  int ntuple_shapes;
  bool has_layout;
  XLA_Layout layout;
};

// Buffers of all nodes of the shape, tuples in front of their members.
struct XLA_ShapedBuffer {
  XLA_Shape on_device_shape;
  int device_ordinal;
  SE_DeviceMemoryBase* bases;
  size_t count;
};

// Buffers of the arrays.
struct XLA_Literal {
  char** buffers;
  size_t* sizes;
  size_t count;
  XLA_Shape shape;
};

struct XLA_MaybeOwningDeviceMemoryShapeTree {
  XLA_Shape shape;
  SE_MaybeOwningDeviceMemory* buffers;
};

struct XLA_ShapeIndex {
  int64_t indices[8];
  int64_t count;
};

struct SE_ExecutionInput {
  XLA_MaybeOwningDeviceMemoryShapeTree shape_tree;
  XLA_ShapeIndex* unowned_indices;
  int unowned_indices_size;
  XLA_Shape dynamic_shape;
};

struct SE_ExecutionOutput {
  XLA_ShapedBuffer result;
  SE_MaybeOwningDeviceMemory* to_be_released;
  int to_be_released_size;
  XLA_ShapeIndex* aliased_indices;
  int aliased_indices_size;
};

struct XLA_ComputationLayout {
  int parameter_count;
  XLA_Shape* parameter_layouts;
  XLA_Shape result_layout;
};

struct XLA_HloModuleConfig {
  uint64_t seed;
  int32_t launch_id;
  int64_t replica_count;
  int64_t num_partitions;
  bool use_spmd_partitioning;
  bool use_auto_spmd_partitioning;
  Int64List auto_spmd_partitioning_mesh_shape;
  Int64List auto_spmd_partitioning_mesh_ids;
  TpuSerializedProto debug_options;
  bool has_static_device_assignment;
  TpuSerializedProto static_device_assignment;
  bool has_entry_computation_layout;
  XLA_ComputationLayout entry_computation_layout;
  BoolList allow_spmd_sharding_propagation_to_parameters;
  BoolList allow_spmd_sharding_propagation_to_output;
};

struct XLA_HloModule {
  TpuSerializedProto proto;
  XLA_HloModuleConfig module_config;
};

struct XLA_HloModuleGroup;
struct SE_StreamExecutorList;

using XLA_StatusCallbackFn = void (*)(void*, TF_Status*);
