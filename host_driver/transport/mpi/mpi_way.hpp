// One stream to another rank: a socket of this process, and messages of MPI to and from the rank.
// All calls but take() and socket() are of the thread that calls MPI.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "socket/descriptor.hpp"

namespace tpu::driver::worker {

class MpiWay {
 public:
  /// `tag`: the same at both ends. Throws Error: ResourceExhausted.
  MpiWay(MPI_Comm ranks, int rank, int tag);
  MpiWay(const MpiWay&) = delete;
  MpiWay& operator=(const MpiWay&) = delete;

  int rank() const { return rank_; }
  /// The end for whoever uses the stream, once.
  base::Descriptor take() { return std::move(there_); }

  /// Moves what can be moved without waiting, both ways; whether anything has.
  bool step();
  /// Nothing more comes or goes.
  bool is_over() const { return is_lost_ || (sent_end_ && !sends_ && received_end_); }
  /// There was an error, or lose().
  bool is_lost() const { return is_lost_; }
  /// Takes what has arrived; then the socket ends, if the other rank has not ended it.
  void lose();

  /// Bytes of the socket may be sent.
  bool wants_bytes() const { return !is_lost_ && !sends_ && !sent_end_; }
  int socket() const { return here_.number(); }

 private:
  void check(int error);
  void receive();
  bool step_out();
  bool step_in();

  const MPI_Comm ranks_;
  const int rank_;
  const int tag_;
  base::Descriptor here_, there_;
  std::vector<std::byte> out_, in_;
  MPI_Request sending_ = MPI_REQUEST_NULL;
  MPI_Request receiving_ = MPI_REQUEST_NULL;
  bool sends_ = false;
  bool sent_end_ = false;
  size_t filled_ = 0, used_ = 0;  // of in_
  bool received_end_ = false;
  bool is_lost_ = false;
};

}  // namespace tpu::driver::worker
