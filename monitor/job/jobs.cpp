// A process is known by its number and the time when it began, so that a number that is used again
// is not taken for the old job. No locks and no sockets: nothing is left to wait for when a job is
// killed.
#include "job/jobs.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <span>
#include <sstream>

#include "file/files.hpp"
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

[[noreturn]] void refuse(const std::string& text) {
  throw Error(ErrorCode::kFailedPrecondition, text);
}

// A file of the folder as it stands there, no longer than a job writes: links are not followed, and
// a pipe is not waited for.
struct OpenJobFile {
  std::string text;
  uid_t owner = 0;
  time_t written = 0;
};

// Nothing: there is none. Throws for what is no file of a job.
std::optional<OpenJobFile> open_job(const fs::path& path) {
  constexpr size_t kMostBytes = size_t{1} << 24;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0 && errno == ENOENT) {
    return std::nullopt;
  }
  if (file < 0) {
    refuse(fmt::format("{}: cannot be opened: {}", path.string(), std::strerror(errno)));
  }
  struct stat found {};
  OpenJobFile opened;
  const bool regular = fstat(file, &found) == 0 && S_ISREG(found.st_mode);
  std::array<char, 65536> piece{};
  ssize_t count = 0;
  while (regular && opened.text.size() <= kMostBytes &&
         (count = read(file, piece.data(), piece.size())) > 0) {
    opened.text.append(piece.data(), static_cast<size_t>(count));
  }
  close(file);
  if (!regular || opened.text.size() > kMostBytes) {
    refuse(fmt::format("{}: does not hold the metrics of a job; delete it", path.string()));
  }
  opened.owner = found.st_uid;
  opened.written = found.st_mtime;
  return opened;
}

// The user that a process runs as; nothing when there is none.
std::optional<uid_t> process_user(int64_t pid) {
  struct stat process {};
  return stat(fmt::format("/proc/{}", pid).c_str(), &process) == 0 ? std::optional(process.st_uid)
                                                                   : std::nullopt;
}

// One's own, or, for root, that of the process.
bool is_believed(uid_t owner, int64_t pid) {
  return owner == geteuid() || (geteuid() == 0 && process_user(pid) == owner);
}

// Root sees all.
void need_own(const fs::path& folder) {
  struct stat found {};
  if (stat(folder.c_str(), &found) != 0) {
    return;
  }
  if (geteuid() != 0 && found.st_uid != geteuid()) {
    refuse(fmt::format("{}: its jobs belong to the user {}; run the monitor as this user",
                       folder.string(), user_name(found.st_uid)));
  }
}

// The files of others are not looked at.
void need_job(const fs::path& folder, int64_t pid) {
  if (read_job(folder, pid).report) {
    return;
  }
  const std::optional<uid_t> user = process_user(pid);
  if (!user) {
    refuse(fmt::format("there is no process {}", pid));
  }
  refuse(*user != geteuid()
             ? fmt::format("process {} belongs to the user {}; run the monitor as this user", pid,
                           user_name(*user))
             : fmt::format("process {} has no open board, or writes no metrics to {}", pid,
                           folder.string()));
}

bool alive(const Report& report) {
  return process_start(report.now.pid) == report.now.process_start;
}

// The file of a job of this user that was killed: its own text says of which process it is, and
// that process is gone. One of another container looks so too, but has news every second.
bool was_left(const fs::path& path, int64_t pid) {
  constexpr double kSilentSeconds = 60;
  try {
    const std::optional<OpenJobFile> file = open_job(path);
    if (!file || file->owner != geteuid() ||
        seconds_since_1970() - static_cast<double>(file->written) < kSilentSeconds) {
      return false;
    }
    const Report report = report_from(file->text, path.string());
    return report.now.pid == pid && !alive(report);
  } catch (const Error&) {
    return false;
  }
}

void remove_left(const fs::path& folder) {
  std::error_code none;
  for (fs::directory_iterator at(folder, none), end; !none && at != end; at.increment(none)) {
    const std::optional<int64_t> pid = pid_of(at->path());
    if (pid && was_left(at->path(), *pid)) {
      std::error_code gone;
      fs::remove(at->path(), gone);
    }
  }
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
    throw Error(ErrorCode::kFailedPrecondition, fmt::format("{}: cannot create this folder: {}",
                                                            folder.string(), std::strerror(errno)));
  }
  struct stat found {};
  if (lstat(folder.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) || found.st_uid != geteuid() ||
      (found.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{}: expected a folder of this user that no other user can write to",
                            folder.string()));
  }
  remove_left(folder);
}

JobFile::~JobFile() {
  if (written_ && pid_ == getpid()) {
    std::error_code none;
    fs::remove(path_, none);
  }
}

void JobFile::write(const Report& report) const {
  const std::string text = json_line(report) + "\n";
  driver::write_file(path_.string(), std::as_bytes(std::span(text)));
  written_ = true;
}

JobList list_jobs(const fs::path& folder) {
  need_own(folder);
  JobList list;
  std::error_code none;
  for (fs::directory_iterator at(folder, none), end; !none && at != end; at.increment(none)) {
    const std::optional<int64_t> pid = pid_of(at->path());
    if (!pid) {
      continue;
    }
    try {
      if (read_job(folder, *pid).report) {
        list.running.push_back(*pid);
      }
    } catch (const Error& error) {
      list.unreadable.push_back(error.message());
    }
  }
  std::sort(list.running.begin(), list.running.end());
  std::sort(list.unreadable.begin(), list.unreadable.end());
  return list;
}

std::vector<int64_t> running_jobs(const fs::path& folder) { return list_jobs(folder).running; }

JobNews read_job(const fs::path& folder, int64_t pid) {
  const fs::path path = file_of(folder, pid);
  // What a process that is gone has left is not read.
  if (!process_start(pid)) {
    std::error_code none;
    return {std::nullopt, fs::exists(path, none) ? JobEnd::kKilled : JobEnd::kDone};
  }
  const std::optional<OpenJobFile> file = open_job(path);
  if (!file) {
    return {std::nullopt, JobEnd::kDone};
  }
  if (!is_believed(file->owner, pid)) {
    refuse(fmt::format("{}: belongs to the user {}: expected the user of process {}", path.string(),
                       user_name(file->owner), pid));
  }
  Report report = report_from(file->text, path.string());
  if (report.now.pid != pid) {
    refuse(fmt::format("{}: expected the metrics of process {}, found those of {}; delete it",
                       path.string(), pid, report.now.pid));
  }
  if (!alive(report)) {
    std::error_code none;
    return {std::nullopt, fs::exists(path, none) ? JobEnd::kKilled : JobEnd::kDone};
  }
  return {std::move(report), JobEnd::kDone};
}

int64_t choose_job(const fs::path& folder, int64_t pid) {
  if (pid != 0) {
    need_own(folder);
    need_job(folder, pid);
    return pid;
  }
  const JobList found = list_jobs(folder);
  const std::vector<int64_t>& jobs = found.running;
  if (jobs.empty()) {
    refuse(fmt::format(
        "no job is running: expected a file PID.json of a running process in {}, "
        "found none{}{}",
        folder.string(), found.unreadable.empty() ? "" : "\n", fmt::join(found.unreadable, "\n")));
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
