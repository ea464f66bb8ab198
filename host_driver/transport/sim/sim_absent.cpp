// In builds without the SystemC board: there is no simulated transport.
#include "tpu/transport.hpp"

namespace tpu::driver {

std::unique_ptr<Transport> make_sim_transport(const TransportRequest& /*request*/,
                                              HostMemory& /*memory*/) {
  return nullptr;
}

}  // namespace tpu::driver
