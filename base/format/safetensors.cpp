// The header is read into a JSON document first; the parser's callback refuses what a document
// cannot show: names that come twice and deep nesting.
#include "format/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "file/whole_file.hpp"

namespace tpu::spec {
namespace {

using Json = nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr size_t kTensorAlign = 8;
constexpr const char* kMetadata = "__metadata__";

struct ElementType {
  std::string_view name;
  uint64_t bytes;
};
constexpr std::array<ElementType, 17> kTypes = {{{"BOOL", 1},
                                                 {"U8", 1},
                                                 {"I8", 1},
                                                 {"F8_E5M2", 1},
                                                 {"F8_E4M3", 1},
                                                 {"F8_E8M0", 1},
                                                 {"I16", 2},
                                                 {"U16", 2},
                                                 {"F16", 2},
                                                 {"BF16", 2},
                                                 {"I32", 4},
                                                 {"U32", 4},
                                                 {"F32", 4},
                                                 {"F64", 8},
                                                 {"I64", 8},
                                                 {"U64", 8},
                                                 {"C64", 8}}};

[[noreturn]] void damaged(const std::string& path, const std::string& what) {
  throw FileError(fmt::format("{}: not a safetensors file, or damaged: {}", path, what));
}

// Names come from files: long ones and those with control characters are shown as far as they help.
std::string shown(const std::string& name) {
  constexpr size_t kShown = 120;
  const Json cut = name.substr(0, kShown);
  return cut.dump(-1, ' ', true, Json::error_handler_t::replace) +
         (name.size() > kShown ? "..." : "");
}

[[noreturn]] void wrong_tensor(const std::string& path, const std::string& name,
                               const std::string& what) {
  throw FileError(fmt::format("{}: tensor {}: {}", path, shown(name), what));
}

// Refuses what a document would hide.
class Watch {
 public:
  explicit Watch(const std::string& path) : path_(path) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    constexpr int kDepth = 3;  // the header, a tensor in it, its shape
    if (depth >= kDepth &&
        (event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start)) {
      damaged(path_, "its header is nested deeper than any tensor's entry");
    }
    const auto level = static_cast<size_t>(depth);
    if (event == Json::parse_event_t::object_start) {
      keys_.resize(std::max(keys_.size(), level + 2));
      keys_[level + 1].clear();
    }
    if (event == Json::parse_event_t::key &&
        !keys_[level].insert(parsed.get<std::string>()).second) {
      damaged(path_, fmt::format("{} comes twice in its header", shown(parsed.get<std::string>())));
    }
    return true;
  }

 private:
  const std::string& path_;
  std::vector<std::set<std::string>> keys_;  // of the object that is open, by depth
};

Json parse_tensors(std::string_view text, const std::string& path) {
  if (text.empty() || text[0] != '{') {
    damaged(path, "its header does not begin with '{'");
  }
  try {
    return Json::parse(text.begin(), text.end(), Watch(path));
  } catch (const Json::exception& error) {
    damaged(path, error.what());
  }
}

std::optional<uint64_t> product(uint64_t a, uint64_t b) {
  uint64_t out = 0;
  return __builtin_mul_overflow(a, b, &out) ? std::nullopt : std::optional(out);
}

uint64_t bytes_of(const Tensor& tensor, const std::string& path) {
  std::optional<uint64_t> bytes = safetensors_element_bytes(tensor.dtype);
  if (*bytes == 0) {
    wrong_tensor(path, tensor.name, fmt::format("unknown element type {}", shown(tensor.dtype)));
  }
  // A dimension of zero wins over others whose product is too large.
  const bool empty = std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
  for (const int64_t dim : tensor.shape) {
    bytes = dim < 0 ? std::nullopt : product(*bytes, empty ? 1 : static_cast<uint64_t>(dim));
    if (!bytes) {
      wrong_tensor(path, tensor.name,
                   fmt::format("shape [{}] does not fit memory", fmt::join(tensor.shape, ", ")));
    }
  }
  return empty ? 0 : *bytes;
}

// A list of whole numbers from 0 on.
std::optional<std::vector<uint64_t>> numbers(const Json& entry, const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_array()) {
    return std::nullopt;
  }
  std::vector<uint64_t> out;
  for (const Json& item : *found) {
    if (!item.is_number_unsigned()) {
      return std::nullopt;
    }
    out.push_back(item.get<uint64_t>());
  }
  return out;
}

