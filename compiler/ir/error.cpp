// Text of locations and errors.
#include "ir/error.hpp"

#include <algorithm>

namespace tpu::compiler {
namespace {

std::string frame_text(const SourceFrame& f) {
  return f.file + ":" + std::to_string(f.line) + ":" + std::to_string(f.column);
}

// True for a file of an installed Python package: the user will look for a line of their own.
bool is_library(const SourceFrame& f) {
  return f.file.find("/site-packages/") != std::string::npos ||
         f.file.find("/dist-packages/") != std::string::npos;
}

std::string caller_text(const Loc& loc) {
  const auto own = std::find_if_not(loc.frames.begin(), loc.frames.end(), is_library);
  return own == loc.frames.begin() || own == loc.frames.end() ? ""
                                                              : ", called from " + frame_text(*own);
}

std::string compose(const std::string& message, const std::string& op, const LocRef& loc) {
  std::string text;
  if (loc && !loc->frames.empty()) {
    text += frame_text(loc->frames.front()) + ": ";
  }
  if (!op.empty()) {
    text += op + ": ";
  }
  text += message;
  if (loc && !loc->path.empty()) {
    text += " [" + loc->path + "]";
  }
  if (loc) {
    text += caller_text(*loc);
  }
  return text;
}

}  // namespace

LocRef unknown_loc() { return std::make_shared<const Loc>(); }

std::string to_string(const Loc& loc) {
  if (loc.frames.empty()) {
    return loc.path.empty() ? "<unknown>" : "(" + loc.path + ")";
  }
  return frame_text(loc.frames.front()) + (loc.path.empty() ? "" : " (" + loc.path + ")");
}

LocRef nested_loc(const LocRef& outer, const LocRef& inner) {
  if (!outer || !inner) {
    return outer ? outer : inner;
  }
  auto loc = std::make_shared<Loc>(*inner);
  if (!outer->path.empty()) {
    loc->path = loc->path.empty() ? outer->path : outer->path + "/" + loc->path;
  }
  if (loc->frames.empty()) {
    loc->frames = outer->frames;
  }
  return loc;
}

Error::Error(std::string message, std::string op, LocRef loc)
    : std::runtime_error(compose(message, op, loc)),
      message_(std::move(message)),
      op_(std::move(op)),
      loc_(std::move(loc)) {}

}  // namespace tpu::compiler
