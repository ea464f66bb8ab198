// The lock is a record lock (fcntl): it belongs to the process, so that it ends with the process
// whatever children, made by fork(), still have the file open. A process that closes any copy of
// the file gives its lock back. It therefore opens the file of a lock that it has only once.
#include "compile_lock.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <map>
#include <thread>

#include "sync/mutex.hpp"

namespace tpu::client {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPause{20};

// Paths of the locks of this process. Children inherit the list, but not the locks.
class Held {
 public:
  bool add(const std::string& path) {
    const base::MutexLock lock(mutex_);
    const auto [it, added] = owners_.emplace(path, ::getpid());
    const bool free = added || it->second != ::getpid();
    it->second = ::getpid();
    return free;
  }
  void remove(const std::string& path) {
    const base::MutexLock lock(mutex_);
    owners_.erase(path);
  }

 private:
  base::Mutex mutex_;
  std::map<std::string, pid_t> owners_ TPU_GUARDED_BY(mutex_);
};

Held& held() {
  static auto* locks = new Held;  // never destroyed: threads may compile while the process exits
  return *locks;
}

struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

pid_t holder_of(int file) {
  struct flock lock = whole_file();
  return ::fcntl(file, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? lock.l_pid : 0;
}

// False: the file was removed by who had the lock, and another one may be there.
bool is_at(int file, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(file, &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

}  // namespace

CompileLock::CompileLock(const std::string& folder, const std::string& key,
                         std::chrono::milliseconds limit, std::chrono::milliseconds quiet)
    : path_(folder.empty() ? "" : folder + "/" + key + ".lock") {
  if (path_.empty()) {
    return;
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const auto start = Clock::now();
  bool told = false;
  while (!try_lock() && Clock::now() < start + limit) {
    has_waited_ = true;
    if (!told && Clock::now() >= start + quiet) {
      told = true;
      const std::string who =
          holder_ > 0 ? "process " + std::to_string(holder_) : "another process";
      std::fprintf(stderr, "tpuboard: waits for %s, which compiles the same program (%s)\n",
                   who.c_str(), path_.c_str());
    }
    std::this_thread::sleep_for(kPause);
  }
}

// True: it is locked, or cannot be.
bool CompileLock::try_lock() {
  if (!held().add(path_)) {
    holder_ = ::getpid();
    return false;
  }
  const bool done = try_file();
  if (file_ < 0) {
    held().remove(path_);
  }
  return done;
}

bool CompileLock::try_file() {
  const int file = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                          S_IRUSR | S_IWUSR);
  if (file < 0) {
    return true;
  }
  const struct flock lock = whole_file();
  bool impossible = false;
  if (::fcntl(file, F_SETLK, &lock) == 0) {
    if (is_at(file, path_)) {
      file_ = file;
      return true;
    }
  } else {
    impossible = errno != EAGAIN && errno != EACCES && errno != EINTR;
    holder_ = holder_of(file);
  }
  ::close(file);
  return impossible;
}

CompileLock::~CompileLock() {
  if (file_ >= 0) {
    ::unlink(path_.c_str());
    ::close(file_);
    held().remove(path_);
  }
}

}  // namespace tpu::client
