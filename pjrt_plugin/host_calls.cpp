// Callbacks of the caller as answers to host calls. What a program sends is a chunk of bytes of the
// callback's own; what it receives comes by a stream that the callback fills, in this call or later
// from another thread.
#include "host_calls.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "calls.hpp"
#include "errors.hpp"
#include "objects.hpp"
#include "python_exit.hpp"

namespace tpu::pjrt {
namespace {

// Shared by the program that waits and the stream of its callback.
struct Incoming {
  explicit Incoming(std::span<std::byte> into) : bytes(into) {}

  base::Mutex mutex;
  base::CondVar changed;
  std::span<std::byte> bytes TPU_GUARDED_BY(mutex);
  size_t filled TPU_GUARDED_BY(mutex) = 0;
  bool ended TPU_GUARDED_BY(mutex) = false;  // the stream is gone
};

}  // namespace
}  // namespace tpu::pjrt

struct PJRT_CopyToDeviceStream {
  std::shared_ptr<tpu::pjrt::Incoming> incoming;
};

namespace tpu::pjrt {
namespace {

struct Callbacks {
  std::vector<std::vector<PJRT_SendCallbackInfo>> send;  // by device
  std::vector<std::vector<PJRT_RecvCallbackInfo>> recv;
};

template <typename Info>
std::vector<std::vector<Info>> copied(Info** lists, size_t devices, size_t count) {
  std::vector<std::vector<Info>> all(devices);
  for (size_t d = 0; count > 0 && d < devices; ++d) {
    all[d].assign(lists[d], lists[d] + count);
  }
  return all;
}

template <typename Info>
const Info& of_channel(const std::vector<Info>& infos, const driver::HostCallInfo& call) {
  for (const Info& info : infos) {
    if (info.channel_id == call.channel) {
      return info;
    }
  }
  throw driver::Error(driver::ErrorCode::kFailedPrecondition,
                      "no callback was given for channel " + std::to_string(call.channel),
                      {.device = -1, .op = call.op, .source = call.source});
}

thread_local bool answers = false;

PJRT_Error* make_error(PJRT_Error_Code code, const char* message, size_t size) {
  return new PJRT_Error{code, std::string(message, size)};
}

void send(const PJRT_SendCallbackInfo& to, const driver::HostCallInfo& call,
          std::span<const std::byte> bytes) {
  PJRT_Chunk chunk{};
  chunk.data = std::malloc(std::max<size_t>(1, bytes.size()));
  if (chunk.data == nullptr) {
    throw std::bad_alloc();
  }
  std::memcpy(chunk.data, bytes.data(), bytes.size());
  chunk.size = bytes.size();
  chunk.deleter = [](void* data, void*) { std::free(data); };
  PJRT_CallbackError maker = make_error;
  const std::unique_ptr<PJRT_Error> error(
      to.send_callback(&chunk, &maker, bytes.size(), true, to.user_arg));
  if (error != nullptr) {
    const driver::Error plain = error_of(error->code, error->message.data(), error->message.size());
    throw driver::Error(plain.code(), plain.message(),
                        {.device = -1, .op = call.op, .source = call.source});
  }
}

void receive(const PJRT_RecvCallbackInfo& from, const driver::HostCallInfo& call,
             std::span<std::byte> bytes) {
  const auto incoming = std::make_shared<Incoming>(bytes);
  from.recv_callback(new PJRT_CopyToDeviceStream{incoming}, from.user_arg);
  const base::MutexLock lock(incoming->mutex);
  while (incoming->filled != incoming->bytes.size() && !incoming->ended) {
    incoming->changed.wait(incoming->mutex);
  }
  incoming->bytes = {};  // the memory goes on to the board
  if (incoming->filled != bytes.size()) {
    throw driver::Error(driver::ErrorCode::kInternal,
                        "the callback of channel " + std::to_string(call.channel) + " gave " +
                            std::to_string(incoming->filled) + " of " +
                            std::to_string(bytes.size()) + " bytes",
                        {.device = -1, .op = call.op, .source = call.source});
  }
}

const PJRT_CopyToDeviceStream& stream_of(const PJRT_CopyToDeviceStream* stream) {
  return need(stream, "stream");
}

}  // namespace

void refuse_in_host_call() {
  if (answers) {
    throw driver::Error(driver::ErrorCode::kFailedPrecondition,
                        "a callback must not read arrays of the board or wait for them: the board "
                        "pauses until the callback returns; pass the array as an argument");
  }
}

driver::HostCallHandler host_call_handler(const PJRT_ExecuteOptions* options, size_t devices) {
  if (options == nullptr || (options->num_send_ops == 0 && options->num_recv_ops == 0)) {
    return {};
  }
  const auto all = std::make_shared<const Callbacks>(
      Callbacks{copied(options->send_callbacks, devices, options->num_send_ops),
                copied(options->recv_callbacks, devices, options->num_recv_ops)});
  end_host_calls_with_python();
  return [all](const driver::HostCallInfo& call, size_t partition, std::span<std::byte> bytes) {
    const HostCallUnderWay under_way;
    struct Answering {
      Answering() { answers = true; }
      Answering(const Answering&) = delete;
      Answering& operator=(const Answering&) = delete;
      ~Answering() { answers = false; }
    } const answering;
    if (call.to_host) {
      send(of_channel(all->send.at(partition), call), call, bytes);
    } else {
      receive(of_channel(all->recv.at(partition), call), call, bytes);
    }
  };
}

void call(PJRT_CopyToDeviceStream_Destroy_Args& args) {
  if (args.stream == nullptr) {
    return;
  }
  const auto incoming = args.stream->incoming;
  delete args.stream;
  const base::MutexLock lock(incoming->mutex);
  incoming->ended = true;
  incoming->changed.notify_all();
}

void call(PJRT_CopyToDeviceStream_AddChunk_Args& args) {
  Incoming& incoming = *stream_of(args.stream).incoming;
  const PJRT_Chunk chunk = need(args.chunk, "chunk");
  const auto drop = [&chunk](void* data) {
    if (chunk.deleter != nullptr) {
      chunk.deleter(data, chunk.deleter_arg);
    }
  };
  const std::unique_ptr<void, decltype(drop)> owned(chunk.data, drop);
  {
    const base::MutexLock lock(incoming.mutex);
    const size_t wanted = incoming.bytes.size() - std::min(incoming.filled, incoming.bytes.size());
    if (chunk.size > wanted) {
      throw_invalid("a chunk of " + std::to_string(chunk.size) + " bytes, the program waits for " +
                    std::to_string(wanted));
    }
    std::memcpy(incoming.bytes.data() + incoming.filled, chunk.data, chunk.size);
    incoming.filled += chunk.size;
    incoming.changed.notify_all();
  }
  args.transfer_complete = new PJRT_Event{driver::Event()};
}

void call(PJRT_CopyToDeviceStream_TotalBytes_Args& args) {
  Incoming& incoming = *stream_of(args.stream).incoming;
  const base::MutexLock lock(incoming.mutex);
  args.total_bytes = static_cast<int64_t>(incoming.bytes.size());
}

void call(PJRT_CopyToDeviceStream_GranuleSize_Args& args) {
  static_cast<void>(stream_of(args.stream));
  args.granule_size_in_bytes = 1;
}

void call(PJRT_CopyToDeviceStream_CurrentBytes_Args& args) {
  Incoming& incoming = *stream_of(args.stream).incoming;
  const base::MutexLock lock(incoming.mutex);
  args.current_bytes = static_cast<int64_t>(incoming.filled);
}

}  // namespace tpu::pjrt
