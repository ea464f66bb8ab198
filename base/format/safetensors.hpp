// safetensors files: 8 bytes with the length of a JSON header, the header, then the tensors' bytes
// without a hole. Element types keep the names that the format gives them ("F32", "BF16", "BOOL");
// who knows which of them a program takes stands above.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tpu::spec {

struct Tensor {
  std::string name;
  std::string dtype;  ///< as the format writes it
  std::vector<int64_t> shape;
  uint64_t begin = 0;  ///< where its bytes stand in the file
  uint64_t bytes = 0;
};

struct Safetensors {
  std::vector<Tensor> tensors;  ///< in the order of their bytes
  std::map<std::string, std::string> metadata;
};

/// A longer header is refused, as the format's own library does.
constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

/// Bytes of one element of a type of the format; 0: there is no such type, or its elements are no
/// whole bytes.
uint64_t safetensors_element_bytes(std::string_view dtype);

/// What a whole file holds; `path` is for error texts. Throws FileError that names the tensor: a
/// header that is cut or no JSON, names that come twice, types, shapes and sizes that do not fit,
/// bytes that overlap, leave a hole or lie outside of the file.
Safetensors parse_safetensors(std::span<const std::byte> file, const std::string& path);

/// The length of the header that follows, of a file's first 8 bytes; nothing when no file of the
/// format begins so.
std::optional<uint64_t> safetensors_header_bytes(std::span<const std::byte> first);
/// The metadata of a header, without a look at its tensors; empty when it is none or has none.
std::map<std::string, std::string> safetensors_metadata(std::string_view header);

/// Gives the tensors of a file that is to be written their order (wide elements first, so that all
/// are aligned; else as they came) and their places. What comes back stands before their bytes.
/// Throws FileError as parse_safetensors().
std::string layout_safetensors(Safetensors& file, const std::string& path);

}  // namespace tpu::spec
