// The ranks of one `mpirun`: which process each is, and whether it lives.
#pragma once

#include <mpi.h>

#include <string>
#include <vector>

namespace tpu::driver::worker {

class MpiPeople {
 public:
  /// All ranks do it at the same time. Throws Error (FailedPrecondition), in all of them, for ranks
  /// of other versions of tpuboard, or with other arguments than rank 0.
  explicit MpiPeople(MPI_Comm ranks);

  /// "rank 2 of mpirun (pid 12 on host a)"
  std::string name_of(int rank) const;
  /// Known of ranks whose processes this one can see.
  bool has_ended(int rank) const;

 private:
  struct Person {
    int pid = 0;
    bool is_seen = false;  // on this host, and in this process's namespace
    std::string host;
  };
  std::vector<Person> people_;
};

}  // namespace tpu::driver::worker
