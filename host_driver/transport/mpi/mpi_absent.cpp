// A build without MPI.
#include "tpu/error.hpp"
#include "transport/mpi/mpi_mesh.hpp"

namespace tpu::driver::worker {

MpiMesh& MpiMesh::of_process() {
  throw Error(ErrorCode::kUnimplemented,
              "OpenOptions::connect: mpi: needs a build with MPI; configure it with -DTPU_MPI=ON");
}

}  // namespace tpu::driver::worker
