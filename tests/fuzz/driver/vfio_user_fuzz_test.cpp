// Damaged frames of vfio-user for a chip of the null board, under sanitizers: each is performed,
// gets an error reply, or ends the connection with a line. TPUBOARD_TEST_FRAMES says how many.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "board/board_loader.hpp"
#include "socket/shared_memory.hpp"
#include "tpu/spec/core_page_regs.hpp"
#include "tpu/spec/rings.h"
#include "transport/vfio/pci_function.hpp"

namespace tpu::driver::vfio {
namespace {

constexpr int kUsualFrames = 100'000;
constexpr uint32_t kSeed = 108;
constexpr size_t kSharedBytes = size_t{1} << 20;
constexpr uint64_t kShared = 0x100000;

using Bytes = std::vector<std::byte>;

int frames_to_send() {
  const char* const text = std::getenv("TPUBOARD_TEST_FRAMES");
  return text == nullptr ? kUsualFrames : std::atoi(text);
}

struct Sample {
  Command command;
  Bytes payload;
  std::vector<int> descriptors;
};

template <class... Parts>
Bytes join(const Parts&... parts) {
  Bytes all;
  (all.insert(all.end(), bytes_of(parts).begin(), bytes_of(parts).end()), ...);
  return all;
}

class VfioUserFuzz : public ::testing::Test {
 protected:
  VfioUserFuzz() {
    board_.before_wait = [] {};
    board_.behind_wait = [](bool) {};
    board_.reply_limit = std::chrono::milliseconds(1);
    TransportRequest request;
    request.params = spec::load_board("v3_8");
    transport_ = make_null_transport(request, function_.memory());
    board_.transport = transport_.get();
  }
  ~VfioUserFuzz() override { ::close(event_); }

  void connect() {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    function_.connect(base::Descriptor(ends[0]));
    client_ = std::make_unique<FrameSocket>(base::Descriptor(ends[1]));
    ++connections_;
  }

  void send(const Sample& sample, uint32_t flags) {
    Head head;
    head.id = static_cast<uint16_t>(random_());
    head.command = static_cast<uint16_t>(sample.command);
    head.flags = flags;
    client_->send(head, sample.payload, {}, sample.descriptors);
  }

  // Counts the replies, and answers what the chip asks for.
  void take_replies() {
    try {
      while (std::optional<Frame> frame = client_->receive_now()) {
        if (!frame->is_reply()) {
          continue;
        }
        const bool error = (frame->head.flags & Head::kError) != 0;
        EXPECT_EQ(error, frame->head.error != 0);
        (error ? rejected_ : done_)++;
      }
    } catch (const ConnectionEnded&) {
      EXPECT_FALSE(function_.connected());
    }
  }

  std::vector<Sample> samples() {
    const auto access = [](uint32_t region, uint64_t offset, uint32_t count) {
      return RegionAccess{offset, region, count};
    };
    const auto irqs = [](uint32_t kind, uint32_t count) {
      SetIrqs request;
      request.flags = kind | SetIrqs::kTrigger;
      request.index = kMsiIrq;
      request.count = count;
      return request;
    };
    DmaMap shared;
    shared.flags = DmaMap::kRead | DmaMap::kWrite;
    shared.address = kShared;
    shared.size = kSharedBytes;
    DmaMap far = shared;
    far.address = uint64_t{1} << 40;
    DmaUnmap unmap;
    unmap.address = kShared;
    unmap.size = kSharedBytes;
    RegionInfo region;
    region.index = kConfigRegion;
    IrqInfo irq;
    irq.index = kMsiIrq;
    const ManyWrites::Write one{access(kConfigRegion, 4, 2), {std::byte{6}}};
    namespace core = spec::core_page;
    std::vector<Sample> all = {
        {Command::kDmaMap, join(shared), {memory_.file()}},
        {Command::kDmaMap, join(far), {}},
        {Command::kDmaUnmap, join(unmap), {}},
        {Command::kDeviceInfo, join(DeviceInfo()), {}},
        {Command::kRegionInfo, join(region), {}},
        {Command::kIrqInfo, join(irq), {}},
        {Command::kSetIrqs, join(irqs(SetIrqs::kEventfd, 2)), {event_, event_}},
        {Command::kSetIrqs, join(irqs(SetIrqs::kNone, 8)), {}},
        {Command::kSetIrqs, join(irqs(SetIrqs::kBool, 2), uint16_t{1}), {}},
        {Command::kRegionRead, join(access(kConfigRegion, 0, 4096)), {}},
        {Command::kRegionRead, join(access(kBar0Region, 0, 64)), {}},
        {Command::kRegionRead, join(access(kBar2Region, 64, 8)), {}},
        {Command::kRegionWrite, join(access(kConfigRegion, 4, 2), uint16_t{6}), {}},
        {Command::kRegionWrite, join(access(kConfigRegion, 0x10, 4), ~uint32_t{0}), {}},
        {Command::kRegionWrite, join(access(kBar2Region, 128, 8), uint64_t{7}), {}},
        {Command::kReset, {}, {}},
        {Command::kRegionWriteMulti, join(ManyWrites{2}, one, one), {}}};
    // The way to a core with rings, which then reads what is in the client's memory.
    const std::array<std::pair<uint32_t, uint32_t>, 9> registers = {
        {{core::kCoreCtrl, core::kCoreCtrlCoreResetMask},
         {core::kCoreCtrl, core::kCoreCtrlHartRunMask},
         {core::kHostAbi, TPU_RING_ABI},
         {core::kCmdBaseLo, kShared},
         {core::kCmdLog2, TPU_CMD_RING_LOG2},
         {core::kCplBaseLo, kShared + 0x8000},
         {core::kCplLog2, TPU_CPL_RING_LOG2},
         {core::kQueueEn, 1},
         {core::kCmdTail, 3}}};
    for (const auto& [offset, value] : registers) {
      all.push_back(
          {Command::kRegionWrite, join(access(kBar0Region, core::kBase + offset, 4), value), {}});
    }
    return all;
  }

