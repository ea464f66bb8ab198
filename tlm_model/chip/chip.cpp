// Wiring of a chip.
#include "chip/chip.hpp"

#include <string>

namespace tpu::model {

Chip::Chip(sc_core::sc_module_name name, const spec::BoardParams& params,
           const ChipIdentity& identity, const ChipServices& services, IciIf& ici)
    : sc_module(name),
      hbm_(std::make_unique<Hbm>("hbm", params, services.pages, *services.fabric.share)),
      pcie_(std::make_unique<PcieEndpoint>("pcie", params, identity, services.host_memory,
                                           *services.fabric.share, *services.fabric.activity)),
      lanes_(static_cast<size_t>(params.board.cores_per_chip)) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    services.fabric.hbm[identity.index * lanes_.size() + i] = &hbm_->bank(i);
  }
  for (size_t i = 0; i < lanes_.size(); ++i) {
    make_lane(i, params, identity, services, ici);
  }
}

Chip::~Chip() = default;

void Chip::make_lane(size_t index, const spec::BoardParams& params, const ChipIdentity& identity,
                     const ChipServices& services, IciIf& ici) {
  Lane& lane = lanes_[index];
  const std::string number = std::to_string(index);
  const auto core_id = static_cast<uint32_t>(identity.index * lanes_.size() + index);
  const auto line = [&](const char* name) {
    return std::make_unique<sc_core::sc_signal<bool>>((name + number).c_str());
  };
  lane.done = line("done");
  lane.fault = line("fault");
  lane.drained = line("drained");

  lane.core = std::make_unique<Core>(("core" + number).c_str(), core_id, params, services.core,
                                     hbm_->bank(index).bytes());
  lane.core->hbm_port(hbm_->bank(index));
  lane.core->ici_port(ici);
  lane.core->done_irq_o(*lane.done);
  lane.core->fault_irq_o(*lane.fault);
  lane.core->drained_irq_o(*lane.drained);

  const Mgmt::Place place{core_id, identity.index, static_cast<uint32_t>(index),
                          identity.board_hash};
  lane.mgmt = std::make_unique<Mgmt>(("mgmt" + number).c_str(), params, place, services.rom,
                                     services.fabric, services.console);
  lane.mgmt->host_port(*pcie_);
  lane.mgmt->seq_isock.bind(lane.core->seq().csr_tsock);
  lane.mgmt->sem_isock.bind(lane.core->sem().csr_tsock);
  lane.mgmt->fault_isock.bind(lane.core->fault().csr_tsock);
  lane.mgmt->perf_isock.bind(lane.core->perf().csr_tsock);
  lane.mgmt->slots_isock.bind(lane.core->slots().mem_tsock);
  lane.mgmt->done_i(*lane.done);
  lane.mgmt->fault_i(*lane.fault);
  lane.mgmt->drained_i(*lane.drained);
  pcie_->core_isock[index].bind(lane.mgmt->host_tsock);
  services.fabric.control[core_id] = &lane.mgmt->control();
}

}  // namespace tpu::model
