// Packets of a debugger: dispatch, threads, registers and memory.
#include "debug/gdb_session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "debug/monitor.hpp"
#include "debug/rsp.hpp"
#include "debug/target_xml.hpp"

namespace tpu::model {
namespace {

constexpr const char* kOk = "OK";
constexpr const char* kMalformed = "E01";
constexpr const char* kNoAccess = "E0e";  // EFAULT
constexpr size_t kWordDigits = 8;

// The word of eight digits, low byte first.
std::optional<uint32_t> word_of(std::string_view digits) {
  const auto bytes = rsp_unhex(digits);
  if (!bytes || bytes->size() != sizeof(uint32_t)) {
    return std::nullopt;
  }
  uint32_t word = 0;
  std::memcpy(&word, bytes->data(), sizeof word);
  return word;
}

// "ADDRESS,LENGTH"
std::optional<std::pair<uint32_t, uint32_t>> range_of(std::string_view text) {
  const auto address = rsp_number(rsp_cut(text, ','));
  const auto length = rsp_number(text);
  return address && length ? std::optional(std::pair(*address, *length)) : std::nullopt;
}

GdbSession::Answer reply(std::string text) { return {.reply = std::move(text)}; }

}  // namespace

GdbSession::GdbSession(DebugTarget& target)
    : target_(target), leaves_(target.harts(), HartLeave::kRun), last_stop_("T05thread:1;") {}

void GdbSession::end() {
  for (const Point& point : std::exchange(points_, {})) {
    take_point(point);
  }
  std::ranges::fill(leaves_, HartLeave::kRun);
  core_ = 0;
  last_stop_ = "T05thread:1;";
}

std::string GdbSession::stopped(uint32_t core, HartStop why) {
  constexpr const char* kWatchNames[] = {"", "rwatch", "watch", "awatch"};
  core_ = core;
  last_stop_ = fmt::format("T{}thread:{:x};", why == HartStop::kTrap ? "0b" : "05", core + 1);
  const auto& watch = target_.hart(core).watch_hit();
  if (why == HartStop::kBreak) {
    const uint32_t pc = target_.hart(core).pc();
    const bool hard = std::ranges::any_of(
        points_, [pc](const Point& p) { return p.kind == '1' && p.address == pc; });
    last_stop_ += hard ? "hwbreak:;" : "swbreak:;";
  } else if (why == HartStop::kWatch && watch) {
    last_stop_ += fmt::format(
        "{}:{:x};", kWatchNames[(watch->read ? 1 : 0) + (watch->write ? 2 : 0)], watch->addr);
  }
  return last_stop_;
}

std::string GdbSession::interrupted() {
  return last_stop_ = fmt::format("T02thread:{:x};", core_ + 1);
}

GdbSession::Answer GdbSession::handle(std::string_view packet) {
  if (packet.empty()) {
    return reply("");
  }
  const std::string_view rest = packet.substr(1);
  switch (packet.front()) {
    case '?':
      return reply(last_stop_);
    case 'g':
      return reply(read_registers());
    case 'G':
      return reply(write_registers(rest));
    case 'p':
      return reply(read_register(rest));
    case 'P':
      return reply(write_register(rest));
    case 'm':
      return reply(read_memory(rest));
    case 'M':
      return reply(write_memory(rest, false));
    case 'X':
      return reply(write_memory(rest, true));
    case 'H':
      return reply(select_thread(rest));
    case 'T':
      return reply(core_of(rest) ? kOk : kMalformed);
    case 'Z':
    case 'z':
      return reply(change_point(packet));
    case 'c':
    case 'C':
    case 's':
    case 'S':
    case 'v':
      return go_on(packet);
    case 'D':
      return {.reply = kOk, .resume = true, .over = true};
    case 'k':
      return {.silent = true, .resume = true, .over = true};
    default:
      return handle_query(packet);
  }
}

GdbSession::Answer GdbSession::handle_query(std::string_view packet) {
  std::string_view rest = packet;
  const std::string_view name = rsp_cut(
      rest, packet.starts_with("qRcmd") || packet.starts_with("qThreadExtraInfo") ? ',' : ':');
  if (name == "qSupported") {
    return reply(
        fmt::format("PacketSize={:x};qXfer:features:read+;qXfer:threads:read+;"
                    "QStartNoAckMode+;vContSupported+;swbreak+;hwbreak+",
                    kRspPacketBytes));
  }
  if (name == "QStartNoAckMode") {
    return {.reply = kOk, .acks_end = true};
  }
  if (name == "qXfer") {
    return reply(read_document(rest));
  }
  if (name == "qC") {
    return reply(fmt::format("QC{:x}", core_ + 1));
  }
  if (name == "qfThreadInfo") {
    return reply(thread_list());
  }
  if (name == "qsThreadInfo") {
    return reply("l");
  }
  if (name == "qThreadExtraInfo") {
    const auto core = core_of(rest);
    return reply(core ? rsp_hex(target_.hart_text(*core)) : kMalformed);
  }
  if (name == "qAttached") {
    return reply("1");
  }
  if (name == "qRcmd") {
    const auto text = rsp_unhex(rest);
    if (!text) {
      return reply(kMalformed);
    }
    const std::string said =
        monitor_answer(target_, {reinterpret_cast<const char*>(text->data()), text->size()});
    return reply(said.empty() ? kOk : rsp_hex(said));
  }
  return reply("");
}

// ---- threads

std::optional<uint32_t> GdbSession::core_of(std::string_view thread) const {
  const auto number = rsp_number(thread);
  if (!number || *number == 0 || *number > target_.harts()) {
    return std::nullopt;
  }
  return *number - 1;
}

std::string GdbSession::thread_list() const {
  std::string text = "m";
  for (uint32_t core = 0; core < target_.harts(); ++core) {
    text += fmt::format("{}{:x}", core == 0 ? "" : ",", core + 1);
  }
  return text;
}

std::string GdbSession::threads_xml() const {
  std::string xml = "<?xml version=\"1.0\"?>\n<threads>\n";
  for (uint32_t core = 0; core < target_.harts(); ++core) {
    xml += fmt::format("<thread id=\"{:x}\" core=\"{}\" name=\"TPU:{}\">{}</thread>\n", core + 1,
                       core, core, target_.hart_text(core));
  }
  return xml + "</threads>\n";
}

// Behind "qXfer:": "OBJECT:read:ANNEX:OFFSET,LENGTH".
std::string GdbSession::read_document(std::string_view request) {
  const std::string_view object = rsp_cut(request, ':');
  const std::string_view operation = rsp_cut(request, ':');
  const std::string_view annex = rsp_cut(request, ':');
  const auto part = range_of(request);
  if (operation != "read" || !part) {
    return kMalformed;
  }
  std::string text;
  if (object == "features" && annex == "target.xml") {
    text = target_xml();
  } else if (object == "threads" && annex.empty()) {
    text = threads_xml();
  } else {
    return object == "features" ? "E00" : "";
  }
  const auto [offset, length] = *part;
  if (offset >= text.size()) {
    return "l";
  }
  const std::string piece = text.substr(offset, std::min<size_t>(length, kRspPacketBytes / 2));
  return (offset + piece.size() < text.size() ? "m" : "l") + piece;
}

// "g" or "c" and a thread; 0 and -1: any.
std::string GdbSession::select_thread(std::string_view packet) {
  if (packet.empty() || (packet[0] != 'g' && packet[0] != 'c')) {
    return kMalformed;
  }
  const std::string_view thread = packet.substr(1);
  if (thread == "0" || thread == "-1") {
    return kOk;
  }
  const auto core = core_of(thread);
  if (!core) {
    return kMalformed;
  }
  if (packet[0] == 'g') {
    core_ = *core;
  }
  return kOk;
}

// ---- registers and memory

std::string GdbSession::read_registers() const {
  const Hart& hart = target_.hart(core_);
  std::string text;
  for (unsigned i = 0; i < kRegisterCount; ++i) {
    text += rsp_hex32(hart.reg(i));
  }
  return text + rsp_hex32(hart.pc());
}

std::string GdbSession::write_registers(std::string_view digits) {
  if (digits.size() != (kRegisterCount + 1) * kWordDigits || !rsp_unhex(digits)) {
    return kMalformed;
  }
  for (uint32_t i = 0; i <= kGdbPc; ++i) {
    put_register(i, *word_of(digits.substr(i * kWordDigits, kWordDigits)));
  }
  return kOk;
}

std::string GdbSession::read_register(std::string_view text) const {
  const auto number = rsp_number(text);
  if (!number) {
    return kMalformed;
  }
  const Hart& hart = target_.hart(core_);
  if (*number <= kGdbPc) {
    return rsp_hex32(*number == kGdbPc ? hart.pc() : hart.reg(*number));
  }
  const auto csr = gdb_csr(*number);
  return csr ? rsp_hex32(hart.csr(*csr)) : kMalformed;
}

std::string GdbSession::write_register(std::string_view text) {
  const auto number = rsp_number(rsp_cut(text, '='));
  const auto value = word_of(text);
  return number && value && put_register(*number, *value) ? kOk : kMalformed;
}

bool GdbSession::put_register(uint32_t number, uint32_t value) {
  Hart& hart = target_.hart(core_);
  if (number < kGdbPc) {
    hart.set_reg(number, value);
  } else if (number == kGdbPc) {
    if (hart.pc() != value) {
      hart.set_pc(value);
    }
  } else if (const auto csr = gdb_csr(number)) {
    hart.set_csr(*csr, value);
  } else {
    return false;
  }
  return true;
}

std::string GdbSession::read_memory(std::string_view text) {
  const auto range = range_of(text);
  if (!range || range->second > kRspPacketBytes / 2) {
    return kMalformed;
  }
  std::vector<uint8_t> bytes(range->second);
  return bytes.empty() || target_.read(core_, range->first, bytes) ? rsp_hex(bytes) : kNoAccess;
}

// "ADDRESS,LENGTH:" and the bytes, as digits or as they are.
std::string GdbSession::write_memory(std::string_view text, bool binary) {
  const auto range = range_of(rsp_cut(text, ':'));
  const auto bytes = binary ? std::vector<uint8_t>(text.begin(), text.end())
                            : rsp_unhex(text).value_or(std::vector<uint8_t>());
  if (!range || bytes.size() != range->second || (!binary && !rsp_unhex(text))) {
    return kMalformed;
  }
  return bytes.empty() || target_.write(core_, range->first, bytes) ? kOk : kNoAccess;
}

}  // namespace tpu::model
