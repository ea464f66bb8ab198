// Opening a board: transport, check of the chips, boot of all cores at once; and closing it.
#include <fmt/format.h>

#include <algorithm>

#include "board/board_loader.hpp"
#include "board/chip_lease.hpp"
#include "file/crc32c.hpp"
#include "options/option_check.hpp"
#include "src/board/board_impl.hpp"
#include "src/snapshots/snapshot_source.hpp"
#include "src/texts/firmware.hpp"
#include "src/texts/shell_word.hpp"
#include "tpu/spec/core_page_regs.hpp"
#include "tpu/spec/hart_map.h"
#include "transport/vfio/vfio_transport.hpp"
#include "transport/worker/mpi_rank.hpp"
#include "transport/worker/pod_transport.hpp"
#include "transport/worker/worker_transport.hpp"

namespace tpu::driver {
namespace {

namespace core_page = spec::core_page;

constexpr uint64_t kLeastStagingBytes = uint64_t{64} << 10;
constexpr size_t kNoFirmwareBytes = 4096;  // of no-ops, for transports that run none

std::string command_words(const OpenOptions& options) {
  std::string words;
  if (options.preset != OpenOptions().preset) {
    words += " --board " + shell_word(options.preset);
  }
  for (const std::string& text : options.overrides) {
    words += " --set " + shell_word(text);
  }
  return words;
}

// Of the boards; a list of PCI functions is of one, too.
bool has_one_process(const OpenOptions& options) {
  return options.board_processes == 1 &&
         (is_vfio_address(options.connect) || (options.connect.find(',') == std::string::npos &&
                                               !options.connect.starts_with(worker::kMpiAddress)));
}

std::unique_ptr<Transport> make_transport(const OpenOptions& options,
                                          const TransportRequest& request, HostArena& memory,
                                          uint32_t firmware) {
  if (options.factory) {
    std::unique_ptr<Transport> made = options.factory(request, memory);
    if (made == nullptr) {
      throw Error(ErrorCode::kInvalidArgument,
                  "OpenOptions::factory: expected a transport, found nullptr");
    }
    return made;
  }
  const bool vfio = is_vfio_address(options.connect);
  if (!options.connect_chips.empty() && (options.connect.empty() || vfio)) {
    throw Error(ErrorCode::kInvalidArgument,
                "OpenOptions::connect_chips: chips are leased of a worker alone, which "
                "OpenOptions::connect names (unix:PATH or tcp:HOST:PORT)");
  }
  if (!has_one_process(options)) {
    return make_pod_transport(options, request, memory, memory.shared_ranges(), firmware);
  }
  if (vfio) {
    return make_vfio_transport(options, request, memory);
  }
  if (!options.connect.empty()) {
    return make_worker_transport(options, request, memory, memory.shared_ranges(), firmware);
  }
  if (options.transport == "null") {
    if (!options.hang_report.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "OpenOptions::hang_report: a board of the transport 'null' has no engines that "
                  "could wait; this option needs OpenOptions::transport to be sim");
    }
    return make_null_transport(request, memory);
  }
  if (options.transport != "sim") {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("unknown transport '{}'; known: sim, null", options.transport));
  }
  std::unique_ptr<Transport> made = make_sim_transport(request, memory);
  if (made == nullptr) {
    throw Error(ErrorCode::kUnimplemented,
                "this build has no simulated board; only the transport 'null' is available");
  }
  return made;
}

Device make_device(size_t index, const spec::BoardParams& params, HostArena& arena) {
  CorePlace place;
  place.id = static_cast<int>(index);
  place.chip = static_cast<int>(static_cast<int64_t>(index) / params.board.cores_per_chip);
  place.core = static_cast<int>(static_cast<int64_t>(index) % params.board.cores_per_chip);
  const auto ring = [&](uint64_t bytes) -> CommandRing::Memory {
    const uint64_t iova = arena.take_ring(bytes);
    return {iova, arena.span(iova, bytes, true)};
  };
  const CommandRing::Memory commands = ring(CommandRing::kCommandBytes);
  const CommandRing::Memory completions = ring(CommandRing::kCompletionBytes);
  return Device(place,
                std::make_shared<DeviceMemory>(
                    place.id, static_cast<uint64_t>(params.hbm.gib_per_core) << 30),
                CommandRing(commands, completions));
}

}  // namespace

std::shared_ptr<BoardImpl> BoardImpl::open(const OpenOptions& options) {
  // A child process leaves it alone: its threads, which may wait for it, are in the other process.
  std::shared_ptr<BoardImpl> board(new BoardImpl(), [](const BoardImpl* impl) {
    if (!impl->forks_.in_child()) {
      delete impl;
    }
  });
  board_lock.assert_held();  // nobody else knows the board yet
  board->handles_.set_board(board);
  try {
    board->connect(options);
    board->outbox_.take().deliver();
    if (options.completion_thread) {
      board->start_completion_thread();
    }
  } catch (const spec::BoardError& error) {
    board->health_.close();
    throw Error(ErrorCode::kInvalidArgument, error.what());
  } catch (const Error&) {
    board->health_.close();
    board->take_rest_of_console();
    board->outbox_.take().deliver();
    throw;
  } catch (const std::exception& error) {
    board->health_.close();
    board->take_rest_of_console();
    board->outbox_.take().deliver();
    throw Error(ErrorCode::kInternal, fmt::format("the board failed at open: {}", error.what()));
  }
  return board;
}

