// Wiring of a chip.
#include "chip/chip.hpp"

#include <string>

namespace tpu::model {

Chip::Chip(sc_core::sc_module_name name, const spec::BoardParams& params,
           const ChipIdentity& identity, const ChipServices& services, IciIf& ici)
    : sc_module(name),
      index_(identity.index),
      hbm_(std::make_unique<Hbm>("hbm", params, services.pages, *services.fabric.share)),
      pcie_(std::make_unique<PcieEndpoint>(
          "pcie", params, identity, services.host_memory.of_chip(identity.index),
          *services.fabric.share, *services.fabric.activity, services.fabric.probes)),
      complexes_(static_cast<size_t>(params.board.cores_per_chip)) {
  for (size_t i = 0; i < complexes_.size(); ++i) {
    services.fabric.hbm[identity.index * complexes_.size() + i] = &hbm_->bank(i);
  }
  for (size_t i = 0; i < complexes_.size(); ++i) {
    make_complex(i, params, identity, services, ici);
  }
}

Chip::~Chip() = default;

std::string Chip::busy_with() const {
  for (size_t i = 0; i < complexes_.size(); ++i) {
    if (!complexes_[i].core->quiet()) {
      return std::string(complexes_[i].core->name()) + " runs a program";
    }
    if (const char* why = complexes_[i].mgmt->busy_with()) {
      return std::string(complexes_[i].mgmt->name()) + " " + why;
    }
  }
  return {};
}

uint64_t Chip::silent() const {
  uint64_t before = pcie_->coming().access;
  for (const CoreComplex& complex : complexes_) {
    before = std::min({before, complex.mgmt->silent(), complex.core->seq().silent()});
  }
  return before;
}

size_t Chip::savable_activity() const {
  size_t count = pcie_->savable_activity();
  for (const CoreComplex& complex : complexes_) {
    count += complex.mgmt->savable_activity();
  }
  return count;
}

void Chip::visit_cores(spec::Archive& archive) {
  for (CoreComplex& complex : complexes_) {
    archive.section(complex.core->name());
    archive(*complex.core);
  }
}

void Chip::visit_control(spec::Archive& archive) {
  archive.section(pcie_->name());
  archive(*pcie_);
  for (CoreComplex& complex : complexes_) {
    archive.section(complex.mgmt->name());
    archive(*complex.mgmt);
  }
}

void Chip::visit_hbm(spec::Archive& archive, PageNumbers& numbers) {
  for (size_t i = 0; i < complexes_.size(); ++i) {
    archive.section(hbm_->bank(i).name());
    hbm_->bank(i).visit_state(archive, numbers);
  }
}

void Chip::make_complex(size_t index, const spec::BoardParams& params, const ChipIdentity& identity,
                        const ChipServices& services, IciIf& ici) {
  CoreComplex& complex = complexes_[index];
  const std::string number = std::to_string(index);
  const auto core_id = static_cast<uint32_t>(identity.index * complexes_.size() + index);
  const auto line = [&](const char* name) {
    return std::make_unique<sc_core::sc_signal<bool>>((name + number).c_str());
  };
  complex.done = line("done");
  complex.fault = line("fault");
  complex.drained = line("drained");
  complex.call = line("call");

  complex.core = std::make_unique<Core>(("core" + number).c_str(), core_id, params, services.core,
                                        hbm_->bank(index).bytes());
  complex.core->hbm_port(hbm_->bank(index));
  services.fabric.cores[core_id] = &complex.core->probe();
  complex.core->ici_port(ici);
  complex.core->done_irq_o(*complex.done);
  complex.core->fault_irq_o(*complex.fault);
  complex.core->drained_irq_o(*complex.drained);
  complex.core->call_irq_o(*complex.call);

  const Mgmt::Place place{core_id, identity.index, static_cast<uint32_t>(index),
                          identity.board_hash};
  complex.mgmt = std::make_unique<Mgmt>(("mgmt" + number).c_str(), params, place, services.rom,
                                        services.fabric, services.console);
  complex.mgmt->host_port(*pcie_);
  complex.mgmt->seq_isock.bind(complex.core->seq().csr_tsock);
  complex.mgmt->sem_isock.bind(complex.core->sem().csr_tsock);
  complex.mgmt->fault_isock.bind(complex.core->fault().csr_tsock);
  complex.mgmt->perf_isock.bind(complex.core->perf().csr_tsock);
  complex.mgmt->slots_isock.bind(complex.core->slots().mem_tsock);
  complex.mgmt->done_i(*complex.done);
  complex.mgmt->fault_i(*complex.fault);
  complex.mgmt->drained_i(*complex.drained);
  complex.mgmt->call_i(*complex.call);
  pcie_->core_isock[index].bind(complex.mgmt->host_tsock);
  services.fabric.control[core_id] = &complex.mgmt->control();
}

}  // namespace tpu::model
