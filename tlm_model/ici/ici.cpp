// Ports of the interconnect.
#include "ici/ici.hpp"

namespace tpu::model {

Ici::Ici(sc_core::sc_module_name name, const spec::BoardParams& params, FluidShare& fluid)
    : sc_module(name), links_(params, fluid.share()) {
  core_port.init(links_.cores());
}

}  // namespace tpu::model
