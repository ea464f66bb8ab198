#include "processes/greeting.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <string_view>

#include "process_board.hpp"
#include "processes/build_id.hpp"
#include "topology.hpp"
#include "tpu/error.hpp"

namespace tpu::pjrt {
namespace {

// Of the process alone, whatever the others have.
constexpr std::string_view kOwn[] = {"TPUBOARD_PROCESS_ID",  "TPUBOARD_PROCESS_COUNT",
                                     "TPUBOARD_PROCESS_DIR", "TPUBOARD_LOG",
                                     "TPUBOARD_CACHE",       "TPUBOARD_CACHE_SIZE"};

std::string command_of_process() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string words((std::istreambuf_iterator<char>(file)), {});
  std::ranges::replace_if(
      words, [](unsigned char c) { return c < ' '; }, ' ');
  words.erase(words.find_last_not_of(' ') + 1);
  constexpr size_t kMost = 80;
  return words.substr(0, kMost);
}

[[noreturn]] void refuse(const wire::HelloT& guest, const std::string& text) {
  throw driver::Error(driver::ErrorCode::kFailedPrecondition,
                      fmt::format("process {} cannot share the board: {}", guest.process, text));
}

using Options = std::map<std::string, std::string>;

Options options_of(const std::vector<std::string>& lines) {
  Options options;
  for (const std::string& line : lines) {
    const size_t equals = std::min(line.find('='), line.size());
    options[line.substr(0, equals)] = line.substr(std::min(equals + 1, line.size()));
  }
  return options;
}

std::string text_in(const Options& options, const std::string& name) {
  const auto it = options.find(name);
  return it == options.end() ? "not set" : fmt::format("'{}'", it->second);
}

void check_options(const wire::HelloT& guest, const wire::HelloT& host) {
  const Options theirs = options_of(guest.options);
  const Options ours = options_of(host.options);
  Options all = theirs;
  all.insert(ours.begin(), ours.end());
  for (const auto& [name, value] : all) {
    if (text_in(theirs, name) != text_in(ours, name)) {
      refuse(guest, fmt::format("{} is {} there and {} in the process that opened the board", name,
                                text_in(theirs, name), text_in(ours, name)));
    }
  }
}

// The first line in which two texts differ.
std::pair<std::string, std::string> first_difference(std::string_view one, std::string_view other) {
  while (!one.empty() || !other.empty()) {
    const auto take = [](std::string_view& from) {
      const size_t end = std::min(from.find('\n'), from.size());
      const std::string_view line = from.substr(0, end);
      from.remove_prefix(std::min(end + 1, from.size()));
      return std::string(line);
    };
    const std::string line = take(one);
    const std::string beside = take(other);
    if (line != beside) {
      return {line, beside};
    }
  }
  return {};
}

}  // namespace

wire::HelloT hello_of_process(const ProcessPlace& place) {
  wire::HelloT hello;
  hello.process = place.process;
  hello.processes = place.processes;
  hello.pid = ::getpid();
  hello.command = command_of_process();
  hello.build = build_id();
  hello.board =
      make_topology(client::ProcessBoard::options().platform, client::ProcessBoard::params())
          ->bytes;
  for (const auto& [name, value] : client::environment_of_process()) {
    if (std::ranges::find(kOwn, name) == std::end(kOwn) && !value.empty()) {
      hello.options.push_back(fmt::format("{}={}", name, value));
    }
  }
  // Both sides have read it from variables of their own.
  hello.options.push_back(fmt::format("the process of each core={}", fmt::join(place.owners, ",")));
  return hello;
}

void check_greeting(const wire::HelloT& guest, const wire::HelloT& host) {
  if (guest.build != host.build) {
    refuse(guest, fmt::format("it loaded build {} of the library, the process that opened the "
                              "board build {}; use one library in all processes",
                              guest.build, host.build));
  }
  if (guest.processes != host.processes) {
    refuse(guest, fmt::format("it is one of {} processes, the board was opened for {}",
                              guest.processes, host.processes));
  }
  if (guest.process < 0 || guest.process >= host.processes) {
    refuse(guest, fmt::format("processes count from 0 to {}", host.processes - 1));
  }
  if (guest.board != host.board) {
    const auto [theirs, ours] = first_difference(guest.board, host.board);
    refuse(guest, fmt::format("its board has {}, the open board {}", theirs, ours));
  }
  check_options(guest, host);
}

std::string process_text(const wire::HelloT& process) {
  return fmt::format("process {} (pid {}: {})", process.process, process.pid, process.command);
}

}  // namespace tpu::pjrt
