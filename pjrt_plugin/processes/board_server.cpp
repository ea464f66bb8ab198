#include "processes/board_server.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "board/board_loader.hpp"
#include "process_board.hpp"
#include "processes/greeting.hpp"
#include "processes/meeting.hpp"
#include "runtime/process_runtime.hpp"
#include "topology.hpp"

namespace tpu::pjrt {
namespace {

using driver::ErrorCode;

// For processes that are still being started.
constexpr std::chrono::seconds kStartPatience{10};
constexpr int kPollMilliseconds = 100;

bool is_waiting(const Descriptor& listening, int milliseconds) {
  pollfd door{listening.number(), POLLIN, 0};
  return ::poll(&door, 1, milliseconds) > 0;
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

BoardServer::BoardServer(Descriptor listening, int processes, std::string folder)
    : listening_(std::move(listening)),
      folder_(std::move(folder)),
      host_(hello_of_process({0, processes, folder_})),
      members_(static_cast<size_t>(processes)) {}

void BoardServer::run() {
  try {
    runtime_ = &own_runtime();
  } catch (const driver::Error& error) {
    not_open_ = error;
  }
  Clock::time_point busy = Clock::now();
  for (;;) {
    if (is_waiting(listening_, kPollMilliseconds)) {
      accept_one();
    }
    std::erase_if(sessions_, [](const Session& session) { return session.over(); });
    if (!is_empty()) {
      busy = Clock::now();
    } else if (Clock::now() - busy >= patience() && close_door()) {
      return;
    }
  }
}

void BoardServer::accept_one() {
  Descriptor socket(::accept4(listening_.number(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket.valid()) {
    return;
  }
  auto accepted = std::make_shared<FrameSocket>(std::move(socket));
  if (accepted->peer().user == ::geteuid()) {
    sessions_.emplace_back(std::move(accepted), *this);
  }
}

// Until all have come, the next of them may be on its way.
std::chrono::seconds BoardServer::patience() const {
  const base::MutexLock lock(mutex_);
  const bool all = std::ranges::all_of(members_, [](const Member& each) { return each.came; });
  return all || not_open_ ? std::chrono::seconds(all ? 0 : 1) : kStartPatience;
}

bool BoardServer::is_empty() const { return sessions_.empty(); }

bool BoardServer::close_door() {
  // The lock makes the folder. Nobody finds a server whose folder was removed.
  if (std::error_code error; !std::filesystem::exists(folder_, error)) {
    return true;
  }
  const MeetingLock lock(folder_);
  if (is_waiting(listening_, 0)) {
    return false;
  }
  ::unlink(lock.socket_path().c_str());
  return true;
}

std::vector<int> BoardServer::greet(const wire::HelloT& hello) {
  check_greeting(hello, host_);
  if (not_open_) {
    throw driver::Error(*not_open_);
  }
  const base::MutexLock lock(mutex_);
  Member& member = members_.at(static_cast<size_t>(hello.process));
  if (member.there) {
    throw driver::Error(ErrorCode::kFailedPrecondition,
                        fmt::format("{} cannot share the board: {} is there already",
                                    process_text(hello), process_text(*member.there)));
  }
  member.there = hello;
  member.came = true;
  std::erase_if(lost_, [&](const Lost& each) { return each.process == hello.process; });
  std::vector<int> devices;
  const ProcessPlace place{hello.process, hello.processes, {}};
  const auto all = static_cast<int>(spec::core_count(client::ProcessBoard::params()));
  for (int device = 0; device < all; ++device) {
    if (place.process_of(device, all) == hello.process) {
      devices.push_back(device);
    }
  }
  return devices;
}

void BoardServer::leave(const wire::HelloT& hello, const std::vector<int>& devices,
                        const std::string& why) {
  const std::string text =
      fmt::format("{} has ended{}{}; launches that wait for its devices are over",
                  process_text(hello), why.empty() ? "" : ": ", why);
  if (!why.empty()) {
    std::fprintf(stderr, "tpuboard: %s\n", text.c_str());
  }
  {
    const base::MutexLock lock(mutex_);
    members_.at(static_cast<size_t>(hello.process)).there.reset();
    lost_.push_back({hello.process, devices, {ErrorCode::kUnavailable, text}});
  }
  end_lost(devices);
}

void BoardServer::end_lost(const std::vector<int>& devices) {
  std::vector<Lost> all;
  {
    const base::MutexLock lock(mutex_);
    std::ranges::copy_if(lost_, std::back_inserter(all), [&](const Lost& each) {
      return std::ranges::find_first_of(each.devices, devices) != each.devices.end();
    });
  }
  for (const Lost& each : all) {  // without the lock: it runs callbacks
    runtime_->leave(each.devices, each.error);
  }
}

std::shared_ptr<const client::CompiledProgram> BoardServer::program(
    std::span<const std::byte> container, std::span<const std::byte> artifact,
    const compiler::ImportOptions& import) {
  std::string key(text_of(container));
  key += text_of(artifact);
  const base::MutexLock lock(mutex_);
  std::erase_if(programs_, [](const auto& entry) { return entry.second.expired(); });
  if (auto known = programs_[key].lock()) {
    return known;
  }
  auto made = client::stored_program(container, {artifact.begin(), artifact.end()}, import);
  programs_[key] = made;
  return made;
}

}  // namespace tpu::pjrt

// What the program tpuboard_server calls.
extern "C" int tpuboard_serve(int socket, int processes, const char* folder) {
  try {
    tpu::pjrt::BoardServer server(tpu::pjrt::Descriptor(socket), processes, folder);
    server.run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tpuboard_server: %s\n", tpu::client::text_of(error).c_str());
    return 1;
  }
}
