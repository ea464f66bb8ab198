// Bytes of a connection. One thread reads at a time and one writes, which may be two threads.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "socket/descriptor.hpp"
#include "socket/parent_only.hpp"
#include "sync/patience.hpp"

namespace tpu::driver::worker {

class Stream {
 public:
  virtual ~Stream() = default;

  /// Waits for the first byte and takes what is there. Throws ConnectionLost.
  virtual size_t read(std::span<std::byte> bytes, base::Descriptor* descriptor) = 0;
  /// All of it. Throws ConnectionLost, also when the other end has read nothing for long.
  virtual void write(std::span<const std::byte> bytes, int descriptor) = 0;
  /// Ends read() and write(), of any thread.
  virtual void shut_down() = 0;
  /// For poll().
  virtual int socket() const = 0;
  /// write() of some bytes would not wait.
  bool takes_more() const;
  /// Descriptors can be sent.
  virtual bool is_local() const { return false; }
  /// Bytes have been taken from the socket, and read() has not returned them.
  virtual bool has_pending() { return false; }
  /// read() throws ConnectionLost when all calls from now on take that long together; 0: never.
  virtual void limit_reads(std::chrono::milliseconds limit) = 0;
};

/// A Unix or TCP socket that is connected.
class SocketStream : public Stream {
 public:
  SocketStream(base::Descriptor socket, bool local);
  size_t read(std::span<std::byte> bytes, base::Descriptor* descriptor) override;
  void write(std::span<const std::byte> bytes, int descriptor) override;
  void shut_down() override;
  int socket() const override { return socket_.number(); }
  bool is_local() const override { return local_; }
  void limit_reads(std::chrono::milliseconds limit) override;

 private:
  void wait_in_time() const;

  base::Descriptor socket_;
  base::ParentOnly parent_only_;
  std::optional<std::chrono::steady_clock::time_point> end_;  // of what is read
  base::Patience patience_;                                   // of the thread that reads
  const bool local_;
};

}  // namespace tpu::driver::worker
