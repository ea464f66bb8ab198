#include "input/feature.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "tpu/error.hpp"

namespace tpu::input {
namespace {

[[noreturn]] void refuse_feature(const std::string& text, const std::string& why) {
  throw driver::Error(
      driver::ErrorCode::kInvalidArgument,
      fmt::format("'{}': {}; features are said as image:u8[28,28,1] or label:i32", text, why));
}

std::optional<DType> type_named(std::string_view name) {
  for (const DType type :
       {DType::kF32, DType::kBf16, DType::kI32, DType::kU32, DType::kI8, DType::kU8, DType::kI1,
        DType::kI16, DType::kU16, DType::kI64, DType::kU64, DType::kC64, DType::kF64}) {
    const std::string_view known = driver::dtype_name(type);
    const bool unsigned_type = known.starts_with("ui");  // u8 is understood for ui8
    if (name == known ||
        (unsigned_type && name.starts_with('u') && name.substr(1) == known.substr(2))) {
      return type;
    }
  }
  return std::nullopt;
}

}  // namespace

Feature parse_feature(const std::string& text) {
  // The name may hold colons.
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) {
    refuse_feature(text, "no name and type");
  }
  std::string_view type = std::string_view(text).substr(colon + 1);
  Feature feature;
  feature.name = text.substr(0, colon);
  std::string_view dims;
  if (const size_t open = type.find('['); open != std::string_view::npos) {
    dims = type.substr(open + 1);
    type = type.substr(0, open);
    if (!dims.ends_with(']')) {
      refuse_feature(text, "']' is missing");
    }
    dims.remove_suffix(1);
  }
  const std::optional<DType> known = type_named(type);
  if (!known) {
    refuse_feature(text, fmt::format("there is no type '{}'", type));
  }
  feature.type = *known;
  while (!dims.empty()) {
    const std::string_view dim = dims.substr(0, dims.find(','));
    int64_t size = 0;
    const auto [end, error] = std::from_chars(dim.data(), dim.data() + dim.size(), size);
    if (error != std::errc() || end != dim.data() + dim.size() || size < 1) {
      refuse_feature(text, fmt::format("invalid dimension '{}'", dim));
    }
    feature.shape.push_back(size);
    dims.remove_prefix(std::min(dims.size(), dim.size() + 1));
  }
  return feature;
}

}  // namespace tpu::input
