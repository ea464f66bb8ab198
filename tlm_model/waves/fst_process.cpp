// Both ends of the record stream, see fst_process.hpp. Record: one kind byte, then its fields,
// little-endian.
#include "waves/fst_process.hpp"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "gtkwave/fstapi.h"
#include "kernel/file_lock.hpp"
#include "kernel/ordinary_file.hpp"

namespace tpu::model {
namespace {

constexpr char kPushScope = 'S';
constexpr char kPopScope = 'U';
constexpr char kBits = 'B';
constexpr char kString = 'G';
constexpr char kTime = 'T';
constexpr char kSetBits = 'C';
constexpr char kSetString = 'X';
constexpr char kEnd = 'E';
constexpr char kAcknowledge = 'K';
constexpr size_t kBufferBytes = 1 << 16;
constexpr int kTaken = 2;  // exit status of the helper: another run took the file

// The helper's side: reads records from the socket and feeds the FST library.
class Writer {
 public:
  Writer(int socket, const char* path) : socket_(socket), path_(path) {}

  // Exit status of the helper: 0 when the file is whole.
  int run() {
    void* fst = fstWriterCreate(path_, 1);
    if (fst == nullptr) {
      return 1;
    }
    // The library has replaced the file that was locked before.
    std::optional<FileLock> lock;
    try {
      lock.emplace(path_);
    } catch (const std::runtime_error&) {
      return kTaken;
    }
    const char ready = kAcknowledge;
    if (::send(socket_, &ready, 1, MSG_NOSIGNAL) != 1) {
      return 1;
    }
    fstWriterSetTimescale(fst, -12);
    fstWriterSetPackType(fst, FST_WR_PT_LZ4);
    const bool complete = copy_records(fst);
    fstWriterClose(fst);
    if (!readable()) {
      return 1;
    }
    const char ack = kAcknowledge;
    return complete && ::write(socket_, &ack, 1) == 1 ? 0 : 1;
  }

 private:
  bool get(void* to, size_t size) {
    auto* at = static_cast<char*>(to);
    while (size > 0) {
      if (begin_ == end_) {
        const ssize_t got = ::read(socket_, buffer_, sizeof(buffer_));
        if (got < 0 && errno == EINTR) {
          continue;
        }
        if (got <= 0) {
          return false;
        }
        begin_ = 0;
        end_ = static_cast<size_t>(got);
      }
      const size_t part = std::min(size, end_ - begin_);
      std::memcpy(at, buffer_ + begin_, part);
      begin_ += part;
      at += part;
      size -= part;
    }
    return true;
  }

  bool get_text(std::string& text) {
    uint32_t size = 0;
    if (!get(&size, sizeof(size))) {
      return false;
    }
    text.resize(size);
    return get(text.data(), size);
  }

  struct Signal {
    fstHandle handle;
    uint32_t width;
  };

  bool copy_records(void* fst) {
    std::vector<Signal> signals;
    std::string text;
    char kind = 0;
    while (get(&kind, 1)) {
      uint32_t number = 0;
      uint64_t value = 0;
      switch (kind) {
        case kPushScope:
          if (!get_text(text)) {
            return false;
          }
          fstWriterSetScope(fst, FST_ST_VCD_MODULE, text.c_str(), nullptr);
          break;
        case kPopScope:
          fstWriterSetUpscope(fst);
          break;
        case kBits:
          if (!get(&number, sizeof(number)) || !get_text(text)) {
            return false;
          }
          signals.push_back(
              {fstWriterCreateVar(fst, FST_VT_VCD_WIRE, FST_VD_IMPLICIT, number, text.c_str(), 0),
               number});
          break;
        case kString:
          if (!get_text(text)) {
            return false;
          }
          signals.push_back(
              {fstWriterCreateVar(fst, FST_VT_GEN_STRING, FST_VD_IMPLICIT, 0, text.c_str(), 0), 0});
          break;
        case kTime:
          if (!get(&value, sizeof(value))) {
            return false;
          }
          fstWriterEmitTimeChange(fst, value);
          break;
        case kSetBits:
          if (!get(&number, sizeof(number)) || !get(&value, sizeof(value)) ||
              number >= signals.size()) {
            return false;
          }
          fstWriterEmitValueChange64(fst, signals[number].handle, signals[number].width, value);
          break;
        case kSetString:
          if (!get(&number, sizeof(number)) || !get_text(text) || number >= signals.size()) {
            return false;
          }
          fstWriterEmitVariableLengthValueChange(fst, signals[number].handle, text.data(),
                                                 static_cast<uint32_t>(text.size()));
          break;
        case kEnd:
          return true;
        default:
          return false;
      }
    }
    return false;  // the parent died; what came so far is kept
  }

