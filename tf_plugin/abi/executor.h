// C interface of TensorFlow's TPU library: platform, executors, streams, transfers, topology and
// the compiler of single operations. types.h.
#pragma once

#include "abi/types.h"

#pragma GCC visibility push(default)
extern "C" {

void TfTpu_Initialize(bool init_library, int num_args, const char** args);

TF_Status* TpuStatus_New();
TF_Status* TpuStatus_Create(int32_t code, const char* message);
void TpuStatus_Set(TF_Status* status, int32_t code, const char* message, int32_t length);
void TpuStatus_Free(TF_Status* status);
const char* TpuStatus_Message(TF_Status* status);
int TpuStatus_Code(TF_Status* status);
bool TpuStatus_Ok(TF_Status* status);

SE_Platform* TpuPlatform_New();
void TpuPlatform_Free(SE_Platform* platform);
void TpuPlatform_Initialize(SE_Platform* platform, TF_Status* status);
bool TpuPlatform_Initialized(SE_Platform* platform);
SE_StreamExecutor* TpuPlatform_GetExecutor(SE_Platform* platform, int ordinal, TF_Status* status);
SE_PlatformId TpuPlatform_Id(SE_Platform* platform);
int64_t TpuPlatform_VisibleDeviceCount(SE_Platform* platform);
bool TpuPlatform_ShouldRegisterTpuDeviceToDeviceCopy(SE_Platform* platform);
const SE_TpuTopology* TpuPlatform_GetTopologyPtr(SE_Platform* platform);
SE_TpuTopology_Host* TpuPlatform_GetHostLocation(SE_Platform* platform);
TpuRuntimeVersion TpuPlatform_GetRuntimeVersion(SE_Platform* platform);

void TpuExecutor_Init(SE_StreamExecutor* executor, TF_Status* status);
void TpuExecutor_Free(SE_StreamExecutor* executor);
SE_DeviceMemoryBase TpuExecutor_Allocate(SE_StreamExecutor* executor, uint64_t size,
                                         int64_t memory_space);
void TpuExecutor_Deallocate(SE_StreamExecutor* executor, SE_DeviceMemoryBase* memory);
bool TpuExecutor_GetAllocatorStats(SE_StreamExecutor* executor, SE_AllocatorStats* stats);
bool TpuExecutor_DeviceMemoryUsage(SE_StreamExecutor* executor, int64_t* free, int64_t* total);
void TpuExecutor_DeallocateStream(SE_StreamExecutor* executor, SE_Stream* stream);
bool TpuExecutor_CreateStreamDependency(SE_StreamExecutor* executor, SE_Stream* dependent,
                                        SE_Stream* other);
void TpuExecutor_GetStatus(SE_StreamExecutor* executor, SE_Stream* stream, TF_Status* status);
SE_TpuTopology_Core* TpuExecutor_GetCoreLocation(SE_StreamExecutor* executor);
void TpuExecutor_AllocateEvent(SE_StreamExecutor* executor, SE_Event* event, TF_Status* status);
void TpuExecutor_RecordEvent(SE_StreamExecutor* executor, SE_Stream* stream, SE_Event* event,
                             TF_Status* status);
void TpuExecutor_WaitForEvent(SE_StreamExecutor* executor, SE_Stream* stream, SE_Event* event,
                              TF_Status* status);
void TpuExecutor_SynchronousMemcpyToHost(SE_StreamExecutor* executor, void* to,
                                         const SE_DeviceMemoryBase* from, uint64_t size,
                                         TF_Status* status);
void TpuExecutor_SynchronousMemcpyFromHost(SE_StreamExecutor* executor, SE_DeviceMemoryBase* to,
                                           const void* from, uint64_t size, TF_Status* status);
void TpuExecutor_MemcpyToHost(SE_StreamExecutor* executor, SE_Stream* stream, void* to,
                              const SE_DeviceMemoryBase* from, uint64_t size, TF_Status* status);
void TpuExecutor_MemcpyFromHost(SE_StreamExecutor* executor, SE_Stream* stream,
                                SE_DeviceMemoryBase* to, const void* from, uint64_t size,
                                TF_Status* status);
void TpuExecutor_BlockHostUntilDone(SE_StreamExecutor* executor, SE_Stream* stream,
                                    TF_Status* status);
bool TpuExecutor_SynchronizeAllActivity(SE_StreamExecutor* executor);
void TpuExecutor_UnloadAllPrograms(SE_StreamExecutor* executor, TF_Status* status);
void TpuExecutor_CreateDeviceDescription(SE_StreamExecutor* executor,
                                         SE_DeviceDescription* description, TF_Status* status);
bool TpuExecutor_HostCallback(SE_StreamExecutor* executor, SE_Stream* stream,
                              SE_StatusCallback callback, void* context);

SE_Stream* TpuStream_New(SE_StreamExecutor* parent);
void TpuStream_Free(SE_Stream* stream);
void* TpuStream_Stream(SE_Stream* stream);
bool TpuStream_Status(SE_Stream* stream);
bool TpuStream_IsSameSharedMemoryLocation(SE_Stream* one, SE_Stream* other);
void TpuStream_EnqueueTransferHostToDevice(SE_Stream* stream, SE_DeviceMemoryBase to, void* from,
                                           uint64_t size, TF_Status* status);
void TpuStream_EnqueueTransferDeviceToHost(SE_Stream* stream, SE_DeviceMemoryBase from, void* to,
                                           uint64_t size, TF_Status* status);
void TpuStream_TpuEnqueueOnDeviceSendRecvLocal(SE_Stream* stream, SE_DeviceMemoryBase from,
                                               SE_DeviceMemoryBase to, TF_Status* status);
SE_Event* TpuEvent_New(SE_StreamExecutor* parent);
void TpuEvent_Free(SE_Event* event);

SE_DeviceDescription* TpuDeviceDescription_New();
void TpuDeviceDescription_Free(SE_DeviceDescription* description);

XLA_TransferManager* TpuTransferManager_New();
void TpuTransferManager_Free(XLA_TransferManager* manager);
SE_PlatformId TpuTransferManager_PlatformId(XLA_TransferManager* manager);
void TpuTransferManager_HostShapeToDeviceShape(XLA_TransferManager* manager, XLA_Shape* host,
                                               XLA_Shape* device);
void TpuTransferManager_TransferLiteralToDeviceAsync(XLA_TransferManager* manager,
                                                     SE_Stream* stream, XLA_Literal* literal,
                                                     XLA_ShapedBuffer* buffer, TF_Status* status);
void TpuTransferManager_TransferLiteralFromDevice(XLA_TransferManager* manager, SE_Stream* stream,
                                                  XLA_ShapedBuffer* buffer, XLA_Literal* literal,
                                                  XLA_StatusCallbackFn callback, void* context);
int64_t TpuTransferManager_GetByteSizeRequirement(XLA_TransferManager* manager, XLA_Shape* shape);
void TpuTransferManager_ChooseCompactLayoutForShape(XLA_TransferManager* manager, XLA_Shape* host,
                                                    XLA_Shape* chosen, TF_Status* status);
bool TpuTransferManager_CanShapedBufferBeAccessedNow(XLA_TransferManager* manager,
                                                     SE_StreamExecutor* executor,
                                                     XLA_ShapedBuffer* buffer);
bool TpuTransferManager_CanBufferBeAccessedNow(XLA_TransferManager* manager,
                                               SE_StreamExecutor* executor,
                                               SE_DeviceMemoryBase* buffer);
void TpuTransferManager_WriteSingleTupleIndexTable(XLA_TransferManager* manager, SE_Stream* stream,
                                                   SE_DeviceMemoryBase* members, size_t count,
                                                   XLA_Shape* shape, SE_DeviceMemoryBase* table,
                                                   TF_Status* status);
void TpuTransferManager_ReadDynamicShapes(SE_Stream* stream, XLA_ShapedBuffer* buffer,
                                          const XLA_Shape* original, XLA_Shape* updated,
                                          TF_Status* status);
void TpuTransferManager_GetInfeedLayout(XLA_Shape* shape, XLA_Shape* infeed_shape);
void TpuTransferManager_TransferLiteralToInfeed(XLA_TransferManager* manager,
                                                SE_StreamExecutor* executor, XLA_Literal* literal,
                                                TF_Status* status);
void TpuTransferManager_TransferBuffersToInfeed(XLA_TransferManager* manager,
                                                SE_StreamExecutor* executor, uint32_t** buffers,
                                                int64_t* words, int64_t count, TF_Status* status);
void TpuTransferManager_LinearizeToBuffers(XLA_TransferManager* manager, XLA_Literal* literal,
                                           XLA_Shape* device_shape, char*** buffers,
                                           int64_t** sizes, int64_t* count, TF_Status* status);
void TpuTransferManager_FreeBuffers(char** buffers, int64_t* sizes, int64_t count);
void TpuTransferManager_TransferLiteralFromOutfeed(XLA_TransferManager* manager,
                                                   SE_StreamExecutor* executor, XLA_Shape* shape,
                                                   XLA_Literal* literal, TF_Status* status);
void TpuTransferManager_ResetDevices(XLA_TransferManager* manager, SE_StreamExecutor** executors,
                                     int64_t count, TF_Status* status);

XLA_ComputationPlacer* TpuComputationPlacer_New();
void TpuComputationPlacer_Free(XLA_ComputationPlacer* placer);
void TpuComputationPlacer_AssignDevices(XLA_ComputationPlacer* placer, int replicas,
                                        int computations, int* assignment, TF_Status* status);
void TpuComputationPlacer_AssignLocalDevices(SE_TpuTopology_Host* host, int replicas,
                                             int computations, int* assignment, TF_Status* status);

int TpuTopology_LogicalDevicesPerHost(const SE_TpuTopology* topology, TpuCoreTypeEnum type);
int TpuTopology_LogicalDevicesPerChip(const SE_TpuTopology* topology, TpuCoreTypeEnum type);
int TpuTopology_HostCount(const SE_TpuTopology* topology);
int TpuTopology_ChipsPerHost(const SE_TpuTopology* topology);
int TpuTopology_ChipBounds_X(const SE_TpuTopology* topology);
int TpuTopology_ChipBounds_Y(const SE_TpuTopology* topology);
int TpuTopology_ChipBounds_Z(const SE_TpuTopology* topology);
bool TpuTopology_HasChip(const SE_TpuTopology* topology, int x, int y, int z);
SE_TpuTopology_Core* TpuTopology_CoreForId(const SE_TpuTopology* topology, TpuCoreTypeEnum type,
                                           int id);
SE_TpuTopology_Core* TpuTopology_Core(const SE_TpuTopology* topology, TpuCoreTypeEnum type, int x,
                                      int y, int z, int index);
int TpuTopology_NumCores(const SE_TpuTopology* topology, TpuCoreTypeEnum type);
void TpuTopology_Cores(const SE_TpuTopology* topology, TpuCoreTypeEnum type,
                       SE_TpuTopology_Core** to);
int TpuTopology_IdForHost(const SE_TpuTopology* topology, int x, int y, int z);
TpuVersionEnum TpuTopology_Version(const SE_TpuTopology* topology);
void TpuCoreLocation_ChipCoordinates(SE_TpuTopology_Core* core, int* x, int* y, int* z);
void TpuCoreLocation_HostCoordinates(SE_TpuTopology_Core* core, int* x, int* y, int* z);
int TpuCoreLocation_Index(SE_TpuTopology_Core* core);
int TpuCoreLocation_Id(SE_TpuTopology_Core* core);
int TpuHostLocation_Id(SE_TpuTopology_Host* host);
int TpuHostLocation_NumCores(SE_TpuTopology_Host* host, TpuCoreTypeEnum type);
void TpuHostLocation_Cores(SE_TpuTopology_Host* host, TpuCoreTypeEnum type,
                           SE_TpuTopology_Core** to);

void TpuAsyncCollectiveOffloadHelper_Init();
void TpuAsyncCollectiveOffloadHelper_Shutdown();

Tpu_Compiler* TpuCompiler_New();
void TpuCompiler_Free(Tpu_Compiler* compiler);
void TpuCompiler_RunHloPasses(Tpu_Compiler* compiler, XLA_HloModule* module,
                              SE_StreamExecutor* executor, SE_DeviceMemoryAllocator* allocator,
                              XLA_HloModule* result, TF_Status* status);
void TpuCompiler_RunBackend(Tpu_Compiler* compiler, XLA_HloModule* module,
                            SE_StreamExecutor* executor, SE_DeviceMemoryAllocator* allocator,
                            SE_Executable** result, TF_Status* status);
int64_t TpuCompiler_ShapeSize(Tpu_Compiler* compiler, XLA_Shape* shape);
void TpuCompiler_DefaultDeviceShapeRepresentation(Tpu_Compiler* compiler, XLA_Shape* host,
                                                  XLA_Shape* device);
void TpuExecutable_ExecuteAsyncOnStream(SE_Executable* executable, SE_ExecutableRunOptions* options,
                                        SE_ExecutionInput** arguments, int count,
                                        SE_ExecutionOutput* output, TF_Status* status);
void TpuExecutable_FreeXlaShapeIndexArray(XLA_ShapeIndex* array);
void TpuExecutable_FreeMaybeOwningDeviceMemoryArray(SE_MaybeOwningDeviceMemory* array);
void TpuExecutable_Fingerprint(SE_Executable* executable, const char** fingerprint, size_t* size);
void TpuExecutable_Free(SE_Executable* executable);

void XlaShapeToTpuShapeRepresentation(XLA_Shape* shape, int data_type, bool use_fast_memory,
                                      XLA_Shape* tpu_shape, TF_Status* status);
void XlaShapeToTpuPaddedShape(XLA_Shape* shape, XLA_Shape* padded_shape, TF_Status* status);
void HardwareLayout_HostShapeToDeviceShape(XLA_Shape* host, XLA_Shape* device);
int64_t HardwareLayout_ShapeSize(XLA_Shape* shape);
int64_t HardwareLayout_ShapeSizeCompact(XLA_Shape* shape);
int64_t HardwareLayout_ShapeSizeCompactRaw(XLA_Shape* shape);

}  // extern "C"
#pragma GCC visibility pop
