// Processes that share the boards of a pod, of which one cannot continue: all of them end, and each
// says which one it was and why. Over shared memory and over TCP, with three and four processes.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "board/board_host.hpp"
#include "board/board_loader.hpp"
#include "board/pod_part.hpp"
#include "board_bench.hpp"
#include "socket/descriptor.hpp"
#include "wire/pod_stream.hpp"
#include "wire/shm_wire.hpp"
#include "wire/socket_wire.hpp"

namespace tpu::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kEnd = 400'000;     // cycle
constexpr uint64_t kRun = 2'000;       // cycles: a pod without programs has a window in each run
constexpr int64_t kBytesUntil = 5000;  // what a rank hears before something happens to it
constexpr int kMilliseconds = 60'000;

constexpr std::chrono::milliseconds kUntilEnd{500};
constexpr const char* kEnded = "nothing more comes";

enum class Mishap { kNone, kDamage, kKilled, kLength, kUnsent, kOtherSeed };

// Whether frames say that their process has come to the end.
bool says_end(std::span<const std::byte> frames) {
  tpu_pod_wire_head_t head{};
  while (frames.size() >= sizeof head) {
    std::memcpy(&head, frames.data(), sizeof head);
    frames = frames.subspan(sizeof head);
    tpu_pod_wire_status_t status{};
    if (head.kind == TPU_POD_WIRE_STATUS && frames.size() >= sizeof status) {
      std::memcpy(&status, frames.data(), sizeof status);
      if (status.done >= kEnd) {
        return true;
      }
    }
    frames = frames.subspan(std::min<size_t>(head.bytes, frames.size()));
  }
  return false;
}

// Something happens to this process when it has heard so much: what it has heard is damaged, it is
// killed, or the length of a frame that it sends is damaged. kUnsent: there is no room for the last
// that it sends, and then the others send no more.
class UnluckyWire final : public Wire {
 public:
  UnluckyWire(std::unique_ptr<Wire> wire, Mishap mishap)
      : wire_(std::move(wire)), mishap_(mishap), inside_(wire_->ranks()) {}
  uint32_t rank() const override { return wire_->rank(); }
  uint32_t ranks() const override { return wire_->ranks(); }
  size_t send(uint32_t to, std::span<const std::byte> bytes) override {
    if (mishap_ == Mishap::kUnsent && (unsent_since_ || says_end(bytes))) {
      unsent_since_ = unsent_since_.value_or(std::chrono::steady_clock::now());
      return 0;
    }
    std::vector<std::byte> copy(bytes.begin(), bytes.end());
    const bool damages = mishap_ == Mishap::kLength && left_ <= 0 && !damaged_ && !inside_[to];
    if (damages && !copy.empty()) {
      copy[offsetof(tpu_pod_wire_head_t, bytes) + 2] ^= std::byte{8};
    }
    const size_t sent = wire_->send(to, copy);
    damaged_ = damaged_ || (damages && sent != 0);
    inside_[to] = sent < bytes.size() && (sent != 0 || inside_[to]);
    return sent;
  }
  size_t receive(uint32_t from, std::span<std::byte> bytes) override {
    if (unsent_since_ && std::chrono::steady_clock::now() - *unsent_since_ > kUntilEnd) {
      throw PodLost(kEnded);
    }
    const size_t got = wire_->receive(from, bytes);
    const bool before = left_ > 0;
    left_ -= static_cast<int64_t>(got);
    if (got != 0 && before && left_ <= 0) {
      if (mishap_ == Mishap::kKilled) {
        ::raise(SIGKILL);
      }
      if (mishap_ == Mishap::kDamage) {
        bytes[got / 2] ^= std::byte{4};
      }
    }
    return got;
  }
  void wait(std::chrono::milliseconds limit, RankSet from) override { wire_->wait(limit, from); }
  void end() override { wire_->end(); }
  void set_pid(uint32_t rank, int pid) override { wire_->set_pid(rank, pid); }

 private:
  const std::unique_ptr<Wire> wire_;
  const Mishap mishap_;
  int64_t left_ = kBytesUntil;
  std::vector<bool> inside_;  // by rank: what it is sent next does not begin with a head
  bool damaged_ = false;
  std::optional<std::chrono::steady_clock::time_point> unsent_since_;
};

