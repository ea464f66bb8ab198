// Wiring of a board.
#include "board/board.hpp"

#include "board/board_loader.hpp"
#include "board/pod_process.hpp"

namespace tpu::model {
namespace {

std::string board_part(const spec::BoardParams& params, const std::string& part, uint32_t number) {
  return spec::board_count(params) == 1 ? part : part + std::to_string(number);
}

}  // namespace

Board::Board(const spec::BoardParams& params, uint32_t number, const spec::Fold* fold,
             Agenda& agenda)
    : number_(number),
      fold_(fold),
      alone_(spec::board_count(params) == 1 && fold == nullptr),
      fluid_(board_part(params, "fluid", number).c_str(), agenda) {}

std::string Board::name_of(const std::string& part) const {
  return alone_ ? part : part + std::to_string(number_);
}

void Board::make_network(const spec::BoardParams& params, std::shared_ptr<const spec::Links> links,
                         Activity& activity) {
  links_ = std::move(links);
  if (alone_) {
    ici_ = std::make_unique<Ici>("ici", params, fluid_);
    return;
  }
  ici_ = std::make_unique<Ici>(name_of("ici").c_str(), number_, links_);
  cut_ = std::make_unique<Cut>(name_of("cut").c_str(), number_, *links_, fluid_, activity, *ici_);
  ici_->set_cut(*cut_);
}

void Board::build(const Shared& shared, const CoreServices& services, const Fabric& fabric,
                  std::shared_ptr<const spec::Links> links) {
  const spec::BoardParams& params = shared.params;
  make_network(params, std::move(links), services.activity);
  services_.emplace(services);
  fabric_ = fabric;
  fabric_.ici = ici_.get();
  fabric_.share = &fluid_;
  const auto cores = static_cast<size_t>(spec::core_count(params));
  fabric_.control.resize(cores);
  fabric_.hbm.resize(cores);
  fabric_.cores.resize(cores);
  const ChipServices chip_services{*services_,     shared.pages,  fabric_,
                                   shared.console, shared.memory, shared.rom};
  const auto width = static_cast<uint32_t>(spec::chips_x(params));
  for (uint32_t chip = 0; chip < spec::chip_count(params); ++chip) {
    if (spec::board_of_chip(params, chip) == number_) {
      const ChipIdentity identity{chip, chip % width, chip / width, spec::board_hash(params)};
      chips_.push_back(std::make_unique<Chip>(("chip" + std::to_string(chip)).c_str(), params,
                                              identity, chip_services, *ici_));
    }
  }
}

// Of a folded pod, in place of the cores at the same place of all boards.
void Board::connect_peer(Core& unit) {
  const uint32_t stride = fold_ == nullptr ? ici_->cores() : fold_->board_cores();
  for (uint32_t id = unit.core_id(); id < ici_->cores(); id += stride) {
    ici_->connect(id, unit.remote_export);
  }
}

void Board::connect(const std::vector<std::unique_ptr<Board>>& boards, PodProcess* process) {
  std::vector<CutEnd*> ends;
  std::vector<ResourceId> hbm(fabric_.hbm.size(), -1);
  for (const auto& chip : chips_) {
    for (size_t core = 0; core < chip->cores(); ++core) {
      const uint32_t id = chip->core(core).core_id();
      hbm[id] = fabric_.hbm[id]->bandwidth();
    }
  }
  for (const auto& board : boards) {
    for (const auto& chip : board->chips_) {
      for (size_t core = 0; core < chip->cores(); ++core) {
        Core& unit = chip->core(core);
        const uint32_t id = unit.core_id();
        connect_peer(unit);
        fabric_.control[id] = board->fabric_.control[id];
        fabric_.hbm[id] = board->fabric_.hbm[id];
        fabric_.cores[id] = board->fabric_.cores[id];
      }
    }
    const bool far = process != nullptr && !process->has(board->number_);
    ends.push_back(far ? &process->far_cut(board->number_) : board->end());
  }
  for (uint32_t core = 0; process != nullptr && core < links_->cores(); ++core) {
    if (!process->has(links_->board_of(core))) {
      ici_->connect(core, process->far_core());
      fabric_.control[core] = &process->far_control(core);
    }
  }
  if (fold_ != nullptr) {
    ends.assign(fold_->cores() / fold_->board_cores(), cut_.get());
  }
  if (cut_ != nullptr) {
    cut_->connect(ends, hbm);
  }
}

uint64_t Board::silent() const {
  uint64_t before = cut_ != nullptr ? cut_->silent() : kNever;
  for (const auto& chip : chips_) {
    before = std::min(before, chip->silent());
  }
  return before;
}

}  // namespace tpu::model
