#include "input/array_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "check/refuse.hpp"
#include "file/files.hpp"
#include "file/whole_file.hpp"
#include "format/npy.hpp"
#include "format/npz.hpp"
#include "format/safetensors.hpp"
#include "tpu/error.hpp"

namespace tpu::input {

using driver::refuse;

namespace {

using driver::HostArray;
using driver::HostView;

struct TypeName {
  std::string_view name;
  DType type;
};
constexpr TypeName kSafetensorsTypes[] = {
    {"F32", DType::kF32}, {"BF16", DType::kBf16}, {"I32", DType::kI32}, {"U32", DType::kU32},
    {"I8", DType::kI8},   {"U8", DType::kU8},     {"BOOL", DType::kI1}, {"I16", DType::kI16},
    {"U16", DType::kU16}, {"I64", DType::kI64},   {"U64", DType::kU64}, {"C64", DType::kC64},
    {"F64", DType::kF64},
};

Column safetensors_column(const std::string& path, const std::string& member) {
  const auto file = std::make_shared<driver::FileBytes>(path);
  spec::Safetensors content;
  try {
    content = file->use([&](auto bytes) { return spec::parse_safetensors(bytes, path); });
  } catch (const spec::FileError& error) {
    refuse(error.what());
  }
  std::vector<std::string> names;
  for (const spec::Tensor& tensor : content.tensors) {
    names.push_back(tensor.name);
    if (tensor.name != member) {
      continue;
    }
    for (const TypeName& known : kSafetensorsTypes) {
      if (known.name == tensor.dtype) {
        return {fmt::format("{}, tensor '{}'", path, member), file,
                HostView(known.type, tensor.shape, file->get().subspan(tensor.begin, tensor.bytes)),
                [file] { file->check(); }};
      }
    }
    refuse(fmt::format("{}, tensor '{}': elements of type {} cannot be fed to a program", path,
                       member, tensor.dtype));
  }
  refuse(fmt::format("{}: has no tensor '{}'; it has {}", path, member, fmt::join(names, ", ")));
}

Column raw_column(const std::string& path, const Feature& feature) {
  const auto file = std::make_shared<driver::FileBytes>(path);
  const DType type = feature.stored_type.value_or(DType::kU8);
  Shape shape = feature.stored_shape.empty() ? feature.shape : feature.stored_shape;
  const uint64_t one = driver::byte_count(type, shape);
  if (one == 0 || file->get().size() % one != 0) {
    refuse(fmt::format("{}: {} bytes are not a multiple of {} bytes, the size of an example", path,
                       file->get().size(), one));
  }
  shape.insert(shape.begin(), static_cast<int64_t>(file->get().size() / one));
  return {path, file, HostView(type, shape, file->get()), [file] { file->check(); }};
}

class ArrayReader : public Reader {
 public:
  explicit ArrayReader(const std::vector<Column>& columns) : columns_(columns) {}

  uint64_t read(uint64_t example, std::span<Value> values) override {
    uint64_t bytes = 0;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const HostView& view = columns_[i].view;
      const uint64_t one = view.bytes.size() / static_cast<uint64_t>(view.shape[0]);
      values[i] = {view.dtype, view.bytes.subspan(example * one, one)};
      bytes += one;
    }
    return bytes;
  }

 private:
  const std::vector<Column>& columns_;
};

class ArraySource : public Source {
 public:
  explicit ArraySource(std::vector<Column> columns) : columns_(std::move(columns)) {
    if (columns_.empty()) {
      refuse("no arrays are named for the input");
    }
    for (const Column& column : columns_) {
      check(column);
    }
  }

  uint64_t examples() const override { return count(columns_.front()); }
  std::unique_ptr<Reader> reader() const override {
    return std::make_unique<ArrayReader>(columns_);
  }
  void check() const override {
    for (const Column& column : columns_) {
      if (column.check) {
        column.check();
      }
    }
  }
  std::string place(uint64_t example) const override {
    std::vector<std::string_view> names;
    for (const Column& column : columns_) {
      if (std::find(names.begin(), names.end(), column.name) == names.end()) {
        names.push_back(column.name);
      }
    }
    return fmt::format("{}: example {}", fmt::join(names, " and "), example);
  }
  std::string identity() const override {
    std::vector<std::string> types;
    for (const Column& column : columns_) {
      types.push_back(driver::type_text(column.view.dtype, column.view.shape));
    }
    return fmt::format("arrays {}", fmt::join(types, " "));
  }

 private:
  static uint64_t count(const Column& column) {
    return static_cast<uint64_t>(column.view.shape[0]);
  }

  void check(const Column& column) const {
    const HostView& view = column.view;
    if (view.shape.empty()) {
      refuse(fmt::format("{}: expected an array of examples, found a scalar", column.name));
    }
    if (view.shape[0] == 0) {
      refuse(fmt::format("{}: {} holds no examples", column.name,
                         driver::type_text(view.dtype, view.shape)));
    }
    if (count(column) != count(columns_.front())) {
      refuse(fmt::format("{} holds {} examples, {} holds {}; each needs one for each example",
                         columns_.front().name, count(columns_.front()), column.name,
                         count(column)));
    }
  }

  std::vector<Column> columns_;
};

}  // namespace

Column open_column(const std::string& path, const std::string& member, const Feature& feature) {
  const std::string& name = member.empty() ? feature.name : member;
  if (path.ends_with(".npy")) {
    const auto file = std::make_shared<driver::NpyFile>(path);
    return {path, file, file->view(), [file] { file->check(); }};
  }
  if (path.ends_with(".npz")) {
    return memory_column(fmt::format("{}, array '{}'", path, name), driver::read_npz(path, name));
  }
  if (path.ends_with(".safetensors")) {
    return safetensors_column(path, name);
  }
  return raw_column(path, feature);
}

Column memory_column(std::string name, HostArray array) {
  const auto owner = std::make_shared<HostArray>(std::move(array));
  return {std::move(name), owner, HostView(*owner)};
}

std::shared_ptr<const Source> array_source(std::vector<Column> columns) {
  return std::make_shared<ArraySource>(std::move(columns));
}

}  // namespace tpu::input
