// Damaged frames and messages for a worker, under sanitizers: each is used, answered with an error,
// or ends the connection. TPU_FUZZ_INPUTS says how many there are.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "board/board_loader.hpp"
#include "socket/shared_memory.hpp"
#include "tests/fuzz/amount.hpp"
#include "tpu/error.hpp"
#include "transport/worker/board_service.hpp"
#include "transport/worker/channel.hpp"
#include "transport/worker/worker_messages.hpp"

namespace tpu::driver::worker {
namespace {

constexpr int kUsualFrames = 6000;
constexpr int kFramesOfASession = 24;
constexpr size_t kShortSession = 800;  // bytes of answers: the board was there, and was used
constexpr size_t kSharedBytes = size_t{1} << 20;
constexpr uint32_t kSeed = 20261129;

using Bytes = std::vector<std::byte>;

/// Reads what a driver sent once, and writes to nobody.
class RecordedStream : public Stream {
 public:
  /// `files`: descriptors of the file that come along.
  RecordedStream(Bytes bytes, int file, int files)
      : bytes_(std::move(bytes)), file_(file), files_(files) {}
  size_t read(std::span<std::byte> to, base::Descriptor* descriptor) override {
    if (descriptor != nullptr && files_ > 0) {
      --files_;
      *descriptor = base::Descriptor(::dup(file_));
    }
    const size_t count = std::min({to.size(), bytes_.size() - at_, size_t{5000}});
    if (count == 0) {
      throw ConnectionLost("the other end has closed the connection");
    }
    std::copy_n(bytes_.begin() + static_cast<ptrdiff_t>(at_), count, to.begin());
    at_ += count;
    return count;
  }
  void write(std::span<const std::byte> bytes, int /*descriptor*/) override {
    written_ += bytes.size();
  }
  void shut_down() override {}
  int socket() const override { return -1; }
  void limit_reads(std::chrono::milliseconds /*limit*/) override {}

  size_t written() const { return written_; }

