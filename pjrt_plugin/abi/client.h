// PJRT C API, minor 0.93: client, device, memory and topology functions.
// Layouts and names are facts of the interface; tests/pjrt/abi_test.py compares every field with an
// independent table. See pjrt_abi.h.
#pragma once

#include "abi/base.h"
#include "abi/key_value.h"

struct PJRT_Client_Create_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const PJRT_NamedValue* create_options;
  size_t num_options;
  PJRT_KeyValueGetCallback kv_get_callback;
  void* kv_get_user_arg;
  PJRT_KeyValuePutCallback kv_put_callback;
  void* kv_put_user_arg;
  PJRT_Client* client;
  PJRT_KeyValueTryGetCallback kv_try_get_callback;
  void* kv_try_get_user_arg;
};
TPU_PJRT_STRUCT(PJRT_Client_Create_Args, kv_try_get_user_arg);

struct PJRT_Client_Destroy_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
};
TPU_PJRT_STRUCT(PJRT_Client_Destroy_Args, client);

struct PJRT_Client_PlatformName_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  const char* platform_name;
  size_t platform_name_size;
};
TPU_PJRT_STRUCT(PJRT_Client_PlatformName_Args, platform_name_size);

struct PJRT_Client_ProcessIndex_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  int32_t process_index;
};
TPU_PJRT_STRUCT(PJRT_Client_ProcessIndex_Args, process_index);

enum PJRT_ProcessState {
  PJRT_ProcessState_kUnspecified = 0,
  PJRT_ProcessState_kUninitialized = 1,
  PJRT_ProcessState_kDisconnected = 2,
  PJRT_ProcessState_kConnected = 3,
  PJRT_ProcessState_kError = 4,
};

struct PJRT_ProcessInfo {
  size_t struct_size;
  int task_id;
  uint64_t incarnation_id;
  PJRT_ProcessState state;
  int error_code;
  const char* error_message;
  size_t error_message_size;
};
TPU_PJRT_STRUCT(PJRT_ProcessInfo, error_message_size);

struct PJRT_Client_UpdateGlobalProcessInfo_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  PJRT_ProcessInfo* process_infos;
  size_t num_process_infos;
};
TPU_PJRT_STRUCT(PJRT_Client_UpdateGlobalProcessInfo_Args, num_process_infos);

struct PJRT_Client_PlatformVersion_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  const char* platform_version;
  size_t platform_version_size;
};
TPU_PJRT_STRUCT(PJRT_Client_PlatformVersion_Args, platform_version_size);

struct PJRT_Client_Devices_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  PJRT_Device* const* devices;
  size_t num_devices;
};
TPU_PJRT_STRUCT(PJRT_Client_Devices_Args, num_devices);

struct PJRT_Client_AddressableDevices_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  PJRT_Device* const* addressable_devices;
  size_t num_addressable_devices;
};
TPU_PJRT_STRUCT(PJRT_Client_AddressableDevices_Args, num_addressable_devices);

struct PJRT_Client_LookupDevice_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  int32_t id;
  PJRT_Device* device;
};
TPU_PJRT_STRUCT(PJRT_Client_LookupDevice_Args, device);

struct PJRT_Client_LookupAddressableDevice_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  int32_t local_hardware_id;
  PJRT_Device* addressable_device;
};
TPU_PJRT_STRUCT(PJRT_Client_LookupAddressableDevice_Args, addressable_device);

struct PJRT_Client_AddressableMemories_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  PJRT_Memory* const* addressable_memories;
  size_t num_addressable_memories;
};
TPU_PJRT_STRUCT(PJRT_Client_AddressableMemories_Args, num_addressable_memories);

struct PJRT_Client_DefaultDeviceAssignment_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  int32_t num_replicas;
  int32_t num_partitions;
  size_t default_assignment_size;
  int* default_assignment;
};
TPU_PJRT_STRUCT(PJRT_Client_DefaultDeviceAssignment_Args, default_assignment);

