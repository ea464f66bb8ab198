// Ports of the interconnect.
#include "ici/ici.hpp"

namespace tpu::model {

Ici::Ici(sc_core::sc_module_name name, const spec::BoardParams& params, FluidShare& fluid)
    : Ici(name, 0, std::make_shared<const spec::Links>(params, fluid.share())) {}

Ici::Ici(sc_core::sc_module_name name, uint32_t board, std::shared_ptr<const spec::Links> links)
    : sc_module(name), board_(board), links_(std::move(links)) {
  core_port.init(links_->cores());
}

}  // namespace tpu::model
