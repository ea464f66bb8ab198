// PJRT C API, minor 0.93: buffers whose contents come later.
// Layouts and names are facts of the interface; tests/pjrt/abi_test.py compares every field with an
// independent table. See pjrt_abi.h.
#pragma once

#include "abi/base.h"
#include "abi/buffer.h"

struct PJRT_AsyncHostToDeviceTransferManager;

struct PJRT_ShapeSpec {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const int64_t* dims;
  size_t num_dims;
  PJRT_Buffer_Type element_type;
};
TPU_PJRT_STRUCT(PJRT_ShapeSpec, element_type);

struct PJRT_Client_CreateBuffersForAsyncHostToDevice_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  PJRT_ShapeSpec* shape_specs;
  size_t num_shape_specs;
  PJRT_Buffer_MemoryLayout** device_layouts;
  size_t num_device_layouts;
  PJRT_Memory* memory;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;
};
TPU_PJRT_STRUCT(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args, transfer_manager);

struct PJRT_AsyncHostToDeviceTransferManager_Destroy_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;
};
TPU_PJRT_STRUCT(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args, transfer_manager);

struct PJRT_AsyncHostToDeviceTransferManager_TransferData_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;
  int32_t buffer_index;
  const void* data;
  int64_t offset;
  int64_t transfer_size;
  bool is_last_transfer;
  PJRT_Event* done_with_h2d_transfer;
};
TPU_PJRT_STRUCT(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args, done_with_h2d_transfer);

struct PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;
  int32_t buffer_index;
  const void* data;
  const int64_t* shape_dims;
  size_t shape_num_dims;
  PJRT_Buffer_Type shape_element_type;
  PJRT_Buffer_MemoryLayout* shape_layout;
  PJRT_Event* done_with_h2d_transfer;
};
TPU_PJRT_STRUCT(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args, done_with_h2d_transfer);

struct PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;
  int32_t buffer_index;
  PJRT_Buffer* buffer_out;
};
TPU_PJRT_STRUCT(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args, buffer_out);

struct PJRT_AsyncHostToDeviceTransferManager_Device_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;
  PJRT_Device* device_out;
};
TPU_PJRT_STRUCT(PJRT_AsyncHostToDeviceTransferManager_Device_Args, device_out);

struct PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;
  size_t buffer_count;
};
TPU_PJRT_STRUCT(PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args, buffer_count);

struct PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;
  int32_t buffer_index;
  size_t buffer_size;
};
TPU_PJRT_STRUCT(PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args, buffer_size);

struct PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;
  int32_t buffer_index;
  PJRT_Error_Code error_code;
  const char* error_message;
  size_t error_message_size;
};
TPU_PJRT_STRUCT(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args, error_message_size);

struct PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;
  const PJRT_NamedValue* transfer_metadata;
  size_t num_metadata;
};
TPU_PJRT_STRUCT(PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args, num_metadata);

struct PJRT_Client_CreateErrorBuffer_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  PJRT_Error_Code error_code;
  const char* error_message;
  size_t error_message_size;
  const int64_t* shape_dims;
  size_t shape_num_dims;
  PJRT_Buffer_Type shape_element_type;
  PJRT_Buffer_MemoryLayout* shape_layout;
  PJRT_Memory* memory;
  PJRT_Buffer* buffer;
  void* payload;
  size_t num_payload;
};
TPU_PJRT_STRUCT(PJRT_Client_CreateErrorBuffer_Args, num_payload);