  bool readable() const {
    void* reader = fstReaderOpen(path_);
    if (reader == nullptr) {
      return false;
    }
    fstReaderClose(reader);
    return true;
  }

  const int socket_;
  const char* path_;
  char buffer_[kBufferBytes];
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace

FstProcess::FstProcess(const std::string& path) : path_(path) {
  // Fails here, with the reason, rather than in the helper, which inherits the lock.
  std::optional<FileLock> lock;
  try {
    lock.emplace(path);
    need_ordinary_file(path);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(std::string("waves: ") + error.what());
  }
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
    const int status = Writer(ends[1], path_.c_str()).run();
    ::_exit(status);
  }
  ::close(ends[1]);
  socket_ = ends[0];
  // From here on another run finds the file taken. A helper that ended instead is told by finish().
  char ready = 0;
  while (::recv(socket_, &ready, 1, 0) < 0 && errno == EINTR) {
  }
  buffer_.reserve(kBufferBytes);
}

FstProcess::~FstProcess() { finish(); }

void FstProcess::put(const void* data, size_t size) {
  if (!error_.empty()) {
    return;
  }
  const auto* bytes = static_cast<const char*>(data);
  buffer_.insert(buffer_.end(), bytes, bytes + size);
  if (buffer_.size() >= kBufferBytes) {
    flush();
  }
}

void FstProcess::put_text(std::string_view text) {
  const auto size = static_cast<uint32_t>(text.size());
  put(&size, sizeof(size));
  put(text.data(), text.size());
}

void FstProcess::flush() {
  size_t sent = 0;
  while (sent < buffer_.size()) {
    const ssize_t done =
        ::send(socket_, buffer_.data() + sent, buffer_.size() - sent, MSG_NOSIGNAL);
    if (done < 0 && errno == EINTR) {
      continue;
    }
    if (done <= 0) {
      error_ =
          "waves: writing " + path_ + " failed (is the disk full?); the run goes on without waves";
      break;
    }
    sent += static_cast<size_t>(done);
  }
  buffer_.clear();
}

void FstProcess::push_scope(std::string_view name) {
  put(&kPushScope, 1);
  put_text(name);
}

void FstProcess::pop_scope() { put(&kPopScope, 1); }

uint32_t FstProcess::add_bits(std::string_view name, uint32_t width) {
  put(&kBits, 1);
  put(&width, sizeof(width));
  put_text(name);
  return signals_++;
}

uint32_t FstProcess::add_string(std::string_view name) {
  put(&kString, 1);
  put_text(name);
  return signals_++;
}

void FstProcess::time(uint64_t picoseconds) {
  put(&kTime, 1);
  put(&picoseconds, sizeof(picoseconds));
}

void FstProcess::set_bits(uint32_t signal, uint64_t value) {
  put(&kSetBits, 1);
  put(&signal, sizeof(signal));
  put(&value, sizeof(value));
}

void FstProcess::set_string(uint32_t signal, std::string_view value) {
  put(&kSetString, 1);
  put(&signal, sizeof(signal));
  put_text(value);
}

std::string FstProcess::finish() {
  if (child_ < 0) {
    return error_;
  }
  put(&kEnd, 1);
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
      got == 1 && ack == kAcknowledge && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kTaken) {
    error_ = "waves: " + path_ + " was taken by another run; give each its own file";
  } else if (!whole && error_.empty()) {
    error_ = "waves: writing " + path_ + " failed (is the disk full?); the file is incomplete";
  }
  return error_;
}

}  // namespace tpu::model
