// Addresses of workers: unix:PATH and tcp:HOST:PORT.
#pragma once

#include <cstdint>
#include <string>

#include "socket/descriptor.hpp"

namespace tpu::driver::worker {

struct Address {
  std::string text;  ///< as it was given
  std::string path;  ///< of a Unix socket; empty: TCP
  std::string host;
  std::string port;
  int mpi_rank = -1;  ///< of the program's own mpirun; else negative

  bool is_local() const { return !path.empty(); }
};

/// The text of an address, with brackets around a host with colons.
std::string tcp_address(const std::string& host, const std::string& port);

/// Throws Error (InvalidArgument).
Address read_address(const std::string& text);

/// A connected socket. Throws Error (Unavailable): nobody answers.
base::Descriptor connect_to(const Address& address);

/// A socket that listens: 0600 for a path, whose socket without a listener is replaced; port 0 is
/// replaced by a free one in `address`. `far`: other hosts may connect. Throws Error:
/// FailedPrecondition, InvalidArgument for a host that is not this one's loopback without `far`.
base::Descriptor listen_at(Address& address, bool far);

/// The other end of a TCP connection is not on a loopback address.
bool leaves_host(int socket);
/// This end of a TCP socket is on a loopback address.
bool is_at_loopback(int socket);

/// First bytes of a connection, in front of everything else: what a connection is, so that it can
/// be passed to the process that has the session.
struct Preamble {
  static constexpr char kMagic[8] = {'T', 'P', 'U', 'B', 'O', 'A', 'R', 'D'};
  char magic[8];
  uint16_t version;
  uint8_t tls;  ///< 1: TLS follows
  uint8_t reserved;
  uint32_t crc;      ///< CRC-32C of it all, with 0 here
  uint64_t session;  ///< 0: a new one
};
Preamble make_preamble(bool tls, uint64_t session);
bool is_intact(const Preamble& preamble);
/// The answer of the worker.
struct PreambleAnswer {
  static constexpr char kMagic[4] = {'T', 'P', 'U', 'W'};
  char magic[4];
  uint16_t version;
  uint8_t tls;  ///< 1: TLS follows
  uint8_t reserved;
  uint32_t crc;  ///< as above
};
PreambleAnswer make_answer(bool tls);
bool is_intact(const PreambleAnswer& answer);

}  // namespace tpu::driver::worker
