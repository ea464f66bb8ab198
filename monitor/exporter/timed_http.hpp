// An HTTP server whose clients have a few seconds for a request, all of it: a client that sends or
// takes a byte now and then would hold a thread for ever, and some of them all threads.
#pragma once

#include <httplib.h>

#include <chrono>

namespace tpu::monitor {

class TimedHttpServer : public httplib::Server {
 public:
  explicit TimedHttpServer(std::chrono::milliseconds limit = std::chrono::seconds(5));

 private:
  // One request a connection.
  bool process_and_close_socket(socket_t socket) override;

  const std::chrono::milliseconds limit_;
};

}  // namespace tpu::monitor
