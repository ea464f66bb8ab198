// Opening a board: transport, check of the chips, boot of all cores at once; and closing it.
#include <fmt/format.h>

#include <algorithm>

#include "file/crc32c.hpp"
#include "src/board/board_impl.hpp"
#include "src/board/snapshot_source.hpp"
#include "src/texts/firmware.hpp"
#include "src/texts/shell_word.hpp"
#include "tpu/spec/chip_page_regs.hpp"
#include "tpu/spec/core_page_regs.hpp"
#include "tpu/spec/hart_map.h"

namespace tpu::driver {
namespace {

namespace chip_page = spec::chip_page;
namespace core_page = spec::core_page;

constexpr uint64_t kLeastStagingBytes = uint64_t{64} << 10;
constexpr size_t kLoadBlockBytes = 4096;
// Parks at other interrupts while waiting for a state; each core sends a few during boot.
constexpr int kMaxBootParks = 10000;

constexpr std::array<const char*, 10> kStateNames = {
    "RESET", "ROM", "BAD_IMAGE", "HANDSHAKE", "ABI_MISMATCH",
    "READY", "RUN", "DRAIN",     "HELD",      "DEAD"};

std::string state_text(uint32_t state) {
  const uint32_t code = state & core_page::kFwStateStateMask;
  return fmt::format("{} (FW_STATE {:#010x})",
                     code < kStateNames.size() ? kStateNames[code] : "unknown", state);
}

Error internal(const std::string& text, int device = -1) {
  return Error(ErrorCode::kInternal, text, {.device = device, .op = {}, .source = {}});
}

// Board, firmware and driver are each good, but do not belong together.
Error mismatch(const std::string& text, int device = -1) {
  return Error(ErrorCode::kFailedPrecondition, text, {.device = device, .op = {}, .source = {}});
}

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

std::unique_ptr<Transport> make_transport(const OpenOptions& options,
                                          const TransportRequest& request, HostMemory& memory) {
  if (options.factory) {
    std::unique_ptr<Transport> made = options.factory(request, memory);
    if (made == nullptr) {
      throw Error(ErrorCode::kInvalidArgument, "OpenOptions::factory made no transport");
    }
    return made;
  }
  if (options.transport == "null") {
    if (!options.hang_report.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--hang-report: a board of the transport 'null' has no engines that could wait: "
                  "this needs --transport sim");
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
                "this build has no simulated board; only the transport 'null' is there");
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
    throw internal(fmt::format("the board failed at open: {}", error.what()));
  }
  return board;
}

void BoardImpl::connect(const OpenOptions& options) {
  outbox_.set_console(options.console);
  hang_report_ = options.hang_report;
  TransportRequest request;
  request.params = spec::load_board(options.preset, options.overrides);
  request.sim = options.sim;
  params_ = request.params;
  records_.set_board_words(command_words(options));
  hash_ = spec::board_hash(params_);

  const FirmwareImage image = firmware_of(options);
  firmware_ = image.bytes;
  firmware_entry_ = image.entry;
  firmware_names_ = image.names;
  request.firmware = options.firmware.empty() ? image.names : nullptr;
  if (options.staging_bytes < kLeastStagingBytes ||
      options.staging_bytes > HostArena::kMaxStagingBytes) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("staging memory of {} bytes; it can have {} to {}", options.staging_bytes,
                    kLeastStagingBytes, HostArena::kMaxStagingBytes));
  }
  firmware_build_ = options.transport == "sim" && !options.factory ? image.build : 0;
  if (firmware_.empty()) {
    if (options.transport != "null" && !options.factory) {
      throw Error(
          ErrorCode::kUnimplemented,
          "this build has no firmware image (the RISC-V cross compiler was missing): install "
          "one (sim_scripts/setup names the package), configure and build again");
    }
    firmware_.assign(kLoadBlockBytes, std::byte{0x13});
  }

  const auto cores = static_cast<size_t>(spec::core_count(params_));
  request.sim.waves_trigger =
      trigger_with_address(*firmware_names_, firmware_build_, options.sim.waves_trigger);
  arena_ = std::make_shared<HostArena>(
      cores * (CommandRing::kCommandBytes + CommandRing::kCompletionBytes), options.staging_bytes);
  sim_ = options.sim;
  records_.set_options(sim_);
  // A process can have one board: a snapshot that is no good is found before there is one.
  std::optional<SnapshotSource> snapshot;
  if (!options.snapshot.empty()) {
    snapshot.emplace(options.snapshot);
    snapshot->load([&](spec::Archive& archive) { visit_head(archive); });
  }
  memory_.set_arena(arena_);
  transport_ = make_transport(options, request, *arena_);
  registers_.connect(transport_.get());

  time_limit_ = options.time_limit;
  launch_clock_ = clock_of(sim_, time_limit_);
  reporter_ = LaunchReporter(options, cores, static_cast<double>(params_.core.clock_mhz) * 1e6);
  for (size_t i = 0; i < cores; ++i) {
    devices_.add(make_device(i, params_, *arena_));
  }
  loader_.set_board(params_.board.name, hash_);
  if (snapshot) {
    restore(*snapshot);
  } else {
    check_chips();
    boot_all();
  }
}

