// The board and the program of a folded pod.
#include "cli/folded.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>

#include "board/board_loader.hpp"
#include "cli/program_file.hpp"
#include "command/fold.hpp"
#include "exe/executable.hpp"
#include "program/board_symmetry.hpp"
#include "terminal/printable_text.hpp"
#include "tpu/error.hpp"
#include "tpu/spec/program_image.h"
#include "tpu/transport.hpp"

namespace tpu::driver {
namespace {

[[noreturn]] void reject_folding(const std::string& text) {
  throw Error(ErrorCode::kInvalidArgument, "--folded: " + text);
}

void check_options(const OpenOptions& options) {
  if (!options.connect.empty() || options.transport != "sim") {
    reject_folding(
        "needs the simulated board in this process; leave out --connect and --transport");
  }
  if (options.board_processes != 1) {
    reject_folding("one board is simulated, in this process; leave out --processes");
  }
  if (options.sim.check) {
    reject_folding(
        "--check follows the transfers of all boards; check the program on a smaller pod, without "
        "--folded");
  }
  if (!options.snapshot.empty()) {
    reject_folding("a board from a snapshot is not folded; leave out --from-snapshot");
  }
}

// Each core of the board has a box of its own, whatever boxes all cores have.
void fold_tensor(exe::TensorT& tensor, uint32_t cores) {
  const size_t rank = tensor.local_dims.size();
  exe::set_owners(tensor, {});
  exe::set_terms(tensor, {});
  tensor.owned_elements.clear();
  tensor.replicated = tensor.replicated || rank == 0;
  tensor.global_dims = tensor.local_dims;
  tensor.offsets.assign(cores * rank, 0);
  if (!tensor.replicated) {
    tensor.global_dims[0] *= cores;
    for (uint32_t core = 0; core < cores; ++core) {
      tensor.offsets[core * rank] = core * tensor.local_dims[0];
    }
  }
}

void fold_executable(exe::ExecutableT& program, const spec::Fold& fold, uint64_t board_hash) {
  program.partitions = fold.board_cores();
  program.board_hash = board_hash;
  exe::set_cores(program, {});
  tpu_program_image_header_t header;
  std::memcpy(&header, program.image.data(), sizeof header);
  header.cores = program.partitions;
  header.board_hash = board_hash;
  std::memcpy(program.image.data(), &header, sizeof header);
  for (auto* tensors : {&program.args, &program.results}) {
    for (const auto& tensor : *tensors) {
      fold_tensor(*tensor, program.partitions);
    }
  }
  for (const auto& call : program.host_calls) {
    if (call->partition >= 0) {
      call->partition =
          static_cast<int>(fold.twin(fold.by_board(static_cast<uint64_t>(call->partition))));
    }
  }
}

void check_cores(const exe::ExecutableT& program, const spec::Fold& fold) {
  if (program.partitions != fold.cores()) {
    reject_folding(
        fmt::format("the program runs on {} of the {} cores of the pod; it must run on all",
                    program.partitions, fold.cores()));
  }
  const std::vector<uint16_t> cores = exe::cores_of(program);
  std::vector<uint16_t> in_order(cores.size());
  std::iota(in_order.begin(), in_order.end(), uint16_t{0});
  if (cores != in_order) {
    reject_folding(
        "the program numbers its devices in another order than the pod; compile it for a mesh "
        "of the devices in order");
  }
}

}  // namespace

void add_folded_option(CLI::App& command, bool& folded) {
  command.add_flag(
      "--folded", folded,
      "Simulate one board in place of all boards of a pod, which are thought to do the "
      "same at the same time; without data");
}

FoldedProgram fold(const OpenOptions& options, const std::vector<std::byte>& program,
                   const std::string& path) {
  check_options(options);
  const spec::BoardParams pod = spec::load_board(options.preset, options.overrides);
  if (spec::board_count(pod) == 1) {
    reject_folding(
        fmt::format("{} is a board alone, not a pod; leave the option out", options.preset));
  }
  exe::ExecutableT executable = parsed_program(program, path);
  if (executable.image.size() < sizeof(tpu_program_image_header_t)) {
    reject_folding(fmt::format("{} has no program of the device; compile it again", path));
  }
  const spec::Fold numbers(pod);
  if (executable.board_hash != spec::board_hash(pod)) {
    reject_folding(fmt::format("{} was compiled for {}, not for {}; compile it again", path,
                               executable.board_name, options.preset));
  }
  check_cores(executable, numbers);
  const compiler::BoardComparison compared =
      compiler::compare_boards(std::as_bytes(std::span(executable.image)), numbers);
  if (!compared.difference.empty()) {
    reject_folding(
        fmt::format("the boards do not all do the same: {}; run the program on the whole "
                    "pod",
                    compared.difference));
  }
  if (!compared.left_out.empty()) {
    spec::print(stderr, "tpuboard: --folded: {}\n", compared.left_out);
  }
  OpenOptions board = options;
  board.sim.no_data = true;
  for (const char* const number : {"boards_x=1", "boards_y=1", "wrap_x=0", "wrap_y=0"}) {
    board.overrides.push_back(std::string("pod.") + number);
  }
  board.factory = [pod](const TransportRequest& request, HostMemory& memory) {
    TransportRequest with_pod = request;
    with_pod.folded = pod;
    return make_sim_transport(with_pod, memory);
  };
  const spec::BoardParams alone = spec::load_board(board.preset, board.overrides);
  fold_executable(executable, numbers, spec::board_hash(alone));
  return {std::move(board), exe::write_executable(executable)};
}

}  // namespace tpu::driver
