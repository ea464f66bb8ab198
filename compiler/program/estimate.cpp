// The estimate of a program by the timed machine; rough costs in closed form.
#include "program/estimate.hpp"

#include <algorithm>
#include <optional>

#include "board/board_loader.hpp"
#include "command/cost.hpp"
#include "command/operands.hpp"
#include "program/timed_gang.hpp"
#include "tpu/spec/program_image.h"

namespace tpu::compiler {

namespace {

using spec::BoardParams;

// Commands of all cores up to which each core is simulated, in less than a second of wall-clock
// time; then, if it can be, one for all.
constexpr uint64_t kExactCommands = 2'000'000;
// Commands that are simulated at most, turns of loops that repeat not counted.
constexpr uint64_t kMostCommands = 4'000'000;

uint64_t stream_cycles(const BoardParams& b, int64_t bytes, int64_t gbps, int64_t percent) {
  const int64_t per_us = gbps * percent * 10;  // bytes per microsecond
  return static_cast<uint64_t>((bytes * b.core.clock_mhz + per_us - 1) /
                               std::max<int64_t>(per_us, 1));
}

uint64_t busy(const BoardParams&, const Command&, const Listing&, const spec::NopCommand&) {
  return 1;
}

uint64_t busy(const BoardParams& b, const Command&, const Listing&, const spec::MatmulCommand& c) {
  return spec::matmul_timing(spec::mxu_shape(b), c).free_at;
}

uint64_t busy(const BoardParams& b, const Command& cmd, const Listing& l,
              const spec::VpuKernelCommand& c) {
  const VpuProgram& p = l.programs[static_cast<size_t>(cmd.program)];
  return spec::vpu_cycles(b, c, {}, spec::vpu_sections(p.header, p.code)).free_at;
}

uint64_t busy(const BoardParams& b, const Command&, const Listing&,
              const spec::TransposeCommand& c) {
  return spec::transpose_cycles(b, c).free_at;
}

uint64_t transfer(const BoardParams& b, const spec::CommandHeader& head, uint64_t bytes,
                  bool uses_hbm) {
  const auto count = static_cast<int64_t>(bytes);
  if (head.queue == static_cast<uint8_t>(spec::Queue::kDmaRemote)) {
    return port_cycles(b, count);
  }
  return uses_hbm ? hbm_cycles(b, count)
                  : static_cast<uint64_t>(count / b.dma.local_bytes_per_cycle + 1);
}

uint64_t busy(const BoardParams& b, const Command&, const Listing&, const spec::DmaCommand& c) {
  return transfer(b, c.head, spec::transfer_box(c).total_bytes,
                  spec::is_hbm(c.src) || spec::is_hbm(c.dst));
}

uint64_t busy(const BoardParams& b, const Command&, const Listing&, const spec::FillCommand& c) {
  return transfer(b, c.head, spec::transfer_box(c).total_bytes, spec::is_hbm(c.dst));
}

uint64_t busy(const BoardParams& b, const Command&, const Listing&,
              const spec::DmaIndexedCommand& c) {
  const spec::TransferBytes bytes = spec::transfer_bytes(b, c);
  return transfer(b, c.head, c.scatter() ? bytes.dst : bytes.src,
                  spec::is_hbm(c.src) || spec::is_hbm(c.dst));
}

}  // namespace

uint64_t busy_cycles(const Command& command, const Listing& listing, const BoardParams& board) {
  return std::visit([&](const auto& body) { return busy(board, command, listing, body); },
                    command.body);
}

double hbm_bytes_per_cycle(const BoardParams& board) {
  const double per_chip = static_cast<double>(board.hbm.gbps_per_chip) * 1e3 *
                          static_cast<double>(board.hbm.efficiency_percent) / 100;
  return per_chip / static_cast<double>(board.board.cores_per_chip * board.core.clock_mhz);
}

uint64_t hbm_cycles(const BoardParams& board, int64_t bytes) {
  return stream_cycles(board, bytes, board.hbm.gbps_per_chip / board.board.cores_per_chip,
                       board.hbm.efficiency_percent);
}

double pcie_bytes_per_cycle(const BoardParams& board) {
  return static_cast<double>(board.pcie.gbps_per_chip) * 1e3 *
         static_cast<double>(board.host.transfer_efficiency) / 100 /
         static_cast<double>(board.core.clock_mhz);
}

uint64_t port_cycles(const BoardParams& board, int64_t bytes) {
  return stream_cycles(board, bytes, board.ici.core_port_gbps, 100);
}

ProgramEstimate estimate_program(std::span<const std::byte> image, const std::vector<int>& cores,
                                 const BoardParams& board) {
  const auto code = image.subspan(sizeof(tpu_program_image_header_t));
  // Two cores of a chip fit into the list of what a folded transfer passes. In rings all chips are
  // alike; in a line, which only a pod has, those in the midst have more to carry.
  const bool many = cores.size() > kExactCores;
  const bool first_ones = cores.size() > 1 && std::is_sorted(cores.begin(), cores.end()) &&
                          cores.back() + 1 == static_cast<int>(cores.size());
  const bool rings = (board.pod.boards_x == 1 || board.pod.wrap_x != 0) &&
                     (board.pod.boards_y == 1 || board.pod.wrap_y != 0);
  const bool whole = rings && static_cast<int64_t>(cores.size()) == spec::core_count(board);
  const bool folds = first_ones && board.board.cores_per_chip <= 2 && (many || whole);
  const auto one_for_all = [&]() -> std::optional<ProgramEstimate> {
    TimedGang folded(code, cores, board, GangMode::kFolded);
    const auto found = folded.run(kMostCommands);
    return found ? std::optional(ProgramEstimate{*found, folded.work()}) : std::nullopt;
  };
  if (folds && many) {
    if (const auto found = one_for_all()) {
      return *found;
    }
  }
  TimedGang all(code, cores, board, GangMode::kAll);
  std::optional<uint64_t> cycles = all.run(folds && !many ? kExactCommands : kMostCommands);
  if (!cycles && folds && !many) {
    if (const auto found = one_for_all()) {
      return *found;
    }
  }
  if (!cycles) {
    cycles = all.run(kMostCommands);
  }
  return {cycles.value_or(all.now()), all.work()};
}

}  // namespace tpu::compiler
