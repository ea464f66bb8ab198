#include "transport/mpi/mpi_way.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "tpu/error.hpp"

namespace tpu::driver::worker {
namespace {

constexpr size_t kMessageBytes = size_t{64} << 10;

}  // namespace

MpiWay::MpiWay(MPI_Comm ranks, int rank, int tag)
    : ranks_(ranks), rank_(rank), tag_(tag), out_(kMessageBytes), in_(kMessageBytes) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Error(ErrorCode::kResourceExhausted,
                "OpenOptions::connect: mpi: no socket is left for the streams to other ranks");
  }
  here_ = base::Descriptor(ends[0]);
  there_ = base::Descriptor(ends[1]);
  receive();
}

bool MpiWay::step() {
  const bool sent = !is_lost_ && step_out();
  return (!is_lost_ && step_in()) || sent;
}

void MpiWay::lose() {
  while (!is_lost_ && step_in()) {
  }
  if (!is_over()) {
    is_lost_ = true;
    ::shutdown(socket(), SHUT_RDWR);
  }
}

// What a rank that has died leaves is an error of MPI, or nothing at all.
void MpiWay::check(int error) {
  if (error != MPI_SUCCESS) {
    is_lost_ = true;
    ::shutdown(socket(), SHUT_RDWR);
  }
}

void MpiWay::receive() {
  filled_ = used_ = 0;
  check(::MPI_Irecv(in_.data(), static_cast<int>(in_.size()), MPI_BYTE, rank_, tag_, ranks_,
                    &receiving_));
}

bool MpiWay::step_out() {
  bool moved = false;
  if (sends_) {
    int done = 0;
    check(::MPI_Test(&sending_, &done, MPI_STATUS_IGNORE));
    moved = done != 0;
    sends_ = done == 0;
  }
  if (!wants_bytes()) {
    return moved;
  }
  const ssize_t got = ::recv(socket(), out_.data(), out_.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    return moved;
  }
  sent_end_ = got <= 0;  // an empty message says so
  sends_ = true;
  check(::MPI_Isend(out_.data(), static_cast<int>(std::max<ssize_t>(got, 0)), MPI_BYTE, rank_, tag_,
                    ranks_, &sending_));
  return true;
}

bool MpiWay::step_in() {
  if (received_end_) {
    return false;
  }
  if (used_ == filled_) {
    int done = 0;
    MPI_Status status{};
    check(::MPI_Test(&receiving_, &done, &status));
    if (done == 0 || is_lost_) {
      return false;
    }
    int count = 0;
    ::MPI_Get_count(&status, MPI_BYTE, &count);
    if (count == 0) {
      received_end_ = true;
      ::shutdown(socket(), SHUT_WR);
      return true;
    }
    filled_ = static_cast<size_t>(count);
  }
  const ssize_t given =
      ::send(socket(), in_.data() + used_, filled_ - used_, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (given < 0 && errno != EAGAIN && errno != EINTR) {
    used_ = filled_;  // nobody reads any more
  }
  used_ += static_cast<size_t>(std::max<ssize_t>(given, 0));
  if (used_ == filled_) {
    receive();
  }
  return given > 0;
}

}  // namespace tpu::driver::worker
