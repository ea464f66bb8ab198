// Workers, programs that use them and connections, for the tests of boards in other processes.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "socket/descriptor.hpp"
#include "tests/driver/cutting_proxy.hpp"
#include "tests/driver/program_builder.hpp"
#include "tests/driver/worker_process.hpp"
#include "tpu/error.hpp"
#include "tpu/tpu.hpp"
#include "transport/worker/address.hpp"
#include "transport/worker/byte_stream.hpp"
#include "transport/worker/channel.hpp"
#include "transport/worker/frame.hpp"

namespace tpu::driver::test {

inline ServeOptions null_worker(const std::string& listen = "unix:") {
  ServeOptions serve;
  serve.listen = listen;
  serve.board.transport = "null";
  return serve;
}

inline OpenOptions null_board() {
  OpenOptions options;
  options.transport = "null";
  return options;
}

/// "Code: text" of the error; empty: there was none.
inline std::string refusal(const OpenOptions& options) {
  try {
    Board::open(options).close();
  } catch (const Error& error) {
    return std::string(error_code_name(error.code())) + ": " + error.message();
  }
  return "";
}

/// Data there and back, on every core; what differs is a failure.
inline void use(const Board& board, uint8_t seed) {
  for (int device = 0; device < 8; ++device) {
    const HostArray sent = counting(DType::kU8, {5000}, static_cast<uint8_t>(seed + device));
    const Buffer buffer = board.put(device, sent);
    EXPECT_EQ(board.copy(buffer, 7 - device).to_host().bytes, sent.bytes) << device;
  }
}

inline std::string file_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// With a name or an address, and an age in days.
struct Certificate {
  std::string pem, key;
};
inline Certificate certificate(const std::string& folder, const std::string& name, int days,
                               const std::string& address = "127.0.0.1") {
  Certificate made{folder + "/" + name + ".pem", folder + "/" + name + ".key"};
  const std::string command =
      "openssl req -new -newkey rsa:2048 -nodes -subj /CN=worker -keyout " + made.key + " -out " +
      made.pem + ".req 2>/dev/null && printf subjectAltName=" +
      (name == "other" ? std::string("DNS:elsewhere") : "IP:" + address) + " > " + made.pem +
      ".ext && openssl x509 -req -in " + made.pem + ".req -signkey " + made.key + " -days " +
      std::to_string(days) + " -extfile " + made.pem + ".ext -out " + made.pem + " 2>/dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  return made;
}

inline std::chrono::nanoseconds cpu_time(pid_t process) {
  clockid_t clock{};
  timespec time{};
  EXPECT_EQ(::clock_getcpuclockid(process, &clock), 0);
  EXPECT_EQ(::clock_gettime(clock, &time), 0);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

/// The two ends of a connection.
struct Pair {
  Pair() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    here = std::make_unique<worker::SocketStream>(base::Descriptor(ends[0]), true);
    there = std::make_unique<worker::SocketStream>(base::Descriptor(ends[1]), true);
  }
  std::unique_ptr<worker::SocketStream> here, there;
};

// How many times the environment says, or `usual`.
inline int times(const char* variable, int usual) {
  const char* text = std::getenv(variable);
  return text == nullptr ? usual : std::atoi(text);
}

/// Cuts behind a random number of bytes, in either direction.
inline Harm cuts_at_random(uint32_t seed, int mean_bytes) {
  struct State {
    std::minstd_rand random;
    int64_t left;
  };
  const auto state = std::make_shared<State>(State{std::minstd_rand(seed), 20'000});
  return [state, mean_bytes](std::vector<char>& bytes, bool /*to_worker*/) {
    const auto size = static_cast<int64_t>(bytes.size());
    if (state->left > size) {
      state->left -= size;
      return false;
    }
    bytes.resize(static_cast<size_t>(state->left));
    state->left = 1 + static_cast<int64_t>(state->random() % static_cast<uint32_t>(2 * mean_bytes));
    return true;
  };
}

}  // namespace tpu::driver::test
