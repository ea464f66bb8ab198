// Small arrays, folders and errors for the tests of the input.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "input/array_source.hpp"
#include "tpu/error.hpp"

namespace tpu::input {

template <typename Number>
driver::HostArray array_of(DType type, const Shape& shape, const std::vector<Number>& values) {
  driver::HostArray array{type, shape, {}};
  const auto bytes = std::as_bytes(std::span(values));
  array.bytes.assign(bytes.begin(), bytes.end());
  EXPECT_EQ(array.bytes.size(), driver::byte_count(type, shape));
  return array;
}

template <typename Number>
std::vector<Number> values_of(std::span<const std::byte> bytes) {
  std::vector<Number> values(bytes.size() / sizeof(Number));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// `count` examples of one i32, example i holds i.
inline std::shared_ptr<const Source> counting_source(int32_t count) {
  std::vector<int32_t> values;
  for (int32_t i = 0; i < count; ++i) {
    values.push_back(i);
  }
  return array_source({memory_column("numbers", array_of(DType::kI32, {count}, values))});
}

// The text of the driver::Error that `call` throws; empty: it throws none.
inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const driver::Error& error) {
    return error.message();
  }
  return {};
}

// A folder that goes away.
class ScratchFolder {
 public:
  ScratchFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("tpu_input_" + std::to_string(::getpid()) + "_" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(path_);
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace tpu::input
