// Frames between the processes of a pod over both carriers: order, sizes, two that send at once,
// damage, and a process that ends.
#include "wire/wire.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <iterator>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "board/pod_part.hpp"
#include "wire/pod_stream.hpp"
#include "wire/shm_wire.hpp"
#include "wire/socket_wire.hpp"

namespace tpu::model {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Zeroed memory that children made by fork() share.
class Memory {
 public:
  explicit Memory(uint32_t ranks) : bytes_(spec::pod_memory_bytes(ranks)) {
    at_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { ::munmap(at_, bytes_); }
  std::span<std::byte> span() const { return {static_cast<std::byte*>(at_), bytes_}; }

 private:
  const size_t bytes_;
  void* at_;
};

struct Pair {
  std::unique_ptr<PodStream> a, b;
};

Pair shm_pair(const Memory& memory) {
  return {std::make_unique<PodStream>(make_shm_wire(0, 2, memory.span())),
          std::make_unique<PodStream>(make_shm_wire(1, 2, memory.span()))};
}

std::array<base::Descriptor, 2> sockets() {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  return {base::Descriptor(ends[0]), base::Descriptor(ends[1])};
}

std::unique_ptr<PodStream> socket_stream(uint32_t rank, base::Descriptor socket) {
  std::vector<base::Descriptor> all(2);
  all[1 - rank] = std::move(socket);
  return std::make_unique<PodStream>(make_socket_wire(rank, std::move(all)));
}

Pair socket_pair() {
  auto [a, b] = sockets();
  return {socket_stream(0, std::move(a)), socket_stream(1, std::move(b))};
}

PodFrame frame_of(uint64_t number, size_t bytes) {
  PodFrame frame;
  frame.kind = TPU_POD_WIRE_DATA;
  frame.at = 1000 + number;
  frame.board = 1;
  frame.core = 9;
  frame.number = number;
  frame.to = 3;
  frame.body.resize(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    frame.body[i] = static_cast<std::byte>(number * 31 + i * 7);
  }
  return frame;
}

void expect_frame(const PodFrame& frame, uint64_t number, size_t bytes) {
  const PodFrame expected = frame_of(number, bytes);
  EXPECT_EQ(frame.kind, expected.kind);
  EXPECT_EQ(frame.at, expected.at);
  EXPECT_EQ(frame.board, expected.board);
  EXPECT_EQ(frame.core, expected.core);
  EXPECT_EQ(frame.number, expected.number);
  EXPECT_EQ(frame.to, expected.to);
  EXPECT_EQ(frame.body, expected.body);
}

// Both send more than a carrier holds before either reads.
void exchange(const Pair& pair) {
  constexpr uint64_t kFrames = 40;
  const auto size = [](uint64_t number) { return number * number * 977 % 100'000; };
  for (uint64_t number = 0; number < kFrames; ++number) {
    pair.a->post(1, frame_of(number, size(number)));
    pair.b->post(0, frame_of(number, size(number)));
  }
  uint64_t at_a = 0;
  uint64_t at_b = 0;
  for (int turn = 0; turn < 100'000 && (at_a < kFrames || at_b < kFrames); ++turn) {
    pair.a->flush();
    pair.b->flush();
    PodFrame frame;
    if (pair.a->next(1, frame)) {
      expect_frame(frame, at_a, size(at_a));
      ++at_a;
    }
    if (pair.b->next(0, frame)) {
      expect_frame(frame, at_b, size(at_b));
      ++at_b;
    }
  }
  EXPECT_EQ(at_a, kFrames);
  EXPECT_EQ(at_b, kFrames);
  EXPECT_TRUE(pair.a->flush());
}

TEST(PodStream, CarriesFramesInOrderThroughSharedMemory) {
  const Memory memory(2);
  exchange(shm_pair(memory));
}

TEST(PodStream, CarriesFramesInOrderThroughSockets) { exchange(socket_pair()); }

// What a process sends, of two frames.
std::vector<std::byte> two_frames() {
  auto [out, in] = sockets();
  const std::unique_ptr<PodStream> writer = socket_stream(0, std::move(out));
  writer->post(1, frame_of(1, 200));
  writer->post(1, frame_of(2, 0));
  writer->flush();
  std::vector<std::byte> bytes(4096);
  const ssize_t count = ::recv(in.number(), bytes.data(), bytes.size(), 0);
  EXPECT_EQ(count, 200 + 2 * sizeof(tpu_pod_wire_head_t));
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
  return bytes;
}

// Whether they are refused before the sender ends; frames in front of the damage are good.
bool refused(std::span<const std::byte> bytes) {
  auto [out, in] = sockets();
  const std::unique_ptr<PodStream> reader = socket_stream(1, std::move(in));
  EXPECT_EQ(::send(out.number(), bytes.data(), bytes.size(), 0), std::ssize(bytes));
  PodFrame frame;
  uint64_t next = 1;
  try {
    while (reader->next(0, frame)) {
      expect_frame(frame, next, next == 1 ? 200 : 0);
      ++next;
    }
  } catch (const PodLost&) {
    EXPECT_LE(next, 2);
    return true;
  }
  return false;
}

// A message whose bytes are not what was sent is never taken.
TEST(PodStream, RejectsDamagedFrames) {
  std::mt19937 chance(5);
  const std::vector<std::byte> good = two_frames();
  EXPECT_FALSE(refused(good));
  constexpr int kTries = 2'000;
  for (int number = 0; number < kTries; ++number) {
    std::vector<std::byte> bytes = good;
    const size_t at = chance() % bytes.size();
    bytes[at] ^= static_cast<std::byte>(1 + chance() % 255);
    EXPECT_TRUE(refused(bytes)) << "byte " << at;
  }
}

// With any bit of it, before the body is there: one that seems longer may never come.
TEST(PodStream, RejectsADamagedHead) {
  std::vector<std::byte> bytes = two_frames();
  bytes.resize(sizeof(tpu_pod_wire_head_t));
  EXPECT_FALSE(refused(bytes));
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    const auto flip = static_cast<std::byte>(1U << bit % 8);
    bytes[bit / 8] ^= flip;
    EXPECT_TRUE(refused(bytes)) << "bit " << bit % 8 << " of byte " << bit / 8;
    bytes[bit / 8] ^= flip;
  }
}

// Whole frames, which are good in another place of the stream.
TEST(PodStream, RejectsRepeatedAndMissingFrames) {
  const std::vector<std::byte> good = two_frames();
  const std::span first = std::span(good).first(200 + sizeof(tpu_pod_wire_head_t));
  const std::span second = std::span(good).subspan(first.size());
  EXPECT_TRUE(refused(second)) << "the first is missing";
  std::vector<std::byte> repeated(first.begin(), first.end());
  repeated.insert(repeated.end(), first.begin(), first.end());
  EXPECT_TRUE(refused(repeated));
}

TEST(PodStream, SaysWhichFrameIsWrong) {
  auto [out, in] = sockets();
  const std::unique_ptr<PodStream> reader = socket_stream(1, std::move(in));
  const std::vector<std::byte> bytes(64, std::byte{1});
  ASSERT_EQ(::send(out.number(), bytes.data(), bytes.size(), 0), 64);
  PodFrame frame;
  try {
    reader->next(0, frame);
    FAIL();
  } catch (const PodLost& lost) {
    EXPECT_THAT(lost.what(), HasSubstr("frame 0 of rank 0 of 2"));
  }
}

// Last words are found behind frames that nobody has taken, which stay.
void find_last_words(const Pair& pair) {
  for (uint64_t number = 0; number < 3; ++number) {
    pair.a->post(1, frame_of(number, 1000));
  }
  pair.a->flush();
  PodFrame frame;
  ASSERT_TRUE(pair.b->next(0, frame));
  EXPECT_EQ(pair.b->find_lost().told, "");
  EXPECT_EQ(pair.b->find_lost().ended, "");
  pair.a->send_lost("no more", milliseconds(1000));
  EXPECT_EQ(pair.b->find_lost().told, "no more");
  for (uint64_t number = 1; number < 3; ++number) {
    ASSERT_TRUE(pair.b->next(0, frame));
    expect_frame(frame, number, 1000);
  }
  ASSERT_TRUE(pair.b->next(0, frame));
  EXPECT_EQ(frame.kind, TPU_POD_WIRE_LOST);
  EXPECT_EQ(pair.b->find_lost().told, "");
}

TEST(PodStream, FindsLastWordsInSharedMemory) {
  const Memory memory(2);
  find_last_words(shm_pair(memory));
}

TEST(PodStream, FindsLastWordsInSockets) { find_last_words(socket_pair()); }

// One that waits for room has to know that there will be none.
TEST(PodStream, FindsAnEndWithoutLastWords) {
  const Pair pair = socket_pair();
  pair.a->post(1, frame_of(1, 1000));
  pair.a->flush();
  pair.b->wire().set_pid(0, 77);
  pair.a->wire().end();
  const PodStream::Lost lost = pair.b->find_lost();
  EXPECT_EQ(lost.told, "");
  EXPECT_EQ(lost.ended, "process 77 (rank 0 of 2): the connection has ended");
  EXPECT_EQ(pair.a->find_lost().ended, "");
  PodFrame frame;
  ASSERT_TRUE(pair.b->next(0, frame));
  expect_frame(frame, 1, 1000);
}

// One that does not read cannot hear them; what it finds is that nothing more comes.
void end_without_room(const Pair& pair) {
  constexpr uint64_t kFrames = 40;
  for (uint64_t number = 0; number < kFrames; ++number) {
    pair.a->post(1, frame_of(number, size_t{1} << 20));
  }
  EXPECT_FALSE(pair.a->flush());
  pair.a->send_lost("no more", milliseconds(20));
  EXPECT_THROW(
      {
        PodFrame frame;
        for (int turn = 0; turn < 1000; ++turn) {
          while (pair.b->next(0, frame)) {
          }
          pair.b->wire().wait(milliseconds(5), kAllRanks);
        }
      },
      PodLost);
}

TEST(PodStream, EndsWithoutRoomInSharedMemory) {
  const Memory memory(2);
  end_without_room(shm_pair(memory));
}

TEST(PodStream, EndsWithoutRoomInSockets) { end_without_room(socket_pair()); }

// A process that sleeps is woken by what comes, and finds out that another one was killed.
TEST(ShmWire, NoticesTheEndOfAProcess) {
  const Memory memory(2);
  const pid_t child = ::fork();
  if (child == 0) {
    PodStream stream(make_shm_wire(1, 2, memory.span()));
    stream.post(0, frame_of(1, 10));
    stream.flush();
    for (;;) {
      ::pause();
    }
  }
  PodStream stream(make_shm_wire(0, 2, memory.span()));
  stream.wire().set_pid(1, child);
  PodFrame frame;
  while (!stream.next(1, frame)) {
    if (stream.next(1, frame)) {
      break;
    }
    stream.wire().wait(milliseconds(1000), kAllRanks);
  }
  expect_frame(frame, 1, 10);
  ::kill(child, SIGKILL);
  bool lost = false;
  for (int turn = 0; turn < 1000 && !lost; ++turn) {
    try {
      stream.wire().wait(milliseconds(5), kAllRanks);
    } catch (const PodLost& error) {
      lost = true;
      EXPECT_THAT(error.what(), HasSubstr(std::to_string(child)));
    }
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(lost);
}

TEST(ShmWire, RejectsTooLittleMemory) {
  const Memory memory(1);
  EXPECT_THROW(make_shm_wire(0, 2, memory.span()), std::invalid_argument);
}

TEST(SocketWire, NoticesTheEndOfAConnection) {
  auto [a, b] = sockets();
  const std::unique_ptr<PodStream> stream = socket_stream(0, std::move(a));
  b = base::Descriptor();
  PodFrame frame;
  EXPECT_THROW(stream->next(1, frame), PodLost);
}

}  // namespace
}  // namespace tpu::model
