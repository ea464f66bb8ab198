// One board of a pod: its chips on the torus, the bandwidth that they share, and its end of the
// links that lead to other boards. A board shares no bandwidth with another one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chip/chip.hpp"
#include "ici/cut.hpp"
#include "ici/ici.hpp"
#include "kernel/fluid_share.hpp"

namespace tpu::model {

class PodProcess;

class Board {
 public:
  // What all boards of a pod share; outlives them.
  struct Shared {
    const spec::BoardParams& params;
    PagePool& pages;
    ConsoleLog& console;
    HostMemory& memory;
    std::span<const uint8_t> rom;
  };

  // Made inside of the pod's module. A board of another process is not built. `fold`: of the pod
  // that this board is folded for, null: none.
  Board(const spec::BoardParams& params, uint32_t number, const spec::Fold* fold, Agenda& agenda);

  Ici& ici() { return *ici_; }
  FluidShare& fluid() { return fluid_; }
  // Once the bandwidths of all boards are there. `services` have this board's; `fabric` has no
  // cores yet. Null links: the board is alone, and makes them itself.
  void build(const Shared& shared, const CoreServices& services, const Fabric& fabric,
             std::shared_ptr<const spec::Links> links);
  // Once all boards that are here are built. `process`: has the others; null: all are here.
  void connect(const std::vector<std::unique_ptr<Board>>& boards, PodProcess* process);

  const std::vector<std::unique_ptr<Chip>>& chips() const { return chips_; }
  const Fabric& fabric() const { return fabric_; }
  CutEnd* end() const { return cut_.get(); }  // null: alone, or in another process
  // First cycle in which something may leave the board, to other boards or to the host, unless
  // something arrives; at the end of a cycle. 0: may be with the next event.
  uint64_t silent() const;

 private:
  std::string name_of(const std::string& part) const;
  void make_network(const spec::BoardParams& params, std::shared_ptr<const spec::Links> links,
                    Activity& activity);

  void connect_peer(Core& unit);

  const uint32_t number_;
  const spec::Fold* const fold_;
  const bool alone_;
  FluidShare fluid_;
  std::shared_ptr<const spec::Links> links_;
  std::unique_ptr<Ici> ici_;
  std::unique_ptr<Cut> cut_;  // of a board that is not alone
  Fabric fabric_;             // with the cores of all boards
  std::optional<CoreServices> services_;
  std::vector<std::unique_ptr<Chip>> chips_;
};

}  // namespace tpu::model
