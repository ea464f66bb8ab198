// Ports of the interconnect.
#include "ici/ici.hpp"

#include <algorithm>
#include <span>

namespace tpu::model {

Ici::Ici(sc_core::sc_module_name name, const spec::BoardParams& params, FluidShare& fluid)
    : Ici(name, 0, std::make_shared<const spec::Links>(params, fluid.share())) {}

Ici::Ici(sc_core::sc_module_name name, uint32_t board, std::shared_ptr<const spec::Links> links)
    : sc_module(name), board_(board), links_(std::move(links)), peers_(links_->cores()) {}

uint64_t Ici::gang_latency(uint32_t from, uint32_t to) const {
  const uint32_t root = std::min(from, to);
  uint64_t most = 0;
  for (uint32_t core = std::max(from, to); core < links_->cores();
       core += links_->folded() ? links_->cores() / links_->boards() : links_->cores()) {
    most = std::max(most, links_->control_latency(root, core));
  }
  return most;
}

LinkFaults& Ici::faults(uint32_t cores_per_chip) {
  if (faults_ == nullptr) {
    faults_ = std::make_unique<LinkFaults>(cores_per_chip);
  }
  return *faults_;
}

spec::Links::Way Ici::way(uint32_t from, uint32_t to) const {
  const auto lost = [this](const spec::Links::Hop& hop) { return faults_->lost(link(hop)); };
  const spec::Links::Way usual = links_->way(from, to);
  const std::span<const spec::Links::Hop> hops(usual.hop.data(), usual.count);
  if (links_->cut(from, to) || std::ranges::none_of(hops, lost)) {
    return usual;
  }
  return links_->way_around(from, to, lost).value_or(usual);
}

LinkPassage Ici::pass_faulty(uint32_t from, uint32_t to) {
  LinkPassage passage;
  const spec::Links::Way usual = links_->way(from, to);
  const spec::Links::Way used = way(from, to);
  for (uint32_t i = 0; i < used.count; ++i) {
    const uint32_t next = i + 1 < used.count ? used.hop[i + 1].chip : faults_->chip_of(to);
    faults_->pass(link(used.hop[i]), next, passage);
  }
  for (uint32_t i = 0; i < usual.count && used.hop != usual.hop; ++i) {
    faults_->go_round(link(usual.hop[i]), faults_->chip_of(from), faults_->chip_of(to), used.count);
  }
  return passage;
}

void Ici::enter_links(uint32_t from, uint32_t to, uint32_t first, uint32_t count, Longer longer) {
  if (faults_ == nullptr) {
    return;
  }
  const spec::Links::Way passed = links_->way(from, to);
  std::vector<LinkFaults::Link> links;
  for (uint32_t i = first; i < first + count; ++i) {
    links.push_back(link(passed.hop[i]));
  }
  faults_->enter(links, std::move(longer));
}

}  // namespace tpu::model
