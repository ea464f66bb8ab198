// The board's end of the record stream.
#include "waves/fst_process.hpp"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "file/file_lock.hpp"
#include "file/ordinary_file.hpp"
#include "waves/fst_writer.hpp"

namespace tpu::model {

FstProcess::FstProcess(const FstOptions& options)
    : path_(options.path), one_thread_(options.one_thread) {
  // Fails here, with the reason, rather than in the helper, which inherits the lock.
  std::optional<FileLock> lock;
  try {
    lock.emplace(path_);
    need_ordinary_file(path_);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(std::string("waves: ") + error.what());
  }
  void* shared =
      ::mmap(nullptr, sizeof(WaveTail), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    throw std::runtime_error(std::string("waves: mmap: ") + std::strerror(errno));
  }
  tail_ = new (shared) WaveTail;
  try {
    start_helper(options);
  } catch (...) {
    ::munmap(tail_, sizeof(WaveTail));
    throw;
  }
}

FstProcess::~FstProcess() {
  finish();
  ::munmap(tail_, sizeof(WaveTail));
}

void FstProcess::start_helper(const FstOptions& options) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw std::runtime_error(std::string("waves: socketpair: ") + std::strerror(errno));
  }
  std::fflush(nullptr);
  child_ = ::fork();
  if (child_ < 0) {
    ::close(ends[0]);
    ::close(ends[1]);
    throw std::runtime_error(std::string("waves: fork: ") + std::strerror(errno));
  }
  if (child_ == 0) {
    ::close(ends[0]);
    // A run that is stopped closes the socket; the file is finished then.
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      ::signal(signal, SIG_IGN);
    }
    const int status = FstWriter(ends[1], *tail_, options).run();
    ::_exit(status);
  }
  ::close(ends[1]);
  socket_ = ends[0];
  // From here on another run finds the file taken. A helper that ended instead is told by finish().
  char ready = 0;
  while (::recv(socket_, &ready, 1, 0) < 0 && errno == EINTR) {
  }
}

// One record whole: what is in the tail can be read at any time.
void FstProcess::put(const WaveRecord& record, std::string_view bytes) {
  if (one_thread_) {
    return put_locked(record, bytes);
  }
  const std::lock_guard lock(mutex_);
  put_locked(record, bytes);
}

void FstProcess::put_locked(const WaveRecord& record, std::string_view bytes) {
  if (!error_.empty() || child_ < 0) {
    return;
  }
  const size_t wanted = sizeof(record) + bytes.size();
  size_t size = tail_->size.load(std::memory_order_relaxed);
  if (size + wanted > WaveTail::kBytes) {
    flush();
    size = 0;
  }
  std::memcpy(tail_->bytes + size, &record, sizeof(record));
  if (!bytes.empty()) {
    std::memcpy(tail_->bytes + size + sizeof(record), bytes.data(), bytes.size());
  }
  tail_->size.store(size + wanted, std::memory_order_release);
}

void FstProcess::flush() {
  const size_t size = tail_->size.load(std::memory_order_relaxed);
  size_t sent = 0;
  while (sent < size) {
    const ssize_t done = ::send(socket_, tail_->bytes + sent, size - sent, MSG_NOSIGNAL);
    if (done < 0 && errno == EINTR) {
      continue;
    }
    if (done <= 0) {
      error_ = "waves: writing " + path_ +
               " failed (is the disk full?); the run continues without waves";
      break;
    }
    sent += static_cast<size_t>(done);
  }
  // In this order a reader never sees bytes twice.
  tail_->size.store(0, std::memory_order_release);
  tail_->begin.fetch_add(size, std::memory_order_release);
}

void FstProcess::push_scope(std::string_view name) {
  put({WaveRecord::Kind::kScope, 0, 0, name.size()}, name);
}

void FstProcess::pop_scope() { put({WaveRecord::Kind::kUpscope, 0, 0, 0}, {}); }

uint32_t FstProcess::add_enum(std::string_view name, uint32_t bits,
                              std::span<const std::pair<uint64_t, std::string_view>> values) {
  std::string text(name);
  for (const auto& [value, literal] : values) {
    text += "\n" + std::to_string(value) + " " + std::string(literal);
  }
  put({WaveRecord::Kind::kEnum, bits, 0, text.size()}, text);
  return ++enums_;
}

uint32_t FstProcess::add_signal(std::string_view name, uint32_t width, uint32_t enum_number) {
  put({WaveRecord::Kind::kSignal, width, enum_number, name.size()}, name);
  return signals_++;
}

uint32_t FstProcess::add_text(std::string_view text, WaveTone tone) {
  put({WaveRecord::Kind::kText, static_cast<uint32_t>(tone), 0, text.size()}, text);
  return ++texts_;
}

void FstProcess::set_words(uint32_t signal, uint64_t cycle, std::span<const uint32_t> words) {
  put({WaveRecord::Kind::kSetWords, signal, cycle, words.size_bytes()},
      {reinterpret_cast<const char*>(words.data()), words.size_bytes()});
}

void FstProcess::hold(uint32_t holder, uint64_t cycle) {
  const std::lock_guard lock(mutex_);
  if (holder >= holds_.size()) {
    holds_.resize(holder + 1, kNone);
  }
  holds_[holder] = cycle;
}

void FstProcess::reached(uint64_t cycle) {
  {
    const std::lock_guard lock(mutex_);
    for (const uint64_t held : holds_) {
      cycle = std::min(cycle, held);
    }
  }
  put({WaveRecord::Kind::kReached, 0, cycle, 0}, {});
}

std::string FstProcess::finish(bool keep) {
  const std::lock_guard lock(mutex_);
  if (child_ < 0) {
    return error_;
  }
  put_locked({WaveRecord::Kind::kEnd, keep ? 1U : 0U, 0, 0}, {});
  if (error_.empty()) {
    flush();
  }
  ::shutdown(socket_, SHUT_WR);
  char ack = 0;
  ssize_t got = 0;
  do {
    got = ::read(socket_, &ack, 1);
  } while (got < 0 && errno == EINTR);
  ::close(socket_);
  int status = 0;
  while (::waitpid(child_, &status, 0) < 0 && errno == EINTR) {
  }
  child_ = -1;
  const bool whole =
      got == 1 && ack == kWaveAcknowledge && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kWaveFileTaken) {
    error_ = "waves: " + path_ + " was taken by another run; give each its own file";
  } else if (WIFEXITED(status) && WEXITSTATUS(status) == kWaveViewsFailed) {
    error_ = "waves: writing the files for viewers beside " + path_ +
             " failed (is the disk full?); the wave file is whole";
  } else if (!whole && error_.empty()) {
    error_ = "waves: writing " + path_ + " failed (is the disk full?); the file is incomplete";
  }
  return error_;
}

}  // namespace tpu::model