std::pair<base::Descriptor, base::Descriptor> tcp_pair() {
  const base::Descriptor listener(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(listener.number(), at, size), 0);
  EXPECT_EQ(::listen(listener.number(), 1), 0);
  EXPECT_EQ(::getsockname(listener.number(), at, &size), 0);
  base::Descriptor one(::socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(::connect(one.number(), at, size), 0);
  base::Descriptor other(::accept(listener.number(), nullptr, nullptr));
  EXPECT_TRUE(other.valid());
  return {std::move(one), std::move(other)};
}

// Wires between processes that are made by fork() behind it.
class Wires {
 public:
  Wires(uint32_t ranks, bool tcp) : ranks_(ranks) {
    if (!tcp) {
      bytes_ = spec::pod_memory_bytes(ranks);
      at_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
      return;
    }
    sockets_.resize(ranks);
    for (auto& each : sockets_) {
      each.resize(ranks);
    }
    for (uint32_t one = 0; one < ranks; ++one) {
      for (uint32_t other = one + 1; other < ranks; ++other) {
        std::tie(sockets_[one][other], sockets_[other][one]) = tcp_pair();
      }
    }
  }
  Wires(const Wires&) = delete;
  Wires& operator=(const Wires&) = delete;
  ~Wires() {
    if (at_ != nullptr) {
      ::munmap(at_, bytes_);
    }
  }
  std::unique_ptr<Wire> of(uint32_t rank) {
    if (at_ != nullptr) {
      return make_shm_wire(rank, ranks_, {static_cast<std::byte*>(at_), bytes_});
    }
    std::vector<base::Descriptor> own = std::move(sockets_[rank]);
    sockets_.clear();  // of the others
    return make_socket_wire(rank, std::move(own));
  }
  void leave() { sockets_.clear(); }

 private:
  const uint32_t ranks_;
  size_t bytes_ = 0;
  void* at_ = nullptr;
  std::vector<std::vector<base::Descriptor>> sockets_;  // of each rank
};

// The cycle that a process has come to, or what has ended it. Its board stays, as a worker's does:
// the others must not learn from its end that it cannot continue.
[[noreturn]] void be_rank(std::unique_ptr<Wire> wire, Mishap mishap, base::Descriptor tell) {
  if (mishap != Mishap::kNone && mishap != Mishap::kOtherSeed) {
    wire = std::make_unique<UnluckyWire>(std::move(wire), mishap);
  }
  BoardOptions options;
  options.params = spec::load_board("v3_32");
  options.sim.threads = 1;
  options.sim.schedule_seed = mishap == Mishap::kOtherSeed ? 7 : 0;
  options.others = std::make_shared<PodStream>(std::move(wire));
  HostArena arena(1 << 16);
  BoardHost host(options, arena);
  std::string text;
  try {
    for (uint64_t cycle = kRun; cycle <= kEnd; cycle += kRun) {
      host.run_until(cycle);
    }
    text = std::to_string(host.now());
  } catch (const PodLost& lost) {
    text = lost.what();
  }
  if (::write(tell.number(), text.data(), text.size()) < 0) {
    ::_exit(1);
  }
  tell = base::Descriptor();
  for (;;) {
    ::pause();
  }
}

struct Member {
  pid_t pid = 0;
  base::Descriptor text;
};

Member start(Wires& wires, uint32_t rank, Mishap mishap) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  base::Descriptor here(ends[0]);
  base::Descriptor there(ends[1]);
  const pid_t pid = ::fork();
  if (pid == 0) {
    here = base::Descriptor();
    be_rank(wires.of(rank), mishap, std::move(there));
  }
  return {pid, std::move(here)};
}

std::string text_of(Member& member) {
  std::string text;
  for (;;) {
    pollfd look{member.text.number(), POLLIN, 0};
    char some[512];
    if (::poll(&look, 1, kMilliseconds) != 1) {
      return "it hangs";
    }
    const ssize_t got = ::read(member.text.number(), some, sizeof some);
    if (got <= 0) {
      return text;
    }
    text.append(some, static_cast<size_t>(got));
  }
}

// What each rank says; `pid` is that of the unlucky one.
std::vector<std::string> run_all(uint32_t ranks, bool tcp, uint32_t unlucky, Mishap mishap,
                                 pid_t& pid) {
  Wires wires(ranks, tcp);
  std::vector<Member> members;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    members.push_back(start(wires, rank, rank == unlucky ? mishap : Mishap::kNone));
  }
  wires.leave();
  pid = members[unlucky].pid;
  std::vector<std::string> texts;
  for (Member& member : members) {
    texts.push_back(text_of(member));
  }
  for (const Member& member : members) {
    ::kill(member.pid, SIGKILL);
    ::waitpid(member.pid, nullptr, 0);
  }
  return texts;
}

class PodProcesses : public ::testing::TestWithParam<std::tuple<bool, uint32_t, uint32_t>> {
 protected:
  void SetUp() override {
    const auto [tcp, ranks, unlucky] = GetParam();
    tcp_ = tcp;
    ranks_ = ranks;
    unlucky_ = unlucky;
  }
  std::vector<std::string> run(Mishap mishap) {
    return run_all(ranks_, tcp_, unlucky_, mishap, pid_);
  }
  std::string name() const {
    return "process " + std::to_string(pid_) + " (rank " + std::to_string(unlucky_) + " of " +
           std::to_string(ranks_) + ")";
  }

  bool tcp_ = false;
  uint32_t ranks_ = 0;
  uint32_t unlucky_ = 0;
  pid_t pid_ = 0;
};

TEST_P(PodProcesses, ComeToOneCycle) {
  EXPECT_THAT(run(Mishap::kNone), testing::Each(std::to_string(kEnd)));
}

