// Executables are compared by the digests of their parts: constants may be gigabytes, and of each
// executable there is one copy and one serialized part at a time.
#include "program_difference.hpp"

#include <openssl/sha.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>

namespace tpu::client {
namespace {

using exe::ExecutableT;

// Without what is only said.
ExecutableT bare(const ExecutableT& executable) {
  ExecutableT made(executable);
  made.name.clear();
  made.ops.clear();  // instructions have numbers of ops, which follow from the order of kernels
  made.notes.clear();
  for (auto* tensors : {&made.args, &made.results}) {
    for (const auto& tensor : *tensors) {
      tensor->name.clear();
    }
  }
  return made;
}

ProgramParts::Digest digest_of(const ExecutableT& executable) {
  const std::vector<std::byte> bytes = exe::write_executable(executable);
  ProgramParts::Digest digest;
  ::SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  return digest;
}

// Of one part, which is taken from the executable.
template <class Part>
ProgramParts::Digest taken(ExecutableT& from, Part ExecutableT::*part) {
  ExecutableT alone;
  alone.*part = std::exchange(from.*part, {});
  return digest_of(alone);
}

// " loc(#loc3)" or " loc("x")" of a line, and "#loc3 = loc(..)" behind the program.
constexpr std::string_view kPlace = " loc(";
constexpr std::string_view kPlaces = "#loc";

// "jit(f)/add"("f"("f.py":3:9)): f.py:3; empty: no file is named.
std::string source_in(std::string_view place) {
  const size_t end = place.find("\":");
  const size_t begin = end == std::string_view::npos || end == 0 ? std::string_view::npos
                                                                 : place.rfind('"', end - 1);
  if (begin == std::string_view::npos) {
    return "";
  }
  const size_t line_end = place.find_first_not_of("0123456789", end + 2);
  return std::string(place.substr(begin + 1, end - begin - 1)) + ":" +
         std::string(place.substr(end + 2, line_end - end - 2));
}

struct ProgramLine {
  std::string text;   // without its place
  std::string place;  // "#loc3"
};

// "%1 = \"stablehlo.add\"(%0, %0) : .. loc(#loc3)" without what tells where it comes from.
ProgramLine program_line(std::string_view line) {
  ProgramLine made;
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  for (size_t at = 0; (at = line.find(kPlace)) != std::string_view::npos;) {
    made.text += line.substr(0, at);
    line.remove_prefix(at + kPlace.size());
    const std::string_view end = line.starts_with('"') ? "\")" : ")";
    at = std::min(line.find(end), line.size());
    made.place = line.substr(0, at);
    line.remove_prefix(std::min(at + end.size(), line.size()));
  }
  made.text += line;
  return made;
}

struct ProgramLines {
  std::vector<ProgramLine> lines;
  std::map<std::string, std::string> sources;  // by place

  explicit ProgramLines(const std::string& text) {
    std::istringstream from(text);
    for (std::string line; std::getline(from, line);) {
      if (line.starts_with(kPlaces)) {
        sources[line.substr(0, line.find(' '))] = source_in(line);
      } else if (!line.starts_with("module")) {  // whose name is that of the function
        lines.push_back(program_line(line));
      }
    }
  }

  std::string shown(size_t i) const {
    if (i >= lines.size()) {
      return "the end of the program";
    }
    constexpr size_t kMost = 160;  // constants may be long
    const std::string& text = lines[i].text;
    const auto source = sources.find(lines[i].place);
    return "'" + (text.size() <= kMost ? text : text.substr(0, kMost) + "...") + "'" +
           (source == sources.end() || source->second.empty() ? "" : " at " + source->second);
  }
};

}  // namespace

std::optional<std::pair<std::string, std::string>> first_difference(const std::string& one,
                                                                    const std::string& other) {
  const ProgramLines left(one);
  const ProgramLines right(other);
  for (size_t i = 0; i < std::max(left.lines.size(), right.lines.size()); ++i) {
    if (i >= left.lines.size() || i >= right.lines.size() ||
        left.lines[i].text != right.lines[i].text) {
      return std::pair(left.shown(i), right.shown(i));
    }
  }
  return std::nullopt;
}

ProgramParts::ProgramParts(const ExecutableT& executable) {
  ExecutableT rest = bare(executable);
  digests_.emplace_back("number of partitions", taken(rest, &ExecutableT::partitions));
  digests_.emplace_back("arguments", taken(rest, &ExecutableT::args));
  digests_.emplace_back("results", taken(rest, &ExecutableT::results));
  digests_.emplace_back("calls of the host", taken(rest, &ExecutableT::host_calls));
  digests_.emplace_back("constants", taken(rest, &ExecutableT::constants));
  digests_.emplace_back("code", digest_of(rest));
}

std::optional<std::string> ProgramParts::difference(const ProgramParts& other) const {
  for (size_t i = 0; i < digests_.size(); ++i) {
    if (digests_[i].second != other.digests_[i].second) {
      return digests_[i].first;
    }
  }
  return std::nullopt;
}

}  // namespace tpu::client
