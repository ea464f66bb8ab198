// Tensors are read one at a time, so that the host needs no room for those that nobody wants.
#include "checkpoint/weights.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "check/checked.hpp"
#include "check/host_room.hpp"
#include "check/refuse.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/tensors.hpp"
#include "file/files.hpp"
#include "numbers/bf16.hpp"
#include "numbers/f16.hpp"

namespace tpu::training {

using driver::DType;
using driver::HostArray;
using driver::ParameterInfo;
using driver::refuse;

namespace {

using Leaves = std::vector<ParameterInfo>;

// One tensor of the file and where it goes.
struct Target {
  const spec::Tensor* tensor;
  size_t leaf;
};

std::optional<size_t> leaf_of_name(const std::string& name, const Leaves& leaves) {
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i].name == name) {
      return i;
    }
  }
  return std::nullopt;
}

std::string some_names(const TensorFile& file) {
  constexpr size_t kShown = 5;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, file.tensors().size()); ++i) {
    text += fmt::format("{}\"{}\"", i == 0 ? "" : ", ", file.tensors()[i].name);
  }
  return text + (file.tensors().size() > kShown ? ", ..." : "");
}

size_t mapped_leaf(const toml::node& node, const std::string& where, const Leaves& leaves) {
  if (const auto number = node.value_exact<int64_t>()) {
    if (*number < 0 || std::cmp_greater_equal(*number, leaves.size())) {
      refuse(fmt::format("{}: no state leaf {}: the program has {} leaves, numbered from 0", where,
                         *number, leaves.size()));
    }
    return static_cast<size_t>(*number);
  }
  const auto name = node.value_exact<std::string>();
  if (!name) {
    refuse(fmt::format("{}: the number or the name of a state leaf is expected", where));
  }
  const std::optional<size_t> leaf = leaf_of_name(*name, leaves);
  if (!leaf) {
    refuse(fmt::format("{}: no state leaf of the program is called \"{}\"", where, *name));
  }
  return *leaf;
}

std::vector<Target> targets_of_map(const TensorFile& file, const std::string& map_file,
                                   const Leaves& leaves) {
  const std::vector<std::byte> bytes = driver::read_file(map_file);
  toml::table map;
  try {
    map = toml::parse(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
                      map_file);
  } catch (const toml::parse_error& error) {
    refuse(fmt::format("{}:{}: {}; names with dots need quotes", map_file,
                       error.source().begin.line, error.description()));
  }
  std::vector<Target> targets;
  for (const auto& [key, node] : map) {
    const std::string where = fmt::format("{}:{}", map_file, node.source().begin.line);
    const spec::Tensor* tensor = file.find(std::string(key.str()));
    if (tensor == nullptr) {
      refuse(fmt::format("{}: {} has no tensor \"{}\"; it has {}", where, file.path(), key.str(),
                         some_names(file)));
    }
    targets.push_back({tensor, mapped_leaf(node, where, leaves)});
  }
  return targets;
}

std::vector<Target> targets_of_names(const TensorFile& file, const Leaves& leaves) {
  std::vector<Target> targets;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const spec::Tensor* tensor = file.find(leaf_name(i));
    tensor = tensor != nullptr || leaves[i].name.empty() ? tensor : file.find(leaves[i].name);
    if (tensor != nullptr) {
      targets.push_back({tensor, i});
    }
  }
  return targets;
}

// Element `i` of F32, BF16 or F16.
float float_at(const std::string& dtype, const std::byte* elements, uint64_t i) {
  if (dtype == "F32") {
    float value = 0;
    std::memcpy(&value, elements + i * sizeof(value), sizeof(value));
    return value;
  }
  if (dtype == "BF16") {
    uint16_t high = 0;
    std::memcpy(&high, elements + i * sizeof(high), sizeof(high));
    return std::bit_cast<float>(static_cast<uint32_t>(high) << 16);
  }
  uint16_t half = 0;
  std::memcpy(&half, elements + i * sizeof(half), sizeof(half));
  return f32_from_f16(half);
}

bool has_floats(const std::string& dtype) {
  return dtype == "F32" || dtype == "BF16" || dtype == "F16";
}

HostArray rounded(const TensorFile& file, const spec::Tensor& tensor, DType dtype) {
  HostArray out = driver::host_array(dtype, tensor.shape, file.path());
  const std::byte* from = file.bytes(tensor).data();
  const uint64_t element = driver::dtype_bytes(dtype);
  for (uint64_t i = 0; i < out.bytes.size() / element; ++i) {
    const float value = float_at(tensor.dtype, from, i);
    const uint16_t half = bf16_from_f32(value);
    const void* bits = dtype == DType::kF32 ? static_cast<const void*>(&value) : &half;
    std::memcpy(out.bytes.data() + i * element, bits, element);
  }
  file.check();
  return out;
}

HostArray take(const TensorFile& file, const Target& target, const Leaves& leaves) {
  const ParameterInfo& leaf = leaves[target.leaf];
  const spec::Tensor& tensor = *target.tensor;
  const bool same = board_dtype(tensor.dtype) == leaf.dtype;
  const bool floats =
      (leaf.dtype == DType::kF32 || leaf.dtype == DType::kBf16) && has_floats(tensor.dtype);
  if (tensor.shape != leaf.shape || !(same || floats)) {
    refuse(fmt::format("{}: tensor \"{}\" is {} [{}], but state leaf {} is {}", file.path(),
                       tensor.name, tensor.dtype, fmt::join(tensor.shape, ","), target.leaf,
                       driver::type_text(leaf.dtype, leaf.shape)));
  }
  return same ? file.read(tensor) : rounded(file, tensor, leaf.dtype);
}

}  // namespace

std::map<size_t, HostArray> load_weights(const std::string& path, const std::string& map_file,
                                         const Leaves& leaves) {
  const TensorFile file(path);
  const std::vector<Target> targets =
      map_file.empty() ? targets_of_names(file, leaves) : targets_of_map(file, map_file, leaves);
  if (targets.empty()) {
    refuse(fmt::format("{}: no tensor goes to a state leaf{}; it has {}", path,
                       map_file.empty()
                           ? ": none is called \"state.0\" or as a leaf of the program; "
                             "state.weights_map can say which goes where"
                           : " by " + map_file,
                       some_names(file)));
  }
  std::map<size_t, const spec::Tensor*> taken;
  std::map<size_t, HostArray> values;
  for (const Target& target : targets) {
    const auto [at, is_first] = taken.emplace(target.leaf, target.tensor);
    if (!is_first) {
      refuse(fmt::format("{}: tensors \"{}\" and \"{}\" both go to state leaf {}", map_file,
                         at->second->name, target.tensor->name, target.leaf));
    }
    values.emplace(target.leaf, take(file, target, leaves));
  }
  return values;
}

}  // namespace tpu::training
