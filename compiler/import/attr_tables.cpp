// Attributes of either dialect, and locations as paths and frames: see attr_reader.hpp.
#include "import/attr_reader.hpp"
#include "import/codes.hpp"

namespace tpu::compiler::frontend {
namespace {

using bytecode::Dialect;
using bytecode::kNone;
using bytecode::RawAttr;
namespace ba = bytecode::builtin_attr;
namespace va = bytecode::vhlo_attr;

// Location trees in damaged files may refer to themselves; real call stacks are shorter than this.
constexpr int kMaxLocDepth = 200;
constexpr size_t kMaxFrames = 200;
constexpr int kMaxLocSteps = 10000;  // trees may share branches, so that depth alone bounds nothing

bool is_attr(const RawAttr& a, Dialect dialect, uint32_t code) {
  return a.dialect == dialect && a.code == code;
}

// Frames of JAX itself say nothing about the user's program.
bool is_framework_file(std::string_view file) {
  return file.find("site-packages/jax/") != std::string_view::npos ||
         file.find("dist-packages/jax/") != std::string_view::npos;
}

}  // namespace

std::optional<std::string_view> Tables::text(uint32_t attr_index) const {
  if (attr_index == kNone) {
    return std::nullopt;
  }
  const RawAttr& a = attr(attr_index);
  if (is_attr(a, Dialect::kVhlo, va::kString) || is_attr(a, Dialect::kBuiltin, ba::kString) ||
      is_attr(a, Dialect::kBuiltin, ba::kStringWithType)) {
    return a.text;
  }
  if (is_attr(a, Dialect::kBuiltin, ba::kSymbol) &&
      is_attr(attr(a.attrs[0]), Dialect::kBuiltin, ba::kString)) {
    return attr(a.attrs[0]).text;
  }
  return std::nullopt;
}

std::optional<int64_t> Tables::integer(uint32_t attr_index) const {
  if (attr_index == kNone) {
    return std::nullopt;
  }
  const RawAttr& a = attr(attr_index);
  if (is_attr(a, Dialect::kVhlo, va::kInteger) || is_attr(a, Dialect::kBuiltin, ba::kInteger) ||
      is_attr(a, Dialect::kVhlo, va::kBool)) {
    return a.ints.at(0);
  }
  if (is_attr(a, Dialect::kBuiltin, ba::kUnit)) {
    return 1;
  }
  return std::nullopt;
}

std::optional<std::vector<uint32_t>> Tables::array(uint32_t attr_index) const {
  if (attr_index == kNone) {
    return std::nullopt;
  }
  const RawAttr& a = attr(attr_index);
  if (is_attr(a, Dialect::kVhlo, va::kArray) || is_attr(a, Dialect::kBuiltin, ba::kArray)) {
    return a.attrs;
  }
  return std::nullopt;
}

uint32_t Tables::entry(uint32_t dictionary, std::string_view key) const {
  if (dictionary != kNone) {
    for (const auto& [name, value] : attr(dictionary).pairs) {
      if (text(name) == key) {
        return value;
      }
    }
  }
  return kNone;
}

std::string_view Tables::property_text(const bytecode::RawOp& op, std::string_view property) const {
  for (const auto& [name, value] : op.properties) {
    if (name == property) {
      return text(value).value_or("");
    }
  }
  return "";
}

LocRef Tables::loc(uint32_t attr_index) {
  if (attr_index == kNone) {
    return unknown_loc();
  }
  if (!locs_[attr_index]) {
    auto out = std::make_shared<Loc>();
    uint32_t at = attr_index;
    // The outermost name is the op path; names deeper down are functions of the call stack.
    if (is_attr(attr(at), Dialect::kBuiltin, ba::kNameLoc)) {
      out->path = std::string(text(attr(at).attrs[0]).value_or(""));
      at = attr(at).attrs[1];
      // JAX wraps "psum:" around "psum": the trailing colon marks a type, not a place.
      if (!out->path.empty() && out->path.back() == ':') {
        out->path.pop_back();
      }
    }
    int steps = 0;
    collect_frames(at, "", 0, steps, *out);
    locs_[attr_index] = std::move(out);
  }
  return locs_[attr_index];
}

void Tables::collect_frames(uint32_t attr_index, const std::string& function, int depth, int& steps,
                            Loc& out) const {
  const RawAttr& a = attr(attr_index);
  if (depth > kMaxLocDepth || ++steps > kMaxLocSteps || out.frames.size() >= kMaxFrames ||
      a.dialect != Dialect::kBuiltin) {
    return;
  }
  switch (a.code) {
    case ba::kNameLoc:
      collect_frames(a.attrs[1], std::string(text(a.attrs[0]).value_or("")), depth + 1, steps, out);
      break;
    case ba::kCallSiteLoc:
      collect_frames(a.attrs[0], function, depth + 1, steps, out);
      collect_frames(a.attrs[1], "", depth + 1, steps, out);
      break;
    case ba::kFusedLoc:
    case ba::kFusedLocMetadata:
      if (!a.attrs.empty()) {
        collect_frames(a.attrs[0], function, depth + 1, steps, out);
      }
      break;
    case ba::kFileLoc:
    case ba::kFileRangeLoc: {
      const std::string file(text(a.attrs[0]).value_or("?"));
      if (!is_framework_file(file)) {
        const auto number = [&](size_t k) {
          return k < a.ints.size() ? static_cast<uint32_t>(a.ints[k]) : 0u;
        };
        out.frames.push_back({file, number(0), number(1), function});
      }
      break;
    }
    default:
      break;
  }
}

}  // namespace tpu::compiler::frontend
