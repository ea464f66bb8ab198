// safetensors headers: what is written reads back, and everything that does not fit is refused with
// the tensor's name.
#include "format/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "file/whole_file.hpp"

namespace tpu::spec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file of `data` bytes behind `header`.
std::string file_of(const std::string& header, size_t data = 0) {
  std::string out;
  for (size_t i = 0; i < 8; ++i) {
    out += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  }
  return out + header + std::string(data, 'x');
}

Safetensors parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "w.safetensors");
}

std::string refusal(const std::string& file) {
  try {
    parse(file);
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), HasSubstr("w.safetensors: "));
    return error.what();
  }
  return "accepted";
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":[)" + shape +
         R"(],"data_offsets":[)" + offsets + "]}";
}

TEST(Safetensors, AFileReadsAsTheFormatSays) {
  const Safetensors file =
      parse(file_of("{\"__metadata__\":{\"format\":\"pt\"}," + entry("b", "BF16", "2,3", "4,16") +
                        "," + entry("a", "F32", "", "0,4") + "," +
                        entry("none", "I64", "0,9223372036854775807", "16,16") + "}  ",
                    16));
  ASSERT_EQ(file.tensors.size(), 3u);
  EXPECT_EQ(file.tensors[0].name, "a");
  EXPECT_TRUE(file.tensors[0].shape.empty());
  EXPECT_EQ(file.tensors[0].bytes, 4u);
  EXPECT_EQ(file.tensors[1].name, "b");
  EXPECT_EQ(file.tensors[1].dtype, "BF16");
  EXPECT_THAT(file.tensors[1].shape, ElementsAre(2, 3));
  EXPECT_EQ(file.tensors[1].begin, file.tensors[0].begin + 4);
  EXPECT_EQ(file.tensors[2].bytes, 0u);
  EXPECT_EQ(file.metadata.at("format"), "pt");
  EXPECT_TRUE(parse(file_of("{}")).tensors.empty());
}

TEST(Safetensors, WhatIsWrittenReadsBackAligned) {
  Safetensors file;
  file.metadata = {{"step", "12"}, {"text", "\"quoted\"\n"}};
  file.tensors = {{.name = "byte", .dtype = "U8", .shape = {3}},
                  {.name = "half", .dtype = "BF16", .shape = {5, 1}},
                  {.name = "wide/\xc3\xa4", .dtype = "I64", .shape = {}},
                  {.name = "empty", .dtype = "F32", .shape = {7, 0}},
                  {.name = "word", .dtype = "F32", .shape = {1}}};
  std::string text = layout_safetensors(file, "out");
  EXPECT_EQ(text.size() % 8, 0u);
  const Safetensors back = parse(text + std::string(8 + 4 + 10 + 3, 'x'));
  EXPECT_EQ(back.metadata, file.metadata);
  ASSERT_EQ(back.tensors.size(), file.tensors.size());
  for (size_t i = 0; i < back.tensors.size(); ++i) {
    const Tensor& tensor = back.tensors[i];
    EXPECT_EQ(tensor.name, file.tensors[i].name);
    EXPECT_EQ(tensor.dtype, file.tensors[i].dtype);
    EXPECT_EQ(tensor.shape, file.tensors[i].shape);
    EXPECT_EQ(tensor.begin, file.tensors[i].begin);
    EXPECT_EQ(tensor.begin % safetensors_element_bytes(tensor.dtype), 0u) << tensor.name;
  }
}

TEST(Safetensors, WhatCannotBeWrittenIsRefused) {
  const auto refused = [](std::vector<Tensor> tensors) -> std::string {
    Safetensors file{.tensors = std::move(tensors), .metadata = {}};
    try {
      layout_safetensors(file, "out");
    } catch (const FileError& error) {
      return error.what();
    }
    return "accepted";
  };
  const Tensor good{.name = "a", .dtype = "F32", .shape = {1}};
  EXPECT_THAT(refused({good, good}), HasSubstr("out: tensor \"a\": this name is taken"));
  EXPECT_THAT(refused({{.name = "__metadata__", .dtype = "F32", .shape = {}}}), HasSubstr("taken"));
  EXPECT_THAT(refused({{.name = "b", .dtype = "F31", .shape = {}}}),
              HasSubstr("tensor \"b\": unknown element type \"F31\""));
  EXPECT_THAT(refused({{.name = "c", .dtype = "F32", .shape = {-1, 0}}}),
              HasSubstr("tensor \"c\": shape [-1, 0] does not fit memory"));
  EXPECT_THAT(refused({{.name = "\xff", .dtype = "F32", .shape = {}}}),
              HasSubstr("expected UTF-8"));
}

