// Framing, escapes, checksums, hex.
#include "debug/rsp.hpp"

#include <charconv>

namespace tpu::model {
namespace {

constexpr char kEscape = '}';
constexpr char kEscapeBit = 0x20;
constexpr char kCtrlC = 0x03;
constexpr std::string_view kDigits = "0123456789abcdef";

std::optional<uint8_t> digit_of(char c) {
  const char lower = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  const size_t at = kDigits.find(lower);
  return at == std::string_view::npos ? std::nullopt
                                      : std::optional<uint8_t>(static_cast<uint8_t>(at));
}

bool must_escape(char c) { return c == '$' || c == '#' || c == kEscape || c == '*'; }

}  // namespace

bool rsp_begins(char first) {
  return first == '+' || first == '-' || first == '$' || first == kCtrlC;
}

std::vector<RspItem> RspReader::push(std::string_view bytes) {
  std::vector<RspItem> items;
  for (const char c : bytes) {
    if (std::optional<RspItem> item = take(c)) {
      items.push_back(std::move(*item));
    }
  }
  return items;
}

std::optional<RspItem> RspReader::take(char c) {
  switch (state_) {
    case State::kBetween:
      return between(c);
    case State::kBody:
    case State::kEscaped:
      body(c);
      return std::nullopt;
    case State::kFirstDigit:
      first_digit_ = c;
      state_ = State::kSecondDigit;
      return std::nullopt;
    case State::kSecondDigit:
      break;
  }
  state_ = State::kBetween;
  const auto high = digit_of(first_digit_);
  const auto low = digit_of(c);
  if (too_long_ || !high || !low || (*high << 4 | *low) != sum_) {
    return RspItem{RspItem::Kind::kBad, {}};
  }
  return RspItem{RspItem::Kind::kPacket, std::move(body_)};
}

std::optional<RspItem> RspReader::between(char c) {
  switch (c) {
    case '$':
      state_ = State::kBody;
      body_.clear();
      sum_ = 0;
      too_long_ = false;
      return std::nullopt;
    case '+':
      return RspItem{RspItem::Kind::kAck, {}};
    case '-':
      return RspItem{RspItem::Kind::kNak, {}};
    case kCtrlC:
      return RspItem{RspItem::Kind::kInterrupt, {}};
    default:
      return std::nullopt;
  }
}

void RspReader::body(char c) {
  if (c == '#' && state_ == State::kBody) {
    state_ = State::kFirstDigit;
    return;
  }
  sum_ = static_cast<uint8_t>(sum_ + static_cast<uint8_t>(c));
  if (c == kEscape && state_ == State::kBody) {
    state_ = State::kEscaped;
    return;
  }
  too_long_ = too_long_ || body_.size() == kRspPacketBytes;
  if (!too_long_) {
    body_.push_back(state_ == State::kEscaped ? static_cast<char>(c ^ kEscapeBit) : c);
  }
  state_ = State::kBody;
}

std::string rsp_frame(std::string_view body) {
  std::string framed = "$";
  for (const char c : body) {
    if (must_escape(c)) {
      framed.push_back(kEscape);
      framed.push_back(static_cast<char>(c ^ kEscapeBit));
    } else {
      framed.push_back(c);
    }
  }
  uint8_t sum = 0;
  for (const char c : std::string_view(framed).substr(1)) {
    sum = static_cast<uint8_t>(sum + static_cast<uint8_t>(c));
  }
  framed.push_back('#');
  framed += rsp_hex(std::span(&sum, 1));
  return framed;
}

std::string rsp_hex(std::span<const uint8_t> bytes) {
  std::string digits;
  for (const uint8_t byte : bytes) {
    digits.push_back(kDigits[byte >> 4]);
    digits.push_back(kDigits[byte & 15U]);
  }
  return digits;
}

std::string rsp_hex(std::string_view text) {
  return rsp_hex(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

std::string rsp_hex32(uint32_t value) {
  const uint8_t bytes[4] = {static_cast<uint8_t>(value), static_cast<uint8_t>(value >> 8),
                            static_cast<uint8_t>(value >> 16), static_cast<uint8_t>(value >> 24)};
  return rsp_hex(bytes);
}

std::optional<std::vector<uint8_t>> rsp_unhex(std::string_view digits) {
  if (digits.size() % 2 != 0) {
    return std::nullopt;
  }
  std::vector<uint8_t> bytes;
  for (size_t at = 0; at < digits.size(); at += 2) {
    const auto high = digit_of(digits[at]);
    const auto low = digit_of(digits[at + 1]);
    if (!high || !low) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<uint8_t>(*high << 4 | *low));
  }
  return bytes;
}

std::optional<uint32_t> rsp_number(std::string_view digits) {
  uint32_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) {
    return std::nullopt;
  }
  return value;
}

std::string_view rsp_cut(std::string_view& text, char separator) {
  const size_t at = text.find(separator);
  const std::string_view front = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
  return front;
}

}  // namespace tpu::model
