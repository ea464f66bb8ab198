// PJRT C API, minor 0.93: the extension that says how arrays lie in memory.
// Layouts and names are facts of the interface; tests/pjrt/abi_test.py compares every field with an
// independent table. See pjrt_abi.h.
#pragma once

#include "abi/base.h"
#include "abi/buffer.h"

struct PJRT_Layouts_MemoryLayout;
struct PJRT_Layouts_SerializedLayout;

struct PJRT_Layouts_MemoryLayout_Destroy_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Layouts_MemoryLayout* layout;
};
TPU_PJRT_STRUCT(PJRT_Layouts_MemoryLayout_Destroy_Args, layout);

struct PJRT_Layouts_MemoryLayout_Serialize_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Layouts_MemoryLayout* layout;
  const char* serialized_bytes;
  size_t serialized_bytes_size;
  PJRT_Layouts_SerializedLayout* serialized_layout;
  void (*serialized_layout_deleter)(PJRT_Layouts_SerializedLayout*);
};
TPU_PJRT_STRUCT(PJRT_Layouts_MemoryLayout_Serialize_Args, serialized_layout_deleter);

struct PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  PJRT_Buffer_Type type;
  const int64_t* dims;
  size_t num_dims;
  PJRT_Layouts_MemoryLayout* layout;
};
TPU_PJRT_STRUCT(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args, layout);

struct PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
  PJRT_Layouts_MemoryLayout* layout;
};
TPU_PJRT_STRUCT(PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args, layout);

struct PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_TopologyDescription* topology_description;
  PJRT_Buffer_Type type;
  const int64_t* dims;
  size_t num_dims;
  PJRT_Layouts_MemoryLayout* layout;
};
TPU_PJRT_STRUCT(PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args, layout);

struct PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;
  size_t num_outputs;
  PJRT_Layouts_MemoryLayout* const* layouts;
};
TPU_PJRT_STRUCT(PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args, layouts);

struct PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;
  size_t num_parameters;
  PJRT_Layouts_MemoryLayout* const* layouts;
};
TPU_PJRT_STRUCT(PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args, layouts);