TEST_P(PodProcesses, AllEndWhenOneRejectsADamagedFrame) {
  const std::vector<std::string> texts = run(Mishap::kDamage);
  EXPECT_THAT(texts,
              testing::Each(AllOf(HasSubstr("at cycle "), HasSubstr(name() + " cannot continue"),
                                  HasSubstr(": frame "))));
}

// What seems to be longer is not waited for: those that would send it wait for this process.
TEST_P(PodProcesses, AllEndWhenALengthIsDamaged) {
  const std::string frame = " of rank " + std::to_string(unlucky_) + " of " +
                            std::to_string(ranks_) + ": its head was damaged";
  EXPECT_THAT(run(Mishap::kLength),
              testing::Each(AllOf(HasSubstr(" cannot continue: frame "), HasSubstr(frame))));
}

// One that only has to send, to others that send no more and do not read.
TEST_P(PodProcesses, AllEndWhenTheLastIsNotRead) {
  const std::vector<std::string> texts = run(Mishap::kUnsent);
  EXPECT_THAT(texts[unlucky_], HasSubstr(name() + " cannot continue: " + kEnded));
  EXPECT_THAT(texts, testing::Each(HasSubstr(name())));
}

TEST_P(PodProcesses, AllEndWhenOneIsKilled) {
  const std::vector<std::string> texts = run(Mishap::kKilled);
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    if (rank != unlucky_) {
      EXPECT_THAT(texts[rank], HasSubstr(name())) << "rank " << rank;
    }
  }
}

TEST_P(PodProcesses, AllEndWhenOneHasOtherOptions) {
  EXPECT_THAT(run(Mishap::kOtherSeed),
              testing::Each(AllOf(HasSubstr("SimOptions::schedule_seed"), HasSubstr("has 7"),
                                  HasSubstr("has 0"), HasSubstr(" cannot continue: "))));
}

// The next frame of rank 0; nothing: it has sent none in time.
std::optional<PodFrame> next_frame(PodStream& stream) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kMilliseconds);
  PodFrame frame;
  while (!stream.next(0, frame)) {
    if (std::chrono::steady_clock::now() > end) {
      return std::nullopt;
    }
    stream.wire().wait(std::chrono::milliseconds(5), kAllRanks);
  }
  return frame;
}

// Rank 1 is this test: it says before which cycle it is silent, and sends in the window that begins
// with that.
TEST(PodProcess, RejectsWhatArrivesEarlierThanPromised) {
  constexpr uint64_t kSilent = 1000;
  Wires wires(2, false);
  Member other = start(wires, 0, Mishap::kNone);
  PodStream stream(wires.of(1));
  const auto post = [&](uint16_t kind, uint64_t at, std::vector<std::byte> body) {
    PodFrame frame;
    frame.kind = kind;
    frame.at = at;
    frame.body = std::move(body);
    stream.post(0, frame);
    EXPECT_TRUE(stream.flush());
  };
  const std::optional<PodFrame> hello = next_frame(stream);
  ASSERT_TRUE(hello && hello->kind == TPU_POD_WIRE_HELLO);
  post(TPU_POD_WIRE_HELLO, 0, hello->body);
  tpu_pod_wire_status_t mine{};
  mine.run = 1;
  mine.silent = kSilent;
  mine.halt = UINT64_MAX;
  mine.until = kRun;
  const auto bytes = std::as_bytes(std::span(&mine, 1));
  post(TPU_POD_WIRE_STATUS, 0, {bytes.begin(), bytes.end()});
  tpu_pod_wire_status_t theirs{};
  while (theirs.done == 0) {
    const std::optional<PodFrame> frame = next_frame(stream);
    ASSERT_TRUE(frame && frame->kind == TPU_POD_WIRE_STATUS);
    ASSERT_EQ(frame->body.size(), sizeof theirs);
    std::memcpy(&theirs, frame->body.data(), sizeof theirs);
  }
  ASSERT_GT(theirs.done, kSilent);
  post(TPU_POD_WIRE_CONTROL, theirs.done, {});
  const std::string at = std::to_string(theirs.done);
  EXPECT_THAT(
      text_of(other),
      AllOf(HasSubstr("a message of rank 1 arrives at cycle " + at),
            HasSubstr("promised was that nothing more arrives in a window to cycle " + at)));
  ::kill(other.pid, SIGKILL);
  ::waitpid(other.pid, nullptr, 0);
}

INSTANTIATE_TEST_SUITE_P(Carriers, PodProcesses,
                         ::testing::Values(std::tuple(false, 3, 1), std::tuple(false, 4, 2),
                                           std::tuple(false, 4, 0), std::tuple(true, 3, 1),
                                           std::tuple(true, 4, 2), std::tuple(true, 4, 3)),
                         [](const auto& instance) {
                           return std::string(std::get<0>(instance.param) ? "tcp" : "shm") + "_" +
                                  std::to_string(std::get<1>(instance.param)) + "_rank_" +
                                  std::to_string(std::get<2>(instance.param));
                         });

}  // namespace
}  // namespace tpu::model
