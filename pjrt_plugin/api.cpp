// The table of functions. Each thunk checks struct_size, hands the function a copy of the arguments
// that has all fields, keeps exceptions from crossing the interface, and writes the call log. Only
// the bytes that the caller's struct has are read and written.
#include <algorithm>
#include <cstring>
#include <string>

#include "call_log.hpp"
#include "calls.hpp"
#include "errors.hpp"
#include "pjrt_abi.h"
#include "profiler.hpp"

namespace tpu::pjrt {
namespace {

// Least struct_size that is taken: all of the struct, or, where it has grown over the versions,
// what the first of them had.
template <typename Args>
constexpr size_t kLeastSize = kPjrtStructSize<Args>;
#define TPU_PJRT_GREW(type, last) \
  template <>                     \
  constexpr size_t kLeastSize<type> = offsetof(type, last) + sizeof(type::last)
TPU_PJRT_GREW(PJRT_Client_Create_Args, client);
TPU_PJRT_GREW(PJRT_Client_CreateErrorBuffer_Args, buffer);
TPU_PJRT_GREW(PJRT_Device_MemoryStats_Args, peak_pool_bytes_is_set);
TPU_PJRT_GREW(PJRT_Executable_DeserializeAndLoad_Args, loaded_executable);
TPU_PJRT_GREW(PJRT_Executable_GetCompiledMemoryStats_Args, host_temp_size_in_bytes);
// Until 2024 its struct_size ended before the last field.
TPU_PJRT_GREW(PJRT_Plugin_Attributes_Args, attributes);
#undef TPU_PJRT_GREW

// Least size of the struct itself, whatever its struct_size says.
template <typename Args>
constexpr size_t kAlwaysThere = 0;
template <>
constexpr size_t kAlwaysThere<PJRT_Plugin_Attributes_Args> = sizeof(PJRT_Plugin_Attributes_Args);

template <typename Args>
PJRT_Error* guarded(Args* args, const char* name) noexcept {
  const CallLog::Line line(name);
  PJRT_Error* error = nullptr;
  try {
    const size_t size = need(args, name).struct_size;
    if (size < kLeastSize<Args>) {
      throw_invalid(std::string(name) + ": struct_size is " + std::to_string(size) + ", at least " +
                    std::to_string(kLeastSize<Args>) + " are needed");
    }
    const size_t known = std::min(std::max(size, kAlwaysThere<Args>), sizeof(Args));
    Args complete{};
    std::memcpy(&complete, args, known);
    call(complete);
    std::memcpy(args, &complete, known);
  } catch (...) {
    error = new_error_of_exception();
  }
  line.end(error);
  return error;
}

#define TPU_PJRT_VOID(name) \
  void thunk_##name(name##_Args* args) { delete guarded(args, #name); }
#define TPU_PJRT_HAS(name) \
  PJRT_Error* thunk_##name(name##_Args* args) { return guarded(args, #name); }
#define TPU_PJRT_LACKS(name)                                                         \
  PJRT_Error* thunk_##name(void* /*args*/) {                                         \
    return new PJRT_Error{PJRT_Error_Code_UNIMPLEMENTED, #name " is not supported"}; \
  }
TPU_PJRT_SLOTS(TPU_PJRT_VOID, TPU_PJRT_HAS, TPU_PJRT_LACKS)
TPU_PJRT_HAS(PJRT_Shardings_PJRT_Executable_ParameterShardings)
TPU_PJRT_HAS(PJRT_Shardings_PJRT_Executable_OutputShardings)
TPU_PJRT_LAYOUTS(TPU_PJRT_HAS)
TPU_PJRT_HAS(PJRT_Register_Custom_Partitioner)
TPU_PJRT_HAS(PJRT_Register_Batch_Partitionable)

#define TPU_PJRT_THUNK(name) thunk_##name,
PJRT_Profiler_Extension profiler_extension = {
    {sizeof(PJRT_Profiler_Extension), PJRT_Extension_Type_Profiler, nullptr}, &profiler_table, -1};

PJRT_Custom_Partitioner_Extension partitioner_extension = {
    {sizeof(PJRT_Custom_Partitioner_Extension), PJRT_Extension_Type_Custom_Partitioner,
     &profiler_extension.base},
    thunk_PJRT_Register_Custom_Partitioner,
    thunk_PJRT_Register_Batch_Partitionable};

PJRT_Layouts_Extension layouts_extension = {
    {sizeof(PJRT_Layouts_Extension), PJRT_Extension_Type_Layouts, &partitioner_extension.base},
    TPU_PJRT_LAYOUTS(TPU_PJRT_THUNK)};

PJRT_Shardings_Extension shardings_extension = {
    {sizeof(PJRT_Shardings_Extension), PJRT_Extension_Type_Shardings, &layouts_extension.base},
    thunk_PJRT_Shardings_PJRT_Executable_ParameterShardings,
    thunk_PJRT_Shardings_PJRT_Executable_OutputShardings};

const PJRT_Api table = {sizeof(PJRT_Api),
                        &shardings_extension.base,
                        {sizeof(PJRT_Api_Version), nullptr, TPU_PJRT_API_MAJOR, TPU_PJRT_API_MINOR},
                        TPU_PJRT_SLOTS(TPU_PJRT_THUNK, TPU_PJRT_THUNK, TPU_PJRT_THUNK)};

}  // namespace
}  // namespace tpu::pjrt

extern "C" const PJRT_Api* GetPjrtApi() { return &tpu::pjrt::table; }
