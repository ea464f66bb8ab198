// The PJRT C API, version 0.93, as far as this plugin speaks it: abi/*.h have the argument structs,
// here are the table of functions and the extensions Shardings and Layouts. Written from the layout
// of the interface, which is what a framework and a plugin agree on; tests/pjrt/abi_test.py
// compares every field, enumerator and slot with an independent table.
#pragma once

#include "abi/base.h"
#include "abi/buffer.h"
#include "abi/client.h"
#include "abi/custom_partitioner.h"
#include "abi/executable.h"
#include "abi/host_calls.h"
#include "abi/layouts.h"
#include "abi/transfer.h"

#define TPU_PJRT_API_MAJOR 0
#define TPU_PJRT_API_MINOR 93

// All slots in order. V: has no result; X: we have it; U: it answers UNIMPLEMENTED.
// clang-format off
#define TPU_PJRT_SLOTS(V, X, U) \
  V(PJRT_Error_Destroy) \
  V(PJRT_Error_Message) \
  X(PJRT_Error_GetCode) \
  X(PJRT_Plugin_Initialize) \
  X(PJRT_Plugin_Attributes) \
  X(PJRT_Event_Destroy) \
  X(PJRT_Event_IsReady) \
  X(PJRT_Event_Error) \
  X(PJRT_Event_Await) \
  X(PJRT_Event_OnReady) \
  X(PJRT_Client_Create) \
  X(PJRT_Client_Destroy) \
  X(PJRT_Client_PlatformName) \
  X(PJRT_Client_ProcessIndex) \
  X(PJRT_Client_PlatformVersion) \
  X(PJRT_Client_Devices) \
  X(PJRT_Client_AddressableDevices) \
  X(PJRT_Client_LookupDevice) \
  X(PJRT_Client_LookupAddressableDevice) \
  X(PJRT_Client_AddressableMemories) \
  X(PJRT_Client_Compile) \
  X(PJRT_Client_DefaultDeviceAssignment) \
  X(PJRT_Client_BufferFromHostBuffer) \
  X(PJRT_DeviceDescription_Id) \
  X(PJRT_DeviceDescription_ProcessIndex) \
  X(PJRT_DeviceDescription_Attributes) \
  X(PJRT_DeviceDescription_Kind) \
  X(PJRT_DeviceDescription_DebugString) \
  X(PJRT_DeviceDescription_ToString) \
  X(PJRT_Device_GetDescription) \
  X(PJRT_Device_IsAddressable) \
  X(PJRT_Device_LocalHardwareId) \
  X(PJRT_Device_AddressableMemories) \
  X(PJRT_Device_DefaultMemory) \
  X(PJRT_Device_MemoryStats) \
  X(PJRT_Memory_Id) \
  X(PJRT_Memory_Kind) \
  X(PJRT_Memory_DebugString) \
  X(PJRT_Memory_ToString) \
  X(PJRT_Memory_AddressableByDevices) \
  X(PJRT_Executable_Destroy) \
  X(PJRT_Executable_Name) \
  X(PJRT_Executable_NumReplicas) \
  X(PJRT_Executable_NumPartitions) \
  X(PJRT_Executable_NumOutputs) \
  X(PJRT_Executable_SizeOfGeneratedCodeInBytes) \
  X(PJRT_Executable_GetCostAnalysis) \
  X(PJRT_Executable_OutputMemoryKinds) \
  X(PJRT_Executable_OptimizedProgram) \
  X(PJRT_Executable_Serialize) \
  X(PJRT_LoadedExecutable_Destroy) \
  X(PJRT_LoadedExecutable_GetExecutable) \
  X(PJRT_LoadedExecutable_AddressableDevices) \
  X(PJRT_LoadedExecutable_Delete) \
  X(PJRT_LoadedExecutable_IsDeleted) \
  X(PJRT_LoadedExecutable_Execute) \
  X(PJRT_Executable_DeserializeAndLoad) \
  X(PJRT_LoadedExecutable_Fingerprint) \
  X(PJRT_Buffer_Destroy) \
  X(PJRT_Buffer_ElementType) \
  X(PJRT_Buffer_Dimensions) \
  X(PJRT_Buffer_UnpaddedDimensions) \
  X(PJRT_Buffer_DynamicDimensionIndices) \
  X(PJRT_Buffer_GetMemoryLayout) \
  X(PJRT_Buffer_OnDeviceSizeInBytes) \
  X(PJRT_Buffer_Device) \
  X(PJRT_Buffer_Memory) \
  X(PJRT_Buffer_Delete) \
  X(PJRT_Buffer_IsDeleted) \
  X(PJRT_Buffer_CopyToDevice) \
  X(PJRT_Buffer_ToHostBuffer) \
  X(PJRT_Buffer_IsOnCpu) \
  X(PJRT_Buffer_ReadyEvent) \
  X(PJRT_Buffer_UnsafePointer) \
  X(PJRT_Buffer_IncreaseExternalReferenceCount) \
  X(PJRT_Buffer_DecreaseExternalReferenceCount) \
  X(PJRT_Buffer_OpaqueDeviceMemoryDataPointer) \
  X(PJRT_CopyToDeviceStream_Destroy) \
  X(PJRT_CopyToDeviceStream_AddChunk) \
  X(PJRT_CopyToDeviceStream_TotalBytes) \
  X(PJRT_CopyToDeviceStream_GranuleSize) \
  X(PJRT_CopyToDeviceStream_CurrentBytes) \
  X(PJRT_TopologyDescription_Create) \
  X(PJRT_TopologyDescription_Destroy) \
  X(PJRT_TopologyDescription_PlatformName) \
  X(PJRT_TopologyDescription_PlatformVersion) \
  X(PJRT_TopologyDescription_GetDeviceDescriptions) \
  X(PJRT_TopologyDescription_Serialize) \
  X(PJRT_TopologyDescription_Attributes) \
  X(PJRT_Compile) \
  X(PJRT_Executable_OutputElementTypes) \
  X(PJRT_Executable_OutputDimensions) \
  X(PJRT_Buffer_CopyToMemory) \
  U(PJRT_Client_CreateViewOfDeviceBuffer) \
  X(PJRT_Executable_Fingerprint) \
  X(PJRT_Client_TopologyDescription) \
  X(PJRT_Executable_GetCompiledMemoryStats) \
  X(PJRT_Memory_Kind_Id) \
  X(PJRT_ExecuteContext_Create) \
  X(PJRT_ExecuteContext_Destroy) \
  X(PJRT_Buffer_CopyRawToHost) \
  X(PJRT_AsyncHostToDeviceTransferManager_Destroy) \
  X(PJRT_AsyncHostToDeviceTransferManager_TransferData) \
  X(PJRT_Client_CreateBuffersForAsyncHostToDevice) \
  X(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer) \
  X(PJRT_AsyncHostToDeviceTransferManager_Device) \
  X(PJRT_AsyncHostToDeviceTransferManager_BufferCount) \
  X(PJRT_AsyncHostToDeviceTransferManager_BufferSize) \
  X(PJRT_AsyncHostToDeviceTransferManager_SetBufferError) \
  X(PJRT_AsyncHostToDeviceTransferManager_AddMetadata) \
  U(PJRT_Client_DmaMap) \
  U(PJRT_Client_DmaUnmap) \
  X(PJRT_Client_CreateUninitializedBuffer) \
  X(PJRT_Client_UpdateGlobalProcessInfo) \
  X(PJRT_TopologyDescription_Deserialize) \
  U(PJRT_Client_CreateAliasBuffer) \
  U(PJRT_Client_FulfillAliasBuffer) \
  X(PJRT_LoadedExecutable_GetDeviceAssignment) \
  X(PJRT_Client_CreateErrorBuffer) \
  X(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral) \
  U(PJRT_Buffer_CopyRawToHostFuture) \
  U(PJRT_Device_PoisonExecution) \
  U(PJRT_Device_CreateAsyncTrackingEvent) \
  U(PJRT_AsyncTrackingEvent_Destroy) \
  X(PJRT_Executable_GetCompileOptions) \
  U(PJRT_Buffer_DonateWithControlDependency) \
  X(PJRT_Event_Create) \
  X(PJRT_Event_Set) \
  X(PJRT_Device_GetAttributes)
