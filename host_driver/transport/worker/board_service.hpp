// What a worker does for the driver that has its board: its calls, one after the other.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "socket/pipe.hpp"
#include "socket/shared_memory.hpp"
#include "tpu/board.hpp"
#include "tpu/transport.hpp"
#include "transport/sim/pod_part.hpp"
#include "transport/worker/channel.hpp"
#include "transport/worker/pod_sockets.hpp"
#include "transport/worker/remote_memory.hpp"
#include "transport/worker/run_watch.hpp"
#include "transport/worker/worker_messages.hpp"

namespace tpu::driver::worker {

/// A board in this process, or its `part` of a pod, for programs in others. Throws Error.
std::unique_ptr<Transport> make_board(const std::string& transport, const TransportRequest& request,
                                      HostMemory& memory, const PodPart& part = {});

/// How a worker reaches those that it shares a pod with, where they have no memory in common.
struct WireEnds {
  std::string certificate, key;  ///< files in PEM, with which it connects; empty: no TLS
  std::vector<std::shared_ptr<base::Pipe>> pipes;  ///< that are there already, by rank
};

class BoardService {
 public:
  /// `options`: what the worker was started with. `done` is called before the driver is told that
  /// its board is closed, or that it gets none.
  BoardService(Channel& channel, const OpenOptions& options, std::function<void()> done,
               WireEnds ends = {});
  ~BoardService();

  /// Until the driver closes the board. Throws Error (Unavailable) when the driver is gone.
  void serve();

 private:
  bool serve_one(Message& message);
  bool answer(Message& message);
  void serve_inside(Message& message, bool& more);
  void fail(Kind kind, const Error& error);
  Message next();
  void attach(const Attach& attach);
  void map(const Message& message);
  std::vector<std::byte> listen();
  void take_part(const Message& message);
  std::vector<std::byte> read(const Read& read);
  void run(const Run& run);
  void watch(bool interrupted);
  bool tell(const PausedRun& run);
  Answer call(const Call& call);
  void name(const Name& name);
  Answer close();
  Transport& board();
  void check_place(int chip, int bar) const;
  void post_answer(std::span<const std::byte> answer);

  Channel& channel_;
  const OpenOptions options_;
  const std::function<void()> done_;
  WireEnds ends_;
  SimOptions sim_;  // what the board has
  int chips_ = 0;
  RemoteMemory memory_;
  PodPart part_;
  std::optional<base::SharedMemory> wires_;
  std::optional<PodSockets> sockets_;
  std::unique_ptr<Transport> board_;
  std::unique_ptr<RunWatch> watch_;
  std::chrono::nanoseconds limit_{0};  // of the run
  bool asks_in_run_ = false;           // while the board waits for host memory
  bool told_end_ = false;              // the driver has the end of the run already
  bool goes_inside_ = false;           // calls are served in the thread of the board
  std::map<uint64_t, std::shared_ptr<const exe::ExecutableT>> programs_;
};

}  // namespace tpu::driver::worker
