// One chip: cores, each with its control processor, their HBM and the PCIe endpoint. This file
// wires; the blocks' own headers say what they do.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <systemc>
#include <vector>

#include "core/core.hpp"
#include "hbm/hbm.hpp"
#include "mgmt/mgmt.hpp"
#include "pcie/pcie_endpoint.hpp"

namespace tpu::model {

// What the chips of a board share; outlives them.
struct ChipServices {
  const CoreServices& core;
  PagePool& pages;
  Fabric& fabric;
  ConsoleLog& console;
  HostMemory& host_memory;
  std::span<const uint8_t> rom;
};

class Chip : public sc_core::sc_module {
 public:
  // Adds its HBM banks and gsync blocks to the fabric.
  Chip(sc_core::sc_module_name name, const spec::BoardParams& params, const ChipIdentity& identity,
       const ChipServices& services, IciIf& ici);
  ~Chip() override;

  uint32_t index() const { return index_; }
  PcieEndpoint& pcie() { return *pcie_; }
  HbmBank& hbm(size_t index) { return hbm_->bank(index); }
  Core& core(size_t index) { return *complexes_[index].core; }
  Mgmt& mgmt(size_t index) { return *complexes_[index].mgmt; }
  const Core& core(size_t index) const { return *complexes_[index].core; }
  const Mgmt& mgmt(size_t index) const { return *complexes_[index].mgmt; }
  void end_console_line(size_t index) { complexes_[index].mgmt->end_console_line(); }
  size_t cores() const { return complexes_.size(); }

  // What keeps the chip from being saved, or nothing.
  std::string busy_with() const;
  // What is in flight that can be saved.
  size_t savable_activity() const;
  // See Board::silent().
  uint64_t silent() const;
  // State of a board where nothing else is in flight, in this order: cores; their control
  // processors and the endpoint; HBM.
  void visit_cores(spec::Archive& archive);
  void visit_control(spec::Archive& archive);
  void visit_hbm(spec::Archive& archive, PageNumbers& numbers);

 private:
  // A core, its control processor, and the lines between them.
  struct CoreComplex {
    std::unique_ptr<Core> core;
    std::unique_ptr<Mgmt> mgmt;
    std::unique_ptr<sc_core::sc_signal<bool>> done;
    std::unique_ptr<sc_core::sc_signal<bool>> fault;
    std::unique_ptr<sc_core::sc_signal<bool>> drained;
    std::unique_ptr<sc_core::sc_signal<bool>> call;
  };

  void make_complex(size_t index, const spec::BoardParams& params, const ChipIdentity& identity,
                    const ChipServices& services, IciIf& ici);

  const uint32_t index_;  // in the pod
  std::unique_ptr<Hbm> hbm_;
  std::unique_ptr<PcieEndpoint> pcie_;
  std::vector<CoreComplex> complexes_;
};

}  // namespace tpu::model
