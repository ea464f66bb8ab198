// The connection to a debugger: listens on a TCP port and takes one debugger at a time. A client
// that does not begin as a debugger does is disconnected and changes nothing. A thread of its own
// reads, acknowledges packets and puts them in line for the kernel thread, which takes and answers
// them. What packets mean is in gdb_session.hpp.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "debug/rsp.hpp"

namespace tpu::model {

struct GdbEvent {
  enum class Kind : uint8_t { kConnected, kPacket, kInterrupt, kGone };
  Kind kind;
  std::string packet;
};

class GdbLink {
 public:
  // "[ADDRESS]:PORT"; without an address the local host alone can connect, port 0 picks a free one.
  // Throws std::runtime_error when that is not what `address` is, or when nobody can listen there.
  explicit GdbLink(const std::string& address);
  ~GdbLink();
  GdbLink(const GdbLink&) = delete;
  GdbLink& operator=(const GdbLink&) = delete;

  // "127.0.0.1:1234"
  const std::string& address() const { return address_; }

  // Debuggers may connect. `on_event` is called in the reading thread behind each event.
  void start(std::function<void()> on_event);

  // The next event, if there is one; or as soon as there is one.
  std::optional<GdbEvent> poll();
  GdbEvent wait();

  // A packet to the debugger; nothing happens when it is gone.
  void send(std::string_view body);
  void end_acks();

 private:
  struct Refused {  // a second debugger, until it has been told
    int fd;
    bool told;
  };

  void listen_at(const std::string& host, const std::string& port);
  void read_thread();
  void accept_one();
  void read_client();
  bool read_refused(Refused& refused);
  void take_items(const std::vector<RspItem>& items);
  void send_raw(std::string_view bytes);
  bool greet(char first);
  void drop_client();
  void post(GdbEvent event);

  std::string address_;
  int listener_ = -1;
  int wake_ = -1;  // eventfd: the reading thread is to end
  std::function<void()> on_event_;
  RspReader reader_;
  bool greeted_ = false;  // the client has spoken as a debugger does
  std::vector<Refused> refused_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable turn_;
  std::deque<GdbEvent> events_;
  int client_ = -1;  // opened and closed by the reading thread
  bool acks_ = true;
  std::string last_frame_;
  std::thread thread_;
};

}  // namespace tpu::model
