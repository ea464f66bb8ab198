// Connects a driver to a worker: the first time, and again when the connection breaks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tpu/board.hpp"
#include "transport/worker/address.hpp"
#include "transport/worker/channel.hpp"
#include "transport/worker/tls.hpp"
#include "transport/worker/worker_messages.hpp"

namespace tpu::driver::worker {

class Connector {
 public:
  /// Reads the files that the options name. Throws Error.
  explicit Connector(const OpenOptions& options);

  /// A new session; waits for a board as long as the options say. Throws Error: Unavailable, what
  /// the worker refuses with.
  NextConnection open();
  /// The same session on a new connection. Tries until the session is over, or another thread sets
  /// `gives_up`. Throws Error (Unavailable).
  NextConnection open_again(const std::string& why, uint64_t received,
                            const std::atomic<bool>& gives_up);

  /// "the worker at unix:/run/board (pid 12)"
  std::string name() const;

 private:
  NextConnection attempt(const Hello& hello, Welcome& welcome);
  bool worker_has_ended() const;

  const Address address_;
  const std::vector<std::byte> token_;
  const std::unique_ptr<TlsClient> tls_;  // null: none
  const std::chrono::milliseconds wait_;
  const std::string chips_;  // that are leased
  Welcome session_;
  int listener_ = 0;  // the process that listens, on this host; 0: not known
};

}  // namespace tpu::driver::worker
