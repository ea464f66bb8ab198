// What TCP connections between programs and workers, and between workers, have in common.
#pragma once

namespace tpu::driver::worker {

/// Short messages go at once, and a host that has gone away without a word is noticed after some 30
/// seconds in which nothing was sent. An end that is stopped lives: its kernel answers.
void set_tcp_options(int socket);

}  // namespace tpu::driver::worker