TEST(Safetensors, ABrokenHeaderIsRefused) {
  EXPECT_THAT(refusal("short"), HasSubstr("expected a header, found a file of 5 bytes"));
  EXPECT_THAT(refusal(std::string(8, '\xff')),
              HasSubstr("give a header of 18446744073709551615 bytes"));
  EXPECT_THAT(refusal(file_of("{}").substr(0, 9)), HasSubstr("its header of 2 bytes is truncated"));
  EXPECT_THAT(refusal(file_of("")), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(refusal(file_of("[1]")), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(refusal(file_of("{\"a\"")), HasSubstr("parse error"));
  EXPECT_THAT(refusal(file_of("{\"\xff\":{}}")), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal(file_of("{\"a\":" + std::string(100'000, '['))), HasSubstr("nested deeper"));
  EXPECT_THAT(refusal(file_of(R"({"__metadata__":{"a":1}})")), HasSubstr("\"a\" in __metadata__"));
  EXPECT_THAT(refusal(file_of(R"({"__metadata__":"a"})")), HasSubstr("must map texts to texts"));
}

TEST(Safetensors, ATensorThatDoesNotFitIsRefusedByName) {
  const auto tensor = [](const std::string& dtype, const std::string& shape,
                         const std::string& offsets, size_t data = 4) {
    return refusal(file_of("{" + entry("w", dtype, shape, offsets) + "}", data));
  };
  EXPECT_EQ(tensor("F32", "1", "0,4"), "accepted");
  EXPECT_THAT(tensor("F33", "1", "0,4"), HasSubstr("tensor \"w\": unknown element type \"F33\""));
  EXPECT_THAT(tensor("F32", "-1", "0,4"), HasSubstr("tensor \"w\": shape must be"));
  EXPECT_THAT(tensor("F32", "1.5", "0,4"), HasSubstr("shape must be"));
  EXPECT_THAT(tensor("F32", "9223372036854775808", "0,4"), HasSubstr("shape must be"));
  EXPECT_THAT(tensor("F32", "4294967296,4294967296", "0,4"), HasSubstr("does not fit memory"));
  EXPECT_THAT(tensor("F32", "2", "0,4"), HasSubstr("F32 [2] takes 8 bytes, data_offsets [0, 4]"));
  EXPECT_THAT(tensor("F32", "1", "4,0"), HasSubstr("data_offsets must be"));
  EXPECT_THAT(tensor("F32", "1", "0,4,8"), HasSubstr("data_offsets must be"));
  EXPECT_THAT(tensor("F32", "1", "0,18446744073709551616"), HasSubstr("data_offsets must be"));
  EXPECT_THAT(tensor("F32", "1", "18446744073709551611,18446744073709551615"),
              HasSubstr("lie outside of the 4 that the file holds"));
  EXPECT_THAT(tensor("F32", "1", "0,4", 3),
              HasSubstr("tensor \"w\": its bytes 0 to 4 lie outside"));
  EXPECT_THAT(tensor("F32", "1", "0,4", 5), HasSubstr("1 bytes behind the last tensor's"));
  EXPECT_THAT(tensor("F32", "1", "2,6", 6),
              HasSubstr("tensor \"w\": its bytes begin at 2; a hole"));
  EXPECT_THAT(refusal(file_of(R"({"w":{"dtype":"F32","shape":[]}})", 4)),
              HasSubstr("must hold dtype, shape and data_offsets"));
  EXPECT_THAT(refusal(file_of(R"({"w":7})", 4)), HasSubstr("tensor \"w\": its entry must"));
  const std::string two = entry("v", "F32", "1", "0,4") + ",";
  EXPECT_THAT(refusal(file_of("{" + two + entry("w", "F32", "1", "2,6") + "}", 8)),
              HasSubstr("tensor \"w\": its bytes begin at 2; those before it end at 4"));
  EXPECT_THAT(refusal(file_of("{" + two + entry("v", "F32", "1", "4,8") + "}", 8)),
              HasSubstr("\"v\" comes twice"));
  EXPECT_THAT(refusal(file_of(R"({"w":{"dtype":"F32","dtype":"F32","shape":[1]}})", 4)),
              HasSubstr("\"dtype\" comes twice"));
}

TEST(Safetensors, AHeaderOfManyNamesIsReadInTime) {
  std::string header = "{";
  for (int i = 0; i < 300'000; ++i) {
    header += "\"" + std::to_string(i) + "\":0,";
  }
  header.back() = '}';
  EXPECT_THAT(refusal(file_of(header)), HasSubstr("its entry must"));
}

}  // namespace
}  // namespace tpu::spec