void BoardImpl::connect(const OpenOptions& options) {
  outbox_.set_console(options.console);
  hangs_.set_report(options.hang_report);
  hangs_.set_one_process(has_one_process(options));
  check_options(options);
  TransportRequest request;
  request.params = spec::load_chips(options.preset, options.overrides, options.connect_chips);
  request.sim = options.sim;
  params_ = request.params;
  records_.set_board_words(command_words(options));
  hash_ = spec::board_hash(params_);
  counters_.set_mxus(params_.core.mxus);

  FirmwareImage image = firmware_of(options);
  request.firmware = options.firmware.empty() ? image.names : nullptr;
  if (options.staging_bytes < kLeastStagingBytes ||
      options.staging_bytes > HostArena::kMaxStagingBytes) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("OpenOptions::staging_bytes: expected {1} to {2} bytes, found {0}",
                    options.staging_bytes, kLeastStagingBytes, HostArena::kMaxStagingBytes));
  }
  harts_.set_firmware(image.names,
                      options.transport == "sim" && !options.factory ? image.build : 0);
  if (image.bytes.empty()) {
    if (options.transport != "null" && !options.factory) {
      throw Error(
          ErrorCode::kUnimplemented,
          "this build has no firmware image, because CMake found no RISC-V cross compiler; install "
          "the compiler (sim_scripts/setup names its package), then configure and build again");
    }
    image.bytes.assign(kNoFirmwareBytes, std::byte{0x13});
  }
  const uint32_t firmware = spec::crc32c(image.bytes);
  booter_.set_firmware(std::move(image.bytes), image.entry);

  const auto cores = static_cast<size_t>(spec::core_count(params_));
  request.sim.waves_trigger =
      trigger_with_address(harts_.names(), harts_.build(), options.sim.waves_trigger);
  arena_ = std::make_shared<HostArena>(
      cores * (CommandRing::kCommandBytes + CommandRing::kCompletionBytes), options.staging_bytes,
      options.connect.starts_with("unix:") || is_vfio_user_address(options.connect) ||
          options.board_processes != 1);
  sim_calls_.open(options.sim);
  // A process can have one board: a snapshot that is no good is found before there is one.
  std::optional<SnapshotSource> snapshot;
  if (!options.snapshot.empty()) {
    snapshot.emplace(options.snapshot);
    snapshot_.check(*snapshot);
  }
  memory_.set_arena(arena_);
  transport_ = make_transport(options, request, *arena_, firmware);
  registers_.connect(transport_.get());

  sim_calls_.open_limit(options.time_limit, cores);
  order_.hold_launches([this](const Operation& launch)
                           TPU_REQUIRES(board_lock) { return feeds_.delay(launch); });
  run_.set_reporter(
      LaunchReporter(options, cores, static_cast<double>(params_.core.clock_mhz) * 1e6));
  for (size_t i = 0; i < cores; ++i) {
    devices_.add(make_device(i, params_, *arena_));
  }
  loader_.set_board(params_.board.name, hash_, options.overrides);
  if (snapshot) {
    snapshot_.restore(*snapshot);
  } else {
    booter_.check_chips(static_cast<int>(spec::chip_count(params_)), hash_);
    booter_.boot_all();
  }
}

// When nobody will run the board any more.
void BoardImpl::take_rest_of_console() {
  try {
    if (transport_) {
      outbox_.add_console(transport_->take_console());
    }
  } catch (const std::exception&) {
    // The model broke, and was reported: its text went with it.
  }
}

void BoardImpl::close(CloseMode mode) {
  // The completion thread runs the callbacks, where there is one.
  const Door::Entry entry(door_, completion_thread_ ? EntryKind::kLook : EntryKind::kCall);
  const ErrorPtr closed = std::make_shared<Error>(ErrorCode::kCancelled, "the board is closed");
  if (health_.closed()) {
    if (mode == CloseMode::kCancel && !health_.broken() && !health_.cancelled()) {
      health_.cancel(closed);
      recovery_.abort_launches();
    }
    while (health_.closing() && !calls_.answers_here()) {  // another thread does it
      turn_.leave_until(news_, news_.count(), std::nullopt);
    }
    return;
  }
  health_.begin_closing();
  std::string unwritten;  // of what OpenOptions ask for
  std::string trouble;
  try {
    if (!health_.broken()) {
      if (mode == CloseMode::kCancel) {
        health_.cancel(closed);
        recovery_.abort_launches();
      }
      waits_.run_until_idle();
    }
    if (!health_.broken()) {
      run_.run();  // what the harts do behind the last completion
    }
    if (!health_.broken()) {
      for (const Device& device : devices_) {
        registers_.write(device, spec::core_page::kQueueEn, 0);
      }
    }
    break_board(closed);
    if (transport_) {
      take_rest_of_console();
      unwritten = transport_->close();
    }
  } catch (const std::exception& error) {
    trouble = error.what();
  }
  break_board(closed);
  handles_.fail_host_events(outbox_, closed);
  registers_.connect(nullptr);
  transport_.reset();
  health_.end_closing();
  news_.add();  // who closes it too
  if (!trouble.empty()) {
    throw Error(ErrorCode::kInternal, trouble);
  }
  if (!unwritten.empty()) {
    throw Error(ErrorCode::kFailedPrecondition, unwritten);
  }
}

BoardImpl::~BoardImpl() {
  try {
    close(CloseMode::kCancel);
  } catch (const std::exception&) {
    // Nobody is left who could be told.
  }
  // close() leaves callbacks to the completion thread, which does not find the board any more.
  outbox_.take().deliver();
}

}  // namespace tpu::driver
