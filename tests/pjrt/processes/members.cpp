#include "members.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

namespace tpu::test {
namespace {

using Clock = std::chrono::steady_clock;

/// Empty for a process that has ended, also one that ends meanwhile: then a read fails with ESRCH.
std::string command_line(const std::filesystem::path& process) {
  std::ifstream file(process / "cmdline", std::ios::binary);
  std::string words(size_t{64} << 10, '\0');
  file.read(words.data(), static_cast<std::streamsize>(words.size()));
  words.resize(static_cast<size_t>(file.gcount()));
  return words;
}

}  // namespace

void Reporter::say(const std::string& line) const {
  const std::string text = line + "\n";
  EXPECT_EQ(::write(pipe_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

Member::Member(const Variables& variables, const std::function<void(const Reporter&)>& work) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::close(ends[0]);
    for (const auto& [name, value] : variables) {
      ::setenv(name.c_str(), value.c_str(), 1);
    }
    work(Reporter(ends[1]));
    std::fflush(nullptr);
    std::exit(testing::Test::HasFailure() ? 1 : 0);  // as programs end: with its handlers
  }
  ::close(ends[1]);
  pipe_ = ends[0];
}

int Member::end() const {
  int status = 0;
  EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

Member::~Member() {
  if (!over_) {
    ::kill(pid_, SIGKILL);
    EXPECT_LE(end(), 0) << "process " << pid_ << " has found a failure";
  }
  ::close(pipe_);
}

void Member::send_signal(int number) const {
  EXPECT_EQ(::kill(pid_, number), 0);
  killed_ = killed_ || number == SIGKILL;
}

bool Member::read_more(Clock::time_point until) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
  pollfd ready{pipe_, POLLIN, 0};
  if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left)) <= 0) {
    return false;
  }
  char bytes[4096];
  const ssize_t count = ::read(pipe_, bytes, sizeof bytes);
  read_.append(bytes, static_cast<size_t>(std::max<ssize_t>(count, 0)));
  return count > 0;
}

std::string Member::line(std::chrono::seconds limit) {
  const Clock::time_point until = Clock::now() + limit;
  size_t end = 0;
  while ((end = read_.find('\n')) == std::string::npos) {
    if (!read_more(until)) {
      return {};
    }
  }
  std::string first = read_.substr(0, end);
  read_.erase(0, end + 1);
  return first;
}

std::string Member::rest(std::chrono::seconds limit) {
  const Clock::time_point until = Clock::now() + limit;
  while (read_more(until)) {
  }
  if (Clock::now() >= until) {
    ADD_FAILURE() << "process " << pid_ << " hangs";
    ::kill(pid_, SIGKILL);
  }
  over_ = true;
  EXPECT_EQ(end(), killed_ ? -SIGKILL : 0) << "process " << pid_;
  return std::move(read_);
}

Job::Job(int processes) : processes_(processes) {
  std::string pattern = testing::TempDir() + "tpuboard-XXXXXX";
  EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
  folder_ = pattern + "/meet";
}

Job::~Job() {
  members_.clear();
  EXPECT_TRUE(server_ends()) << "the server stays";
  std::filesystem::remove_all(std::filesystem::path(folder_).parent_path());
}

Member& Job::start(int process, const Work& work, const Variables& more) {
  Variables variables = {{"TPUBOARD_PROCESS_ID", std::to_string(process)},
                         {"TPUBOARD_PROCESS_COUNT", std::to_string(processes_)},
                         {"TPUBOARD_PROCESS_DIR", folder_},
                         {"TPUBOARD_MONITOR", "0"},
                         {"TPUBOARD_CACHE", "off"}};
  for (const auto& [name, value] : more) {
    variables[name] = value;
  }
  members_.push_back(std::make_unique<Member>(
      variables, [&](const Reporter& reporter) { work(process, reporter); }));
  return *members_.back();
}

void Job::start_all(const Work& work) {
  for (int process = 0; process < processes_; ++process) {
    start(process, work);
  }
}

void Job::for_each_server(const std::function<void(int process)>& work) const {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") == std::string::npos) {
      const std::string words = command_line(entry.path());
      if (words.find("tpuboard_server") != std::string::npos &&
          words.find(folder_) != std::string::npos) {
        work(std::stoi(name));
      }
    }
  }
}

int Job::server() const {
  int found = 0;
  for_each_server([&found](int process) { found = process; });
  return found;
}

int Job::servers() const {
  int count = 0;
  for_each_server([&count](int /*process*/) { ++count; });
  return count;
}

bool Job::server_ends(std::chrono::seconds limit) const {
  for (const auto until = Clock::now() + limit; Clock::now() < until;) {
    if (server() == 0) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

}  // namespace tpu::test
