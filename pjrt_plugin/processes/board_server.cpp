#include "processes/board_server.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>

#include "process_board.hpp"
#include "processes/greeting.hpp"
#include "processes/meeting.hpp"
#include "program_cache.hpp"
#include "runtime/process_runtime.hpp"
#include "topology.hpp"
#include "tpu/worker.hpp"

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

}  // namespace

BoardServer::BoardServer(Descriptor listening, int processes, std::string folder)
    : listening_(std::move(listening)),
      folder_(std::move(folder)),
      opened_folder_(open_folder(folder_)),
      owners_(owners_of_environment(client::ProcessBoard::params(), processes)),
      host_(hello_of_process({.processes = processes, .folder = folder_, .owners = owners_})),
      members_(static_cast<size_t>(processes)) {}

void BoardServer::run() {
  try {
    runtime_ = &own_runtime([this](int device) { return owner_text(device); });
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
    } else if (folder_is_gone() || (Clock::now() - busy >= patience() && close_door())) {
      return;
    }
  }
}

void BoardServer::accept_one() {
  Descriptor socket(::accept4(listening_.number(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket.valid()) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      wait_for_room(std::strerror(errno));
    }
    // Else whoever wanted to connect has gone. Any other error must not keep a processor busy.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return;
  }
  auto accepted = std::make_shared<FrameSocket>(std::move(socket));
  if (accepted->peer().user == ::geteuid()) {
    try {
      sessions_.emplace_back(std::move(accepted), *this);
    } catch (const std::system_error& error) {
      wait_for_room(error.what());
    }
  }
}

// No descriptor or no thread is left. Whoever wants to connect waits, or finds the connection
// closed; the others go on.
void BoardServer::wait_for_room(const std::string& why) {
  if (!std::exchange(said_no_room_, true)) {
    std::fprintf(stderr, "tpuboard: a process cannot connect to the board: %s (ulimit -n, -u)\n",
                 why.c_str());
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(kPollMilliseconds));
}

// Until all have come, the next of them may be on its way.
std::chrono::seconds BoardServer::patience() const {
  const base::MutexLock lock(mutex_);
  const bool all =
      std::ranges::all_of(members_, [](const Member& each) { return each.last.has_value(); });
  return all || not_open_ ? std::chrono::seconds(all ? 0 : 1) : kStartPatience;
}

// Nobody can find the socket any more. By the name there may be the folder of another server.
bool BoardServer::folder_is_gone() const {
  struct stat here {};
  struct stat own {};
  return ::stat(folder_.c_str(), &here) != 0 || ::fstat(opened_folder_.number(), &own) != 0 ||
         here.st_dev != own.st_dev || here.st_ino != own.st_ino;
}

bool BoardServer::is_empty() const { return sessions_.empty(); }

bool BoardServer::close_door() {
  const MeetingLock lock(folder_);
  if (!lock.is_folder(opened_folder_)) {
    return true;
  }
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
  if (member.is_there) {
    throw driver::Error(ErrorCode::kFailedPrecondition,
                        fmt::format("{} cannot share the board: {} is there already",
                                    process_text(hello), process_text(*member.last)));
  }
  member.is_there = true;
  member.last = hello;
  std::erase_if(lost_, [&](const Lost& each) { return each.process == hello.process; });
  return devices_of_process(owners_, hello.process);
}

driver::Error BoardServer::lose(const wire::HelloT& hello, const std::vector<int>& devices,
                                const std::string& why) {
  const std::string text =
      fmt::format("{} has ended{}{}; launches that wait for its devices are over",
                  process_text(hello), why.empty() ? "" : ": ", why);
  if (!why.empty()) {
    std::fprintf(stderr, "tpuboard: %s\n", text.c_str());
  }
  const driver::Error error(ErrorCode::kUnavailable, text);
  {
    const base::MutexLock lock(mutex_);
    lost_.push_back({hello.process, devices, error});
  }
  end_lost(devices);
  return error;
}

// Of a process that has left too: launches wait for it all the same.
std::string BoardServer::owner_text(int device) const {
  const int process = owners_.at(static_cast<size_t>(device));
  const base::MutexLock lock(mutex_);
  const Member& member = members_.at(static_cast<size_t>(process));
  return member.last ? process_text(*member.last)
                     : fmt::format("process {}, which has never come", process);
}

void BoardServer::leave(const wire::HelloT& hello) {
  const base::MutexLock lock(mutex_);
  members_.at(static_cast<size_t>(hello.process)).is_there = false;
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
  // Copies: the process may write its memory meanwhile.
  const std::vector<std::byte> own(container.begin(), container.end());
  std::vector<std::byte> made_from(artifact.begin(), artifact.end());
  const auto hash = [](std::span<const std::byte> bytes) {
    return client::program_key(bytes, client::ProcessBoard::params(), {});
  };
  const std::string key = hash(own) + hash(made_from);
  const auto known = [&]() TPU_REQUIRES(mutex_) {
    std::erase_if(programs_, [](const auto& entry) { return entry.second.expired(); });
    const auto it = programs_.find(key);
    return it == programs_.end() ? nullptr : it->second.lock();
  };
  {
    const base::MutexLock lock(mutex_);
    if (auto there = known()) {
      return there;
    }
  }
  // Without the lock, for which every launch waits.
  auto made = client::stored_program(own, std::move(made_from), import);
  const base::MutexLock lock(mutex_);
  if (auto there = known()) {
    return there;  // another session was faster
  }
  programs_[key] = made;
  return made;
}

}  // namespace tpu::pjrt

// What the program tpuboard_server calls: for the board that processes share, and for boards of a
// pod in processes.
extern "C" int tpuboard_serve_maker() { return tpu::driver::serve_boards_of_maker(); }

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
