// tf.train.Example as other writers may have it: what protobuf allows on the wire.
#include "input/records/example.hpp"

#include <gtest/gtest.h>

#include <string>

#include "arrays.hpp"

namespace tpu::input {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string varint(uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) {
    text += static_cast<char>(value | 0x80);
  }
  return text + static_cast<char>(value);
}

// A field of bytes, or a message.
std::string field(uint32_t number, const std::string& content) {
  return varint(number << 3 | 2) + varint(content.size()) + content;
}

std::string number_field(uint32_t number, uint64_t value) {
  return varint(number << 3) + varint(value);
}

std::string float_bits(float value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

std::string entry(const std::string& name, const std::string& feature) {
  return field(1, field(1, name) + field(2, feature));
}

std::string example(const std::string& entries) { return field(1, entries); }

template <typename Number>
std::vector<Number> numbers_of(const std::string& record, const Feature& feature = {.name = "x"}) {
  ExampleParser parser({feature});
  std::vector<Value> values(1);
  parser.parse(bytes_of(record), values);
  return values_of<Number>(values[0].bytes);
}

std::string refusal(const std::string& record) {
  try {
    numbers_of<uint8_t>(record);
  } catch (const BadExample& error) {
    return error.what();
  }
  return "accepted";
}

TEST(InputExample, TakesListsInEveryFormOfTheWire) {
  const std::string packed = float_bits(1.5f) + float_bits(-2.0f);
  const std::string single = varint(1 << 3 | 5) + float_bits(3.0f);
  using Floats = std::vector<float>;
  EXPECT_EQ(numbers_of<float>(example(entry("x", field(2, field(1, packed))))),
            (Floats{1.5f, -2.0f}));
  EXPECT_EQ(numbers_of<float>(example(entry("x", field(2, single + single)))),
            (Floats{3.0f, 3.0f}));
  EXPECT_EQ(numbers_of<float>(example(entry("x", field(2, field(1, packed) + single)))),
            (Floats{1.5f, -2.0f, 3.0f}));
  EXPECT_EQ(numbers_of<float>(example(entry("x", field(2, field(1, packed) + field(1, packed))))),
            (Floats{1.5f, -2.0f, 1.5f, -2.0f}));
  using Integers = std::vector<int64_t>;
  const std::string integers = varint(5) + varint(~uint64_t{0}) + varint(uint64_t{1} << 40);
  EXPECT_EQ(numbers_of<int64_t>(example(entry("x", field(3, field(1, integers))))),
            (Integers{5, -1, int64_t{1} << 40}));
  EXPECT_EQ(numbers_of<int64_t>(example(entry(
                "x", field(3, number_field(1, 7) + field(1, integers) + number_field(1, 8))))),
            (Integers{7, 5, -1, int64_t{1} << 40, 8}));
  EXPECT_EQ(numbers_of<int64_t>(example(entry("x", field(3, "")))), Integers());
}

TEST(InputExample, TheLastCountsAndStrangersAreSkipped) {
  const std::string seven = field(3, number_field(1, 7));
  const std::string eight = field(3, number_field(1, 8));
  using Integers = std::vector<int64_t>;
  EXPECT_EQ(numbers_of<int64_t>(example(entry("x", seven) + entry("y", "") + entry("x", eight))),
            Integers{8});
  EXPECT_EQ(numbers_of<int64_t>(example(entry("x", field(1, field(1, "abc")) + eight))),
            Integers{8});
  const std::string value_first = field(1, field(2, seven) + field(1, "x"));
  const std::string strange =
      number_field(9, 300) + field(8, "any") + varint(7 << 3 | 1) + std::string(8, 'e');
  EXPECT_EQ(numbers_of<int64_t>(strange + example(strange + value_first) + strange), Integers{7});
  EXPECT_EQ(numbers_of<int64_t>(example(entry("z", seven)) + example(entry("x", seven))),
            Integers{7});
}

// What stands between the two tags of a group, which a later format may have.
std::string group(uint32_t number, const std::string& content) {
  return varint(number << 3 | 3) + content + varint(number << 3 | 4);
}

TEST(InputExample, UnknownGroupsAreSkipped) {
  const std::string seven = field(3, number_field(1, 7));
  using Integers = std::vector<int64_t>;
  const std::string strange =
      group(5, number_field(1, 9) + field(2, "any") + group(5, group(1, "")) + varint(7 << 3 | 1) +
                   std::string(8, 'e'));
  EXPECT_EQ(numbers_of<int64_t>(strange + example(strange + entry("x", strange + seven)) + strange),
            Integers{7});
  EXPECT_EQ(numbers_of<int64_t>(example(entry("x", field(3, strange + number_field(1, 7))))),
            Integers{7});
  // A known number in this form is another field.
  EXPECT_EQ(numbers_of<int64_t>(group(1, "") + example(entry("x", group(3, "") + seven))),
            Integers{7});
  const std::string none = "expected a tf.train.Example, found other data";
  const std::string whole = example(entry("x", seven));
  EXPECT_EQ(refusal(whole + varint(5 << 3 | 3)), none);                       // no end
  EXPECT_EQ(refusal(whole + varint(5 << 3 | 4)), none);                       // no start
  EXPECT_EQ(refusal(whole + varint(5 << 3 | 3) + varint(6 << 3 | 4)), none);  // another end
  EXPECT_EQ(refusal(whole + varint(5 << 3 | 3) + field(0, "") + varint(5 << 3 | 4)), none);
  std::string deep;
  for (int i = 0; i < 1000; ++i) {
    deep = group(5, deep);
  }
  EXPECT_EQ(refusal(whole + deep), none);
}

TEST(InputExample, RefusesWhatIsNoExample) {
  EXPECT_EQ(refusal(example(entry("y", "") + entry("z", ""))),
            "it has no feature 'x'; it has 'y', 'z'");
  EXPECT_EQ(refusal(""), "it has no feature 'x'; it has none");
  EXPECT_EQ(refusal(example(entry("x", ""))), "feature 'x': expected a list of values, found none");
  EXPECT_EQ(refusal(example(entry("x", field(1, field(1, "a") + field(1, "b"))))),
            "feature 'x': 2 strings of bytes; one is expected");
  EXPECT_EQ(refusal(example(entry("x", field(1, "")))),
            "feature 'x': 0 strings of bytes; one is expected");
  const std::string none = "expected a tf.train.Example, found other data";
  EXPECT_EQ(refusal("no example"), none);
  EXPECT_EQ(refusal(example(entry("x", field(2, field(1, "abc"))))), none);
  EXPECT_EQ(refusal(example(entry("x", field(3, field(1, "\xFF"))))), none);
  const std::string whole = example(entry("x", field(1, field(1, "abcdefgh"))));
  EXPECT_EQ(refusal(whole), "accepted");
  for (size_t size = 1; size < whole.size(); ++size) {
    EXPECT_EQ(refusal(whole.substr(0, size)), none) << size;
  }
}

}  // namespace
}  // namespace tpu::input
