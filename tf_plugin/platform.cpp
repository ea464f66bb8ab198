// Platform and executors: cores, memory, streams and events.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "abi/executor.h"
#include "answer.hpp"
#include "board/chip_kind.hpp"
#include "client_version.hpp"
#include "errors.hpp"
#include "process_board.hpp"
#include "system.hpp"
#include "tpu/version.hpp"

struct SE_Platform {
  std::atomic<bool> initialized = false;
};

namespace tpu::tensorflow {
namespace {

char* new_text(const std::string& text) { return ::strdup(text.c_str()); }

driver::DeviceInfo info_of(const SE_StreamExecutor* executor) {
  return System::get().runtime().device_info(executor->device);
}

}  // namespace

// What copies of raw bytes and of literals have in common.
void write_bytes(Stream& stream, const SE_DeviceMemoryBase& to, const void* from, uint64_t size) {
  System& system = System::get();
  const auto* first = static_cast<const std::byte*>(from);
  if (stream.idle()) {
    auto bytes = std::make_shared<const std::vector<std::byte>>(first, first + size);
    system.memory().set(address_of(to), Untyped{std::move(bytes), {}});
    return;
  }
  // Work in front of it may still write what is to be copied.
  auto bytes = std::make_shared<std::vector<std::byte>>(size);
  const driver::HostEvent copied = system.runtime().make_event();
  system.memory().set(address_of(to), Untyped{bytes, copied.event()});
  stream.call([bytes, first, copied] {
    std::copy_n(first, bytes->size(), bytes->data());
    set_event(copied);
  });
}

void read_bytes(Stream& stream, const SE_DeviceMemoryBase& from, void* to, uint64_t size) {
  const std::span<std::byte> out(static_cast<std::byte*>(to), size);
  System::get().memory().check_readable(address_of(from), size);
  const Contents contents = System::get().memory().contents(address_of(from));
  const auto* array = std::get_if<pjrt::DeviceArrayPtr>(&contents);
  if (const auto* sized = std::get_if<Sized>(&contents)) {
    array = &sized->array;
  }
  if (array != nullptr) {
    stream.follow((*array)->read(0, out));
  } else if (const auto* untyped = std::get_if<Untyped>(&contents)) {
    stream.follow(untyped->ready);
    stream.call([bytes = untyped->bytes, out] {
      std::copy_n(bytes->data(), std::min(out.size(), bytes->size()), out.data());
    });
  }
}

}  // namespace tpu::tensorflow

using tpu::tensorflow::address_of;
using tpu::tensorflow::answer;
using tpu::tensorflow::check_interface;
using tpu::tensorflow::System;

