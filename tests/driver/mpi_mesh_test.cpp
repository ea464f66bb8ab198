// Streams between the ranks of mpirun. MPI begins once in a process: each test is a run of its own.
#include "transport/mpi/mpi_mesh.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "socket/descriptor.hpp"
#include "tpu/error.hpp"

namespace tpu::driver::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kBytes = 300'001;  // several messages, of which the last is not full
constexpr std::chrono::seconds kPatience{30};

std::vector<uint8_t> bytes_of(int from, int to, MpiStream stream) {
  std::mt19937 random(static_cast<uint32_t>(from * 1000 + to * 10 + static_cast<int>(stream)));
  std::vector<uint8_t> bytes(kBytes);
  for (uint8_t& byte : bytes) {
    byte = static_cast<uint8_t>(random());
  }
  return bytes;
}

// What comes until the end.
std::vector<uint8_t> receive_all(int socket) {
  std::vector<uint8_t> all;
  std::vector<uint8_t> some(4096);
  for (;;) {
    const ssize_t got = ::recv(socket, some.data(), some.size(), 0);
    if (got <= 0) {
      return all;
    }
    all.insert(all.end(), some.begin(), some.begin() + got);
  }
}

// Both ends send all before they close their halves.
void talk(MpiMesh& mesh, int other, MpiStream stream) {
  const base::Descriptor end = mesh.take(other, stream);
  std::thread sender([&] {
    const std::vector<uint8_t> bytes = bytes_of(mesh.rank(), other, stream);
    EXPECT_EQ(::send(end.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    ::shutdown(end.number(), SHUT_WR);
  });
  EXPECT_TRUE(receive_all(end.number()) == bytes_of(other, mesh.rank(), stream))
      << "from rank " << other << " to " << mesh.rank();
  sender.join();
}

std::string error_of_take(MpiMesh& mesh, int other) {
  try {
    mesh.take(other, MpiStream::kCalls);
  } catch (const Error& error) {
    return std::string(error_code_name(error.code())) + ": " + error.message();
  }
  return "taken";
}

bool ends_the_process(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_DFL;
}

TEST(MpiMesh, AProcessAloneIsRejected) {
  for (int twice = 0; twice < 2; ++twice) {
    try {
      MpiMesh::of_process();
      FAIL() << "a process without others has a mesh";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
      EXPECT_THAT(error.message(), HasSubstr("start it with mpirun -n COUNT"));
    }
    int has_ended = 0;
    EXPECT_EQ(::MPI_Finalized(&has_ended), MPI_SUCCESS);
    EXPECT_NE(has_ended, 0) << "MPI ends while the program does";
    EXPECT_TRUE(ends_the_process(SIGTERM));
  }
}

// In each of the ranks.
TEST(MpiRanks, BytesArriveBothWaysUntilTheEnd) {
  MpiMesh& mesh = MpiMesh::of_process();
  ASSERT_GE(mesh.ranks(), 2);
  EXPECT_THAT(mesh.name_of(mesh.rank()),
              HasSubstr("rank " + std::to_string(mesh.rank()) + " of mpirun (pid " +
                        std::to_string(::getpid()) + " on host "));
  std::vector<std::thread> talks;
  for (int other = 0; other < mesh.ranks(); ++other) {
    for (const MpiStream stream : {MpiStream::kCalls, MpiStream::kWire}) {
      if (other != mesh.rank()) {
        talks.emplace_back([&mesh, other, stream] { talk(mesh, other, stream); });
      }
    }
  }
  for (std::thread& each : talks) {
    each.join();
  }
  const int other = mesh.rank() == 0 ? 1 : 0;
  EXPECT_THAT(error_of_take(mesh, other),
              AllOf(HasSubstr("FailedPrecondition"), HasSubstr("have had a board already")));
  const auto begin = std::chrono::steady_clock::now();
  mesh.finish(kPatience);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience);
  EXPECT_TRUE(ends_the_process(SIGTERM));
}

// No rank waits at a stream. CTest compares what they print: mpirun ends those that did not end.
TEST(MpiSignals, ARankThatSleepsEndsByTheSignal) {
  const MpiMesh& mesh = MpiMesh::of_process();
  EXPECT_FALSE(ends_the_process(SIGTERM));
  std::printf("rank %d falls asleep\n", mesh.rank());
  std::fflush(stdout);
  ::kill(::getpid(), SIGTERM);
  std::this_thread::sleep_for(std::chrono::seconds(20));
  std::printf("rank %d has slept\n", mesh.rank());
  std::fflush(stdout);
}

}  // namespace
}  // namespace tpu::driver::worker
