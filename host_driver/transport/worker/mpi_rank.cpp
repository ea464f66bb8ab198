// A rank of `mpirun` as a worker: the session of a worker over a stream to rank 0.
#include "transport/worker/mpi_rank.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <string_view>
#include <utility>

#include "socket/descriptor.hpp"
#include "tpu/error.hpp"
#include "tpu/worker.hpp"
#include "transport/mpi/mpi_mesh.hpp"
#include "transport/worker/address.hpp"
#include "transport/worker/session.hpp"

namespace tpu::driver {
namespace worker {
namespace {

// The session is the only one of this process, and nobody else wants its boards.
void run_only_session(const ServeOptions& serve, base::Descriptor connection) {
  Preamble preamble{};
  int ends[2];
  if (::recv(connection.number(), &preamble, sizeof preamble, MSG_WAITALL) !=
          static_cast<ssize_t>(sizeof preamble) ||
      !is_intact(preamble) || ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return;  // rank 0 has given up, and says why
  }
  NoteFrame given;
  given.note = Note::kGiven;
  send_note(ends[0], given);  // stays open: the session ends the process when it is closed
  run_session(serve, std::move(connection), false, base::Descriptor(ends[1]), 1, false,
              mpi_wires());
}

}  // namespace

std::optional<int> rank_of_address(const std::string& address) {
  constexpr std::string_view kKind = "mpi:";
  const char* const end = address.data() + address.size();
  int rank = -1;
  if (!address.starts_with(kKind) ||
      std::from_chars(address.data() + kKind.size(), end, rank).ptr != end || rank < 0) {
    return std::nullopt;
  }
  return rank;
}

std::string address_of_rank(int rank) { return fmt::format("{}{}", kMpiAddress, rank); }

void check_mpi(const OpenOptions& options) {
  if (options.connect != kMpiAddress) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("OpenOptions::connect: '{}': expected mpi: alone, which means all ranks "
                    "of mpirun",
                    options.connect));
  }
  const bool has_wait = options.connect_wait != 0;
  if (has_wait || !options.connect_token.empty() || !options.connect_ca.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("OpenOptions::{}: ranks of mpirun (OpenOptions::connect is mpi:) have "
                            "no other programs, no token and no certificates; leave it out",
                            has_wait                        ? "connect_wait"
                            : options.connect_token.empty() ? "connect_ca"
                                                            : "connect_token"));
  }
}

void serve_rank(const OpenOptions& options) {
  MpiMesh& mesh = MpiMesh::of_process();
  ServeOptions serve;
  serve.listen = kMpiAddress;
  serve.board = options;
  serve.board.connect.clear();
  serve.linger = std::chrono::milliseconds(0);
  run_only_session(serve, mesh.take(0, MpiStream::kCalls));
  mesh.finish(kMpiPatience);
  std::fflush(nullptr);
  // What went wrong is an error of rank 0, too, whose code is that of all: for one of this rank,
  // mpirun would end rank 0 before it has said so.
  ::_exit(0);
}

std::vector<std::shared_ptr<base::Pipe>> mpi_wires() {
  MpiMesh& mesh = MpiMesh::of_process();
  std::vector<std::shared_ptr<base::Pipe>> wires(static_cast<size_t>(mesh.ranks()));
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    if (rank != mesh.rank()) {
      wires[static_cast<size_t>(rank)] = base::make_socket_pipe(mesh.take(rank, MpiStream::kWire));
    }
  }
  return wires;
}

}  // namespace worker

void serve_first_rank(const OpenOptions& options) {
  if (!options.connect.starts_with(worker::kMpiAddress)) {
    return;
  }
  worker::check_mpi(options);
  if (worker::MpiMesh::of_process().rank() != 0) {
    worker::serve_rank(options);
  }
}

}  // namespace tpu::driver
