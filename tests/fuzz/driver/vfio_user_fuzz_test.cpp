// Damaged frames of vfio-user for a chip of the null board, under sanitizers: each is performed,
// gets an error reply, or ends the connection with a line. TPU_FUZZ_INPUTS says how many.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "board/board_loader.hpp"
#include "socket/shared_memory.hpp"
#include "tests/fuzz/amount.hpp"
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

  std::mt19937 random_{test::fuzz_seed(kSeed)};
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
  const int frames = test::fuzz_inputs(kUsualFrames);
  for (int sent = 0; sent < frames; ++sent) {
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
  EXPECT_GT(done_, frames / 3);
  EXPECT_GT(rejected_, frames / 50);
  EXPECT_GT(connections_, frames / 2000);
  EXPECT_GT(lines_, connections_);
}

// The client of these has memory for itself only, which the chip asks for.
class VfioUserWaits : public VfioUserFuzz {
 protected:
  static constexpr uint64_t kFar = uint64_t{1} << 40;
  static constexpr size_t kFarBytes = size_t{4} << 20;

  void SetUp() override {
    connect();
    agree();
  }
  void agree() {
    send({Command::kVersion, join(Version()), {}}, 0);
    function_.serve();
    DmaMap far;
    far.flags = DmaMap::kRead | DmaMap::kWrite;
    far.address = kFar;
    far.size = kFarBytes;
    send({Command::kDmaMap, join(far), {}}, 0);
    send({Command::kRegionWrite, join(RegionAccess{4, kConfigRegion, 2}, uint16_t{6}), {}}, 0);
    function_.serve();
    take_replies();
    ASSERT_TRUE(function_.connected());
    ASSERT_EQ(rejected_, 0);
  }
  size_t read_far(size_t bytes = 64) { return function_.memory().span(kFar, bytes, false).size(); }
  Head reply_to(uint16_t id) {
    Head head;
    head.id = id;
    head.command = static_cast<uint16_t>(Command::kDmaRead);
    head.flags = Head::kReply;
    return head;
  }
  // What the chip has asked for, in turn.
  std::vector<Head> asked() {
    std::vector<Head> all;
    while (const std::optional<Frame> frame = client_->receive_now()) {
      all.push_back(frame->head);
    }
    return all;
  }
};

TEST_F(VfioUserWaits, AReplyIsTaken) {
  board_.reply_limit = std::chrono::seconds(10);
  client_->send(reply_to(1), join(DmaAccess{kFar, 64}, std::array<std::byte, 64>{}));
  EXPECT_EQ(read_far(), 64U);
  EXPECT_FALSE(function_.has_rest());
}

// Nothing is read behind what is no frame, even if it looks like one.
TEST_F(VfioUserWaits, BadHeadsInFrontOfAReplyEndTheConnection) {
  board_.reply_limit = std::chrono::seconds(10);
  for (const uint32_t bytes : {0U, 15U, kMostFrameBytes + 1, ~0U}) {
    Head bad = reply_to(1);
    bad.bytes = bytes;
    const Bytes raw = join(bad);
    ASSERT_EQ(::send(client_->number(), raw.data(), raw.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(raw.size()));
    for (uint16_t id = 1; id <= 8; ++id) {
      client_->send(reply_to(id), join(DmaAccess{kFar, 64}, std::array<std::byte, 64>{}));
    }
    EXPECT_EQ(read_far(), 0U);
    EXPECT_EQ(read_far(), 0U);
    EXPECT_TRUE(function_.has_rest());
    EXPECT_EQ(asked().size(), 1U);
    function_.serve();
    EXPECT_FALSE(function_.connected());
    EXPECT_FALSE(function_.has_rest());
    SetUp();
  }
}

TEST_F(VfioUserWaits, ALateReplyIsDroppedOnce) {
  EXPECT_EQ(read_far(), 0U);
  client_->send(reply_to(1), join(DmaAccess{kFar, 64}, std::array<std::byte, 64>{}));
  function_.serve();
  EXPECT_TRUE(function_.connected());
  client_->send(reply_to(1), join(DmaAccess{kFar, 64}, std::array<std::byte, 64>{}));
  function_.serve();
  EXPECT_FALSE(function_.connected());
}

// Once, and again when it has said something.
TEST_F(VfioUserWaits, ASilentClientIsAskedOnce) {
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(read_far(3 * kMostDataBytes), 0U);
    EXPECT_EQ(read_far(), 0U);
    EXPECT_EQ(asked().size(), 1U);
    send({Command::kDeviceInfo, join(DeviceInfo()), {}}, 0);
    function_.serve();
    take_replies();
    EXPECT_TRUE(function_.connected());
  }
}

TEST_F(VfioUserWaits, FramesInFrontOfAReplyAreLimited) {
  FrameQueue frames;
  const auto frame = [this](size_t bytes, size_t descriptors) {
    Frame made;
    made.payload.resize(bytes);
    for (; descriptors > 0; --descriptors) {
      made.descriptors.emplace_back(::dup(event_));
    }
    return made;
  };
  EXPECT_TRUE(frames.push(frame(FrameQueue::kMostBytes / 2, 0)));
  EXPECT_TRUE(frames.push(frame(FrameQueue::kMostBytes / 2, 0)));
  frames.pop();
  EXPECT_FALSE(frames.push(frame(FrameQueue::kMostBytes / 2 + 1, 0)));
  frames.clear();
  for (size_t all = 0; all < FrameQueue::kMostDescriptors; all += base::kMostDescriptors) {
    EXPECT_TRUE(frames.push(frame(0, base::kMostDescriptors)));
  }
  EXPECT_FALSE(frames.push(frame(0, 1)));
}

}  // namespace
}  // namespace tpu::driver::vfio