Tensor parse_tensor(const std::string& name, const Json& entry, const std::string& path) {
  Tensor tensor;
  tensor.name = name;
  const auto dtype = entry.is_object() ? entry.find("dtype") : entry.end();
  if (!entry.is_object() || entry.size() != 3 || dtype == entry.end() || !dtype->is_string()) {
    wrong_tensor(path, name, "its entry must hold dtype, shape and data_offsets");
  }
  tensor.dtype = dtype->get<std::string>();
  const auto shape = numbers(entry, "shape");
  if (!shape || std::any_of(shape->begin(), shape->end(),
                            [](uint64_t dim) { return !std::in_range<int64_t>(dim); })) {
    wrong_tensor(path, name, "shape must be a list of integers from 0 on");
  }
  tensor.shape.assign(shape->begin(), shape->end());
  tensor.bytes = bytes_of(tensor, path);
  const auto offsets = numbers(entry, "data_offsets");
  if (!offsets || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) {
    wrong_tensor(path, name, "data_offsets must be two integers, the first not the larger");
  }
  tensor.begin = (*offsets)[0];
  if ((*offsets)[1] - tensor.begin != tensor.bytes) {
    wrong_tensor(path, name,
                 fmt::format("{} [{}] takes {} bytes, data_offsets [{}, {}] are {}", tensor.dtype,
                             fmt::join(tensor.shape, ", "), tensor.bytes, tensor.begin,
                             (*offsets)[1], (*offsets)[1] - tensor.begin));
  }
  return tensor;
}

// Every byte belongs to one tensor; `begin` becomes a place in the file.
void place(std::vector<Tensor>& tensors, uint64_t data_at, uint64_t file_bytes,
           const std::string& path) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) {
    return std::pair(a.begin, a.bytes) < std::pair(b.begin, b.bytes);
  });
  const uint64_t room = file_bytes - data_at;
  uint64_t end = 0;
  for (Tensor& tensor : tensors) {
    if (tensor.begin > room || tensor.bytes > room - tensor.begin) {
      wrong_tensor(path, tensor.name,
                   fmt::format("its bytes {} to {} lie outside of the {} that the file holds; is "
                               "it whole?",
                               tensor.begin, tensor.begin + tensor.bytes, room));
    }
    if (tensor.begin != end) {
      wrong_tensor(path, tensor.name,
                   fmt::format("its bytes begin at {}; {} at {}", tensor.begin,
                               tensor.begin < end ? "those before it end" : "a hole begins", end));
    }
    end += tensor.bytes;
    tensor.begin += data_at;
  }
  if (end != room) {
    damaged(path, fmt::format("{} bytes behind the last tensor's belong to no tensor", room - end));
  }
}

void check_metadata(const Json& metadata, std::map<std::string, std::string>& out,
                    const std::string& path) {
  if (!metadata.is_object()) {
    damaged(path, fmt::format("{} must map texts to texts", kMetadata));
  }
  for (const auto& [key, value] : metadata.items()) {
    if (!value.is_string()) {
      damaged(path, fmt::format("{} in {} must be a text", shown(key), kMetadata));
    }
    out[key] = value.get<std::string>();
  }
}

std::string json_text(const Json& json, const std::string& path) {
  try {
    return json.dump();
  } catch (const Json::exception& error) {
    throw FileError(
        fmt::format("{}: expected UTF-8 in tensor names and metadata: {}", path, error.what()));
  }
}

uint64_t length_at(std::span<const std::byte> first) {
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= static_cast<uint64_t>(first[i]) << (8 * i);
  }
  return length;
}