struct PJRT_DeviceDescription_Id_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_DeviceDescription* device_description;
  int32_t id;
};
TPU_PJRT_STRUCT(PJRT_DeviceDescription_Id_Args, id);

struct PJRT_DeviceDescription_ProcessIndex_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_DeviceDescription* device_description;
  int32_t process_index;
};
TPU_PJRT_STRUCT(PJRT_DeviceDescription_ProcessIndex_Args, process_index);

struct PJRT_DeviceDescription_Attributes_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_DeviceDescription* device_description;
  size_t num_attributes;
  const PJRT_NamedValue* attributes;
};
TPU_PJRT_STRUCT(PJRT_DeviceDescription_Attributes_Args, attributes);

struct PJRT_Device_GetAttributes_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;
  const PJRT_NamedValue* attributes;
  size_t num_attributes;
  PJRT_Device_Attributes* device_attributes;
  void (*attributes_deleter)(PJRT_Device_Attributes*);
};
TPU_PJRT_STRUCT(PJRT_Device_GetAttributes_Args, attributes_deleter);

struct PJRT_DeviceDescription_Kind_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_DeviceDescription* device_description;
  const char* device_kind;
  size_t device_kind_size;
};
TPU_PJRT_STRUCT(PJRT_DeviceDescription_Kind_Args, device_kind_size);

struct PJRT_DeviceDescription_DebugString_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_DeviceDescription* device_description;
  const char* debug_string;
  size_t debug_string_size;
};
TPU_PJRT_STRUCT(PJRT_DeviceDescription_DebugString_Args, debug_string_size);

struct PJRT_DeviceDescription_ToString_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_DeviceDescription* device_description;
  const char* to_string;
  size_t to_string_size;
};
TPU_PJRT_STRUCT(PJRT_DeviceDescription_ToString_Args, to_string_size);

struct PJRT_Device_GetDescription_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;
  PJRT_DeviceDescription* device_description;
};
TPU_PJRT_STRUCT(PJRT_Device_GetDescription_Args, device_description);

struct PJRT_Device_IsAddressable_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;
  bool is_addressable;
};
TPU_PJRT_STRUCT(PJRT_Device_IsAddressable_Args, is_addressable);

struct PJRT_Device_LocalHardwareId_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;
  int32_t local_hardware_id;
};
TPU_PJRT_STRUCT(PJRT_Device_LocalHardwareId_Args, local_hardware_id);

struct PJRT_Device_AddressableMemories_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;
  PJRT_Memory* const* memories;
  size_t num_memories;
};
TPU_PJRT_STRUCT(PJRT_Device_AddressableMemories_Args, num_memories);

struct PJRT_Device_DefaultMemory_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;
  PJRT_Memory* memory;
};
TPU_PJRT_STRUCT(PJRT_Device_DefaultMemory_Args, memory);

struct PJRT_Device_MemoryStats_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;
  int64_t bytes_in_use;
  int64_t peak_bytes_in_use;
  bool peak_bytes_in_use_is_set;
  int64_t num_allocs;
  bool num_allocs_is_set;
  int64_t largest_alloc_size;
  bool largest_alloc_size_is_set;
  int64_t bytes_limit;
  bool bytes_limit_is_set;
  int64_t bytes_reserved;
  bool bytes_reserved_is_set;
  int64_t peak_bytes_reserved;
  bool peak_bytes_reserved_is_set;
  int64_t bytes_reservable_limit;
  bool bytes_reservable_limit_is_set;
  int64_t largest_free_block_bytes;
  bool largest_free_block_bytes_is_set;
  int64_t pool_bytes;
  bool pool_bytes_is_set;
  int64_t peak_pool_bytes;
  bool peak_pool_bytes_is_set;
  int64_t peak_allocated_bytes;
  bool peak_allocated_bytes_is_set;
};
TPU_PJRT_STRUCT(PJRT_Device_MemoryStats_Args, peak_allocated_bytes_is_set);

