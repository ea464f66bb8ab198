// The board's types and the format's stand in one table.
#include "checkpoint/tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "check/host_room.hpp"
#include "file/whole_file.hpp"
#include "tpu/error.hpp"

namespace tpu::training {

using driver::DType;
using driver::Error;
using driver::ErrorCode;
using driver::HostArray;

namespace {

constexpr std::array<std::pair<DType, const char*>, 13> kTypes = {{{DType::kF32, "F32"},
                                                                   {DType::kBf16, "BF16"},
                                                                   {DType::kI32, "I32"},
                                                                   {DType::kU32, "U32"},
                                                                   {DType::kI8, "I8"},
                                                                   {DType::kU8, "U8"},
                                                                   {DType::kI1, "BOOL"},
                                                                   {DType::kI16, "I16"},
                                                                   {DType::kU16, "U16"},
                                                                   {DType::kI64, "I64"},
                                                                   {DType::kU64, "U64"},
                                                                   {DType::kC64, "C64"},
                                                                   {DType::kF64, "F64"}}};

template <typename Action>
auto as_error(Action action) {
  try {
    return action();
  } catch (const spec::FileError& error) {
    throw Error(ErrorCode::kInvalidArgument, error.what());
  }
}

}  // namespace

std::string safetensors_dtype(DType dtype) {
  for (const auto& [type, name] : kTypes) {
    if (type == dtype) {
      return name;
    }
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("a safetensors file cannot store elements of type {}",
                          driver::dtype_name(dtype)));
}

std::optional<DType> board_dtype(const std::string& safetensors_dtype) {
  for (const auto& [type, name] : kTypes) {
    if (name == safetensors_dtype) {
      return type;
    }
  }
  return std::nullopt;
}

TensorFile::TensorFile(const std::string& path)
    : path_(path), file_(path), contents_(as_error([this] {
        return file_.use([this](auto bytes) { return spec::parse_safetensors(bytes, path_); });
      })) {
  for (size_t i = 0; i < contents_.tensors.size(); ++i) {
    places_[contents_.tensors[i].name] = i;
  }
}

const spec::Tensor* TensorFile::find(const std::string& name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &contents_.tensors[found->second];
}

std::span<const std::byte> TensorFile::bytes(const spec::Tensor& tensor) const {
  return file_.get().subspan(tensor.begin, tensor.bytes);
}

HostArray TensorFile::read(const spec::Tensor& tensor) const {
  const std::optional<DType> dtype = board_dtype(tensor.dtype);
  if (!dtype) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: tensor \"{}\": programs take no elements of type {}; convert it "
                            "to F32 or BF16",
                            path_, tensor.name, tensor.dtype));
  }
  driver::need_host_room(tensor.bytes, path_);
  const auto from = bytes(tensor);
  HostArray array{*dtype, tensor.shape, {from.begin(), from.end()}};
  check();
  return array;
}

void write_tensors(const std::filesystem::path& path, const NamedViews& tensors,
                   const std::map<std::string, std::string>& metadata) {
  spec::Safetensors file;
  file.metadata = metadata;
  std::map<std::string_view, const driver::HostView*> views;
  for (const auto& [name, view] : tensors) {
    spec::Tensor tensor;
    tensor.name = name;
    tensor.dtype = safetensors_dtype(view.dtype);
    tensor.shape = view.shape;
    file.tensors.push_back(std::move(tensor));
    views[name] = &view;
  }
  const std::string header =
      as_error([&] { return spec::layout_safetensors(file, path.string()); });
  driver::FileWriter out(path.string(), driver::Durability::kSynced);
  out.add(std::as_bytes(std::span(header)));
  for (const spec::Tensor& tensor : file.tensors) {
    out.add(views.at(tensor.name)->bytes);
  }
  out.finish();
}

}  // namespace tpu::training
