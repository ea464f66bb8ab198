#include "transport/worker/tcp_options.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace tpu::driver::worker {
namespace {

// What cannot be set stays as it is.
void set_number(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

}  // namespace

void set_tcp_options(int socket) {
  set_number(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_number(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_number(socket, IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set_number(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_number(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace tpu::driver::worker
