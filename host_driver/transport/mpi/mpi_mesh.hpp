// The processes of one `mpirun` as streams: two between each pair of ranks, whose bytes go by MPI
// from point to point. A thread does all calls of MPI. There is MPI in builds with -DTPU_MPI=ON.
#pragma once

#include <chrono>
#include <string>

#include "socket/descriptor.hpp"

namespace tpu::driver::worker {

/// What a stream is for.
enum class MpiStream { kCalls, kWire };

class MpiMesh {
 public:
  /// Of this process, which all its users share: MPI begins once. Throws Error: Unimplemented in a
  /// build without MPI, FailedPrecondition for a process that mpirun did not start, for ranks that
  /// were started with other arguments or are of another version, and for a program that has begun
  /// MPI itself without MPI_THREAD_MULTIPLE.
  static MpiMesh& of_process();

  virtual ~MpiMesh() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  /// "rank 2 of mpirun (pid 12 on host a)"
  virtual std::string name_of(int rank) const = 0;
  /// An end of the stream to another rank: a connected socket, which ends when that rank ends.
  /// Throws Error (FailedPrecondition) when it has been taken: ranks have one board.
  virtual base::Descriptor take(int rank, MpiStream stream) = 0;
  /// Any thread: all streams of this rank end. Whoever waits at one finds that.
  virtual void give_up() = 0;
  /// Waits until all ends of all streams are closed and everything has arrived, in all ranks, and
  /// ends MPI then. Behind `patience`, or when another rank has died, MPI stays as it is: mpirun
  /// ends the others when this process ends.
  virtual void finish(std::chrono::milliseconds patience) = 0;
};

}  // namespace tpu::driver::worker
