// What the handles of the interface point to. Each is made for one owner on the other side, who
// destroys it; what handles share is counted by shared_ptr, so that work in flight outlives them.
// What getters read does not change after construction: no locks.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "compiled_program.hpp"
#include "pjrt_abi.h"
#include "processes/job_tasks.hpp"
#include "protos.hpp"
#include "runtime/runtime.hpp"
#include "sync/mutex.hpp"
#include "topology.hpp"
#include "tpu/tpu.hpp"

struct PJRT_TopologyDescription {
  std::shared_ptr<const tpu::pjrt::Topology> topology;
};

struct PJRT_Memory {
  int id = 0;
  tpu::exe::MemoryKind kind = tpu::exe::MemoryKind::device;
  std::string text;
  PJRT_Device* device = nullptr;
};

struct PJRT_Device {
  int id = 0;
  PJRT_Client* client = nullptr;
  PJRT_DeviceDescription* description = nullptr;
  std::vector<PJRT_Memory*> memories;  ///< by kind; the first is the default
  int local_id = -1;                   ///< among the devices of this process; -1: of another one
};

// Lives as long as its owner, its buffers and its executables.
struct PJRT_Client : std::enable_shared_from_this<PJRT_Client> {
  std::shared_ptr<PJRT_Client> of_caller;       ///< until it is destroyed
  const tpu::pjrt::Runtime* runtime = nullptr;  ///< of the process, never destroyed
  PJRT_TopologyDescription topology;
  std::vector<std::unique_ptr<PJRT_Device>> owned_devices;
  std::vector<std::unique_ptr<PJRT_Memory>> owned_memories;
  std::vector<PJRT_Device*> devices;
  std::vector<PJRT_Device*> addressable;  ///< those of this process
  std::vector<PJRT_Memory*> memories;     ///< of these, by kind
  int process = 0;
  int processes = 1;                            ///< that share the board
  tpu::pjrt::JobTasks tasks;                    ///< of the framework's job
  std::atomic<bool> launched_by_device{false};  ///< a program of several devices, by one of them
};

struct PJRT_Event {
  tpu::driver::Event event;
  bool awaited = false;              ///< its owner is going to wait for it
  tpu::driver::HostEvent host = {};  ///< of an event that the caller sets
};

namespace tpu::pjrt {

/// How the framework sees an array whose bytes lie otherwise than its dimensions say.
struct ArrayForm {
  driver::Shape dims;
  std::vector<int64_t> minor_to_major;  ///< of its dimensions in memory
};

}  // namespace tpu::pjrt

struct PJRT_Buffer {
  std::shared_ptr<PJRT_Client> client;  ///< whose device it is
  PJRT_Device* device = nullptr;
  PJRT_Memory* memory = nullptr;
  tpu::pjrt::DeviceArrayPtr array;
  std::shared_ptr<const tpu::pjrt::ArrayForm> form;  ///< null: that of `array`, row-major
  PJRT_Buffer_Type type = PJRT_Buffer_Type_INVALID;
  std::atomic<bool> deleted{false};
};

struct PJRT_Layouts_MemoryLayout {
  std::string text;  ///< as XLA writes layouts: dimensions from minor to major
};

namespace tpu::pjrt {

/// "{2,1,0}" for three dimensions.
PJRT_Layouts_MemoryLayout row_major_layout(size_t rank);
/// Of an array; row-major with `rank` dimensions without a form.
PJRT_Layouts_MemoryLayout layout_of(const ArrayForm* form, size_t rank);

/// What a PJRT_Executable shows of a program. Strings and lists lie here because getters give out
/// pointers into them.
struct ExecutableInfo {
  std::shared_ptr<const client::CompiledProgram> program;
  BuildOptions build;  ///< as they were received
  /// Replicas that have nothing to do with each other: each runs a program of one core.
  bool alone = false;
  std::string build_bytes;  ///< the same, serialized
  std::vector<PJRT_Buffer_Type> output_types;
  std::vector<int64_t> output_dims;  ///< of one core, all outputs one after the other
  std::vector<size_t> output_ranks;
  std::vector<const char*> memory_kinds;
  std::vector<size_t> memory_kind_sizes;
  std::vector<std::string> output_shardings, parameter_shardings;
  std::vector<const char*> output_sharding_data, parameter_sharding_data;
  std::vector<size_t> output_sharding_sizes, parameter_sharding_sizes;
  std::vector<std::shared_ptr<const ArrayForm>> output_forms, parameter_forms;  ///< null: as it is
  std::vector<PJRT_Layouts_MemoryLayout> owned_layouts;
  std::vector<PJRT_Layouts_MemoryLayout*> output_layouts, parameter_layouts;
  std::vector<PJRT_NamedValue> costs;
  /// The number of replicas and partitions that an array of the program is of.
  BuildOptions array_build() const;
};

/// Throws driver::Error for options that do not fit the program.
std::shared_ptr<const ExecutableInfo> executable_info(
    std::shared_ptr<const client::CompiledProgram> program, std::string build_bytes);

/// Somebody has asked for the text of a program, as PyTorch/XLA does for each: the next programs
/// are compiled with theirs.
inline std::atomic<bool> asks_for_texts{false};

}  // namespace tpu::pjrt

struct PJRT_Executable {
  std::shared_ptr<const tpu::pjrt::ExecutableInfo> info;
};

struct PJRT_LoadedExecutable {
  std::shared_ptr<PJRT_Client> client;
  std::shared_ptr<const tpu::pjrt::ExecutableInfo> info;
  std::vector<PJRT_Device*> devices;      ///< by partition; empty: any one that a call names
  std::vector<PJRT_Device*> addressable;  ///< of them, those of this process
  std::string assignment;                 ///< serialized DeviceAssignmentProto

  tpu::base::Mutex mutex;
  std::vector<std::pair<int, std::shared_ptr<const tpu::pjrt::DeviceProgram>>> loaded
      TPU_GUARDED_BY(mutex);  ///< by first device
  bool deleted TPU_GUARDED_BY(mutex) = false;
};
