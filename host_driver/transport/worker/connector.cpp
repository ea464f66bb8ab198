#include "transport/worker/connector.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include "terminal/printable_text.hpp"
#include "tpu/error.hpp"
#include "tpu/version.hpp"
#include "transport/mpi/mpi_mesh.hpp"
#include "transport/worker/mpi_rank.hpp"
#include "transport/worker/token.hpp"

namespace tpu::driver::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kGreetingLimit{20'000};
constexpr std::chrono::milliseconds kMostPause{1000};

std::string command_of_this_process() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string words((std::istreambuf_iterator<char>(file)), {});
  std::replace(words.begin(), words.end(), '\0', ' ');
  constexpr size_t kMost = 80;
  return words.size() > kMost ? words.substr(0, kMost) + ".." : words;
}

std::string this_process() {
  std::array<char, HOST_NAME_MAX + 1> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("pid {} on {} ({})", ::getpid(), host.data(), command_of_this_process());
}

std::unique_ptr<TlsClient> tls_of(const OpenOptions& options, const Address& address) {
  if (options.connect_ca.empty()) {
    return nullptr;
  }
  if (address.is_local()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("OpenOptions::connect_ca: {} is on this host and has no TLS", address.text));
  }
  return std::make_unique<TlsClient>(options.connect_ca, address.host);
}

Address worker_address(const std::string& connect) {
  if (const std::optional<int> rank = rank_of_address(connect)) {
    Address address;
    address.text = connect;
    address.mpi_rank = *rank;
    return address;
  }
  return read_address(connect);
}

base::Descriptor connected(const Address& address) {
  return address.mpi_rank < 0 ? connect_to(address)
                              : MpiMesh::of_process().take(address.mpi_rank, MpiStream::kCalls);
}

void read_all(Stream& stream, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    bytes = bytes.subspan(stream.read(bytes, nullptr));
  }
}

void greet(Stream& stream, const Address& address, bool tls, uint64_t session) {
  const Preamble preamble = make_preamble(tls, session);
  stream.write(std::as_bytes(std::span(&preamble, 1)), -1);
  PreambleAnswer answer{};
  const std::span<std::byte> all = std::as_writable_bytes(std::span(&answer, 1));
  read_all(stream, all.first(offsetof(PreambleAnswer, crc)));
  const bool right = std::memcmp(answer.magic, PreambleAnswer::kMagic, sizeof answer.magic) == 0 &&
                     answer.version == kProtocolVersion;
  if (!right && session != 0) {
    throw ConnectionLost("the answer to the first bytes is damaged");  // it was right before
  }
  if (std::memcmp(answer.magic, PreambleAnswer::kMagic, sizeof answer.magic) != 0) {
    throw Error(ErrorCode::kUnavailable,
                fmt::format("what answers at {} is not a worker of tpuboard", address.text));
  }
  if (answer.version != kProtocolVersion) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("the worker at {} speaks version {} of the protocol, this program "
                            "version {}; use one tpuboard at both",
                            address.text, answer.version, kProtocolVersion));
  }
  read_all(stream, all.subspan(offsetof(PreambleAnswer, crc)));
  if (!is_intact(answer)) {
    throw ConnectionLost("the answer to the first bytes is damaged: its checksum does not match");
  }
  if ((answer.tls != 0) != tls) {
    throw Error(ErrorCode::kFailedPrecondition,
                answer.tls != 0
                    ? fmt::format("the worker at {} speaks TLS: name the certificate that it is "
                                  "known by in OpenOptions::connect_ca",
                                  address.text)
                    : fmt::format("the worker at {} speaks no TLS, which OpenOptions::connect_ca "
                                  "asks for",
                                  address.text));
  }
}

}  // namespace

Connector::Connector(const OpenOptions& options)
    : address_(worker_address(options.connect)),
      token_(options.connect_token.empty() ? std::vector<std::byte>()
                                           : read_token(options.connect_token)),
      tls_(tls_of(options, address_)),
      wait_(static_cast<int64_t>(options.connect_wait * 1000)),
      chips_(options.connect_chips) {}