  void damage(Bytes& bytes) {
    for (uint64_t turn = 1 + random_() % 3; turn-- > 0 && !bytes.empty();) {
      std::byte& one = bytes[random_() % bytes.size()];
      switch (random_() % 4) {
        case 0:
          one ^= static_cast<std::byte>(1U << random_() % 8);
          break;
        case 1:
          one = static_cast<std::byte>(random_() % 2 == 0 ? 0xff : 0);
          break;
        case 2:
          bytes.resize(random_() % (bytes.size() + 1));
          break;
        default:
          bytes.insert(bytes.end(), 1 + random_() % 9, static_cast<std::byte>(random_()));
      }
    }
  }

  std::mt19937 random_{kSeed};
  FunctionBoard board_;
  int lines_ = 0;
  PciFunction function_{board_, 0, PciId(), [this](const std::string& line) {
                          EXPECT_FALSE(line.empty());
                          ++lines_;
                        }};
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<FrameSocket> client_;
  base::SharedMemory memory_ = base::SharedMemory::create(kSharedBytes);
  const int event_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  int connections_ = 0;
  int done_ = 0;
  int rejected_ = 0;
};

TEST_F(VfioUserFuzz, DamagedFramesOfAClientAreUsedOrRejected) {
  const std::vector<Sample> all = samples();
  const std::string offer = R"({"capabilities":{"max_data_xfer_size":65536,"max_msg_fds":8}})";
  Bytes hello = join(Version());
  const auto text = std::as_bytes(std::span(offer.c_str(), offer.size() + 1));
  hello.insert(hello.end(), text.begin(), text.end());
  for (int sent = 0; sent < frames_to_send(); ++sent) {
    if (!function_.connected()) {
      connect();
      Sample version{Command::kVersion, hello, {}};
      if (random_() % 4 == 0) {
        damage(version.payload);
      }
      send(version, 0);
    } else {
      Sample sample = all[random_() % all.size()];
      if (random_() % 4 == 0) {
        damage(sample.payload);
      }
      if (random_() % 64 == 0) {
        sample.command = static_cast<Command>(random_() % 20);
      }
      if (random_() % 32 == 0) {
        sample.descriptors.assign(random_() % 4, random_() % 2 == 0 ? event_ : memory_.file());
      }
      const uint32_t odd = random_() % 256 == 0 ? static_cast<uint32_t>(random_()) : 0;
      send(sample, odd | (random_() % 8 == 0 ? Head::kNoReply : 0));
    }
    if (random_() % 512 == 0) {  // bytes that are no frame
      std::array<std::byte, 40> noise;
      std::ranges::generate(noise, [&] { return static_cast<std::byte>(random_()); });
      [[maybe_unused]] const ssize_t wrote =
          ::send(client_->number(), noise.data(), 1 + random_() % noise.size(), MSG_NOSIGNAL);
    }
    function_.serve();
    const RunOutcome outcome = transport_->run();
    function_.memory().flush();
    function_.raise(outcome.msi.at(0));
    take_replies();
  }
  EXPECT_GT(done_, frames_to_send() / 3);
  EXPECT_GT(rejected_, frames_to_send() / 50);
  EXPECT_GT(connections_, frames_to_send() / 2000);
  EXPECT_GT(lines_, connections_);
}

}  // namespace
}  // namespace tpu::driver::vfio