struct PJRT_Memory_Id_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Memory* memory;
  int32_t id;
};
TPU_PJRT_STRUCT(PJRT_Memory_Id_Args, id);

struct PJRT_Memory_Kind_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Memory* memory;
  const char* kind;
  size_t kind_size;
};
TPU_PJRT_STRUCT(PJRT_Memory_Kind_Args, kind_size);

struct PJRT_Memory_DebugString_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Memory* memory;
  const char* debug_string;
  size_t debug_string_size;
};
TPU_PJRT_STRUCT(PJRT_Memory_DebugString_Args, debug_string_size);

struct PJRT_Memory_ToString_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Memory* memory;
  const char* to_string;
  size_t to_string_size;
};
TPU_PJRT_STRUCT(PJRT_Memory_ToString_Args, to_string_size);

struct PJRT_Memory_AddressableByDevices_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Memory* memory;
  PJRT_Device* const* devices;
  size_t num_devices;
};
TPU_PJRT_STRUCT(PJRT_Memory_AddressableByDevices_Args, num_devices);

struct PJRT_TopologyDescription_Create_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const char* topology_name;
  size_t topology_name_size;
  const PJRT_NamedValue* create_options;
  size_t num_options;
  PJRT_TopologyDescription* topology;
};
TPU_PJRT_STRUCT(PJRT_TopologyDescription_Create_Args, topology);

struct PJRT_TopologyDescription_Destroy_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_TopologyDescription* topology;
};
TPU_PJRT_STRUCT(PJRT_TopologyDescription_Destroy_Args, topology);

struct PJRT_TopologyDescription_PlatformName_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_TopologyDescription* topology;
  const char* platform_name;
  size_t platform_name_size;
};
TPU_PJRT_STRUCT(PJRT_TopologyDescription_PlatformName_Args, platform_name_size);

struct PJRT_TopologyDescription_PlatformVersion_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_TopologyDescription* topology;
  const char* platform_version;
  size_t platform_version_size;
};
TPU_PJRT_STRUCT(PJRT_TopologyDescription_PlatformVersion_Args, platform_version_size);

struct PJRT_TopologyDescription_GetDeviceDescriptions_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_TopologyDescription* topology;
  PJRT_DeviceDescription* const* descriptions;
  size_t num_descriptions;
};
TPU_PJRT_STRUCT(PJRT_TopologyDescription_GetDeviceDescriptions_Args, num_descriptions);

struct PJRT_TopologyDescription_Attributes_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_TopologyDescription* topology;
  const PJRT_NamedValue* attributes;
  size_t num_attributes;
};
TPU_PJRT_STRUCT(PJRT_TopologyDescription_Attributes_Args, num_attributes);

struct PJRT_TopologyDescription_Serialize_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_TopologyDescription* topology;
  const char* serialized_bytes;
  size_t serialized_bytes_size;
  PJRT_SerializedTopology* serialized_topology;
  void (*serialized_topology_deleter)(PJRT_SerializedTopology*);
};
TPU_PJRT_STRUCT(PJRT_TopologyDescription_Serialize_Args, serialized_topology_deleter);

struct PJRT_TopologyDescription_Deserialize_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const char* serialized_topology;
  size_t serialized_topology_size;
  PJRT_TopologyDescription* topology;
};
TPU_PJRT_STRUCT(PJRT_TopologyDescription_Deserialize_Args, topology);

struct PJRT_Client_TopologyDescription_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  PJRT_TopologyDescription* topology;
};
TPU_PJRT_STRUCT(PJRT_Client_TopologyDescription_Args, topology);

struct PJRT_Memory_Kind_Id_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Memory* memory;
  int32_t kind_id;
};
TPU_PJRT_STRUCT(PJRT_Memory_Kind_Id_Args, kind_id);
