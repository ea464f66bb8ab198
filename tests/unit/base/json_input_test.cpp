// Errors in JSON of others name the member, what was expected and what was found.
#include "format/json_input.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace tpu::driver {
namespace {

std::string error_of(const std::string& text, const std::function<void(const JsonInput&)>& read) {
  try {
    const nlohmann::ordered_json json = JsonInput::parse(text);
    read(JsonInput(json));
  } catch (const JsonInputError& error) {
    return error.what();
  }
  return "none";
}

const auto kNothing = [](const JsonInput&) {};

TEST(JsonInput, ReadsMembersInOrder) {
  const nlohmann::ordered_json json = JsonInput::parse(
      R"({"b": [1, -2, 18446744073709551615], "a": {"y": 0.5, "x": "text"}, "n": null})");
  const JsonInput input(json);
  const auto numbers = input.at("b").elements();
  ASSERT_EQ(numbers.size(), 3U);
  EXPECT_EQ(numbers[0].as<double>(), 1);
  EXPECT_EQ(numbers[1].as<int64_t>(), -2);
  EXPECT_EQ(numbers[2].as<uint64_t>(), UINT64_MAX);
  const auto members = input.at("a").members();
  ASSERT_EQ(members.size(), 2U);
  EXPECT_EQ(members[0].first, "y");
  EXPECT_EQ(members[1].second.as<std::string>(), "text");
  EXPECT_TRUE(input.at("n").is_null());
  EXPECT_TRUE(input.at("n").there());
  EXPECT_FALSE(input.at("m").there());
}

TEST(JsonInput, ErrorsNameTheMember) {
  const std::string text = R"({"cores": [{"chip": 1}, {"chip": "one"}], "big": 4294967296})";
  EXPECT_EQ(
      error_of(text,
               [](const JsonInput& in) { in.at("cores").elements()[1].at("chip").as<int>(); }),
      "cores[1].chip: expected an integer, found \"one\"");
  EXPECT_EQ(
      error_of(text,
               [](const JsonInput& in) { in.at("cores").elements()[0].at("x").as<double>(); }),
      "cores[0].x: expected a number, found no such member");
  EXPECT_EQ(error_of(text, [](const JsonInput& in) { in.at("cores").at("chip"); }),
            "cores: expected an object, found an array");
  EXPECT_EQ(error_of(text, [](const JsonInput& in) { in.at("none").elements(); }),
            "none: expected an array, found no such member");
  EXPECT_EQ(error_of(text, [](const JsonInput& in) { in.at("big").as<int32_t>(); }),
            "big: expected an integer, found 4294967296");
  EXPECT_EQ(error_of("-1", [](const JsonInput& in) { in.as<uint32_t>(); }),
            "expected an integer of at least 0, found -1");
  EXPECT_EQ(error_of("{}", [](const JsonInput& in) { in.as<std::string>(); }),
            "expected a string, found an object");
}

TEST(JsonInput, TextThatIsNotJson) {
  EXPECT_EQ(error_of("{\"a\": 1", kNothing),
            "expected JSON, found the end of the text after 7 bytes");
  EXPECT_EQ(error_of("{\"a\": x}", kNothing), "expected JSON, found a syntax error at byte 7 of 8");
  EXPECT_EQ(error_of("1e999", kNothing),
            "expected JSON, found a number that is too large for 64-bit floating point");
}

}  // namespace
}  // namespace tpu::driver
