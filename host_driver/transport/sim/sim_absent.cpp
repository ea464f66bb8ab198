// In builds without the SystemC board: there is no simulated transport.
#include "tpu/transport.hpp"
#include "transport/sim/pod_part.hpp"

namespace tpu::driver {

std::unique_ptr<Transport> make_sim_transport(const TransportRequest& /*request*/,
                                              HostMemory& /*memory*/) {
  return nullptr;
}

std::unique_ptr<Transport> make_sim_transport(const TransportRequest& /*request*/,
                                              HostMemory& /*memory*/, const PodPart& /*part*/) {
  return nullptr;
}

}  // namespace tpu::driver
