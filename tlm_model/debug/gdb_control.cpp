// Packets of a debugger that let harts go on, and what stops them: breakpoints and watches.
#include <algorithm>
#include <optional>

#include "debug/gdb_session.hpp"
#include "debug/rsp.hpp"
#include "debug/target_xml.hpp"

namespace tpu::model {
namespace {

HartWatch watch_of(char kind, uint32_t address, uint32_t size) {
  return {address, size, kind != '2', kind != '3'};
}

// Signals are named and dropped: there is nobody to take them.
std::optional<HartLeave> leave_of(std::string_view action) {
  if (action == "c" || (action.starts_with('C') && rsp_number(action.substr(1)))) {
    return HartLeave::kRun;
  }
  if (action == "s" || (action.starts_with('S') && rsp_number(action.substr(1)))) {
    return HartLeave::kStep;
  }
  return std::nullopt;
}

}  // namespace

// "ZKIND,ADDRESS,SIZE", and conditions that are not understood here, which GDB then evaluates.
std::string GdbSession::change_point(std::string_view packet) {
  std::string_view rest = packet.substr(1);
  const std::string_view kind = rsp_cut(rest, ',');
  const auto address = rsp_number(rsp_cut(rest, ','));
  const auto size = rsp_number(rsp_cut(rest, ';'));
  if (kind.size() != 1 || !address || !size) {
    return "E01";
  }
  if (kind[0] < '0' || kind[0] > '4') {
    return "";
  }
  const Point point{kind[0], *address, *size};
  if (point.kind >= '2' && (point.size == 0 || point.size - 1 > UINT32_MAX - point.address)) {
    return "E01";
  }
  if (packet[0] == 'Z') {
    if (points_.insert(point).second) {
      put_point(point);
    }
  } else if (points_.erase(point) != 0) {
    take_point(point);
  }
  return "OK";
}

void GdbSession::put_point(const Point& point) {
  for (uint32_t core = 0; core < target_.harts(); ++core) {
    if (point.kind < '2') {
      target_.hart(core).set_breakpoint(point.address);
    } else {
      target_.hart(core).set_watch(watch_of(point.kind, point.address, point.size));
    }
  }
}

// Of two breakpoints at one address, soft and hard, the other stays.
void GdbSession::take_point(const Point& point) {
  const bool other = point.kind < '2' && std::ranges::any_of(points_, [&](const Point& p) {
                       return p.kind < '2' && p.address == point.address && p != point;
                     });
  for (uint32_t core = 0; core < target_.harts() && !other; ++core) {
    if (point.kind < '2') {
      target_.hart(core).clear_breakpoint(point.address);
    } else {
      target_.hart(core).clear_watch(watch_of(point.kind, point.address, point.size));
    }
  }
}

// c, s, C, S with an address that may be missing, and what begins with v.
GdbSession::Answer GdbSession::go_on(std::string_view packet) {
  if (packet == "vCont?") {
    return {.reply = "vCont;c;C;s;S"};
  }
  if (packet.starts_with("vCont;")) {
    return go_on_by_thread(packet.substr(6));
  }
  if (packet.starts_with("vKill")) {
    return {.reply = "OK", .resume = true, .over = true};
  }
  if (packet.front() == 'v') {
    return {};
  }
  std::string_view rest = packet.substr(1);
  const bool signal = packet.front() == 'C' || packet.front() == 'S';
  if (signal && !rsp_number(rsp_cut(rest, ';'))) {
    return {.reply = "E01"};
  }
  if (!rest.empty()) {
    const auto address = rsp_number(rest);
    if (!address) {
      return {.reply = "E01"};
    }
    put_register(kGdbPc, *address);
  }
  std::ranges::fill(leaves_, HartLeave::kRun);
  if (packet.front() == 's' || packet.front() == 'S') {
    leaves_[core_] = HartLeave::kStep;
  }
  return {.silent = true, .resume = true};
}

// "ACTION[:THREAD];...": the first that names a hart holds for it; a hart that none names stands.
GdbSession::Answer GdbSession::go_on_by_thread(std::string_view actions) {
  std::vector<HartLeave> leaves(target_.harts(), HartLeave::kHold);
  std::vector<bool> named(target_.harts(), false);
  while (!actions.empty()) {
    std::string_view thread = rsp_cut(actions, ';');
    const auto leave = leave_of(rsp_cut(thread, ':'));
    const bool all = thread.empty() || thread == "-1";
    const auto core = core_of(thread);
    if (!leave || (!all && !core)) {
      return {.reply = "E01"};
    }
    for (uint32_t i = all ? 0 : *core; i < (all ? target_.harts() : *core + 1); ++i) {
      if (!named[i]) {
        named[i] = true;
        leaves[i] = *leave;
      }
    }
  }
  if (std::ranges::find(named, true) == named.end()) {
    return {.reply = "E01"};
  }
  leaves_ = std::move(leaves);
  return {.silent = true, .resume = true};
}

}  // namespace tpu::model
