// What the payloads of frames say: each message names its fields once, for both directions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "file/archive.hpp"
#include "tpu/transport.hpp"

namespace tpu::driver::worker {

/// Appends to bytes.
class MessageWriter : public spec::Archive {
 public:
  MessageWriter() : Archive(false) {}
  void section(const std::string& /*name*/) override {}
  using Archive::bytes;
  void bytes(std::span<std::byte> data) override {
    bytes_.insert(bytes_.end(), data.begin(), data.end());
  }
  uint64_t left() const override { return 0; }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Throws spec::ArchiveError for bytes that are missing.
class MessageReader : public spec::Archive {
 public:
  explicit MessageReader(std::span<const std::byte> from) : Archive(true), rest_(from) {}
  void section(const std::string& /*name*/) override {}
  using Archive::bytes;
  void bytes(std::span<std::byte> data) override;
  uint64_t left() const override { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
};

template <class M>
std::vector<std::byte> pack(M message) {
  MessageWriter writer;
  writer(message);
  return writer.take();
}

[[noreturn]] void refuse_message(const char* why);

/// Throws Error (Unavailable) for bytes that are no such message.
template <class M>
M unpack(std::span<const std::byte> bytes) {
  M message;
  try {
    MessageReader reader(bytes);
    reader(message);
    reader.need(reader.left() == 0, "bytes are left behind its fields");
  } catch (const spec::ArchiveError& error) {
    refuse_message(error.what());
  }
  return message;
}

/// First frame of a driver.
struct Hello {
  std::string version;            ///< of tpuboard
  std::vector<std::byte> token;   ///< empty: none
  uint64_t session = 0;           ///< that goes on; 0: a new one
  std::vector<std::byte> secret;  ///< of that session
  uint64_t received = 0;          ///< its last frame here
  uint64_t wait_ms = 0;           ///< for a board that others have
  std::string who;                ///< "pid 12 (python3 train.py) on host a"
  std::string chips;              ///< of the board, as "0,1"; empty: all
  void visit_state(spec::Archive& a) {
    a(version, token, session, secret, received, wait_ms, who, chips);
  }
};

struct Welcome {
  uint64_t session = 0;
  std::vector<std::byte> secret;
  uint64_t received = 0;
  uint64_t linger_ms = 0;  ///< how long the session waits for another connection
  int32_t pid = 0;         ///< of the worker
  void visit_state(spec::Archive& a) { a(session, secret, received, linger_ms, pid); }
};

/// An error: kRefused, kFailure.
struct Failure {
  uint8_t code = 0;
  std::string message;
  int32_t device = -1;
  std::string op, source;
  void visit_state(spec::Archive& a) { a(code, message, device, op, source); }
};
Failure failure_of(const Error& error);
Error error_of(const Failure& failure);

struct Queued {
  std::string text;  ///< who has the board
  void visit_state(spec::Archive& a) { a(text); }
};

/// The board that a driver expects.
struct Attach {
  std::vector<std::string> numbers;  ///< as board_numbers() has them
  std::string transport;             ///< "sim" or "null"
  uint32_t firmware = 0;             ///< checksum of the image that names places; 0: of its own
  SimOptions sim;                    ///< what it asks for beside the worker's
  void visit_state(spec::Archive& a);
};
struct Attached {
  SimOptions sim;  ///< what the board has
  void visit_state(spec::Archive& a);
};

/// The values of all keys of a board file, in their order.
std::vector<std::string> board_numbers(const spec::BoardParams& params);

/// Host memory that both have.
struct Map {
  uint64_t iova = 0, bytes = 0;
  void visit_state(spec::Archive& a) { a(iova, bytes); }
};

/// Where the other workers of a pod can connect.
struct Listens {
  std::string address;
  bool is_loopback = false;
  void visit_state(spec::Archive& a) { a(address, is_loopback); }
};

/// The boards of a pod that this worker has, and how the workers reach each other: memory of so
/// many bytes, or the addresses of all, and with TLS the certificates that they know each other by.
struct Part {
  uint32_t rank = 0, ranks = 1;
  uint64_t bytes = 0;
  std::vector<std::string> addresses;
  std::vector<std::string> names;  ///< hosts that the certificates name
  std::vector<std::byte> secret;
  std::string trusted;  ///< in PEM; empty: no TLS
  void visit_state(spec::Archive& a) { a(rank, ranks, bytes, addresses, names, secret, trusted); }
};

struct Read {
  int32_t chip = 0, bar = 0;
  uint64_t offset = 0;
  void visit_state(spec::Archive& a) { a(chip, bar, offset); }
};
struct Value {
  uint32_t value = 0;
  uint64_t now = 0;
  void visit_state(spec::Archive& a) { a(value, now); }
};

struct Writes {
  std::vector<RegisterWrite> writes;
  void visit_state(spec::Archive& a);
};
struct Block {
  int32_t chip = 0, bar = 0;
  uint64_t offset = 0;
  std::vector<std::byte> data;
  void visit_state(spec::Archive& a) { a(chip, bar, offset, data); }
};

struct Run {
  bool handles = false;  ///< interrupts are told on the way
  bool has_until = false;
  uint64_t until = 0;
  int64_t limit_ns = 0;
  void visit_state(spec::Archive& a) { a(handles, has_until, until, limit_ns); }
};
struct Stopped {
  RunOutcome outcome;
  uint64_t now = 0;
  void visit_state(spec::Archive& a);
};
/// An interrupt in a run. A driver that does not go on behind it has what kAnswer would have told,
/// if it is `complete`: no answer to kRun comes then, and its kHandled can go with its next call.
struct Msi {
  std::vector<uint32_t> vectors;
  uint64_t now = 0;
  bool quiescent = false;
  bool complete = false;
  void visit_state(spec::Archive& a) { a(vectors, now, quiescent, complete); }
};
struct Flag {
  bool value = false;
  void visit_state(spec::Archive& a) { a(value); }
};

/// A stretch of host memory.
struct Range {
  uint64_t iova = 0, bytes = 0;
  bool write = false;
  bool ask = false;  ///< only whether it is there
  void visit_state(spec::Archive& a) { a(iova, bytes, write, ask); }
};

/// Calls of the debug port.
enum class CallKind : uint8_t {
  kStats,
  kWaits,
  kForecast,
  kFindings,
  kDebugRead,
  kDebugWrite,
  kOpTimes,
  kXspace,
  kRecord,
  kConsole,
  kChangeSim,
};
struct Call {
  CallKind kind = CallKind::kStats;
  int32_t device = 0;
  uint32_t address = 0, value = 0;  ///< of a register; `value` is a launch id too
  std::vector<int32_t> threads{};   ///< of a forecast
  SimOptions sim{};                 ///< of a change
  void visit_state(spec::Archive& a);
};
/// What one of them answers.
struct Answer {
  TransportStats stats;
  std::vector<UnitWait> waits;
  std::vector<ThreadForecast> forecast;
  std::vector<CheckFinding> findings;
  bool done = false;
  uint32_t value = 0;
  std::vector<OpTally> tallies;
  std::vector<ConsoleLine> console;
  std::string text;
  SimOptions sim;
  /// Of the fields, those that such a call has.
  CallKind kind = CallKind::kStats;
  void visit_state(spec::Archive& a);
};

/// Launches that follow run this executable.
struct Program {
  uint64_t program = 0;
  std::vector<std::byte> executable;
  void visit_state(spec::Archive& a) { a(program, executable); }
};
struct Name {
  uint32_t launch = 0;
  uint64_t program = 0;  ///< 0: the launch is over
  uint64_t trace_context = 0;
  void visit_state(spec::Archive& a) { a(launch, program, trace_context); }
};

}  // namespace tpu::driver::worker