std::string Connector::name() const {
  return address_.mpi_rank < 0
             ? fmt::format("the worker at {} (pid {})", address_.text, session_.pid)
             : MpiMesh::of_process().name_of(address_.mpi_rank);
}

NextConnection Connector::attempt(const Hello& hello, Welcome& welcome) {
  std::unique_ptr<Stream> stream =
      std::make_unique<SocketStream>(connected(address_), address_.is_local());
  if (!token_.empty() && !tls_ && !address_.is_local() && leaves_host(stream->socket())) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the token would go to {} without TLS, where others can read it: name "
                            "the certificate of the worker in OpenOptions::connect_ca",
                            address_.text));
  }
  if (address_.is_local() && hello.session == 0) {
    listener_ = base::peer_of(stream->socket()).pid;
  }
  stream->limit_reads(kGreetingLimit);
  greet(*stream, address_, tls_ != nullptr, hello.session);
  if (tls_) {
    stream = tls_->wrap(std::move(stream));
  }
  Frame first;
  first.kind = Kind::kHello;
  stream->write(write_frame(first, pack(hello)), -1);
  auto reader = std::make_unique<FrameReader>(*stream);
  for (;;) {
    const Frame frame = reader->next(kMostGreetingBytes);
    switch (frame.kind) {
      case Kind::kWelcome:
        welcome = unpack<Welcome>(frame.payload);
        stream->limit_reads({});
        return {std::move(stream), std::move(reader), welcome.received};
      case Kind::kQueued:
        spec::print(stderr, "tpuboard: {}: {}\n", address_.text,
                    unpack<Queued>(frame.payload).text);
        stream->limit_reads(wait_ + kGreetingLimit);
        break;
      case Kind::kRefused:
        throw error_of(unpack<Failure>(frame.payload));
      default:
        throw ConnectionLost("the worker does not answer the greeting");
    }
  }
}

bool Connector::worker_has_ended() const {
  return listener_ > 0 && ::kill(listener_, 0) != 0 && errno == ESRCH;
}

NextConnection Connector::open() {
  Hello hello;
  hello.version = kVersion;
  hello.token = token_;
  hello.wait_ms = static_cast<uint64_t>(wait_.count());
  hello.who = this_process();
  hello.chips = chips_;
  try {
    return attempt(hello, session_);
  } catch (const ConnectionLost& lost) {
    throw Error(ErrorCode::kUnavailable,
                fmt::format("{} ended the connection: {}",
                            address_.mpi_rank < 0 ? "the worker at " + address_.text : name(),
                            lost.what()));
  }
}

NextConnection Connector::open_again(const std::string& why, uint64_t received,
                                     const std::atomic<bool>& gives_up) {
  Hello hello;
  hello.version = kVersion;
  hello.token = token_;
  hello.session = session_.session;
  hello.secret = session_.secret;
  hello.received = received;
  hello.who = this_process();
  const auto end = Clock::now() + std::chrono::milliseconds(session_.linger_ms);
  std::string last = "no other connection was tried";
  for (std::chrono::milliseconds pause{10};; pause = std::min(2 * pause, kMostPause)) {
    if (worker_has_ended()) {
      throw Error(ErrorCode::kUnavailable, fmt::format("{} has ended: {}", name(), why));
    }
    if (gives_up) {
      throw Error(ErrorCode::kUnavailable,
                  fmt::format("the connection to {} was lost: {}; {} (another process of the pod "
                              "has failed, too)",
                              name(), why, last));
    }
    if (Clock::now() >= end) {
      throw Error(
          ErrorCode::kUnavailable,
          fmt::format("the connection to {} was lost: {}; {} ({:g} seconds were allowed for "
                      "another one)",
                      name(), why, last, static_cast<double>(session_.linger_ms) / 1000));
    }
    try {
      Welcome again;
      return attempt(hello, again);
    } catch (const ConnectionLost& lost) {
      last = lost.what();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnavailable) {
        throw Error(ErrorCode::kUnavailable,
                    fmt::format("the connection to {} was lost: {}; the session has ended: {}",
                                name(), why, error.message()));
      }
      last = error.message();
    }
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace tpu::driver::worker
