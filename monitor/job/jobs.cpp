// A process is known by its number and the time when it began, so that a number that is used again
// is not taken for the old job. No locks and no sockets: nothing is left to wait for when a job is
// killed.
#include "job/jobs.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <span>
#include <sstream>

#include "files/files.hpp"
#include "tpu/error.hpp"

namespace tpu::monitor {

namespace fs = std::filesystem;
using driver::Error;
using driver::ErrorCode;
namespace {

constexpr std::string_view kSuffix = ".json";

fs::path file_of(const fs::path& folder, int64_t pid) {
  return folder / fmt::format("{}{}", pid, kSuffix);
}

std::optional<int64_t> pid_of(const fs::path& file) {
  const std::string name = file.filename().string();
  int64_t pid = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  return error == std::errc() && std::string_view(end) == kSuffix ? std::optional(pid)
                                                                  : std::nullopt;
}

std::string user_name(uid_t user) {
  const passwd* entry = getpwuid(user);
  return entry != nullptr ? entry->pw_name : std::to_string(user);
}

std::optional<std::string> text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return std::nullopt;
  }
  return text.str();
}

// Root sees all.
void need_own(const fs::path& folder) {
  struct stat found {};
  if (lstat(folder.c_str(), &found) != 0) {
    return;
  }
  if (geteuid() != 0 && found.st_uid != geteuid()) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{}: the jobs there are those of the user {}; run the monitor as this "
                            "user",
                            folder.string(), user_name(found.st_uid)));
  }
}

// The files of others are not looked at.
void need_job(const fs::path& folder, int64_t pid) {
  if (read_job(folder, pid).report) {
    return;
  }
  struct stat process {};
  if (stat(fmt::format("/proc/{}", pid).c_str(), &process) != 0) {
    throw Error(ErrorCode::kFailedPrecondition, fmt::format("there is no process {}", pid));
  }
  throw Error(ErrorCode::kFailedPrecondition,
              process.st_uid != geteuid()
                  ? fmt::format("process {} belongs to the user {}; run the monitor as this user",
                                pid, user_name(process.st_uid))
                  : fmt::format("process {} has no board open, or tells nothing of it in {}", pid,
                                folder.string()));
}

bool alive(const Report& report) {
  return process_start(report.now.pid) == report.now.process_start;
}

}  // namespace

fs::path jobs_folder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') {
    return fs::path(runtime) / "tpuboard";
  }
  std::error_code none;
  const fs::path temporary = fs::temp_directory_path(none);
  return (none ? fs::path("/tmp") : temporary) / fmt::format("tpuboard-{}", geteuid());
}

// Field 22 of /proc/PID/stat; the second one is a name in brackets that may hold anything.
std::optional<uint64_t> process_start(int64_t pid) {
  const std::optional<std::string> text = text_of(fmt::format("/proc/{}/stat", pid));
  const size_t name_end = text ? text->rfind(')') : std::string::npos;
  if (name_end == std::string::npos) {
    return std::nullopt;
  }
  std::istringstream rest(text->substr(name_end + 1));
  std::string state;
  std::string skipped;
  rest >> state;
  constexpr int kBetween = 18;
  for (int i = 0; i < kBetween; ++i) {
    rest >> skipped;
  }
  uint64_t start = 0;
  rest >> start;
  return rest && state != "Z" && state != "X" ? std::optional(start) : std::nullopt;
}

JobFile::JobFile(const fs::path& folder) : path_(file_of(folder, getpid())), pid_(getpid()) {
  if (mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{}: cannot be made: {}", folder.string(), std::strerror(errno)));
  }
  struct stat found {};
  if (lstat(folder.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) || found.st_uid != geteuid() ||
      (found.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{}: is no folder of this user alone", folder.string()));
  }
}

JobFile::~JobFile() {
  if (pid_ == getpid()) {
    std::error_code none;
    fs::remove(path_, none);
  }
}

void JobFile::write(const Report& report) const {
  const std::string text = json_line(report) + "\n";
  driver::write_file(path_.string(), std::as_bytes(std::span(text)));
}

std::vector<int64_t> running_jobs(const fs::path& folder) {
  need_own(folder);
  std::vector<int64_t> jobs;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const std::optional<int64_t> pid = pid_of(entry.path());
    if (!pid) {
      continue;
    }
    if (read_job(folder, *pid).report) {
      jobs.push_back(*pid);
    } else {
      fs::remove(entry.path(), none);
    }
  }
  std::sort(jobs.begin(), jobs.end());
  return jobs;
}

JobNews read_job(const fs::path& folder, int64_t pid) {
  const fs::path path = file_of(folder, pid);
  const std::optional<std::string> text = text_of(path);
  if (!text) {
    return {std::nullopt, JobEnd::kDone};
  }
  if (!process_start(pid)) {  // whatever it left; or it is just taking its file away
    return {std::nullopt, fs::exists(path) ? JobEnd::kKilled : JobEnd::kDone};
  }
  Report report = report_from(*text, path.string());
  if (!alive(report)) {
    return {std::nullopt, fs::exists(path) ? JobEnd::kKilled : JobEnd::kDone};
  }
  return {std::move(report), JobEnd::kDone};
}

int64_t choose_job(const fs::path& folder, int64_t pid) {
  if (pid != 0) {
    need_own(folder);
    need_job(folder, pid);
    return pid;
  }
  const std::vector<int64_t> jobs = running_jobs(folder);
  if (jobs.empty()) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("no job is running (none tells of itself in {})", folder.string()));
  }
  if (jobs.size() > 1) {
    std::string list;
    for (const int64_t job : jobs) {
      const JobNews news = read_job(folder, job);
      list +=
          fmt::format("\n  --pid {}  {}", job, news.report ? news.report->now.command : "ended");
    }
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{} jobs are running; choose one:{}", jobs.size(), list));
  }
  return jobs.front();
}

}  // namespace tpu::monitor
