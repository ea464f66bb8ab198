// Processes that share a board, in one program: sessions of a fake server on a board of the null
// transport, and links whose sockets end there.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "processes/remote_runtime.hpp"
#include "processes/session.hpp"
#include "runtime/local_runtime.hpp"
#include "tests/driver/null_board.hpp"
#include "tests/driver/program_builder.hpp"
#include "transport/null/null_transport.hpp"

namespace tpu::pjrt {

constexpr int kDevices = 8;

/// As BoardServer, without its greeting.
class FakeServer : public SessionHost {
 public:
  FakeServer() {
    driver::OpenOptions options;
    options.completion_thread = true;
    board_ = driver::test::open_null(null_, options);
    runtime_ = std::make_unique<LocalRuntime>(board_, std::chrono::duration<double>(600));
  }

  std::vector<int> greet(const wire::HelloT& hello) override {
    const int share = kDevices / hello.processes;
    std::vector<int> devices;
    for (int i = 0; i < share; ++i) {
      devices.push_back(hello.process * share + i);
    }
    return devices;
  }
  const Runtime& runtime() const override { return *runtime_; }
  std::shared_ptr<const client::CompiledProgram> program(
      std::span<const std::byte> container, std::span<const std::byte> /*artifact*/,
      const compiler::ImportOptions& import) override {
    const std::string key(reinterpret_cast<const char*>(container.data()), container.size());
    const base::MutexLock lock(mutex_);
    auto& known = programs_[key];
    if (!known) {
      auto made = std::make_shared<client::CompiledProgram>();
      made->executable = std::make_shared<exe::ExecutableT>(exe::read_executable(container));
      made->import = import;
      known = made;
    }
    return known;
  }
  SharedProfile& profile() override { return profile_; }
  void end_lost(const std::vector<int>& devices) override {
    std::map<int, driver::Error> lost;
    {
      const base::MutexLock lock(mutex_);
      lost = lost_;
    }
    for (const int device : devices) {
      if (const auto it = lost.find(device); it != lost.end()) {
        runtime_->leave({device}, it->second);
      }
    }
  }
  driver::Error lose(const wire::HelloT& hello, const std::vector<int>& devices,
                     const std::string& why) override {
    const driver::Error error(driver::ErrorCode::kUnavailable,
                              "process " + std::to_string(hello.process) + " has ended" +
                                  (why.empty() ? "" : ": " + why));
    {
      const base::MutexLock lock(mutex_);
      for (const int device : devices) {
        lost_.insert_or_assign(device, error);
      }
    }
    end_lost(devices);
    return error;
  }
  void leave(const wire::HelloT& /*hello*/) override {}

  /// A connection to it; `end`: ends it as the end of the process does.
  FrameSocket connect(int& end) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    sessions_.emplace_back(std::make_shared<FrameSocket>(Descriptor(ends[0])), *this);
    end = ends[1];
    return FrameSocket(Descriptor(ends[1]));
  }

 private:
  driver::NullTransport* null_ = nullptr;
  driver::Board board_;
  std::unique_ptr<LocalRuntime> runtime_;
  SharedProfile profile_;
  base::Mutex mutex_;
  std::map<std::string, std::shared_ptr<const client::CompiledProgram>> programs_
      TPU_GUARDED_BY(mutex_);
  std::map<int, driver::Error> lost_ TPU_GUARDED_BY(mutex_);
  std::list<Session> sessions_;
};

/// One process of two; its devices are four.
class Process {
 public:
  Process(FakeServer& server, int number) : first(number * kDevices / 2) {
    FrameSocket socket = server.connect(socket_);
    wire::HelloT hello;
    hello.process = number;
    hello.processes = 2;
    EXPECT_EQ(greet(socket, hello), ::getpid());
    link = new RemoteLink(std::move(socket), ::getpid());  // never destroyed
    runtime = std::make_unique<RemoteRuntime>(*link);
  }
  void end() const { ::shutdown(socket_, SHUT_RDWR); }

  std::vector<int> devices() const { return {first, first + 1, first + 2, first + 3}; }
  std::shared_ptr<const DeviceProgram> load(
      const std::shared_ptr<const client::CompiledProgram>& program) const {
    return runtime->load(program, {0, 1, 2, 3, 4, 5, 6, 7});
  }
  /// Of 64 numbers, all of their bytes `device + 1`.
  DeviceArrayPtr state(int device) const {
    const std::vector<std::byte> bytes(256, static_cast<std::byte>(device + 1));
    return runtime->put(device, driver::HostView{driver::DType::kI32, {64}, bytes});
  }
  LaunchRequest request() const {
    LaunchRequest made;
    for (const int device : devices()) {
      made.shares.push_back({device, {state(device)}});
    }
    return made;
  }

  const int first;
  RemoteLink* link = nullptr;
  std::unique_ptr<RemoteRuntime> runtime;

 private:
  int socket_ = -1;
};

/// Takes over its argument as its result.
inline std::shared_ptr<const client::CompiledProgram> taking_program() {
  driver::test::ProgramBuilder builder(kDevices);
  builder.argument(driver::DType::kI32, {64});
  builder.result(driver::DType::kI32, {64}, false, 0);
  auto made = std::make_shared<client::CompiledProgram>();
  made->executable = std::make_shared<exe::ExecutableT>(exe::read_executable(builder.bytes()));
  made->fingerprint = "taking";
  return made;
}

/// What a call throws; empty: nothing.
template <class Call>
std::string error_of_call(Call call) {
  try {
    call();
  } catch (const driver::Error& error) {
    return error.message();
  }
  return {};
}

}  // namespace tpu::pjrt
