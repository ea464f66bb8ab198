// The pod's state, saved and loaded.
#include "board/pod.hpp"
#include "file/crc32c.hpp"
#include "kernel/cycles.hpp"
#include "kernel/end_cycle.hpp"

namespace tpu::model {
namespace {

constexpr uint64_t kLongestTransfer = 1'000'000;  // cycles

}  // namespace

// What a hart, a wire or a packet stands at can be saved. A program cannot, nor a transfer of a
// host DMA: those that harts have begun end soon, and are waited for.
void Pod::settle() {
  for (uint64_t waited = 0;; ++waited) {
    int64_t savable = 0;
    for (Chip* chip : chips_) {
      if (const std::string why = chip->busy_with(); !why.empty()) {
        throw spec::ArchiveError(why);
      }
      savable += static_cast<int64_t>(chip->savable_activity());
    }
    if (activity_.count() == savable) {
      return;
    }
    if (waited == kLongestTransfer) {
      throw spec::ArchiveError("a transfer between host and board did not complete within " +
                               std::to_string(kLongestTransfer) + " cycles");
    }
    sc_core::wait(from_cycles(1));
    end_cycle();
  }
}

// The lines between a core and its control processor are levels, of which a rise is an event: they
// are up before the control processor has its state, so that what it has seen is not seen again.
void Pod::visit_state(spec::Archive& archive) {
  if (process_ != nullptr) {
    throw spec::ArchiveError("a pod in several processes has no snapshots; use one process");
  }
  if (faults_ != nullptr) {
    throw spec::ArchiveError(
        "a board with faults on purpose has no snapshots; open it without SimOptions::faults_path");
  }
  settle();
  uint64_t now = now_cycles();
  uint32_t rom = rom_crc_;
  archive.section("board");
  archive(now, rom);
  for (StepCounter& steps : steps_) {
    archive(steps);
  }
  for (const auto& board : boards_) {
    archive(board->fluid());
  }
  if (archive.loading()) {
    if (now_cycles() != 0) {
      throw spec::ArchiveError("expected a board that has not run, found one at cycle " +
                               std::to_string(now_cycles()));
    }
    if (rom != rom_crc_) {
      throw spec::ArchiveError(
          "the snapshot was saved with another boot ROM; load it with the same build of tpuboard");
    }
    archive.need(now <= kLatestSaved, "the time of the board is out of range");
    sc_core::wait(from_cycles(now));
  }
  for (Chip* chip : chips_) {
    chip->visit_cores(archive);
  }
  if (archive.loading()) {
    end_cycle();
  }
  for (Chip* chip : chips_) {
    chip->visit_control(archive);
  }
  PageNumbers numbers;
  for (Chip* chip : chips_) {
    chip->visit_hbm(archive, numbers);
  }
  if (archive.loading()) {
    end_cycle();
  }
}

}  // namespace tpu::model
