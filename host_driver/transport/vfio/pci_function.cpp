#include "transport/vfio/pci_function.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "transport/vfio/requests.hpp"

namespace tpu::driver::vfio {
namespace {

constexpr int kFramesOfATurn = 256;
constexpr int kMostLines = 20;
constexpr size_t kMostLate = 64;  // replies that can come yet
constexpr size_t kMostJsonBytes = 4096;

}  // namespace

PciFunction::PciFunction(FunctionBoard& board, int chip, PciId id,
                         std::function<void(const std::string&)> line)
    : board_(board),
      line_(std::move(line)),
      regions_(board, chip, id),
      memory_(
          {[this](uint64_t address, std::span<std::byte> to) { return far_read(address, to); },
           [this](uint64_t address, Bytes from) { return far_write(address, from); }},
          [this] { return regions_.config().bus_master(); },
          [this] { regions_.config().note_abort(); }) {}

PciFunction::~PciFunction() = default;

void PciFunction::connect(base::Descriptor socket) {
  socket_ = std::make_unique<FrameSocket>(std::move(socket));
  agreed_ = false;
  lines_ = 0;
  peer_bytes_ = kMostDataBytes;
  broken_.reset();
  silent_ = false;
  late_.clear();
}

void PciFunction::tell(const std::string& text) {
  if (++lines_ < kMostLines) {
    line_(text);
  } else if (lines_ == kMostLines) {
    line_(text + " (more lines of this connection are not shown)");
  }
}

// The chip is as after a reset: nobody is left whom it could serve.
void PciFunction::disconnect() {
  socket_ = nullptr;
  rest_.clear();
  broken_.reset();
  memory_.ranges().clear();
  vectors_.clear();
  regions_.reset();
}

void PciFunction::serve() {
  try {
    for (int turn = 0; turn < kFramesOfATurn && connected(); ++turn) {
      check_whole();
      if (!rest_.empty()) {
        handle(rest_.pop());
        continue;
      }
      std::optional<Frame> frame = socket_->receive_now();
      if (!frame) {
        break;
      }
      silent_ = false;
      handle(std::move(*frame));
    }
    regions_.settle();
  } catch (const ConnectionClosed&) {
    disconnect();
  } catch (const ConnectionEnded& ended) {
    tell(fmt::format("the connection has ended: {}", ended.what()));
    disconnect();
  }
}

void PciFunction::handle(Frame frame) {
  const std::string name = command_name(frame.head.command);
  if (is_late(frame)) {
    return;
  }
  if (frame.is_reply()) {
    throw ConnectionEnded(fmt::format("a reply ({}) that nothing was asked for", name));
  }
  if ((frame.head.flags & Head::kTypeMask) != 0 || (frame.head.flags & ~Head::kKnownFlags) != 0) {
    throw ConnectionEnded(
        fmt::format("{} with the flags {:#x}, which are not defined", name, frame.head.flags));
  }
  if (!agreed_ && frame.head.command != static_cast<uint16_t>(Command::kVersion)) {
    throw ConnectionEnded(fmt::format("the first frame is {}: expected VERSION", name));
  }
  answer(frame);
}

void PciFunction::answer(Frame& frame) {
  Head reply;
  reply.id = frame.head.id;
  reply.command = frame.head.command;
  reply.flags = Head::kReply;
  std::vector<std::byte> payload;
  try {
    payload = perform(frame);
    memory_.flush();
  } catch (const Rejected& rejected) {
    tell(fmt::format("{} is rejected: {}", command_name(frame.head.command), rejected.what()));
    reply.flags |= Head::kError;
    reply.error = static_cast<uint32_t>(rejected.error());
  }
  check_whole();
  if ((frame.head.flags & Head::kNoReply) == 0) {
    socket_->send(reply, payload);
  }
}

std::vector<std::byte> PciFunction::perform(Frame& frame) {
  const Bytes payload = frame.payload;
  const auto command = static_cast<Command>(frame.head.command);
  if (!frame.descriptors.empty() && command != Command::kDmaMap && command != Command::kSetIrqs) {
    throw Rejected(EINVAL, fmt::format("{} descriptors: expected none", frame.descriptors.size()));
  }
  switch (command) {
    case Command::kVersion:
      return agree(payload);
    case Command::kDmaMap:
      map(frame);
      return {};
    case Command::kDmaUnmap:
      return unmap(payload);
    case Command::kDeviceInfo: {
      auto info = sized<DeviceInfo>(payload);
      info = {sizeof info, DeviceInfo::kResets | DeviceInfo::kPci, kRegions, kIrqs};
      return vector_of(info);
    }
    case Command::kRegionInfo:
      return ChipRegions::info(payload);
    case Command::kIrqInfo:
      return InterruptVectors::info(payload);
    case Command::kSetIrqs:
      vectors_.set(frame);
      return {};
    case Command::kRegionRead:
      return regions_.read(payload);
    case Command::kRegionWrite:
      return regions_.write(payload);
    case Command::kRegionWriteMulti:
      return regions_.write_many(payload);
    case Command::kReset:
      if (!payload.empty()) {
        throw Rejected(EINVAL,
                       fmt::format("the payload has {} bytes: expected none", payload.size()));
      }
      regions_.reset();
      return {};
    default:
      throw Rejected(ENOTSUP, "this server does not have this command");
  }
}

std::vector<std::byte> PciFunction::agree(Bytes payload) {
  if (agreed_) {
    throw Rejected(EINVAL, "the version is agreed on already");
  }
  if (payload.size() < sizeof(Version) || payload.size() > kMostJsonBytes) {
    throw ConnectionEnded(fmt::format("VERSION with {} bytes: expected {} to {}", payload.size(),
                                      sizeof(Version), kMostJsonBytes));
  }
  const auto version = read_struct<Version>(payload);
  if (version.major != 0) {
    throw ConnectionEnded(
        fmt::format("protocol version {}.{}: this server has 0.0", version.major, version.minor));
  }
  const Bytes text = payload.subspan(sizeof version);
  nlohmann::json wanted = nlohmann::json::object();
  if (!text.empty()) {
    if (text.back() != std::byte{0}) {
      throw ConnectionEnded("VERSION with a text that no zero ends");
    }
    const auto* const first = reinterpret_cast<const char*>(text.data());
    wanted = nlohmann::json::parse(first, first + strnlen(first, text.size()), nullptr, false);
    if (!wanted.is_object()) {
      throw ConnectionEnded("VERSION with a text that is not a JSON object");
    }
  }
  const nlohmann::json theirs = wanted.value("capabilities", nlohmann::json::object());
  const nlohmann::json all = {{"max_msg_fds", base::kMostDescriptors},
                              {"max_data_xfer_size", kMostDataBytes},
                              {"max_dma_maps", DmaRanges::kToldRanges},
                              {"pgsizes", kPageBytes},
                              {"write_multiple", true}};
  nlohmann::json ours = nlohmann::json::object();
  for (const auto& [key, value] : all.items()) {
    if (theirs.is_object() && theirs.contains(key)) {
      ours[key] = value;
    }
  }
  if (ours.contains("max_data_xfer_size")) {
    const nlohmann::json& most = theirs["max_data_xfer_size"];
    if (!most.is_number_unsigned() || most.get<uint64_t>() < kPageBytes) {
      throw ConnectionEnded(fmt::format("VERSION with max_data_xfer_size {}: expected at least {}",
                                        most.dump(), kPageBytes));
    }
    peer_bytes_ = static_cast<uint32_t>(std::min<uint64_t>(most.get<uint64_t>(), kMostDataBytes));
  }
  agreed_ = true;
  const std::string json = nlohmann::json{{"capabilities", ours}}.dump();
  std::vector<std::byte> reply = vector_of(Version{0, 0});
  const auto bytes = std::as_bytes(std::span(json.c_str(), json.size() + 1));
  reply.insert(reply.end(), bytes.begin(), bytes.end());
  return reply;
}

void PciFunction::map(Frame& frame) {
  const auto map = sized<DmaMap>(frame.payload);
  if (frame.descriptors.size() > 1) {
    throw Rejected(EINVAL,
                   fmt::format("{} descriptors: expected one, or none", frame.descriptors.size()));
  }
  const std::string where =
      fmt::format("DMA memory at {:#x} of {:#x} bytes", map.address, map.size);
  if ((map.flags & ~(DmaMap::kRead | DmaMap::kWrite)) != 0 || map.flags == 0) {
    throw Rejected(EINVAL, fmt::format("{} with flags {:#x}: expected 1 to 3", where, map.flags));
  }
  if (map.size == 0 || (map.address | map.size | map.offset) % kPageBytes != 0 ||
      map.address + (map.size - 1) < map.address) {
    throw Rejected(EINVAL, fmt::format("{}: expected whole pages of {}", where, kPageBytes));
  }
  base::Descriptor file;
  if (!frame.descriptors.empty()) {
    file = std::move(frame.descriptors.front());
  }
  if (const int error = memory_.ranges().map(map, std::move(file)); error != 0) {
    const char* const why = error == EEXIST   ? "it overlaps other memory"
                            : error == ENOSPC ? "there is no room for more memory"
                            : error == EINVAL
                                ? "its descriptor is not a file, or the file is smaller"
                                : std::strerror(error);
    throw Rejected(error, fmt::format("{}: {}", where, why));
  }
}

std::vector<std::byte> PciFunction::unmap(Bytes payload) {
  auto unmap = sized<DmaUnmap>(payload);
  if (unmap.flags == DmaUnmap::kAll && unmap.address == 0 && unmap.size == 0) {
    memory_.ranges().clear();
  } else if (unmap.flags != 0) {
    throw Rejected(EINVAL, fmt::format("flags {:#x}: expected 0, or {} without a range",
                                       unmap.flags, DmaUnmap::kAll));
  } else {
    const auto [error, bytes] = memory_.ranges().unmap(unmap.address, unmap.size);
    if (error != 0) {
      throw Rejected(error, fmt::format("DMA memory at {:#x} of {:#x} bytes: expected whole ranges "
                                        "that were mapped, or none",
                                        unmap.address, unmap.size));
    }
    unmap.size = bytes;
  }
  return vector_of(unmap);
}

// Nothing is sent behind a part of a frame, or read behind one that is none.
void PciFunction::check_whole() const {
  if (broken_) {
    throw ConnectionEnded(*broken_);
  }
}

uint16_t PciFunction::new_id() {
  do {
    ++next_id_;
  } while (std::ranges::find(late_, next_id_) != late_.end());
  return next_id_;
}

// True once for each command whose reply was not waited for any longer.
bool PciFunction::is_late(const Frame& frame) {
  return frame.is_reply() && std::erase(late_, frame.head.id) != 0;
}

// The reply to a command of the chip, or nothing when the time is over. Other frames of the client
// wait.
std::optional<Frame> PciFunction::await_reply(const Head& head) {
  const auto end = std::chrono::steady_clock::now() + board_.reply_limit;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    std::optional<Frame> frame = socket_->receive(std::max(left, std::chrono::milliseconds(0)));
    if (!frame ||
        (frame->is_reply() && frame->head.id == head.id && frame->head.command == head.command)) {
      return frame;
    }
    if (!is_late(*frame) && !rest_.push(std::move(*frame))) {
      throw ConnectionEnded(
          fmt::format("{} frames came in front of the reply: expected at most {} with {} MiB and "
                      "{} descriptors",
                      rest_.size(), FrameQueue::kMostFrames, FrameQueue::kMostBytes >> 20,
                      FrameQueue::kMostDescriptors));
    }
  }
}

