// Links that fail on purpose: windows of data with a wrong CRC, which a link sends again, and links
// that are down. Only boards with a fault file have this.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "kernel/cycles.hpp"
#include "kernel/remote_if.hpp"

namespace tpu::model {

class LinkFaults {
 public:
  // A link by the chip that it leaves and its resource.
  using Link = std::pair<uint32_t, int>;

  explicit LinkFaults(uint32_t cores_per_chip) : cores_per_chip_(cores_per_chip) {}
  uint32_t chip_of(uint32_t core) const { return core / cores_per_chip_; }

  // The next transfer over the link takes so much longer; `told` when it does.
  void corrupt(const Link& link, uint64_t cycles, std::function<void()> told) {
    corrupt_[link].push_back({cycles, std::move(told)});
  }
  // No data pass until that cycle (kNever: for good): transfers wait for it, or go round, or fail.
  // `told` for each that waits or fails, and once for each two chips between which they go round.
  struct Detour {
    uint32_t from_chip = 0;
    uint32_t to_chip = 0;
    uint32_t hops = 0;
  };
  using Told = std::function<void(const std::optional<Detour>& detour)>;
  void take_down(const Link& link, uint64_t until, Told told) {
    if (lost(link)) {
      return;
    }
    lost_ += until == kNever ? 1 : 0;
    const uint64_t before = down(link) ? down_[link].until : 0;
    down_[link] = {std::max(until, before), std::move(told), {}};
  }
  // Now, for some time or for good.
  bool down(const Link& link) const {
    const auto found = down_.find(link);
    return found != down_.end() && found->second.until > now_cycles();
  }
  // Links are down for good.
  bool lost_any() const { return lost_ != 0; }
  bool lost(const Link& link) const {
    const auto found = down_.find(link);
    return found != down_.end() && found->second.until == kNever;
  }
  // A transfer between two chips takes another way, of so many links, than over the link.
  void go_round(const Link& link, uint32_t from_chip, uint32_t to_chip, uint32_t hops) {
    const auto found = down_.find(link);
    if (found != down_.end() && found->second.until == kNever &&
        found->second.detours.insert({from_chip, to_chip}).second) {
      found->second.told(Detour{from_chip, to_chip, hops});
    }
  }

  // How work is put behind all else of a cycle.
  using Later = std::function<void(std::function<void()> work)>;
  void set_later(Later later) { later_ = std::move(later); }

  // A transfer passes a link: the cycles that its windows with a wrong CRC add.
  uint64_t repeat(const Link& link) {
    const auto found = corrupt_.find(link);
    if (found == corrupt_.end()) {
      return 0;
    }
    const Repeat repeat = std::move(found->second.front());
    found->second.erase(found->second.begin());
    if (found->second.empty()) {
      corrupt_.erase(found);
    }
    repeat.told();
    return repeat.cycles;
  }
  // The same of one that comes from another board and passes `links`: behind those that begin here
  // in the same cycle, whichever the kernel runs first.
  void enter(const std::vector<Link>& links, IciIf::Longer longer) {
    if (std::ranges::any_of(links, [this](const Link& link) { return corrupt_.contains(link); })) {
      later_([this, links, longer = std::move(longer)] {
        uint64_t cycles = 0;
        for (const Link& link : links) {
          cycles += repeat(link);
        }
        if (cycles != 0) {
          longer(cycles);
        }
      });
    }
  }

  // A transfer begins that passes the link to `next`, a chip.
  void pass(const Link& link, uint32_t next, LinkPassage& passage) {
    passage.extra += repeat(link);
    const auto found = down_.find(link);
    if (found == down_.end()) {
      return;
    }
    const Down& down = found->second;
    if (down.until <= now_cycles()) {
      down_.erase(found);
      return;
    }
    down.told({});
    if (down.until == kNever) {
      passage.lost = true;
      passage.from_chip = link.first;
      passage.to_chip = next;
    } else {
      passage.extra += down.until - now_cycles();
    }
  }

 private:
  struct Repeat {
    uint64_t cycles;
    std::function<void()> told;
  };
  struct Down {
    uint64_t until;
    Told told;
    std::set<std::pair<uint32_t, uint32_t>> detours;  // that are told
  };
  const uint32_t cores_per_chip_;
  Later later_;
  std::map<Link, std::vector<Repeat>> corrupt_;
  std::map<Link, Down> down_;
  size_t lost_ = 0;  // links of down_
};

}  // namespace tpu::model
