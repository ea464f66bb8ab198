// Framing of GDB's remote serial protocol: bytes of a connection to packets and back, and hex.
// Pure functions and one small state machine; what packets mean is in gdb_session.hpp.
// Specification: the appendix "GDB Remote Serial Protocol" of GDB's manual.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tpu::model {

// Largest packet that is taken; GDB is told so.
inline constexpr size_t kRspPacketBytes = 0x4000;

struct RspItem {
  enum class Kind : uint8_t {
    kPacket,     // `body`, unescaped
    kInterrupt,  // Ctrl-C
    kAck,
    kNak,  // the peer wants the last packet again
    kBad,  // a packet with a wrong checksum, or too long
  };
  Kind kind;
  std::string body;
};

// What a debugger says first: an acknowledgement, a packet or Ctrl-C. A web page whose request a
// browser sends here begins otherwise, and the body of a request is not to be obeyed.
bool rsp_begins(char first);

class RspReader {
 public:
  // Items that the bytes complete. Bytes between packets that mean nothing are dropped.
  std::vector<RspItem> push(std::string_view bytes);

 private:
  enum class State : uint8_t { kBetween, kBody, kEscaped, kFirstDigit, kSecondDigit };

  std::optional<RspItem> take(char c);
  std::optional<RspItem> between(char c);
  void body(char c);

  State state_ = State::kBetween;
  std::string body_;
  uint8_t sum_ = 0;
  char first_digit_ = 0;
  bool too_long_ = false;
};

// "$body#xx", with escapes.
std::string rsp_frame(std::string_view body);

// Two digits a byte, low address first.
std::string rsp_hex(std::span<const uint8_t> bytes);
std::string rsp_hex(std::string_view text);
std::string rsp_hex32(uint32_t value);  // little-endian, as registers travel
std::optional<std::vector<uint8_t>> rsp_unhex(std::string_view digits);
// A number as GDB writes it: big-endian hex, without a prefix. Nothing but digits, at most 32 bits.
std::optional<uint32_t> rsp_number(std::string_view digits);

// The part of `text` in front of `separator`, which goes with it; all of it when there is none.
std::string_view rsp_cut(std::string_view& text, char separator);

}  // namespace tpu::model
