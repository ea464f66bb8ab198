// Damaged safetensors files under sanitizers: each is refused with an error that names the file, or
// every byte of its data belongs to one tensor.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "file/whole_file.hpp"
#include "format/safetensors.hpp"
#include "tests/fuzz/amount.hpp"

namespace tpu::spec {
namespace {

constexpr int kMutations = 10'000;
constexpr uint32_t kSeed = 20240612;
constexpr size_t kLengthBytes = 8;

std::string sample() {
  Safetensors file;
  file.metadata = {{"format", "np"}, {"step", "12"}};
  file.tensors = {{.name = "kernel", .dtype = "F32", .shape = {2, 3}},
                  {.name = "bias", .dtype = "BF16", .shape = {3}},
                  {.name = "mask", .dtype = "BOOL", .shape = {5}},
                  {.name = "count", .dtype = "I64", .shape = {}},
                  {.name = "empty", .dtype = "U8", .shape = {0, 4}}};
  return layout_safetensors(file, "sample") + std::string(8 + 24 + 6 + 5, 'x');
}

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

  // One change in the header, whose length is made right again in most cases.
  void change(std::string& file) {
    static const std::vector<std::string> kWords = {"0",
                                                    "-1",
                                                    "18446744073709551615",
                                                    "18446744073709551616",
                                                    "1e300",
                                                    "\"\"",
                                                    "null",
                                                    "{",
                                                    "}",
                                                    "[",
                                                    "]",
                                                    "\\ud800",
                                                    "\"F32\"",
                                                    ",",
                                                    ":",
                                                    " ",
                                                    "[[",
                                                    "24",
                                                    "9223372036854775807"};
    const size_t at = kLengthBytes + below(header_bytes(file));
    const size_t before = file.size();
    switch (below(5)) {
      case 0:
        file[at] = static_cast<char>(below(256));
        break;
      case 1:
        file.insert(at, kWords[below(kWords.size())]);
        break;
      case 2:
        file.replace(at, 1 + below(4), kWords[below(kWords.size())]);
        break;
      case 3:
        file.insert(at, file.substr(at, below(60)));
        break;
      default:
        file.resize(below(2) == 0 ? below(file.size()) : file.size() + below(20));
        return;
    }
    if (below(8) != 0) {
      set_header_bytes(file, header_bytes(file) + file.size() - before);
    }
  }

 private:
  static uint64_t header_bytes(const std::string& file) {
    uint64_t length = 0;
    std::memcpy(&length, file.data(), kLengthBytes);
    return length;
  }
  static void set_header_bytes(std::string& file, uint64_t length) {
    std::memcpy(file.data(), &length, kLengthBytes);
  }

  std::mt19937 random_;
};

// True when it was read.
bool use(const std::string& file) {
  try {
    const Safetensors read = parse_safetensors(std::as_bytes(std::span(file)), "damaged");
    uint64_t end = read.tensors.empty() ? file.size() : read.tensors.front().begin;
    for (const Tensor& tensor : read.tensors) {
      EXPECT_EQ(tensor.begin, end) << tensor.name;
      end += tensor.bytes;
    }
    EXPECT_EQ(end, file.size());
    return true;
  } catch (const FileError& error) {
    EXPECT_EQ(std::string(error.what()).find("damaged: "), 0u) << error.what();
    return false;
  }
}

TEST(SafetensorsFuzz, DamagedFilesAreRefusedOrReadWhole) {
  const uint32_t seed = test::fuzz_seed(kSeed);
  const std::string good = sample();
  ASSERT_TRUE(use(good));
  Mutator mutator(seed);
  int read = 0;
  const int mutations = test::fuzz_inputs(kMutations);
  for (int i = 0; i < mutations; ++i) {
    SCOPED_TRACE("mutation " + std::to_string(i) + " of seed " + std::to_string(seed));
    std::string damaged = good;
    mutator.change(damaged);
    read += use(damaged) ? 1 : 0;
  }
  std::printf("read: %d of %d\n", read, mutations);
  EXPECT_GT(read, mutations / 100);
  EXPECT_LT(read, mutations / 2);
}

}  // namespace
}  // namespace tpu::spec