std::string length_prefix(uint64_t length) {
  std::string out;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    out += static_cast<char>(length >> (8 * i) & 0xFF);
  }
  return out;
}

}  // namespace

uint64_t safetensors_element_bytes(std::string_view dtype) {
  const auto* const found = std::find_if(
      kTypes.begin(), kTypes.end(), [&](const ElementType& type) { return type.name == dtype; });
  return found == kTypes.end() ? 0 : found->bytes;
}

std::optional<uint64_t> safetensors_header_bytes(std::span<const std::byte> first) {
  if (first.size() < kLengthBytes) {
    return std::nullopt;
  }
  const uint64_t length = length_at(first);
  return length <= kMaxSafetensorsHeader ? std::optional(length) : std::nullopt;
}

std::map<std::string, std::string> safetensors_metadata(std::string_view header) {
  const std::string path;
  std::map<std::string, std::string> metadata;
  try {
    const Json parsed = parse_tensors(header, path);
    if (const auto found = parsed.find(kMetadata); found != parsed.end()) {
      check_metadata(*found, metadata, path);
    }
  } catch (const FileError&) {
    metadata.clear();
  }
  return metadata;
}

Safetensors parse_safetensors(std::span<const std::byte> file, const std::string& path) {
  if (file.size() < kLengthBytes) {
    damaged(path, fmt::format("expected a header, found a file of {} bytes", file.size()));
  }
  const uint64_t length = length_at(file);
  if (length > kMaxSafetensorsHeader) {
    damaged(path,
            fmt::format("its first 8 bytes give a header of {} bytes: expected at most {} bytes",
                        length, kMaxSafetensorsHeader));
  }
  if (length > file.size() - kLengthBytes) {
    damaged(path, fmt::format("its header of {} bytes is truncated: the file has {} bytes", length,
                              file.size()));
  }
  const Json header = parse_tensors(
      {reinterpret_cast<const char*>(file.data()) + kLengthBytes, static_cast<size_t>(length)},
      path);
  Safetensors out;
  for (const auto& [name, entry] : header.items()) {
    if (name == kMetadata) {
      check_metadata(entry, out.metadata, path);
    } else {
      out.tensors.push_back(parse_tensor(name, entry, path));
    }
  }
  place(out.tensors, kLengthBytes + length, file.size(), path);
  return out;
}

std::string layout_safetensors(Safetensors& file, const std::string& path) {
  std::stable_sort(file.tensors.begin(), file.tensors.end(), [](const Tensor& a, const Tensor& b) {
    return safetensors_element_bytes(a.dtype) > safetensors_element_bytes(b.dtype);
  });
  std::string text = "{";
  if (!file.metadata.empty()) {
    text += fmt::format("\"{}\":{},", kMetadata, json_text(file.metadata, path));
  }
  std::set<std::string_view> names = {kMetadata};
  uint64_t end = 0;
  for (Tensor& tensor : file.tensors) {
    if (!names.insert(tensor.name).second) {
      wrong_tensor(path, tensor.name, "this name is taken");
    }
    tensor.bytes = bytes_of(tensor, path);
    tensor.begin = end;
    if (__builtin_add_overflow(end, tensor.bytes, &end)) {
      wrong_tensor(path, tensor.name, "with those before it it is larger than any file");
    }
    text += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}},)",
                        json_text(tensor.name, path), tensor.dtype, fmt::join(tensor.shape, ","),
                        tensor.begin, end);
  }
  if (text.size() > 1) {
    text.pop_back();
  }
  text += '}';
  text.append((kTensorAlign - text.size() % kTensorAlign) % kTensorAlign, ' ');
  if (text.size() > kMaxSafetensorsHeader) {
    throw FileError(
        fmt::format("{}: the header would have {} bytes, at most {} are supported; use "
                    "fewer tensors or shorter names",
                    path, text.size(), kMaxSafetensorsHeader));
  }
  for (Tensor& tensor : file.tensors) {
    tensor.begin += kLengthBytes + text.size();
  }
  return length_prefix(text.size()) + text;
}

}  // namespace tpu::spec
