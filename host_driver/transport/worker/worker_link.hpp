// The connection of a driver to its worker: requests, what the worker asks while it works on one,
// and what is known when there is no worker any more.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tpu/transport.hpp"
#include "transport/worker/channel.hpp"
#include "transport/worker/connector.hpp"
#include "transport/worker/worker_messages.hpp"

namespace tpu::driver::worker {

class WorkerLink {
 public:
  /// Throws Error: Unavailable, what the worker refuses with.
  WorkerLink(const OpenOptions& options, HostMemory& memory, size_t chips);

  /// Waits for the next request.
  void post(Kind kind, std::span<const std::byte> bytes, int descriptor = -1) {
    channel_.post(kind, bytes, descriptor);
  }
  /// Any thread.
  void interrupt();
  /// Any thread: there is no answer any more, and no other connection. Who waits for one is told
  /// that another process of the pod has failed.
  void give_up();
  /// Throws as ask() when the worker has ended since it answered last, other than by kClose. Asks
  /// it nothing. Of the thread that asks.
  void find_end();
  /// Sends what was posted, and the request; answers what the worker asks in between. Throws Error.
  std::vector<std::byte> ask(Kind kind, std::span<const std::byte> request);
  /// As ask(); `handler` (or null) is told of interrupts.
  Stopped run(const Run& run, const Transport::InterruptHandler* handler);
  /// Sends what was posted, and waits for nothing.
  void send() { channel_.flush(); }

  uint64_t now() const { return now_; }
  void set_now(uint64_t now) { now_ = now; }
  bool lost() const { return !lost_.empty(); }
  /// It was asked to close the board.
  bool closed() const { return closed_; }
  void lose_quietly(const std::string& why) { lost_ = why; }
  bool is_local() const { return channel_.is_local(); }
  /// For the error of a board that is lost. Null: the launch is over.
  void note_launch(uint32_t launch, const std::string* name);

 private:
  Message receive();
  template <class Call>
  auto of_channel(const Call& call);
  // What the worker was lent in a request is the driver's again behind it.
  class Lends {
   public:
    explicit Lends(Channel& channel) : channel_(channel) {}
    Lends(const Lends&) = delete;
    Lends& operator=(const Lends&) = delete;
    ~Lends() { channel_.keep_lent(); }

   private:
    Channel& channel_;
  };

  void begin(Kind kind, std::span<const std::byte> request);
  Message await_answer();
  bool handle(const Msi& msi, const Transport::InterruptHandler* handler);
  void send_memory(const Range& range);
  void take_memory(std::span<const std::byte> bytes);
  NextConnection recover(const std::string& why, uint64_t received);
  [[noreturn]] void lose(const std::string& why);
  [[noreturn]] void refuse(Kind kind);

  HostMemory& memory_;
  const size_t chips_;
  std::atomic<bool> gives_up_ = false;
  bool closed_ = false;
  std::string lost_;                          // why there is no board any more
  uint64_t now_ = 0;                          // passes only in calls that are answered
  std::map<uint32_t, std::string> launches_;  // under way, with their names
  Connector connector_;
  Channel channel_;
};

}  // namespace tpu::driver::worker
