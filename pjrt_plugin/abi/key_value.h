// PJRT C API, minor 0.93: the key-value store of a job, which its processes share. See base.h.
#pragma once

#include "abi/base.h"
#include "abi/host_calls.h"

struct PJRT_KeyValueGetCallback_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const char* key;
  size_t key_size;
  int timeout_in_ms;
  PJRT_CallbackError* callback_error;
  void* user_arg;
  char* value;
  size_t value_size;
  void (*value_deleter_callback)(char* value);
};
TPU_PJRT_STRUCT(PJRT_KeyValueGetCallback_Args, value_deleter_callback);

struct PJRT_KeyValueTryGetCallback_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const char* key;
  size_t key_size;
  PJRT_CallbackError* callback_error;
  void* user_arg;
  char* value;
  size_t value_size;
  void (*value_deleter_callback)(char* value);
};
TPU_PJRT_STRUCT(PJRT_KeyValueTryGetCallback_Args, value_deleter_callback);

struct PJRT_KeyValuePutCallback_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const char* key;
  size_t key_size;
  const char* value;
  size_t value_size;
  PJRT_CallbackError* callback_error;
  void* user_arg;
};
TPU_PJRT_STRUCT(PJRT_KeyValuePutCallback_Args, user_arg);

using PJRT_KeyValueGetCallback = PJRT_Error* (*)(PJRT_KeyValueGetCallback_Args* args);
using PJRT_KeyValueTryGetCallback = PJRT_Error* (*)(PJRT_KeyValueTryGetCallback_Args* args);
using PJRT_KeyValuePutCallback = PJRT_Error* (*)(PJRT_KeyValuePutCallback_Args* args);