extern "C" {

// TensorFlow calls it when the library is loaded. The board is opened by the first use.
// A thread that launches a program whose results have dynamic sizes waits for them, and the launch
// for those of the other cores: TensorFlow needs a thread for each core and each step that runs at
// the same time, and has one for each processor of the host.
void TfTpu_Initialize(bool /*init_library*/, int /*num_args*/, const char** /*args*/) {
  constexpr unsigned kSteps = 8, kCores = 8;
  const unsigned threads = std::max(kSteps * kCores, std::thread::hardware_concurrency());
  ::setenv("TF_NUM_INTEROP_THREADS", std::to_string(threads).c_str(), 0);
}

SE_Platform* TpuPlatform_New() { return new SE_Platform; }

void TpuPlatform_Free(SE_Platform* platform) { delete platform; }

void TpuPlatform_Initialize(SE_Platform* platform, TF_Status* status) {
  answer(__func__, status, [&] {
    check_interface();
    System::get();
    platform->initialized = true;
  });
}

bool TpuPlatform_Initialized(SE_Platform* platform) { return platform->initialized; }

SE_StreamExecutor* TpuPlatform_GetExecutor(SE_Platform* /*platform*/, int ordinal,
                                           TF_Status* status) {
  SE_StreamExecutor* executor = nullptr;
  answer(__func__, status, [&] { executor = &System::get().executor(ordinal); });
  return executor;
}

SE_PlatformId TpuPlatform_Id(SE_Platform* /*platform*/) { return {&tpu::tensorflow::platform_id}; }

int64_t TpuPlatform_VisibleDeviceCount(SE_Platform* /*platform*/) {
  return static_cast<int64_t>(tpu::tensorflow::places_or_none().cores.size());
}

bool TpuPlatform_ShouldRegisterTpuDeviceToDeviceCopy(SE_Platform* /*platform*/) { return true; }

TpuRuntimeVersion TpuPlatform_GetRuntimeVersion(SE_Platform* /*platform*/) {
  static const char metadata[] = "tpuboard";
  return {{0, 1, 0}, metadata, sizeof metadata - 1};
}

void TpuExecutor_Init(SE_StreamExecutor* /*executor*/, TF_Status* /*status*/) {}

void TpuExecutor_Free(SE_StreamExecutor* /*executor*/) {}  // of the system

SE_DeviceMemoryBase TpuExecutor_Allocate(SE_StreamExecutor* executor, uint64_t size,
                                         int64_t /*memory_space*/) {
  SE_DeviceMemoryBase memory{};
  answer(__func__, nullptr,
         [&] { memory = System::get().memory().allocate(executor->device, size); });
  return memory;
}

void TpuExecutor_Deallocate(SE_StreamExecutor* /*executor*/, SE_DeviceMemoryBase* memory) {
  answer(__func__, nullptr, [&] {
    if (memory->opaque != nullptr) {
      System::get().memory().free(address_of(*memory));
    }
  });
}

bool TpuExecutor_GetAllocatorStats(SE_StreamExecutor* executor, SE_AllocatorStats* stats) {
  return answer(__func__, nullptr, [&] {
    const auto info = tpu::tensorflow::info_of(executor);
    const auto use = System::get().memory().use(executor->device);
    *stats = {};
    stats->num_allocs = use.blocks;
    stats->largest_alloc_size = use.largest;
    stats->bytes_in_use = static_cast<int64_t>(info.hbm_used);
    stats->peak_bytes_in_use = static_cast<int64_t>(info.hbm_peak);
    stats->has_bytes_limit = true;
    stats->bytes_limit = static_cast<int64_t>(info.hbm_bytes);
    stats->largest_free_block_bytes = static_cast<int64_t>(info.hbm_largest_free);
  });
}

bool TpuExecutor_DeviceMemoryUsage(SE_StreamExecutor* executor, int64_t* free, int64_t* total) {
  return answer(__func__, nullptr, [&] {
    const auto info = tpu::tensorflow::info_of(executor);
    *total = static_cast<int64_t>(info.hbm_bytes);
    *free = static_cast<int64_t>(info.hbm_bytes - info.hbm_used);
  });
}

void TpuExecutor_DeallocateStream(SE_StreamExecutor* /*executor*/, SE_Stream* /*stream*/) {}

bool TpuExecutor_CreateStreamDependency(SE_StreamExecutor* /*executor*/, SE_Stream* dependent,
                                        SE_Stream* other) {
  return answer(__func__, nullptr, [&] {
    const tpu::driver::Event reached = other->stream.reached();
    if (!reached.ready()) {
      dependent->stream.follow(reached);
    }
  });
}

void TpuExecutor_GetStatus(SE_StreamExecutor* /*executor*/, SE_Stream* stream, TF_Status* status) {
  answer(__func__, status, [&] {
    if (const auto error = stream->stream.error()) {
      throw tpu::driver::Error(*error);
    }
  });
}

SE_TpuTopology_Core* TpuExecutor_GetCoreLocation(SE_StreamExecutor* executor) {
  return &tpu::tensorflow::places_or_none().cores[static_cast<size_t>(executor->device)];
}

void TpuExecutor_AllocateEvent(SE_StreamExecutor* /*executor*/, SE_Event* /*event*/,
                               TF_Status* /*status*/) {}

void TpuExecutor_RecordEvent(SE_StreamExecutor* /*executor*/, SE_Stream* stream, SE_Event* event,
                             TF_Status* status) {
  answer(__func__, status, [&] { event->event = stream->stream.reached(); });
}

void TpuExecutor_WaitForEvent(SE_StreamExecutor* /*executor*/, SE_Stream* stream, SE_Event* event,
                              TF_Status* status) {
  answer(__func__, status, [&] {
    if (!event->event.ready()) {
      stream->stream.follow(event->event);
    }
  });
}

void TpuExecutor_SynchronousMemcpyToHost(SE_StreamExecutor* executor, void* to,
                                         const SE_DeviceMemoryBase* from, uint64_t size,
                                         TF_Status* status) {
  answer(__func__, status, [&] {
    tpu::tensorflow::Stream stream(System::get().runtime(), executor->device);
    tpu::tensorflow::read_bytes(stream, *from, to, size);
    stream.wait();
  });
}

void TpuExecutor_SynchronousMemcpyFromHost(SE_StreamExecutor* executor, SE_DeviceMemoryBase* to,
                                           const void* from, uint64_t size, TF_Status* status) {
  answer(__func__, status, [&] {
    tpu::tensorflow::Stream stream(System::get().runtime(), executor->device);
    tpu::tensorflow::write_bytes(stream, *to, from, size);
  });
}

void TpuExecutor_MemcpyToHost(SE_StreamExecutor* /*executor*/, SE_Stream* stream, void* to,
                              const SE_DeviceMemoryBase* from, uint64_t size, TF_Status* status) {
  answer(__func__, status, [&] { tpu::tensorflow::read_bytes(stream->stream, *from, to, size); });
}

void TpuExecutor_MemcpyFromHost(SE_StreamExecutor* /*executor*/, SE_Stream* stream,
                                SE_DeviceMemoryBase* to, const void* from, uint64_t size,
                                TF_Status* status) {
  answer(__func__, status, [&] { tpu::tensorflow::write_bytes(stream->stream, *to, from, size); });
}

void TpuExecutor_BlockHostUntilDone(SE_StreamExecutor* /*executor*/, SE_Stream* stream,
                                    TF_Status* status) {
  answer(__func__, status, [&] { stream->stream.wait(); });
}

bool TpuExecutor_SynchronizeAllActivity(SE_StreamExecutor* /*executor*/) {
  return answer(__func__, nullptr, [] { tpu::client::ProcessBoard::get().board().synchronize(); });
}

void TpuExecutor_UnloadAllPrograms(SE_StreamExecutor* /*executor*/, TF_Status* /*status*/) {}

bool TpuExecutor_HostCallback(SE_StreamExecutor* /*executor*/, SE_Stream* stream,
                              SE_StatusCallback callback, void* context) {
  return answer(__func__, nullptr, [&] {
    stream->stream.call([callback, context] {
      TF_Status* const status = callback(context);
      if (status == nullptr) {
        return;
      }
      const TF_Status result = *status;
      TpuStatus_Free(status);
      if (result.code != 0) {
        throw tpu::pjrt::error_of(static_cast<PJRT_Error_Code>(result.code), result.message.data(),
                                  result.message.size());
      }
    });
  });
}

SE_Stream* TpuStream_New(SE_StreamExecutor* parent) {
  SE_Stream* stream = nullptr;
  answer(__func__, nullptr, [&] {
    stream = new SE_Stream{{System::get().runtime(), parent->device}};
  });
  return stream;
}

void TpuStream_Free(SE_Stream* stream) { delete stream; }

void* TpuStream_Stream(SE_Stream* stream) { return stream; }

// A failure is told by the calls that have a status; the stream takes more work after it.
bool TpuStream_Status(SE_Stream* /*stream*/) { return true; }

bool TpuStream_IsSameSharedMemoryLocation(SE_Stream* /*one*/, SE_Stream* /*other*/) {
  return false;
}

void TpuStream_EnqueueTransferHostToDevice(SE_Stream* stream, SE_DeviceMemoryBase to, void* from,
                                           uint64_t size, TF_Status* status) {
  answer(__func__, status, [&] { tpu::tensorflow::write_bytes(stream->stream, to, from, size); });
}

void TpuStream_EnqueueTransferDeviceToHost(SE_Stream* stream, SE_DeviceMemoryBase from, void* to,
                                           uint64_t size, TF_Status* status) {
  answer(__func__, status, [&] { tpu::tensorflow::read_bytes(stream->stream, from, to, size); });
}

// From core to core over the links.
void TpuStream_TpuEnqueueOnDeviceSendRecvLocal(SE_Stream* stream, SE_DeviceMemoryBase from,
                                               SE_DeviceMemoryBase to, TF_Status* status) {
  answer(__func__, status, [&] {
    System& system = System::get();
    system.memory().check_readable(address_of(from), 0);
    tpu::tensorflow::Contents contents = system.memory().contents(address_of(from));
    const auto copied = [&](tpu::pjrt::DeviceArrayPtr& array) {
      array = system.runtime().copy(*array, system.memory().device_of(address_of(to)));
      stream->stream.follow(array->ready());
    };
    if (auto* array = std::get_if<tpu::pjrt::DeviceArrayPtr>(&contents)) {
      copied(*array);
    } else if (auto* sized = std::get_if<tpu::tensorflow::Sized>(&contents)) {
      copied(sized->array);
    }
    system.memory().set(address_of(to), std::move(contents));
  });
}

SE_Event* TpuEvent_New(SE_StreamExecutor* /*parent*/) { return new SE_Event; }

void TpuEvent_Free(SE_Event* event) { delete event; }

SE_DeviceDescription* TpuDeviceDescription_New() {
  return static_cast<SE_DeviceDescription*>(std::calloc(1, sizeof(SE_DeviceDescription)));
}

void TpuDeviceDescription_Free(SE_DeviceDescription* description) {
  for (char* text :
       {description->device_vendor, description->platform_version, description->driver_version,
        description->runtime_version, description->pci_bus_id, description->name}) {
    std::free(text);
  }
  std::free(description);
}

void TpuExecutor_CreateDeviceDescription(SE_StreamExecutor* executor,
                                         SE_DeviceDescription* description, TF_Status* status) {
  answer(__func__, status, [&] {
    const auto& params = tpu::client::ProcessBoard::params();
    const std::string version(tpu::driver::kVersion);
    *description = {};
    description->device_vendor = tpu::tensorflow::new_text("tpuboard");
    description->platform_version = tpu::tensorflow::new_text(version);
    description->driver_version = tpu::tensorflow::new_text(version);
    description->runtime_version = tpu::tensorflow::new_text(version);
    description->pci_bus_id = tpu::tensorflow::new_text("");
    description->name = tpu::tensorflow::new_text(tpu::spec::chip_kind(params));
    description->device_memory_size =
        static_cast<int64_t>(tpu::tensorflow::info_of(executor).hbm_bytes);
    description->core_count = 1;
  });
}

}  // extern "C"