void BoardImpl::boot_all() {
  std::vector<int> all;
  for (const Device& device : devices_) {
    all.push_back(device.id);
  }
  boot(all, false);
}

void BoardImpl::check_chips() {
  for (int chip = 0; chip < static_cast<int>(params_.board.chips); ++chip) {
    const auto read = [&](uint64_t offset) { return transport_->read32(chip, 0, offset); };
    if (read(chip_page::kMagic) != chip_page::kMagicTpub) {
      throw Error(ErrorCode::kUnavailable,
                  fmt::format("no chip {} behind its PCIe endpoint", chip));
    }
    const uint32_t abi = read(chip_page::kHwAbi);
    if ((abi >> 16) != chip_page::kHwAbiMajor || (abi & 0xFFFF) < chip_page::kHwAbiMinor) {
      throw mismatch(fmt::format("chip {} has register map {}.{}, this driver needs {}.{}", chip,
                                 abi >> 16, abi & 0xFFFF, chip_page::kHwAbiMajor,
                                 chip_page::kHwAbiMinor));
    }
    const uint64_t hash = read(chip_page::kBoardHashLo) | uint64_t{read(chip_page::kBoardHashHi)}
                                                              << 32;
    if (hash != hash_) {
      throw mismatch(fmt::format("chip {} says board hash {:016x}, the board file has {:016x}",
                                 chip, hash, hash_));
    }
  }
}

void BoardImpl::load_firmware(const std::vector<int>& ids) {
  for (const int id : ids) {
    registers_.write(devices_[id], core_page::kCoreCtrl, core_page::kCoreCtrlCoreResetMask);
  }
  const std::span<const std::byte> image(firmware_);
  for (const int id : ids) {
    const Device& device = devices_[id];
    const uint64_t window = static_cast<uint64_t>(device.core) * core_page::kLoadStride;
    for (size_t at = 0; at < image.size(); at += kLoadBlockBytes) {
      transport_->write_block(device.chip, 2, window + at,
                              image.subspan(at, std::min(kLoadBlockBytes, image.size() - at)));
    }
    registers_.write(device, core_page::kBootEntry, firmware_entry_);
    registers_.write(device, core_page::kBootLen, static_cast<uint32_t>(image.size()));
    registers_.write(device, core_page::kBootCrc, spec::crc32c(image));
    registers_.write(device, core_page::kCoreCtrl, core_page::kCoreCtrlHartRunMask);
  }
}