// clang-format on

struct PJRT_Api {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Api_Version pjrt_api_version;
#define TPU_PJRT_VOID(name) void (*name)(name##_Args*);
#define TPU_PJRT_HAS(name) PJRT_Error* (*name)(name##_Args*);
#define TPU_PJRT_LACKS(name) PJRT_Error* (*name)(void*);
  TPU_PJRT_SLOTS(TPU_PJRT_VOID, TPU_PJRT_HAS, TPU_PJRT_LACKS)
#undef TPU_PJRT_VOID
#undef TPU_PJRT_HAS
#undef TPU_PJRT_LACKS
};

struct PJRT_Shardings_Extension {
  PJRT_Extension_Base base;
  PJRT_Error* (*PJRT_Shardings_PJRT_Executable_ParameterShardings)(
      PJRT_Shardings_PJRT_Executable_ParameterShardings_Args*);
  PJRT_Error* (*PJRT_Shardings_PJRT_Executable_OutputShardings)(
      PJRT_Shardings_PJRT_Executable_OutputShardings_Args*);
};

struct PJRT_Custom_Partitioner_Extension {
  PJRT_Extension_Base base;
  PJRT_Error* (*register_custom_partitioner)(PJRT_Register_Custom_Partitioner_Args*);
  PJRT_Error* (*register_batch_partitionable)(PJRT_Register_Batch_Partitionable_Args*);
};

// Functions of the extension Layouts, in order.
#define TPU_PJRT_LAYOUTS(F)                        \
  F(PJRT_Layouts_MemoryLayout_Destroy)             \
  F(PJRT_Layouts_MemoryLayout_Serialize)           \
  F(PJRT_Layouts_PJRT_Client_GetDefaultLayout)     \
  F(PJRT_Layouts_PJRT_Buffer_MemoryLayout)         \
  F(PJRT_Layouts_PJRT_Topology_GetDefaultLayout)   \
  F(PJRT_Layouts_PJRT_Executable_GetOutputLayouts) \
  F(PJRT_Layouts_PJRT_Executable_GetParameterLayouts)

struct PJRT_Layouts_Extension {
  PJRT_Extension_Base base;
#define TPU_PJRT_FUNCTION(name) PJRT_Error* (*name)(name##_Args*);
  TPU_PJRT_LAYOUTS(TPU_PJRT_FUNCTION)
#undef TPU_PJRT_FUNCTION
};
