// Damaged frames of processes that share a board, under sanitizers: each is read, or refused with
// an error. Their checksum is made good, so that the damage reaches what reads the structure.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "file/crc32c.hpp"
#include "processes/wire/failure.hpp"
#include "processes/wire/frame.hpp"
#include "tests/fuzz/amount.hpp"
#include "tpu/error.hpp"

namespace tpu::pjrt {
namespace {

constexpr int kRounds = 20000;
constexpr uint32_t kSeed = 20261128;

using Bytes = std::vector<std::byte>;

// All kinds of bodies, with what can be misaligned or shared in them.
template <class BodyT>
void add(std::vector<wire::FrameT>& frames, BodyT body = {}) {
  if constexpr (requires { body.dims; }) {
    body.dims = {3, 5, 7};
  }
  if constexpr (requires { body.devices; }) {
    body.devices = {0, 1, 2};
  }
  if constexpr (requires { body.members; }) {
    body.members = {0, 1, 2, 3};
  }
  if constexpr (requires { body.failure; }) {
    body.failure = failure_of(driver::Error(driver::ErrorCode::kInternal, "text"));
  }
  frames.push_back(frame_of(std::move(body), frames.size()));
}

template <class... BodyT>
void add_all(std::vector<wire::FrameT>& frames) {
  static_assert(sizeof...(BodyT) == static_cast<size_t>(wire::Body::MAX), "a kind is missing");
  (add<BodyT>(frames), ...);
}

std::vector<wire::FrameT> good_frames() {
  std::vector<wire::FrameT> frames;
  wire::HelloT hello;
  hello.process = 1;
  hello.processes = 4;
  hello.command = "python3 train.py";
  hello.options = {"TPUBOARD_SET=core.clock_mhz=700", "TPUBOARD_THREADS=1"};
  frames.push_back(frame_of(hello, 1));
  wire::PutT put;
  put.array = 7;
  put.dims = {3, 5, 7};
  put.bytes = std::make_unique<wire::BytesT>();
  put.bytes->in_frame.assign(420, 9);
  frames.push_back(frame_of(std::move(put), 2));
  wire::LaunchT launch;
  launch.keep = {0, 2};
  for (int device = 0; device < 2; ++device) {
    auto share = std::make_unique<wire::ShareT>();
    share->device = device;
    share->arguments = {1, 2, 3};
    share->outputs = {4};
    launch.shares.push_back(std::move(share));
  }
  frames.push_back(frame_of(std::move(launch), 3));
  wire::LoadT load;
  load.devices = {0, 1, 2, 3};
  load.executable = std::make_unique<wire::BytesT>();
  load.executable->segment = 3;
  load.executable->size = 1 << 20;
  frames.push_back(frame_of(std::move(load), 4));
  wire::AnswerT answer;
  answer.numbers = {1, 2, 3};
  answer.failure = failure_of(driver::Error(driver::ErrorCode::kDeviceFault, "text",
                                            {.device = 3, .op = "op", .source = "a.py:3"}));
  frames.push_back(frame_of(std::move(answer), 5));
  wire::HostCallT call;
  call.dims = {2, 2};
  call.op = "send";
  call.bytes = {1, 2, 3, 4};
  frames.push_back(frame_of(std::move(call)));
  using namespace wire;  // NOLINT(google-build-using-namespace)
  add_all<HelloT, SegmentT, DropSegmentT, PutT, PutLaterT, FillT, ZerosT, CopyT, ReadT, WatchT,
          AddressT, DiscardT, DropArrayT, LoadT, UnloadT, DropProgramT, LaunchT, RefuseT, LeaveT,
          HostWorkT, DeviceUseT, BeginProfileT, EndProfileT, AnswerT, EventDoneT, HostCallT,
          HostCallEndT>(frames);
  return frames;
}

// Reads a frame as a socket does. False: refused.
bool read(const Bytes& bytes) {
  try {
    const std::span all(bytes);
    const FrameHead head = read_frame_head(all.first(std::min(all.size(), kFrameHeadBytes)));
    const wire::FrameT frame = read_frame(head, all.subspan(kFrameHeadBytes));
    static_cast<void>(write_frame(frame));  // what was read can be used
    return true;
  } catch (const driver::Error& error) {
    EXPECT_FALSE(error.message().empty());
    return false;
  }
}

void mend_head(Bytes& bytes) {
  const std::span payload = std::span(bytes).subspan(kFrameHeadBytes);
  const auto size = static_cast<uint32_t>(payload.size());
  const uint32_t crc = spec::crc32c(payload);
  std::memcpy(bytes.data() + 8, &size, sizeof size);
  std::memcpy(bytes.data() + 12, &crc, sizeof crc);
}

void damage(Bytes& bytes, std::mt19937& random) {
  const auto at = [&](size_t first) { return first + random() % (bytes.size() - first); };
  for (unsigned count = 1 + random() % 4; count > 0; --count) {
    switch (random() % 4) {
      case 0:
        bytes[at(kFrameHeadBytes)] = static_cast<std::byte>(random());
        break;
      case 1:  // offsets and lengths
        if (bytes.size() >= kFrameHeadBytes + 8) {
          const auto value = static_cast<uint32_t>(random() % 3 == 0 ? random() : random() % 64);
          const size_t place = kFrameHeadBytes + random() % (bytes.size() - kFrameHeadBytes - 4);
          std::memcpy(bytes.data() + place, &value, sizeof value);
        }
        break;
      case 2:
        bytes.resize(std::max(kFrameHeadBytes + 1, at(kFrameHeadBytes)));
        break;
      default:
        bytes.push_back(static_cast<std::byte>(random()));
    }
  }
}

TEST(ProcessWireFuzz, GoodFramesComeBack) {
  for (const wire::FrameT& frame : good_frames()) {
    EXPECT_TRUE(read(write_frame(frame)));
  }
}

// Many offsets to one string, each of which would become a string of its own.
TEST(ProcessWireFuzz, PartsThatAreSharedWithoutEndAreRefused) {
  flatbuffers::FlatBufferBuilder builder;
  const auto option = builder.CreateString(std::string(size_t{1} << 20, 'x'));
  const std::vector<flatbuffers::Offset<flatbuffers::String>> same(1000, option);
  const auto options = builder.CreateVector(same);
  wire::HelloBuilder hello(builder);
  hello.add_options(options);
  const auto body = hello.Finish();
  builder.Finish(wire::CreateFrame(builder, 1, wire::Body::Hello, body.Union()));
  Bytes bytes = write_frame(good_frames()[0]);
  const auto* data = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  bytes.resize(kFrameHeadBytes);
  bytes.insert(bytes.end(), data, data + builder.GetSize());
  mend_head(bytes);
  EXPECT_FALSE(read(bytes));
}

TEST(ProcessWireFuzz, DamagedPayloadsAreReadOrRefused) {
  std::mt19937 random(tpu::test::fuzz_seed(kSeed));
  std::vector<Bytes> good;
  for (const wire::FrameT& frame : good_frames()) {
    good.push_back(write_frame(frame));
  }
  int refused = 0;
  const int rounds = tpu::test::fuzz_inputs(kRounds);
  for (int round = 0; round < rounds; ++round) {
    Bytes bytes = good[random() % good.size()];
    damage(bytes, random);
    mend_head(bytes);
    refused += read(bytes) ? 0 : 1;
  }
  EXPECT_GT(refused, rounds / 10);
  EXPECT_LT(refused, rounds);
}

TEST(ProcessWireFuzz, DamagedHeadsAreRefused) {
  std::mt19937 random(tpu::test::fuzz_seed(kSeed));
  const Bytes good = write_frame(good_frames()[0]);
  const int rounds = tpu::test::fuzz_inputs(kRounds);
  for (int round = 0; round < rounds; ++round) {
    Bytes bytes = good;
    bytes[random() % kFrameHeadBytes] ^= static_cast<std::byte>(1 + random() % 255);
    EXPECT_FALSE(read(bytes));
  }
}

TEST(ProcessWireFuzz, AnotherVersionIsNamed) {
  Bytes bytes = write_frame(good_frames()[0]);
  bytes[4] = std::byte{9};
  try {
    read_frame_head(std::span(bytes).first(kFrameHeadBytes));
    ADD_FAILURE();
  } catch (const driver::Error& error) {
    EXPECT_EQ(error.code(), driver::ErrorCode::kFailedPrecondition);
    EXPECT_NE(error.message().find("version 9"), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace tpu::pjrt