// Lets time pass until all cores are in `wanted`; returns those that ended in BAD_IMAGE instead.
std::vector<int> BoardImpl::await_state(const std::vector<int>& ids, uint32_t wanted) {
  std::vector<int> waiting = ids;
  std::vector<int> bad;
  for (int parks = 0; !waiting.empty(); ++parks) {
    RunOutcome outcome = transport_->run();
    outbox_.add_console(outcome.console);
    std::vector<int> still;
    for (const int id : waiting) {
      const uint32_t word = registers_.read(devices_[id], core_page::kFwState);
      const uint32_t state = word & core_page::kFwStateStateMask;
      if (state == wanted) {
        continue;
      }
      if (state == core_page::kStateBadImage) {
        bad.push_back(id);
        continue;
      }
      if (state == core_page::kStateAbiMismatch) {
        throw mismatch("driver and firmware speak different versions of the ring formats", id);
      }
      if (state == core_page::kStateDead || outcome.quiescent || parks > kMaxBootParks) {
        Device& device = devices_[id];
        const std::string trap =
            state == core_page::kStateDead ? describe_trap(device) : std::string();
        throw internal(
            fmt::format("the control hart does not boot: the last state it told is {}{}{}{}",
                        state_text(word), trap.empty() ? "" : ": ", trap, core_text(device)),
            id);
      }
      still.push_back(id);
    }
    waiting = std::move(still);
  }
  return bad;
}

void BoardImpl::set_up_rings(Device& device) {
  device.ring.clear();
  device.held = false;
  const CommandRing::Memory& commands = device.ring.commands();
  const CommandRing::Memory& completions = device.ring.completions();
  const auto low = [](uint64_t v) { return static_cast<uint32_t>(v); };
  const auto high = [](uint64_t v) { return static_cast<uint32_t>(v >> 32); };
  registers_.write(device, core_page::kHostAbi, TPU_RING_ABI);
  registers_.write(device, core_page::kCmdBaseLo, low(commands.iova));
  registers_.write(device, core_page::kCmdBaseHi, high(commands.iova));
  registers_.write(device, core_page::kCmdLog2, TPU_CMD_RING_LOG2);
  registers_.write(device, core_page::kCplBaseLo, low(completions.iova));
  registers_.write(device, core_page::kCplBaseHi, high(completions.iova));
  registers_.write(device, core_page::kCplLog2, TPU_CPL_RING_LOG2);
  registers_.write(device, core_page::kQueueEn, 1);
}

void BoardImpl::boot(const std::vector<int>& ids, bool retried) {
  load_firmware(ids);
  const std::vector<int> bad = await_state(ids, core_page::kStateHandshake);
  std::vector<int> booted;
  std::set_difference(ids.begin(), ids.end(), bad.begin(), bad.end(), std::back_inserter(booted));
  for (const int id : booted) {
    Device& device = devices_[id];
    const uint32_t abi = registers_.read(device, core_page::kFwAbi);
    if ((abi >> 16) != (TPU_RING_ABI >> 16)) {
      throw mismatch(
          fmt::format("the firmware speaks ring formats {}.{}, this driver {}.{}", abi >> 16,
                      abi & 0xFFFF, TPU_RING_ABI >> 16, TPU_RING_ABI & 0xFFFF),
          id);
    }
    const uint32_t build = registers_.read(device, core_page::kFwBuild);
    if (firmware_build_ != 0 && build != firmware_build_) {
      throw internal(fmt::format("the firmware that runs is build {:08x}, {:08x} was loaded", build,
                                 firmware_build_),
                     id);
    }
    set_up_rings(device);
  }
  await_state(booted, core_page::kStateReady);
  for (const int id : booted) {
    Device& device = devices_[id];
    device.ring.begin_epoch(registers_.read(device, core_page::kEpoch));
  }
  if (!bad.empty()) {
    if (retried) {
      throw internal("firmware image corrupt: its CRC is wrong in the core's memory", bad.front());
    }
    boot(bad, true);
  }
}

void BoardImpl::close(CloseMode mode) {
  // The completion thread runs the callbacks, where there is one.
  const Entry entry(*this, completion_thread_ ? EntryKind::kLook : EntryKind::kCall);
  const ErrorPtr closed = std::make_shared<Error>(ErrorCode::kCancelled, "the board is closed");
  if (health_.closed()) {
    if (mode == CloseMode::kCancel && !health_.broken() && !health_.cancelled()) {
      health_.cancel(closed);
      abort_launches();
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
        abort_launches();
      }
      run_until_idle();
    }
    if (!health_.broken()) {
      run_board();  // what the harts do behind the last completion
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
}

}  // namespace tpu::driver
