// The format of both rings: spec/formats/rings.toml.
#include "src/rings/command_ring.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "file/archive.hpp"
#include "file/crc32c.hpp"

namespace tpu::driver {
namespace {

constexpr uint32_t kMaxOpenCommands = 224;
constexpr uint32_t kMaxOpenLaunches = 32;

// A board in another process may be in the middle of a record: that is over soon.
constexpr int kRereads = 1000;
constexpr std::chrono::microseconds kRereadPause{10};

uint32_t checksum_of(const tpu_completion_t& completion) {
  const auto record = std::as_bytes(std::span<const tpu_completion_t, 1>(&completion, 1));
  return spec::crc32c(record.first(sizeof(completion) - sizeof(completion.crc)));
}

bool is_launch(const Command& command) { return command.opcode == TPU_OP_LAUNCH; }

}  // namespace

void CommandRing::clear() {
  std::fill(commands_.bytes.begin(), commands_.bytes.end(), std::byte{0});
  std::fill(completions_.bytes.begin(), completions_.bytes.end(), std::byte{0});
  tail_ = rung_ = taken_ = epoch_ = 0;
  tracks_.reset();
  window_.clear();
  open_ = launches_ = 0;
  ++boots_;
}

void CommandRing::resume() {
  ++epoch_;
  tracks_.reset();
}

bool CommandRing::has_room(bool launch, size_t commands) const {
  return window_.size() + commands <= kMaxOpenCommands && (!launch || launches_ < kMaxOpenLaunches);
}

void CommandRing::enter(const std::shared_ptr<Command>& command) {
  const Tracks::Counts waits = tracks_.send(*command);
  command->seq = tail_;
  tpu_command_head_t head{};
  head.opcode = command->opcode;
  head.flags = command->flags;
  head.seq = tail_;
  head.wait_launch = waits[TPU_TRACK_LAUNCH];
  head.wait_up = waits[TPU_TRACK_UP];
  head.wait_down = waits[TPU_TRACK_DOWN];
  head.epoch = epoch_;
  std::memcpy(command->wire.data(), &head, sizeof(head));
  constexpr size_t kCrcAt = TPU_CMD_ENTRY_BYTES - sizeof(uint32_t);
  const uint32_t crc = spec::crc32c(std::span(command->wire).first(kCrcAt));
  std::memcpy(command->wire.data() + kCrcAt, &crc, sizeof(crc));

  const size_t slot = tail_ & ((1u << TPU_CMD_RING_LOG2) - 1);
  std::memcpy(commands_.bytes.data() + slot * TPU_CMD_ENTRY_BYTES, command->wire.data(),
              TPU_CMD_ENTRY_BYTES);
  ++tail_;
  window_.back() = command;
  ++open_;
  launches_ += is_launch(*command) ? 1 : 0;
}

std::optional<uint32_t> CommandRing::ring() {
  if (rung_ == tail_) {
    return std::nullopt;
  }
  rung_ = tail_;
  return tail_;
}

bool CommandRing::next(tpu_completion_t& completion) const {
  constexpr uint32_t kMask = (1u << TPU_CPL_RING_LOG2) - 1;
  const auto read = [&] {
    std::memcpy(&completion, completions_.bytes.data() + (taken_ & kMask) * TPU_CPL_ENTRY_BYTES,
                sizeof(completion));
  };
  read();
  const bool lap_even = ((taken_ >> TPU_CPL_RING_LOG2) & 1) == 0;
  const bool phase = (completion.flags & TPU_CPL_FLAG_PHASE) != 0;
  if (phase != lap_even) {
    return false;
  }
  for (int i = 0; i < kRereads && checksum_of(completion) != completion.crc; ++i) {
    std::this_thread::sleep_for(kRereadPause);
    read();
  }
  std::atomic_thread_fence(std::memory_order_acquire);  // what it announces is behind it
  return true;
}

const Command* CommandRing::command_of(const tpu_completion_t& completion,
                                       std::string& wrong) const {
  const uint32_t crc = checksum_of(completion);
  if (crc != completion.crc) {
    wrong = fmt::format("its CRC is {:08x}, its bytes have {:08x}", completion.crc, crc);
    return nullptr;
  }
  const Command* command = in_flight(completion.seq);
  if (command == nullptr) {
    wrong = fmt::format("it is of command {}, which is not in flight", completion.seq);
  }
  return command;
}

std::shared_ptr<Command> CommandRing::accept(const tpu_completion_t& completion) {
  ++taken_;
  std::shared_ptr<Command>& place = window_[place_of(completion.seq)];
  if ((completion.flags & TPU_CPL_FLAG_MORE) != 0) {
    return place;
  }
  std::shared_ptr<Command> command = std::exchange(place, nullptr);
  --open_;
  launches_ -= is_launch(*command) ? 1 : 0;
  tracks_.end(command->track);
  while (!window_.empty() && window_.front() == nullptr) {
    window_.pop_front();
  }
  return command;
}

const Command* CommandRing::in_flight(uint32_t seq) const {
  const uint32_t place = place_of(seq);
  return place < window_.size() ? window_[place].get() : nullptr;
}

std::vector<std::shared_ptr<Command>> CommandRing::take_all() {
  std::vector<std::shared_ptr<Command>> all;
  for (auto& command : std::exchange(window_, {})) {
    if (command) {
      all.push_back(std::move(command));
    }
  }
  open_ = launches_ = 0;
  return all;
}

void CommandRing::visit_counts(spec::Archive& archive) {
  archive(tail_, rung_, taken_, epoch_, boots_, tracks_);
}

void CommandRing::visit_memory(spec::Archive& archive) {
  archive.bytes(commands_.bytes);
  archive.bytes(completions_.bytes);
}

}  // namespace tpu::driver
