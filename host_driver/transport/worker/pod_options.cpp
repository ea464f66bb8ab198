#include "transport/worker/pod_options.hpp"

#include <fmt/format.h>

#include "options/option_wire.hpp"
#include "tpu/error.hpp"

namespace tpu::driver::worker {

void check_part(const spec::SimOptions& sim, const std::string& transport) {
  if (transport != "sim") {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("OpenOptions::transport: boards in several processes need sim, found "
                            "{}",
                            transport));
  }
  if (const std::string name = option_of_one_process(sim); !name.empty()) {
    throw Error(ErrorCode::kUnimplemented,
                fmt::format("{}: this needs all boards of the pod in one process; leave it out, or "
                            "OpenOptions::board_processes and the list of OpenOptions::connect",
                            name));
  }
}

}  // namespace tpu::driver::worker