 private:
  Bytes bytes_;
  const int file_;
  int files_;
  size_t at_ = 0;
  size_t written_ = 0;
};

struct Sample {
  Kind kind;
  Bytes payload;
};

Attach attach() {
  const spec::BoardParams params = spec::load_board("v3_8");
  Attach attach;
  attach.numbers = board_numbers(params);
  attach.transport = "null";
  return attach;
}

/// A message of each kind that a driver sends.
std::vector<Sample> samples() {
  std::vector<Sample> all = {
      {Kind::kAttach, pack(attach())},
      {Kind::kMap, pack(Map{0x10000, kSharedBytes})},
      {Kind::kRead, pack(Read{1, 0, 0x20})},
      {Kind::kWrites, pack(Writes{{{0, 0, 0x1000, 1}, {3, 0, 0x1004, 2}}})},
      {Kind::kBlock, pack(Block{2, 2, 64, Bytes(300, std::byte{7})})},
      {Kind::kRun, pack(Run{.handles = true})},
      {Kind::kRun, pack(Run{.has_until = true, .until = 100})},
      {Kind::kInterrupt, {}},
      {Kind::kProgram, pack(Program{1, Bytes(100, std::byte{3})})},
      {Kind::kName, pack(Name{5, 1, 7})},
      {Kind::kPrepares, pack(Flag{true})},
      {Kind::kHandled, pack(Flag{true})},
      {Kind::kDmaData, Bytes(64, std::byte{1})},
  };
  for (int kind = 0; kind <= static_cast<int>(CallKind::kChangeSim); ++kind) {
    Call call;
    call.kind = static_cast<CallKind>(kind);
    call.device = 3;
    call.threads = {1, 2};
    call.sim.waves_scopes = {"board.*"};
    all.push_back({Kind::kCall, pack(call)});
  }
  return all;
}

// Without an answer, and wrong as they are here.
bool ends_sessions(Kind kind) {
  return kind == Kind::kProgram || kind == Kind::kHandled || kind == Kind::kDmaData;
}

void damage(Bytes& bytes, std::mt19937& random) {
  for (uint64_t turn = 1 + random() % 3; turn-- > 0 && !bytes.empty();) {
    switch (random() % 4) {
      case 0:
        bytes[random() % bytes.size()] ^= static_cast<std::byte>(1U << random() % 8);
        break;
      case 1:
        bytes[random() % bytes.size()] = static_cast<std::byte>(random() % 2 == 0 ? 0xff : 0);
        break;
      case 2:
        bytes.resize(random() % (bytes.size() + 1));
        break;
      default:
        bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(random() % bytes.size()),
                     1 + random() % 9, static_cast<std::byte>(random()));
    }
  }
}

TEST(WorkerFuzz, DamagedFramesOfADriverAreUsedOrRejected) {
  const std::vector<Sample> all = samples();
  std::mt19937 random(test::fuzz_seed(kSeed));
  OpenOptions options;
  options.transport = "null";
  const base::SharedMemory shared = base::SharedMemory::create(kSharedBytes);
  int used = 0;
  int ended = 0;
  int sessions = 0;
  const int frames = test::fuzz_inputs(kUsualFrames);
  for (int sent = 0; sent < frames; sent += kFramesOfASession) {
    Bytes bytes;
    int files = 0;
    for (uint64_t number = 1; number <= kFramesOfASession; ++number) {
      Sample sample = number == 1 ? all[0] : all[random() % all.size()];
      if (ends_sessions(sample.kind) && random() % 8 != 0) {
        sample = all[random() % all.size()];
      }
      if (random() % (number == 1 ? 16 : 4) == 0) {
        damage(sample.payload, random);
      }
      Frame frame;
      frame.kind = random() % 32 == 0 ? static_cast<Kind>(random() % 32) : sample.kind;
      frame.has_descriptor = sample.kind == Kind::kMap ? random() % 8 != 0 : random() % 64 == 0;
      files += frame.has_descriptor && random() % 16 != 0 ? 1 : 0;
      frame.more = random() % 64 == 0;
      frame.number = random() % 128 == 0 ? random() : number;
      frame.acknowledged = random() % 8 == 0 ? random() : 0;
      Bytes made = write_frame(frame, sample.payload);
      if (random() % 64 == 0) {
        damage(made, random);  // the checksum too
      }
      bytes.insert(bytes.end(), made.begin(), made.end());
    }
    auto stream = std::make_unique<RecordedStream>(std::move(bytes), shared.file(), files);
    RecordedStream& recorded = *stream;
    auto reader = std::make_unique<FrameReader>(recorded);
    size_t written = 0;
    try {
      Channel channel({std::move(stream), std::move(reader), 0},
                      [&](const std::string& why, uint64_t) -> NextConnection {
                        written = recorded.written();
                        throw Error(ErrorCode::kUnavailable, why);
                      });
      BoardService(channel, options, [] {}).serve();
    } catch (const Error& error) {
      EXPECT_FALSE(error.message().empty());
      ++ended;
    }
    ++sessions;
    used += written > kShortSession ? 1 : 0;
  }
  EXPECT_GT(ended, 0);
  EXPECT_GT(used, sessions / 20);
}

TEST(WorkerFuzz, DamagedAnswersOfAWorkerAreReadOrRejected) {
  std::mt19937 random(test::fuzz_seed(kSeed));
  Answer stats;
  stats.stats.counters = {{1, 2, 3}, {4}};
  stats.stats.places.resize(2);
  stats.stats.places[1].loops.resize(3);
  stats.stats.profile.push_back({"name", "unit", 0.5, 1, 2, 3});
  Answer waits;
  waits.kind = CallKind::kWaits;
  waits.waits.resize(2);
  waits.waits[0].ender.emplace();
  Stopped stopped;
  stopped.outcome.msi = {1, 2, 3, 4};
  stopped.outcome.console.push_back({3, "text"});
  Hello hello;
  hello.version = "1.0";
  hello.token = Bytes(32, std::byte{1});
  hello.who = "pid 1";
  const std::vector<Bytes> good = {pack(stats),
                                   pack(stopped),
                                   pack(Welcome{}),
                                   pack(Attached{}),
                                   pack(Failure{1, "text", 2, "op", "source"}),
                                   pack(hello),
                                   pack(waits)};
  EXPECT_EQ(pack(unpack<Answer>(good[0])), good[0]);
  EXPECT_EQ(pack(unpack<Stopped>(good[1])), good[1]);
  EXPECT_EQ(pack(unpack<Answer>(good[6])), good[6]);
  std::array<int, 7> rejected{};
  std::array<int, 7> used{};
  const int frames = test::fuzz_inputs(kUsualFrames);
  for (int i = 0; i < frames; ++i) {
    const size_t right = random() % good.size();
    Bytes bytes = good[right];
    damage(bytes, random);
    // What is used says the same when it is written again and read again.
    const auto read = [&](size_t kind, auto message) {
      try {
        message = unpack<decltype(message)>(bytes);
        used.at(kind) += kind == right ? 1 : 0;
      } catch (const Error& error) {
        EXPECT_FALSE(error.message().empty());
        rejected.at(kind) += kind == right ? 1 : 0;
        return;
      }
      const Bytes again = pack(message);
      EXPECT_EQ(pack(unpack<decltype(message)>(again)), again);
    };
    read(0, Answer());
    read(1, Stopped());
    read(2, Welcome());
    read(3, Attached());
    read(4, Failure());
    read(5, Hello());
    read(6, Answer());
  }
  for (size_t kind = 0; kind < good.size(); ++kind) {
    EXPECT_GT(rejected.at(kind), 0) << kind;
    EXPECT_GT(used.at(kind), 0) << kind;
  }
}

}  // namespace
}  // namespace tpu::driver::worker
