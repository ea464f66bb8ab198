// See shardings.hpp.
//   OTHER tiles [4,2] devices 0..7 replicate_on_last  =>  "{devices=[4,2]0,1,..,7
//                                                          last_tile_dim_replicate}"
//   OTHER tiles [8] iota dims [4,2] order [1,0]       =>  "{devices=[8]<=[4,2]T(1,0)}"
#include "import/hlo/shardings.hpp"

#include "import/hlo/converter.hpp"

namespace tpu::compiler::hlo {
namespace {

std::string joined(const Ints& numbers) {
  std::string text;
  for (const int64_t n : numbers) {
    text += (text.empty() ? "" : ",") + std::to_string(n);
  }
  return text;
}

const char* tile_kind(int64_t type, const Step& step) {
  switch (type) {
    case Sharding::kReplicated:
      return "replicated";
    case Sharding::kManual:
      return "manual";
    case Sharding::kUnreduced:
      return "unreduced";
    default:
      step.fail("its sharding has a last dimension of the type " + std::to_string(type) +
                ", expected replicated, manual or unreduced");
  }
}

// The list is not written out: many arrays may have it.
std::string devices_of(const Sharding& s) {
  if (!s.devices.empty() || s.iota_dims.empty()) {
    return s.devices.empty() ? "0" : joined(s.devices);
  }
  const std::string order = s.iota_order.empty() ? "" : "T(" + joined(s.iota_order) + ")";
  return "<=[" + joined(s.iota_dims) + "]" + order;
}

std::string tiled(const Sharding& s, const Step& step) {
  std::string text = "devices=[" + joined(s.tiles) + "]" + devices_of(s);
  if (s.copies_last) {
    return text + " last_tile_dim_replicate";
  }
  std::string kinds;
  for (const int64_t type : s.last_tile_types) {
    kinds += std::string(kinds.empty() ? "" : ", ") + tile_kind(type, step);
  }
  return kinds.empty() ? text : text + " last_tile_dims={" + kinds + "}";
}

std::string text_of(const Sharding& s, const Step& step) {
  switch (s.type) {
    case Sharding::kMaximal:
      return "{maximal device=" + (s.devices.empty() ? "0" : std::to_string(s.devices[0])) + "}";
    case Sharding::kOther:
      return "{" + tiled(s, step) + "}";
    case Sharding::kManual:
      return "{manual}";
    case Sharding::kUnknown:
      return s.group ? std::string("{unknown ") + (s.group_is_like ? "shard_like " : "shard_as ") +
                           std::to_string(*s.group) + "}"
                     : "{unknown}";
    case Sharding::kUnreduced:
      return "{unreduced}";
    case Sharding::kTuple:
      step.fail("its sharding has a tuple within a tuple");
    default:
      return "{replicated}";
  }
}

}  // namespace

GspmdTexts gspmd_texts(const Sharding& sharding, size_t leaves, const Step& step) {
  std::vector<std::string> texts;
  if (sharding.type != Sharding::kTuple) {
    texts.push_back(text_of(sharding, step));
    return GspmdTexts(std::move(texts));
  }
  // XLA gives an empty tuple one sharding.
  if (sharding.members.size() != leaves && leaves != 0) {
    step.fail("its sharding is of " + std::to_string(sharding.members.size()) +
              " arrays, expected " + std::to_string(leaves));
  }
  for (size_t i = 0; i < leaves; ++i) {
    texts.push_back(text_of(sharding.members[i], step));
  }
  return GspmdTexts(std::move(texts));
}

bool is_constraint(const std::string& text) {
  return text != "{unknown}" && text != "{manual}" && !text.starts_with("{maximal");
}

}  // namespace tpu::compiler::hlo
