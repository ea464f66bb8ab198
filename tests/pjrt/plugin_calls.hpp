// Calls of the plugin's table that tests make again and again, with what they must answer.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "loaded_plugin.hpp"

namespace tpu::test {

// Arguments of the calls that make something, which a caller must pass.
inline int clients_made = 0;  // by this process

inline PJRT_Client* make_client() {
  ++clients_made;
  auto args = args_of<PJRT_Client_Create_Args>();
  const Outcome outcome = outcome_of(api().PJRT_Client_Create(&args));
  EXPECT_EQ(outcome.code, PJRT_Error_Code_OK) << outcome.text;
  return args.client;
}

inline PJRT_Device* device_of(PJRT_Client* client, int id) {
  auto args = args_of<PJRT_Client_LookupDevice_Args>();
  args.client = client;
  args.id = id;
  EXPECT_EQ(outcome_of(api().PJRT_Client_LookupDevice(&args)).text, "");
  return args.device;
}

inline std::pair<PJRT_LoadedExecutable*, Outcome> compile(PJRT_Client* client, std::string code,
                                                          const std::string& format = "mlir",
                                                          std::string options = {}) {
  auto program = args_of<PJRT_Program>();
  program.code = code.data();
  program.code_size = code.size();
  program.format = format.data();
  program.format_size = format.size();
  auto args = args_of<PJRT_Client_Compile_Args>();
  args.client = client;
  args.program = &program;
  args.compile_options = options.data();
  args.compile_options_size = options.size();
  const Outcome outcome = outcome_of(api().PJRT_Client_Compile(&args));
  return {args.executable, outcome};
}

inline PJRT_Executable* executable_of(PJRT_LoadedExecutable* loaded) {
  auto args = args_of<PJRT_LoadedExecutable_GetExecutable_Args>();
  args.loaded_executable = loaded;
  EXPECT_EQ(outcome_of(api().PJRT_LoadedExecutable_GetExecutable(&args)).text, "");
  return args.executable;
}

inline std::string graph(const std::string& path) {
  return file_text(std::string(TPU_SOURCE_DIR "/tests/") + path);
}

// CompileOptionsProto {executable_build_options {num_partitions}}
inline std::string partitions(char count) { return {0x1a, 0x02, 0x28, count}; }

// CompileOptionsProto {executable_build_options {num_replicas}}
inline std::string replicas(char count) { return {0x1a, 0x02, 0x20, count}; }

inline std::pair<PJRT_Buffer*, Outcome> upload(PJRT_Client* client, PJRT_Device* device,
                                               const std::vector<float>& values,
                                               const std::vector<int64_t>& dims,
                                               const std::vector<int64_t>& strides = {}) {
  auto args = args_of<PJRT_Client_BufferFromHostBuffer_Args>();
  args.client = client;
  args.device = device;
  args.data = values.data();
  args.type = PJRT_Buffer_Type_F32;
  args.dims = dims.data();
  args.num_dims = dims.size();
  args.byte_strides = strides.data();
  args.num_byte_strides = strides.size();
  const Outcome outcome = outcome_of(api().PJRT_Client_BufferFromHostBuffer(&args));
  if (args.done_with_host_buffer != nullptr) {
    auto destroy = args_of<PJRT_Event_Destroy_Args>();
    destroy.event = args.done_with_host_buffer;
    EXPECT_EQ(api().PJRT_Event_Destroy(&destroy), nullptr);
  }
  return {args.buffer, outcome};
}

inline void destroy(PJRT_Event* event) {
  auto args = args_of<PJRT_Event_Destroy_Args>();
  args.event = event;
  EXPECT_EQ(api().PJRT_Event_Destroy(&args), nullptr);
}

inline bool is_ready(PJRT_Event* event) {
  auto args = args_of<PJRT_Event_IsReady_Args>();
  args.event = event;
  EXPECT_EQ(outcome_of(api().PJRT_Event_IsReady(&args)).text, "");
  return args.is_ready;
}

// Waits and destroys.
inline Outcome await(PJRT_Event* event) {
  auto args = args_of<PJRT_Event_Await_Args>();
  args.event = event;
  Outcome outcome = outcome_of(api().PJRT_Event_Await(&args));
  destroy(event);
  return outcome;
}

// Starts the copy to `values`, which gets the size of the array.
inline PJRT_Event* start_download(PJRT_Buffer* buffer, std::vector<float>& values) {
  auto size = args_of<PJRT_Buffer_ToHostBuffer_Args>();
  size.src = buffer;
  EXPECT_EQ(outcome_of(api().PJRT_Buffer_ToHostBuffer(&size)).text, "");
  values.resize(size.dst_size / sizeof(float));
  auto args = args_of<PJRT_Buffer_ToHostBuffer_Args>();
  args.src = buffer;
  args.dst = values.data();
  args.dst_size = size.dst_size;
  EXPECT_EQ(outcome_of(api().PJRT_Buffer_ToHostBuffer(&args)).text, "");
  return args.event;
}

inline std::vector<float> download(PJRT_Buffer* buffer) {
  std::vector<float> values;
  EXPECT_EQ(await(start_download(buffer, values)).text, "");
  return values;
}

inline void destroy(PJRT_Buffer* buffer) {
  auto args = args_of<PJRT_Buffer_Destroy_Args>();
  args.buffer = buffer;
  EXPECT_EQ(api().PJRT_Buffer_Destroy(&args), nullptr);
}

inline void destroy(PJRT_LoadedExecutable* executable) {
  auto args = args_of<PJRT_LoadedExecutable_Destroy_Args>();
  args.executable = executable;
  EXPECT_EQ(api().PJRT_LoadedExecutable_Destroy(&args), nullptr);
}

inline void destroy(PJRT_Client* client) {
  auto args = args_of<PJRT_Client_Destroy_Args>();
  args.client = client;
  EXPECT_EQ(api().PJRT_Client_Destroy(&args), nullptr);
}

// Results and ends by device.
struct Launch {
  Outcome outcome;
  std::vector<std::vector<PJRT_Buffer*>> results;
  std::vector<PJRT_Event*> ends;
};

// Arguments by device, each a list. Waits for nothing. `device`: the one whose arguments they are.
inline Launch submit(PJRT_LoadedExecutable* executable,
                     const std::vector<std::vector<PJRT_Buffer*>>& arguments, size_t results,
                     PJRT_ExecuteOptions options = args_of<PJRT_ExecuteOptions>(),
                     PJRT_Device* device = nullptr) {
  Launch launch;
  launch.results.assign(arguments.size(), std::vector<PJRT_Buffer*>(results));
  launch.ends.resize(arguments.size());
  std::vector<PJRT_Buffer* const*> argument_lists;
  std::vector<PJRT_Buffer**> output_lists;
  for (size_t d = 0; d < arguments.size(); ++d) {
    argument_lists.push_back(arguments[d].data());
    output_lists.push_back(launch.results[d].data());
  }
  auto args = args_of<PJRT_LoadedExecutable_Execute_Args>();
  args.executable = executable;
  args.options = &options;
  args.argument_lists = argument_lists.data();
  args.num_devices = arguments.size();
  args.num_args = arguments[0].size();
  args.execute_device = device;
  args.output_lists = output_lists.data();
  args.device_complete_events = launch.ends.data();
  launch.outcome = outcome_of(api().PJRT_LoadedExecutable_Execute(&args));
  return launch;
}

// Results by device, when the launch is over. `outcome`: of one that is refused.
inline std::vector<std::vector<PJRT_Buffer*>> execute(
    PJRT_LoadedExecutable* executable, const std::vector<std::vector<PJRT_Buffer*>>& arguments,
    size_t results, Outcome* outcome = nullptr) {
  Launch launch = submit(executable, arguments, results);
  if (outcome != nullptr) {
    *outcome = launch.outcome;
    return {};
  }
  EXPECT_EQ(launch.outcome.text, "");
  for (PJRT_Event* event : launch.ends) {
    EXPECT_EQ(await(event).text, "");
  }
  return std::move(launch.results);
}

}  // namespace tpu::test
