// Weights of a safetensors file as state leaves: by a map, by names, rounded, and what does not
// fit.
#include "checkpoint/weights.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/tensors.hpp"
#include "format/safetensors.hpp"
#include "tpu/error.hpp"

namespace tpu::training {
namespace {

namespace fs = std::filesystem;
using driver::DType;
using driver::Error;
using driver::HostArray;
using driver::HostView;
using driver::ParameterInfo;
using ::testing::HasSubstr;

template <typename Number>
std::vector<Number> numbers_of(const HostArray& array) {
  std::vector<Number> out(array.bytes.size() / sizeof(Number));
  std::memcpy(out.data(), array.bytes.data(), array.bytes.size());
  return out;
}

class Weights : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() /
              (std::string("tpu_weights_") +
               ::testing::UnitTest::GetInstance()->current_test_info()->name() +
               std::to_string(getpid()));
    fs::create_directories(folder_);
    const auto f32 = [](const std::vector<float>& values, driver::Shape shape) {
      return HostView(DType::kF32, std::move(shape), std::as_bytes(std::span(values)));
    };
    const std::vector<float> kernel = {1, 2, 3, 4, 5, 6};
    const std::vector<float> bias = {0.1f, -1.0f / 3.0f};
    const std::vector<int32_t> count = {7};
    write_tensors(file(),
                  {{"net.kernel", f32(kernel, {3, 2})},
                   {"net.bias", f32(bias, {2})},
                   {"state.2", HostView(DType::kI32, {}, std::as_bytes(std::span(count)))},
                   {"b", f32(bias, {2})}},
                  {});
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string file() const { return (folder_ / "w.safetensors").string(); }
  std::string map(const std::string& text) const {
    std::ofstream(folder_ / "map.toml") << text;
    return (folder_ / "map.toml").string();
  }

  static std::vector<ParameterInfo> leaves() {
    std::vector<ParameterInfo> out(4);
    out[0].name = "w";
    out[0].shape = {3, 2};
    out[1].name = "b";
    out[1].dtype = DType::kBf16;
    out[1].shape = {2};
    out[2].dtype = DType::kI32;
    out[3].shape = {5};
    return out;
  }

  std::string refusal(const std::string& text) const {
    try {
      load_weights(file(), text.empty() ? "" : map(text), leaves());
    } catch (const Error& error) {
      return error.message();
    }
    return "accepted";
  }

  fs::path folder_;
};

TEST_F(Weights, AMapSaysWhichTensorGoesWhere) {
  const auto values =
      load_weights(file(), map("\"net.kernel\" = 0\n\"net.bias\" = \"b\"\n"), leaves());
  ASSERT_EQ(values.size(), 2u);
  EXPECT_EQ(numbers_of<float>(values.at(0)), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(values.at(1).dtype, DType::kBf16);
  EXPECT_EQ(numbers_of<uint16_t>(values.at(1)), (std::vector<uint16_t>{0x3DCD, 0xBEAB}));
}

TEST_F(Weights, WithoutAMapNamesTell) {
  const auto values = load_weights(file(), "", leaves());
  ASSERT_EQ(values.size(), 2u);
  EXPECT_EQ(values.at(1).dtype, DType::kBf16);
  EXPECT_EQ(numbers_of<int32_t>(values.at(2)), (std::vector<int32_t>{7}));
}

TEST_F(Weights, NarrowFloatsAreWidened) {
  spec::Safetensors narrow;
  narrow.tensors = {{.name = "half", .dtype = "F16", .shape = {9}},
                    {.name = "brain", .dtype = "BF16", .shape = {1}}};
  const std::string header = spec::layout_safetensors(narrow, file());
  // 1, -2.5, 2^-24, the largest subnormal and the largest number, -0, infinities, a NaN; 1.5
  const std::vector<uint16_t> bits = {0x3C00, 0xC100, 0x0001, 0x03FF, 0x7BFF,
                                      0x8000, 0x7C00, 0xFC00, 0xFD01, 0x3FC0};
  std::ofstream out(file(), std::ios::binary);
  out << header;
  out.write(reinterpret_cast<const char*>(bits.data()),
            static_cast<std::streamsize>(bits.size() * sizeof(bits[0])));
  out.close();
  std::vector<ParameterInfo> infos(2);
  infos[0].shape = {9};
  infos[1].shape = {1};
  const auto values = load_weights(file(), map("half = 0\nbrain = 1"), infos);
  EXPECT_EQ(numbers_of<uint32_t>(values.at(0)),
            (std::vector<uint32_t>{0x3F800000, 0xC0200000, 0x33800000, 0x387FC000, 0x477FE000,
                                   0x80000000, 0x7F800000, 0xFF800000, 0xFFE02000}));
  EXPECT_EQ(numbers_of<float>(values.at(1)), (std::vector<float>{1.5f}));
  infos[1].dtype = DType::kI16;
  EXPECT_THROW(load_weights(file(), map("brain = 1"), infos), Error);
}

TEST_F(Weights, WhatDoesNotFitIsNamed) {
  EXPECT_THAT(refusal("\"net.kernel\" = 1"),
              HasSubstr("tensor \"net.kernel\" is F32 [3,2], but state leaf 1 is bf16[2]"));
  EXPECT_THAT(refusal("\"net.bias\" = 2"), HasSubstr("is F32 [2], but state leaf 2 is i32[]"));
  EXPECT_THAT(refusal("\n\"net.kernel\" = 4"),
              HasSubstr("map.toml:2: no state leaf 4: the program has 4 leaves, numbered from 0"));
  EXPECT_THAT(refusal("\"net.kernel\" = -1"), HasSubstr("no state leaf -1"));
  EXPECT_THAT(refusal("\"net.kernel\" = \"x\""),
              HasSubstr("no state leaf of the program is called \"x\""));
  EXPECT_THAT(refusal("\"net.kernel\" = 1.5"), HasSubstr("the number or the name of a state leaf"));
  EXPECT_THAT(refusal("\"net.weight\" = 0"), HasSubstr("has no tensor \"net.weight\"; it has \""));
  EXPECT_THAT(refusal("net.kernel = 0"), HasSubstr("has no tensor \"net\""));
  EXPECT_THAT(refusal("\"net.bias\" = 1\nb = 1"), HasSubstr("both go to state leaf 1"));
  EXPECT_THAT(refusal("= 1"), HasSubstr("map.toml:1: "));
  EXPECT_THAT(refusal("# nothing"), HasSubstr("no tensor goes to a state leaf by "));
  std::vector<ParameterInfo> other(1);
  EXPECT_THROW(load_weights(file(), "", other), Error);
}

}  // namespace
}  // namespace tpu::training
