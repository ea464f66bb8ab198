// A worker: listens, and gives each driver a board of its own in a process of its own, as many at a
// time as it has boards. This process has none: it passes connections on to those that have.
#pragma once

#include <chrono>
#include <string>

#include "tpu/board.hpp"

namespace tpu::driver {

/// Of serve_boards().
struct ServeOptions {
  std::string listen;  ///< unix:PATH or tcp:HOST:PORT
  OpenOptions board;   ///< of each board
  int boards = 1;      ///< at a time
  /// A session whose connection broke waits so long for another one.
  std::chrono::milliseconds linger{60'000};
  /// A connection that has not said what it is ends behind so long.
  std::chrono::milliseconds silence{5'000};
  std::string token;     ///< file; empty: a Unix socket of this user needs none
  std::string tls_cert;  ///< file; empty: no TLS
  std::string tls_key;   ///< file of the certificate's private key
  /// A socket of the process that has made this one: a byte goes there when programs can connect,
  /// and the worker ends, without words, when the other end is closed. -1: none.
  int maker = -1;
};

/// Until SIGINT or SIGTERM. No other thread runs. Throws Error.
void serve_boards(const ServeOptions& options);

/// In a rank of mpirun other than 0, where OpenOptions::connect is "mpi:": has a part of the boards
/// for rank 0 until that one closes its board, and ends this process. Otherwise it returns.
/// Board::open() does the same; programs that write files before it call this first. Throws Error:
/// Unimplemented in a build without MPI, FailedPrecondition, InvalidArgument.
void serve_first_rank(const OpenOptions& options);

/// What a process does that OpenOptions::board_processes has started: descriptor 3 is a socket to
/// the program, 4 a file with what to serve. Exit code; standard error says what is wrong.
int serve_boards_of_maker();

}  // namespace tpu::driver
