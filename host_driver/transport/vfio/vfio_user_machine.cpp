// PCI functions of another process, over the sockets of vfio-user.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "sync/mutex.hpp"
#include "tpu/error.hpp"
#include "transport/vfio/frame_socket.hpp"
#include "transport/vfio/pci_machine.hpp"
#include "transport/vfio/requests.hpp"
#include "transport/worker/address.hpp"

namespace tpu::driver::vfio {
namespace {

// The server can be in the middle of a long step of its model, or stopped by a debugger.
constexpr std::chrono::seconds kAnswerLimit{120};

struct Function {
  std::string path;
  FrameSocket socket;
};

class UserMachine final : public PciMachine {
 public:
  explicit UserMachine(const std::string& folder) {
    for (;;) {
      const std::string path = fmt::format("{}/chip{}.sock", folder, functions_.size());
      struct stat status {};
      if (!functions_.empty() && ::stat(path.c_str(), &status) != 0) {
        return;
      }
      base::Descriptor socket;
      try {
        socket = worker::connect_to(worker::read_address("unix:" + path));
      } catch (const Error&) {
        throw Error(ErrorCode::kUnavailable,
                    ::access(path.c_str(), W_OK) != 0 && errno == EACCES
                        ? fmt::format("{} is for another user: the user of tpuboard serve "
                                      "--vfio-user {} can connect",
                                      path, folder)
                        : fmt::format("nobody answers at {}; start tpuboard serve --vfio-user {}",
                                      path, folder));
      }
      functions_.push_back({path, FrameSocket(std::move(socket), kAnswerLimit)});
      agree(functions_.size() - 1);
    }
  }

  size_t functions() const override { return functions_.size(); }
  std::string name(size_t function) const override { return functions_.at(function).path; }
  int hangup(size_t function) const override { return functions_.at(function).socket.number(); }

  void read(size_t function, uint32_t region, uint64_t offset, std::span<std::byte> to) override {
    const RegionAccess access{offset, region, static_cast<uint32_t>(to.size())};
    const auto reply = call(function, Command::kRegionRead, bytes_of(access));
    if (reply.size() != sizeof access + to.size()) {
      lose(function, fmt::format("a read of {} bytes has a reply of {}", to.size(), reply.size()));
    }
    std::copy(reply.begin() + sizeof access, reply.end(), to.begin());
  }
  void write(size_t function, uint32_t region, uint64_t offset,
             std::span<const std::byte> from) override {
    const RegionAccess access{offset, region, static_cast<uint32_t>(from.size())};
    post(function, Command::kRegionWrite, bytes_of(access), from);
  }
  void write_words(size_t function, std::span<const RegisterWrite> writes) override {
    const ManyWrites head{writes.size()};
    std::vector<std::byte> all;
    for (const RegisterWrite& each : writes) {
      ManyWrites::Write write{{each.offset, static_cast<uint32_t>(each.bar), sizeof each.value},
                              {}};
      std::memcpy(write.data, &each.value, sizeof each.value);
      all.insert(all.end(), bytes_of(write).begin(), bytes_of(write).end());
    }
    post(function, Command::kRegionWriteMulti, bytes_of(head), all);
  }
  void reset(size_t function) override { call(function, Command::kReset, {}); }
  void set_msi(size_t function, std::span<const int> events) override {
    SetIrqs request;
    request.flags = SetIrqs::kEventfd | SetIrqs::kTrigger;
    request.index = kMsiIrq;
    request.count = static_cast<uint32_t>(events.size());
    call(function, Command::kSetIrqs, bytes_of(request), events);
  }

  void map(uint64_t iova, std::span<std::byte> memory, int file) override {
    DmaMap map;
    map.flags = DmaMap::kRead | DmaMap::kWrite;
    map.address = iova;
    map.size = memory.size();
    size_t function = 0;
    try {
      for (; function < functions_.size(); ++function) {
        call(function, Command::kDmaMap, bytes_of(map), std::span(&file, 1));
      }
    } catch (...) {
      unmap_first(function, iova, memory.size());
      throw;
    }
  }
  void unmap(uint64_t iova, uint64_t bytes) noexcept override {
    unmap_first(functions_.size(), iova, bytes);
  }

