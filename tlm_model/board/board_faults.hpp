// Faults on purpose in the units of a board: what each kind does, and what the board tells of it
// later. Only boards with a fault file have this.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chip/chip.hpp"
#include "faults/fault_injector.hpp"
#include "ici/ici.hpp"
#include "tpu/sim_options.hpp"

namespace tpu::model {

class BoardFaults : public FaultTargets {
 public:
  // `chips`: of the pod, by number; null for those of other processes, which let their own faults
  // happen. `chips`, `probes` and `programs` outlive it; `networks`: by chip, those of their
  // boards. Throws std::runtime_error for a log that cannot be written.
  BoardFaults(const spec::SimOptions& sim, const spec::BoardParams& params, FaultScript script,
              const std::vector<Chip*>& chips, std::vector<Ici*> networks, const ProbeSet& probes,
              const LaunchPrograms& programs);

  // Who tells when faults happen; anew whenever the listeners of a board change.
  void listen(ProbeSet& probes) { injector_.listen(probes); }
  std::vector<spec::FaultTally> tallies() const { return injector_.tallies(); }
  std::string finish() { return injector_.finish(); }

 private:
  std::string upset(const FaultEntry& entry, const FaultWords& words, uint64_t command) override;
  std::string upset_sram(const FaultEntry& entry, const FaultWords& words);
  std::string upset_mxu(const FaultEntry& entry, const FaultWords& words, uint64_t command);
  std::string upset_hbm(const FaultEntry& entry, const FaultWords& words);
  std::string upset_tcm(const FaultEntry& entry, const FaultWords& words);
  std::string upset_ring(const FaultEntry& entry, const FaultWords& words);
  std::string upset_pcie(const FaultEntry& entry, PcieEndpoint::Upset kind, const char* of,
                         const char* what);
  std::string upset_link(const FaultEntry& entry);
  uint64_t cycles_down(const FaultEntry& entry) const;
  std::string take_link_down(const FaultEntry& entry);
  bool hear_link(uint32_t board, uint32_t from_board, const LinkNews& news);
  LinkFaults::Told link_told(const FaultEntry& entry, std::optional<uint32_t> board);
  Ici& network_of_board(uint32_t board) const;
  std::string end_board(const FaultEntry& entry);
  void settle_data();
  static LinkFaults::Link link_of(const FaultEntry& entry, const Ici& network);
  LinkFaults::Link link_of(const FaultEntry& entry) const {
    return link_of(entry, *networks_[entry.chip]);
  }
  LinkFaults& faults_of(Ici& network);
  LinkFaults& faults_of(const FaultEntry& entry) { return faults_of(*networks_[entry.chip]); }
  void watch_hbm(Chip& chip, size_t core);
  void watch_sram(Chip& chip, size_t core);
  Chip& chip_of(const FaultEntry& entry);
  size_t core_of(const FaultEntry& entry) const { return entry.unit % cores_per_chip_; }

  const spec::BoardParams params_;
  const std::vector<Chip*>& chips_;
  const std::vector<Ici*> networks_;
  const size_t cores_per_chip_;
  const bool no_data_;
  FaultInjector injector_;
};

}  // namespace tpu::model
