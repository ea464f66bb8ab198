// The profiler of a plugin, version 1, which the PJRT extension of that name leads to: functions,
// structs and errors of its own. Layouts and names are facts of the interface
// (xla/backends/profiler/plugin/profiler_c_api.h).
#pragma once

#include "abi/base.h"

struct PLUGIN_Profiler;
struct PLUGIN_Profiler_Error;

struct PLUGIN_Profiler_Error_Destroy_Args {
  size_t struct_size;
  void* priv;
  PLUGIN_Profiler_Error* error;
};

struct PLUGIN_Profiler_Error_Message_Args {
  size_t struct_size;
  void* priv;
  const PLUGIN_Profiler_Error* error;
  const char* message;  // out: lives as long as the error
  size_t message_size;  // out
};

struct PLUGIN_Profiler_Error_GetCode_Args {
  size_t struct_size;
  void* priv;
  const PLUGIN_Profiler_Error* error;
  int code;  // out
};

struct PLUGIN_Profiler_Create_Args {
  size_t struct_size;
  const char* options;
  size_t options_size;
  PLUGIN_Profiler* profiler;  // out
};

// Of destroy, start and stop.
struct PLUGIN_Profiler_Args {
  size_t struct_size;
  PLUGIN_Profiler* profiler;
};

struct PLUGIN_Profiler_CollectData_Args {
  size_t struct_size;
  PLUGIN_Profiler* profiler;
  uint8_t* buffer;              // null: the plugin lends one, out
  size_t buffer_size_in_bytes;  // out
};

struct PLUGIN_Profiler_Api {
  size_t struct_size;
  void* priv;
  void (*error_destroy)(PLUGIN_Profiler_Error_Destroy_Args*);
  void (*error_message)(PLUGIN_Profiler_Error_Message_Args*);
  PLUGIN_Profiler_Error* (*error_get_code)(PLUGIN_Profiler_Error_GetCode_Args*);
  PLUGIN_Profiler_Error* (*create)(PLUGIN_Profiler_Create_Args*);
  PLUGIN_Profiler_Error* (*destroy)(PLUGIN_Profiler_Args*);
  PLUGIN_Profiler_Error* (*start)(PLUGIN_Profiler_Args*);
  PLUGIN_Profiler_Error* (*stop)(PLUGIN_Profiler_Args*);
  PLUGIN_Profiler_Error* (*collect_data)(PLUGIN_Profiler_CollectData_Args*);
};

struct PJRT_Profiler_Extension {
  PJRT_Extension_Base base;
  PLUGIN_Profiler_Api* profiler_api;
  int64_t traceme_context_id;  // of arguments alone
};
