// Host arrays in safetensors files: the format's element types are those of the board by another
// name.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "file/files.hpp"
#include "format/safetensors.hpp"
#include "tpu/types.hpp"

namespace tpu::training {

/// The format's name; throws InvalidArgument for types of which the board knows the size alone.
std::string safetensors_dtype(driver::DType dtype);
/// Nothing for a type that no program takes.
std::optional<driver::DType> board_dtype(const std::string& safetensors_dtype);

/// A file whose header has been read and whose tensors stay on the disk. Throws as FileBytes, and
/// InvalidArgument that names file and tensor for what is damaged.
class TensorFile {
 public:
  explicit TensorFile(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<spec::Tensor>& tensors() const { return contents_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return contents_.metadata; }
  /// nullptr: there is none.
  const spec::Tensor* find(const std::string& name) const;
  /// Where they lie in the file; what is made of them counts when check() has returned since.
  std::span<const std::byte> bytes(const spec::Tensor& tensor) const;
  /// As FileBytes::check().
  void check() const { file_.check(); }
  /// A copy; throws InvalidArgument for an element type that no program takes, ResourceExhausted
  /// when the host has no room.
  driver::HostArray read(const spec::Tensor& tensor) const;

 private:
  std::string path_;
  driver::FileBytes file_;
  spec::Safetensors contents_;
  std::map<std::string, size_t> places_;
};

using NamedViews = std::vector<std::pair<std::string, driver::HostView>>;

/// Replaces the file in one step, and waits until it is on the disk. Throws as FileWriter.
void write_tensors(const std::filesystem::path& path, const NamedViews& tensors,
                   const std::map<std::string, std::string>& metadata);

}  // namespace tpu::training
