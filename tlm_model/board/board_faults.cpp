// What faults do. Bits flip within their cycle, behind all else that happens in it.
#include "board/board_faults.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "board/board_loader.hpp"
#include "board/pod_part.hpp"
#include "kernel/cycles.hpp"
#include "tpu/spec/chip_page_regs.hpp"
#include "tpu/spec/hart_map.h"
#include "tpu/spec/isa.hpp"

namespace tpu::model {
namespace {

uint64_t wide(const FaultWords& words) { return uint64_t{words[1]} << 32 | words[0]; }

std::string engine_name(uint32_t engine) {
  return engine < spec::kQueueNames.size() ? std::string(spec::kQueueNames[engine]) : "sequencer";
}

constexpr const char* kNoData = "nothing: this run computes no data";

std::string read_text(uint64_t address, bool corrected) {
  return fmt::format("the word at {:#x} is read, {}", address,
                     corrected ? "and corrected" : "and cannot be corrected");
}

// Which bits of a word flip.
uint32_t flip_mask(const FaultEntry& entry, const FaultWords& words) {
  const uint32_t first = entry.bit.value_or(words[2] % 32);
  return 1U << first | (entry.bits == 1 ? 0U : 1U << (first + 1 + words[3] % 31) % 32);
}

// "bit 3 flips" of so many as the mask has.
std::string flips_text(uint32_t mask) {
  const int low = std::countr_zero(mask);
  const uint32_t rest = mask & (mask - 1);
  return rest == 0 ? fmt::format("bit {} flips", low)
                   : fmt::format("bits {} and {} flip", low, std::countr_zero(rest));
}

std::string flips_text(const FaultEntry& entry) {
  return entry.bits == 1 ? "a bit flips" : "two bits flip";
}

// Of the processes of a pod, each writes its own, with the number of its first chip in the name.
std::string log_path(const spec::SimOptions& sim, const std::vector<Chip*>& chips) {
  if (sim.fault_log_path.empty() || sim.fault_log_path == "-") {
    return "-";
  }
  const bool all = std::ranges::find(chips, nullptr) == chips.end();
  const auto first = std::ranges::find_if(chips, [](const Chip* chip) { return chip != nullptr; });
  return all ? sim.fault_log_path : spec::fault_log_part(sim.fault_log_path, (*first)->index());
}

// Whether a command that was issued, and has not started, computes nothing.
bool is_empty(const Mxu& mxu, uint64_t sequence) {
  for (size_t i = 0; const QueuedCommand* const queued = mxu.queued(i); ++i) {
    if (queued->sequence == sequence) {
      return queued->command->empty;
    }
  }
  return false;
}

// Where in its slots the launch of a core holds byte `at` of all of them together.
std::optional<uint64_t> place_in_slots(const Core& core, uint64_t random) {
  uint64_t total = 0;
  for (uint32_t slot = 0; slot < core.launch().slot_count; ++slot) {
    total += core.slot(slot).size;
  }
  if (total == 0) {
    return std::nullopt;
  }
  uint64_t at = random % total;
  for (uint32_t slot = 0;; ++slot) {
    const Slots::Range range = core.slot(slot);
    if (at < range.size) {
      return range.base + at;
    }
    at -= range.size;
  }
}

}  // namespace

BoardFaults::BoardFaults(const spec::SimOptions& sim, const spec::BoardParams& params,
                         FaultScript script, const std::vector<Chip*>& chips,
                         std::vector<Ici*> networks, const ProbeSet& probes,
                         const LaunchPrograms& programs)
    : params_(params),
      chips_(chips),
      networks_(std::move(networks)),
      cores_per_chip_(static_cast<size_t>(params.board.cores_per_chip)),
      no_data_(sim.no_data),
      injector_(
          "faults", std::move(script), log_path(sim, chips), static_cast<uint32_t>(cores_per_chip_),
          *this, [this](const FaultEntry& entry) { return chips_[entry.chip] != nullptr; }, probes,
          programs) {
  std::set<CutIf*> cuts;
  for (Chip* chip : chips_) {
    if (chip == nullptr) {
      continue;
    }
    CutIf* const cut = networks_[chip->index()]->cut();
    if (cut != nullptr && cuts.insert(cut).second) {
      const uint32_t board = injector_.board_of_chip(chip->index());
      cut->hear_links([this, board](uint32_t from_board, const LinkNews& news) {
        return hear_link(board, from_board, news);
      });
    }
    if (!injector_.ecc()) {
      chip->pcie().switch_ecc_off();
    }
    for (size_t core = 0; core < chip->cores(); ++core) {
      watch_hbm(*chip, core);
      watch_sram(*chip, core);
    }
  }
}

void BoardFaults::watch_hbm(Chip& chip, size_t core) {
  const uint32_t id = chip.core(core).core_id();
  chip.hbm(core).watch([this, &chip, core, id](uint64_t address, bool corrected) {
    chip.pcie().ecc_read(core, address, corrected);
    injector_.met(FaultKind::kHbm, id, read_text(address, corrected));
  });
}

void BoardFaults::watch_sram(Chip& chip, size_t core) {
  const uint32_t id = chip.core(core).core_id();
  chip.core(core).faulty().sram.watch(
      [this, &chip, core, id](const SramDamage::Word& word, bool corrected) {
        chip.pcie().ecc_read(core, {}, corrected);
        injector_.met(word.memory == ProbeMemory::kVmem ? FaultKind::kVmem : FaultKind::kSmem, id,
                      read_text(word.address, corrected));
      });
}

Chip& BoardFaults::chip_of(const FaultEntry& entry) { return *chips_[entry.chip]; }

std::string BoardFaults::upset(const FaultEntry& entry, const FaultWords& words, uint64_t command) {
  Chip& chip = chip_of(entry);
  switch (entry.kind) {
    case FaultKind::kHbm:
      return upset_hbm(entry, words);
    case FaultKind::kVmem:
    case FaultKind::kSmem:
      return upset_sram(entry, words);
    case FaultKind::kTcm:
      return upset_tcm(entry, words);
    case FaultKind::kMxu:
      return upset_mxu(entry, words, command);
    case FaultKind::kCoreHang:
      chip.core(core_of(entry)).faulty().hung[entry.engine] = true;
      return engine_name(entry.engine) + " stops";
    case FaultKind::kHartTrap:
      chip.mgmt(core_of(entry)).hart_unit().derail();
      return "the program counter of the control hart is damaged";
    case FaultKind::kHartHang:
      chip.mgmt(core_of(entry)).hart_unit().hang();
      return "the control hart stops";
    case FaultKind::kPcieTimeout:
      return upset_pcie(entry, PcieEndpoint::Upset::kTimeout, "read of a register",
                        "gets no answer");
    case FaultKind::kPciePoison:
      return upset_pcie(entry, PcieEndpoint::Upset::kPoison, "transfer from the host to HBM",
                        "arrives poisoned");
    case FaultKind::kPcieLostMsi:
      return upset_pcie(entry, PcieEndpoint::Upset::kLostMsi, "interrupt to the host", "is lost");
    case FaultKind::kPcieDown:
      chip.pcie().remove();
      return "the chip leaves the bus";
    case FaultKind::kRingCommand:
    case FaultKind::kRingCompletion:
      return upset_ring(entry, words);
    case FaultKind::kLinkCorrupt:
      return upset_link(entry);
    case FaultKind::kLinkDown:
      return take_link_down(entry);
    case FaultKind::kBoardDies:
      return end_board(entry);
    case FaultKind::kHostDies:
      return "the process that has the board ends";
  }
  return {};
}

LinkFaults& BoardFaults::faults_of(Ici& network) {
  LinkFaults& faults = network.faults(static_cast<uint32_t>(cores_per_chip_));
  faults.set_later([this](std::function<void()> work) { injector_.later(0, std::move(work)); });
  return faults;
}

LinkFaults::Link BoardFaults::link_of(const FaultEntry& entry, const Ici& network) {
  namespace page = spec::chip_page;
  const uint32_t link = entry.unit % kLinksPerChip;
  return network.link({.chip = entry.chip,
                       .y = link == page::kLinkPlusY || link == page::kLinkMinusY,
                       .up = link == page::kLinkPlusX || link == page::kLinkPlusY});
}

// A window is sent again when the answer to it has come back.
std::string BoardFaults::upset_link(const FaultEntry& entry) {
  const auto bytes = uint64_t{spec::chip_page::kLinkWindowBytes};
  const uint64_t window = bytes * static_cast<uint64_t>(params_.core.clock_mhz) /
                              (static_cast<uint64_t>(params_.ici.link_gbps) * 1000) +
                          2 * spec::cycles_from_ns(params_, params_.ici.extra_hop_ns);
  const uint64_t cycles = entry.repeats * window;
  faults_of(entry).corrupt(link_of(entry), cycles, [this, entry, cycles] {
    chip_of(entry).pcie().link_repeats(entry.unit % kLinksPerChip, entry.repeats);
    injector_.met(entry.kind, entry.unit,
                  fmt::format("a transfer has a wrong CRC and takes {} cycles longer", cycles));
  });
  return fmt::format("the next transfer repeats {} window{}", entry.repeats,
                     entry.repeats == 1 ? "" : "s");
}

// 0: for good.
uint64_t BoardFaults::cycles_down(const FaultEntry& entry) const {
  return entry.microseconds * static_cast<uint64_t>(params_.core.clock_mhz);
}

std::string BoardFaults::take_link_down(const FaultEntry& entry) {
  if (faults_of(entry).lost(link_of(entry))) {
    return "nothing: the link is down for good";
  }
  const uint64_t cycles = cycles_down(entry);
  const bool comes_back = cycles != 0;
  const uint64_t until = comes_back ? now_cycles() + cycles : kNever;
  faults_of(entry).take_down(link_of(entry), until, link_told(entry, {}));
  if (CutIf* const cut = networks_[entry.chip]->cut(); cut != nullptr) {
    cut->tell_link(entry.chip * static_cast<uint32_t>(cores_per_chip_), {entry.number, until});
  }
  const uint32_t link = entry.unit % kLinksPerChip;
  chip_of(entry).pcie().link_changes(link, true);
  if (!comes_back) {
    return "the link goes down for good";
  }
  injector_.later(cycles, [this, entry, link] {
    if (faults_of(entry).down(link_of(entry))) {
      return;  // by another fault
    }
    chip_of(entry).pcie().link_changes(link, false);
    injector_.note("back", entry.kind, entry.unit, "the link works again");
  });
  return fmt::format("the link goes down for {} us", entry.microseconds);
}

LinkFaults::Told BoardFaults::link_told(const FaultEntry& entry, std::optional<uint32_t> board) {
  return [this, entry, board](const std::optional<LinkFaults::Detour>& detour) {
    injector_.met(entry.kind, entry.unit,
                  detour
                      ? fmt::format("transfers from chip {} to chip {} go round it, over {} links",
                                    detour->from_chip, detour->to_chip, detour->hops)
                  : entry.microseconds != 0
                      ? "a transfer waits until the link is back"
                      : "a transfer needs the link, which is down, and has no other way",
                  board);
  };
}

Ici& BoardFaults::network_of_board(uint32_t board) const {
  size_t chip = 0;
  while (networks_[chip] == nullptr ||
         injector_.board_of_chip(static_cast<uint32_t>(chip)) != board) {
    ++chip;
  }
  return *networks_[chip];
}

// Behind all else of the cycle, as on its own board: the kernel's order does not say whether a
// transfer that begins in this cycle meets it.
bool BoardFaults::hear_link(uint32_t board, uint32_t from_board, const LinkNews& news) {
  const auto& entries = injector_.entries();
  const auto found = std::ranges::find(entries, news.fault, &FaultEntry::number);
  if (found == entries.end() || found->kind != FaultKind::kLinkDown ||
      injector_.board_of_chip(found->chip) != from_board) {
    return false;
  }
  const uint64_t cycles = cycles_down(*found);
  const bool comes_back = news.until != kNever;
  if (comes_back != (cycles != 0) || (comes_back && news.until > now_cycles() + cycles)) {
    return false;
  }
  injector_.later(0, [this, board, entry = *found, until = news.until] {
    Ici& network = network_of_board(board);
    faults_of(network).take_down(link_of(entry, network), until, link_told(entry, board));
  });
  return true;
}

// Its chips leave the bus, and nothing on it goes on.
std::string BoardFaults::end_board(const FaultEntry& entry) {
  for (Chip* chip : chips_) {
    if (chip == nullptr ||
        spec::board_of_chip(params_, chip->index()) != static_cast<int64_t>(entry.unit)) {
      continue;
    }
    chip->pcie().remove();
    for (size_t core = 0; core < chip->cores(); ++core) {
      chip->mgmt(core).hart_unit().hang();
      for (size_t unit = 0; unit < kUnits; ++unit) {
        chip->core(core).faulty().hung[unit] = true;
      }
    }
  }
  return "all chips of the board leave the bus, and its cores stop";
}

// Contents change between commands: what has started, on any thread, is done with them.
void BoardFaults::settle_data() {
  for (Chip* chip : chips_) {
    for (size_t core = 0; chip != nullptr && core < chip->cores(); ++core) {
      chip->core(core).settle_data();
    }
  }
}

std::string BoardFaults::upset_hbm(const FaultEntry& entry, const FaultWords& words) {
  Chip& chip = chip_of(entry);
  const Core& core = chip.core(core_of(entry));
  HbmBank& hbm = chip.hbm(core_of(entry));
  uint64_t address = entry.address.offset;
  switch (entry.address.kind) {
    case FaultAddress::Kind::kRandom:
      address = wide(words) % hbm.bytes();
      break;
    case FaultAddress::Kind::kOffset:
      break;
    case FaultAddress::Kind::kSlot: {
      const Slots::Range slot = core.slot(entry.address.slot);
      if (!slot.ok || address >= slot.size) {
        return fmt::format("nothing: the launch has no byte {} in slot {}", address,
                           entry.address.slot);
      }
      address += slot.base;
      break;
    }
    case FaultAddress::Kind::kRandomSlot: {
      const auto place = place_in_slots(core, wide(words));
      if (!place) {
        return "nothing: the launch has no slots";
      }
      address = *place;
      break;
    }
  }
  address -= address % BitDamage::kWordBytes;
  if (chip.pcie().ecc_on()) {
    hbm.damage()->add(address, entry.bits);
    return fmt::format("{} in the word at {:#x}", flips_text(entry), address);
  }
  if (no_data_) {
    return kNoData;
  }
  uint32_t word = 0;
  const std::span<uint8_t> bytes(reinterpret_cast<uint8_t*>(&word), sizeof word);
  settle_data();
  const uint32_t mask = flip_mask(entry, words);
  hbm.read(address, bytes);
  word ^= mask;
  hbm.write(address, bytes);
  return fmt::format("{} in the word at {:#x}, without ECC", flips_text(mask), address);
}

std::string BoardFaults::upset_sram(const FaultEntry& entry, const FaultWords& words) {
  Chip& chip = chip_of(entry);
  Core& core = chip.core(core_of(entry));
  const bool in_vmem = entry.kind == FaultKind::kVmem;
  const ProbeMemory memory = in_vmem ? ProbeMemory::kVmem : ProbeMemory::kSmem;
  const uint64_t bytes = (in_vmem ? core.vmem() : core.smem()).bytes();
  uint64_t address = entry.address.kind == FaultAddress::Kind::kRandom ? wide(words) % bytes
                                                                       : entry.address.offset;
  address -= address % BitDamage::kWordBytes;
  if (chip.pcie().ecc_on()) {
    core.faulty().sram.of(memory).add(address, entry.bits);
    return fmt::format("{} in the word at {:#x}", flips_text(entry), address);
  }
  if (no_data_) {
    return kNoData;
  }
  settle_data();
  const uint32_t mask = flip_mask(entry, words);
  LocalMemory& of = in_vmem ? core.vmem() : core.smem();
  uint32_t word = 0;
  of.read(address, std::span(reinterpret_cast<uint8_t*>(&word), sizeof word));
  word ^= mask;
  std::memcpy(of.data() + address, &word, sizeof word);
  return fmt::format("{} in the word at {:#x}, without ECC", flips_text(mask), address);
}

std::string BoardFaults::upset_mxu(const FaultEntry& entry, const FaultWords& words,
                                   uint64_t command) {
  if (no_data_) {
    return kNoData;
  }
  Core& core = chip_of(entry).core(core_of(entry));
  const size_t index = entry.engine - static_cast<size_t>(spec::kMxuQueues[0]);
  if (command != 0 && is_empty(core.mxu(index), command)) {
    return "nothing: the matmul has no results";
  }
  const uint32_t mask = flip_mask(entry, words);
  core.mxu(index).upset(
      {.sequence = command,
       .commands = entry.commands,
       .of = {.result = wide(words), .mask = mask},
       .told = [this, unit = entry.unit, engine = entry.engine](const DecodedCommand& of,
                                                                const MxuUpset& upset) {
         const MxuJob& job = std::get<MatmulPlan>(of.plan).job;
         const uint64_t result = upset.result % static_cast<uint64_t>(job.total_rows() * job.n());
         injector_.met(FaultKind::kMxu, unit,
                       fmt::format("{} in row {}, column {} of a result of {}, op {}, word {}",
                                   flips_text(upset.mask), result / static_cast<uint64_t>(job.n()),
                                   result % static_cast<uint64_t>(job.n()), engine_name(engine),
                                   of.op_id, of.pc));
       }});
  const std::string next =
      entry.commands == 1 ? "result" : fmt::format("{} results", entry.commands);
  return fmt::format("the next {} of {} will be wrong", next, engine_name(entry.engine));
}

std::string BoardFaults::upset_tcm(const FaultEntry& entry, const FaultWords& words) {
  constexpr uint64_t kBytes = uint64_t{TPU_HART_ITCM_BYTES} + TPU_HART_DTCM_BYTES;
  const uint64_t offset = entry.address.kind == FaultAddress::Kind::kRandom ? wide(words) % kBytes
                                                                            : entry.address.offset;
  const auto address = static_cast<uint32_t>(
      offset < TPU_HART_ITCM_BYTES ? TPU_HART_ITCM_BASE + offset
                                   : TPU_HART_DTCM_BASE + (offset - TPU_HART_ITCM_BYTES));
  Hart& hart = chip_of(entry).mgmt(core_of(entry)).hart_unit().hart();
  uint8_t byte = 0;
  hart.read_memory(address, std::span(&byte, 1));
  byte = static_cast<uint8_t>(byte ^ 1U << entry.bit.value_or(words[2] % 8));
  hart.write_memory(address, std::span<const uint8_t>(&byte, 1));
  return fmt::format("a bit flips in the byte at {:#010x} of the control hart", address);
}

std::string BoardFaults::upset_ring(const FaultEntry& entry, const FaultWords& words) {
  const bool completion = entry.kind == FaultKind::kRingCompletion;
  chip_of(entry)
      .mgmt(core_of(entry))
      .host_dma()
      .damage_ring(completion, words[0], [this, kind = entry.kind, unit = entry.unit] {
        injector_.met(kind, unit, "a bit of the entry flips on its way");
      });
  return fmt::format("the next entry of the {} ring will be damaged",
                     completion ? "completion" : "command");
}

std::string BoardFaults::upset_pcie(const FaultEntry& entry, PcieEndpoint::Upset kind,
                                    const char* of, const char* what) {
  const char* const article =
      std::string_view("aeiou").find(of[0]) == std::string_view::npos ? "a" : "an";
  chip_of(entry).pcie().upset(
      kind, [this, fault = entry.kind, unit = entry.unit, article, of, what] {
        injector_.met(fault, unit, fmt::format("{} {} {}", article, of, what));
      });
  return fmt::format("the next {} {}", of, what);
}

}  // namespace tpu::model