// A command to the client, in the thread of the board. One that has let a command wait in vain is
// not asked again before it says something: the whole board would wait each time.
bool PciFunction::ask(Command command, const DmaAccess& access, Bytes data,
                      std::span<std::byte> to) {
  if (!connected() || broken_ || silent_) {
    return false;
  }
  Head head;
  head.id = new_id();
  head.command = static_cast<uint16_t>(command);
  bool good = false;
  board_.before_wait();
  try {
    socket_->send(head, bytes_of(access), data);
    if (const std::optional<Frame> reply = await_reply(head)) {
      const size_t expected = to.empty() ? 0 : sizeof access + to.size();
      good = (reply->head.flags & Head::kError) == 0 && reply->payload.size() >= expected;
      if (good && !to.empty()) {
        std::copy_n(reply->payload.begin() + sizeof access, to.size(), to.begin());
      }
    } else {
      silent_ = true;
      late_.push_back(head.id);
      if (late_.size() > kMostLate) {
        late_.pop_front();
      }
      tell(fmt::format("{} of {} bytes at {:#x} has no reply within {} ms",
                       command_name(head.command), access.count, access.address,
                       board_.reply_limit.count()));
    }
  } catch (const ConnectionEnded& ended) {
    broken_ = fmt::format("{}: {}", command_name(head.command), ended.what());
  }
  board_.behind_wait(has_rest());
  return good;
}

void PciFunction::raise(uint32_t vectors) {
  if (regions_.config().bus_master()) {
    vectors_.raise(vectors);
  }
}

bool PciFunction::far_read(uint64_t address, std::span<std::byte> to) {
  while (!to.empty()) {
    const std::span<std::byte> part = to.first(std::min<size_t>(to.size(), peer_bytes_));
    if (!ask(Command::kDmaRead, {address, part.size()}, {}, part)) {
      return false;
    }
    address += part.size();
    to = to.subspan(part.size());
  }
  return true;
}

bool PciFunction::far_write(uint64_t address, Bytes from) {
  while (!from.empty()) {
    const Bytes part = from.first(std::min<size_t>(from.size(), peer_bytes_));
    if (!ask(Command::kDmaWrite, {address, part.size()}, part, {})) {
      return false;
    }
    address += part.size();
    from = from.subspan(part.size());
  }
  return true;
}

}  // namespace tpu::driver::vfio
