// Text of locations and errors.
#include "ir/error.hpp"

namespace tpu::compiler {
namespace {

std::string frame_text(const SourceFrame& f) {
  return f.file + ":" + std::to_string(f.line) + ":" + std::to_string(f.column);
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