 private:
  void unmap_first(size_t functions, uint64_t iova, uint64_t bytes) noexcept {
    DmaUnmap unmap;
    unmap.address = iova;
    unmap.size = bytes;
    try {
      for (size_t function = 0; function < functions; ++function) {
        post(function, Command::kDmaUnmap, bytes_of(unmap), {});
      }
    } catch (const Error&) {
      // Whoever uses the function next finds it.
    }
  }
  void agree(size_t function) {
    const char text[] =
        R"({"capabilities":{"max_msg_fds":8,"max_data_xfer_size":1048576,"write_multiple":true}})";
    std::vector<std::byte> hello = vector_of(Version{0, 0});
    hello.insert(hello.end(), std::as_bytes(std::span(text)).begin(),
                 std::as_bytes(std::span(text)).end());
    const auto reply = call(function, Command::kVersion, hello);
    const std::string theirs(reinterpret_cast<const char*>(reply.data()), reply.size());
    if (reply.size() < sizeof(Version) || read_struct<Version>(reply).major != 0 ||
        theirs.find("\"write_multiple\":true") == std::string::npos) {
      lose(function, "it is a server of another kind: expected tpuboard serve --vfio-user");
    }
  }

  [[noreturn]] void lose(size_t function, const std::string& why) const {
    throw Error(ErrorCode::kUnavailable, fmt::format("the PCI function at {} is lost: {}",
                                                     functions_.at(function).path, why));
  }

  void post(size_t function, Command command, std::span<const std::byte> head,
            std::span<const std::byte> rest) {
    const base::MutexLock lock(mutex_);
    send(function, command, Head::kNoReply, head, rest, {});
  }

  uint16_t send(size_t function, Command command, uint32_t flags, std::span<const std::byte> head,
                std::span<const std::byte> rest, std::span<const int> descriptors)
      TPU_REQUIRES(mutex_) {
    Head frame;
    frame.id = ++last_id_;
    frame.command = static_cast<uint16_t>(command);
    frame.flags = flags;
    try {
      functions_.at(function).socket.send(frame, head, rest, descriptors);
    } catch (const ConnectionEnded& ended) {
      lose(function, ended.what());
    }
    return frame.id;
  }

  std::vector<std::byte> call(size_t function, Command command, std::span<const std::byte> payload,
                              std::span<const int> descriptors = {}) {
    const base::MutexLock lock(mutex_);
    const uint16_t id = send(function, command, 0, payload, {}, descriptors);
    FrameSocket& socket = functions_.at(function).socket;
    for (;;) {
      std::optional<Frame> frame;
      try {
        frame = socket.receive(kAnswerLimit);
        if (frame && !frame->is_reply()) {
          refuse(socket, frame->head);
          continue;
        }
      } catch (const ConnectionEnded& ended) {
        lose(function, ended.what());
      }
      const std::string name = command_name(static_cast<uint16_t>(command));
      if (!frame) {
        lose(function, fmt::format("{} has no reply within {} s", name, kAnswerLimit.count()));
      }
      if (frame->head.id != id) {
        lose(function, fmt::format("{} has the reply to something else", name));
      }
      if ((frame->head.flags & Head::kError) != 0) {
        throw Error(ErrorCode::kFailedPrecondition,
                    fmt::format("{} rejects {}: {}; the server has a line that says why",
                                functions_.at(function).path, name,
                                std::strerror(static_cast<int>(frame->head.error))));
      }
      return std::move(frame->payload);
    }
  }

  // All memory goes with descriptors, so nothing is left to ask for.
  static void refuse(FrameSocket& socket, const Head& request) {
    Head reply;
    reply.id = request.id;
    reply.command = request.command;
    reply.flags = Head::kReply | Head::kError;
    reply.error = EINVAL;
    socket.send(reply, {});
  }

  base::Mutex mutex_;  // of all sockets
  std::vector<Function> functions_;
  uint16_t last_id_ TPU_GUARDED_BY(mutex_) = 0;
};

}  // namespace

std::unique_ptr<PciMachine> open_vfio_user(const std::string& folder) {
  return std::make_unique<UserMachine>(folder);
}

}  // namespace tpu::driver::vfio
