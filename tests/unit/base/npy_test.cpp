// NumPy files: what NumPy writes is read, what we write reads back, anything else is a clear error.
#include "format/npy.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <random>
#include <string>

#include "file/files.hpp"
#include "format/digest.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

std::vector<std::byte> file(const std::string& header, size_t data_bytes, char major = 1) {
  std::string text = "\x93NUMPY";
  text += major;
  text += '\0';
  text += static_cast<char>(header.size() & 0xFF);
  text += static_cast<char>(header.size() >> 8);
  if (major > 1) {
    text += std::string(2, '\0');
  }
  text += header;
  for (size_t i = 0; i < data_bytes; ++i) {
    text += static_cast<char>(i + 1);
  }
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string refusal(const std::vector<std::byte>& bytes) {
  try {
    parse_npy(bytes, "x.npy");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.message();
  }
  return "accepted";
}

TEST(Npy, ReadsAllVersionsAndTypes) {
  struct Case {
    const char* descr;
    DType dtype;
  };
  for (const Case& c :
       {Case{"<f4", DType::kF32}, Case{"<V2", DType::kBf16}, Case{"|V2", DType::kBf16},
        Case{"<i4", DType::kI32}, Case{"<u4", DType::kU32}, Case{"|i1", DType::kI8},
        Case{"|u1", DType::kU8}, Case{"|b1", DType::kI1}, Case{"<i2", DType::kI16},
        Case{"<u2", DType::kU16}, Case{"<i8", DType::kI64}, Case{"<u8", DType::kU64},
        Case{"<c8", DType::kC64}}) {
    for (const char major : {char{1}, char{2}, char{3}}) {
      const auto bytes = file(std::string("{'descr': '") + c.descr +
                                  "', 'fortran_order': False, 'shape': (2, 3), }      \n",
                              6 * dtype_bytes(c.dtype), major);
      const HostArray array = parse_npy(bytes, "x.npy");
      EXPECT_EQ(array.dtype, c.dtype);
      EXPECT_EQ(array.shape, (Shape{2, 3}));
      EXPECT_EQ(array.bytes.front(), std::byte{1});
      EXPECT_EQ(array.bytes.size(), 6 * dtype_bytes(c.dtype));
    }
  }
}

TEST(Npy, ReadsScalarsVectorsAndEmptyArrays) {
  const auto shape_of = [](const std::string& shape, size_t bytes) {
    return parse_npy(
               file("{\"shape\": " + shape + ", \"fortran_order\": False, \"descr\": \"<f4\"}\n",
                    bytes),
               "x")
        .shape;
  };
  EXPECT_EQ(shape_of("()", 4), Shape{});
  EXPECT_EQ(shape_of("(5,)", 20), Shape{5});
  EXPECT_EQ(shape_of("(0, 7)", 0), (Shape{0, 7}));
}

TEST(Npy, WritesWhatItReads) {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{3}, Shape{2, 5, 1}, Shape(40, 1)}) {
    for (int type = 0; type <= static_cast<int>(DType::kF64); ++type) {
      HostArray array{static_cast<DType>(type), shape, {}};
      array.bytes.resize(element_count(shape) * dtype_bytes(array.dtype), std::byte{0x5A});
      const auto bytes = format_npy(array);
      const HostArray back = parse_npy(bytes, "x");
      EXPECT_EQ((bytes.size() - array.bytes.size()) % 64, 0u);
      EXPECT_EQ(back.dtype, array.dtype);
      EXPECT_EQ(back.shape, array.shape);
      EXPECT_EQ(back.bytes, array.bytes);
    }
  }
}

// Every shape and width, against the definition: element (i, j, k) of a file in Fortran order has
// the number i + shape[0] * (j + shape[1] * k).
TEST(Npy, TurnsFortranOrderAndBigEndianNumbers) {
  const std::vector<std::pair<std::string, DType>> types = {
      {"u1", DType::kU8}, {"u2", DType::kU16}, {"u4", DType::kU32}, {"u8", DType::kU64}};
  for (const Shape& shape : {Shape{}, Shape{3}, Shape{0, 4}, Shape{2, 3}, Shape{70, 45},
                             Shape{3, 1, 4}, Shape{5, 3, 2, 37}}) {
    for (const auto& [name, dtype] : types) {
      for (const bool big : {false, true}) {
        for (const bool fortran : {false, true}) {
          const size_t width = dtype_bytes(dtype);
          std::string dims;
          for (const int64_t d : shape) {
            dims += std::to_string(d) + ",";
          }
          auto bytes = file("{'descr': '" +
                                std::string(width == 1 ? "|"
                                            : big      ? ">"
                                                       : "<") +
                                name + "', 'fortran_order': " + (fortran ? "True" : "False") +
                                ", 'shape': (" + dims + "), }\n",
                            0);
          const auto count = static_cast<uint64_t>(element_count(shape));
          for (uint64_t at = 0; at < count; ++at) {  // the element's number in the file
            for (size_t b = 0; b < width; ++b) {
              bytes.push_back(static_cast<std::byte>(at >> (8 * (big ? width - 1 - b : b))));
            }
          }
          const HostArray array = parse_npy(bytes, "x.npy");
          ASSERT_EQ(array.bytes.size(), count * width);
          for (uint64_t at = 0; at < count; ++at) {
            uint64_t rest = at, wanted = 0, weight = count;
            for (size_t d = shape.size(); d-- > 0;) {  // last dimension fastest here
              const auto size = static_cast<uint64_t>(shape[d]);
              weight /= size;
              wanted += rest % size * weight;
              rest /= size;
            }
            uint64_t found = 0;
            std::memcpy(&found, array.bytes.data() + at * width, width);
            wanted = fortran ? wanted : at;
            ASSERT_EQ(found, width == 8 ? wanted : wanted & ((uint64_t{1} << (8 * width)) - 1))
                << dims << " " << name << " element " << at;
          }
        }
      }
    }
  }
}

// Real and imaginary part are turned each.
TEST(Npy, TurnsPartsOfComplexNumbers) {
  const HostArray array =
      parse_npy(file("{'descr': '>c8', 'fortran_order': True, 'shape': (1, 2), }\n", 16), "x.npy");
  std::vector<std::byte> wanted;
  for (const int value : {4, 3, 2, 1, 8, 7, 6, 5, 12, 11, 10, 9, 16, 15, 14, 13}) {
    wanted.push_back(static_cast<std::byte>(value));
  }
  EXPECT_EQ(array.dtype, DType::kC64);
  EXPECT_EQ(array.bytes, wanted);
}

// The file is mapped; what has to be turned is a copy that the object keeps.
TEST(Npy, TurnedArraysStayWithTheirFile) {
  const std::string path = testing::TempDir() + "fortran.npy";
  const auto bytes = file("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }\n", 6);
  write_file(path, bytes);
  const NpyFile mapped(path);
  const std::vector<std::byte> got(mapped.view().bytes.begin(), mapped.view().bytes.end());
  std::vector<std::byte> wanted;
  for (const int value : {1, 3, 5, 2, 4, 6}) {
    wanted.push_back(static_cast<std::byte>(value));
  }
  EXPECT_EQ(got, wanted);
  EXPECT_EQ(read_npy(path).bytes, wanted);
}

TEST(Npy, RefusesWithReasons) {
  const auto with = [](const std::string& descr, const std::string& order,
                       const std::string& shape) {
    return refusal(file(
        "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n",
        8));
  };
  EXPECT_NE(with("<f2", "False", "(1,)").find("'<f2' is not supported"), std::string::npos);
  EXPECT_NE(with("<f2", "False", "(1,)").find("supported are f4, f8, V2 (bf16)"),
            std::string::npos);
  EXPECT_NE(with("<c16", "False", "(1,)").find("c8 (complex64)"), std::string::npos);
  EXPECT_NE(with(">f2", "False", "(1,)").find("'>f2' is not supported"), std::string::npos);
  EXPECT_NE(with("<f4", "Maybe", "(2, 1)").find("fortran_order is 'Maybe'"), std::string::npos);
  EXPECT_NE(with("<f4", "False", "(3,)").find("needs 3 elements"), std::string::npos);
  EXPECT_NE(with("<f4", "False", "(1,)").find("holds 8 bytes"), std::string::npos);
  EXPECT_NE(with("<f4", "False", "(-2,)"), "accepted");
  EXPECT_NE(with("<f4", "False", "(4611686018427387904, 8)"), "accepted");
  EXPECT_NE(with("<f4", "False", "(99999999999999999999,)"), "accepted");
  EXPECT_NE(with("<f4", "False", "2"), "accepted");
  EXPECT_NE(refusal(std::vector<std::byte>{}).find("not a NumPy"), std::string::npos);
  EXPECT_NE(refusal(file("{'descr': '<f4'}", 0)).find("damaged"), std::string::npos);
  EXPECT_NE(refusal(file("{'x': 1}", 0)).find("unknown key"), std::string::npos);
  EXPECT_NE(refusal(file("{'descr': [('a', '<f4')], }", 0)).find("structured"), std::string::npos);
  EXPECT_NE(refusal(file("", 0, 9)).find("version 9"), std::string::npos);
  EXPECT_THROW(read_npy("/nowhere/a.npy"), Error);
  EXPECT_THROW(write_npy("/nowhere/a.npy", HostArray{}), Error);
}

// Shapes whose sizes do not fit into 64 bits, and lengths that are not those of the file.
TEST(Npy, SizesThatDoNotFitAreRefused) {
  const auto with = [](const std::string& descr, const std::string& shape) {
    return refusal(
        file("{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n", 8));
  };
  EXPECT_NE(with("<i8", "(4611686018427387904,)").find("does not fit into 64 bits"),
            std::string::npos);  // 2^62 elements of 8 bytes: 0 when it wraps around
  EXPECT_NE(with("<i8", "(2305843009213693953,)").find("does not fit"), std::string::npos);
  EXPECT_NE(with("<f4", "(4294967296, 4294967296)").find("2^62"), std::string::npos);
  EXPECT_NE(with("<f4", "(-2,)").find("negative size -2"), std::string::npos);
  EXPECT_NE(with("<f4", "(9223372036854775808,)").find("invalid dimension"), std::string::npos);
  for (const char major : {char{1}, char{2}}) {
    auto bytes = file("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", 8, major);
    for (size_t at = 8; at < (major == 1 ? 10u : 12u); ++at) {
      bytes[at] = std::byte{0xFF};
    }
    EXPECT_EQ(refusal(bytes), "x.npy: truncated header");
  }
}

// Headers put together at random from the words that a reader looks for.
TEST(Npy, SurvivesRandomHeaders) {
  constexpr unsigned kSeed = 5;
  std::mt19937 random(kSeed);
  const std::string start = "{'descr': '<i8', 'fortran_order': False, 'shape': (";
  const std::vector<std::string> words = {"'descr'",
                                          "'shape'",
                                          "'fortran_order'",
                                          ":",
                                          ",",
                                          "(",
                                          ")",
                                          "{",
                                          "}",
                                          "'<f4'",
                                          "'<i8'",
                                          "False",
                                          "True",
                                          "0",
                                          "1",
                                          "-",
                                          "4611686018427387904",
                                          "18446744073709551615",
                                          " ",
                                          "'",
                                          "\""};
  for (int i = 0; i < 20000; ++i) {
    std::string header = random() % 2 == 0 ? start : "";
    for (auto n = random() % 12; n > 0; --n) {
      header += words[random() % words.size()];
    }
    try {
      const HostArray read = parse_npy(file(header + (random() % 2 == 0 ? "), }" : ""), 8), "x");
      EXPECT_EQ(read.bytes.size(), 8u);
    } catch (const Error&) {
    }
  }
}

TEST(Npy, SurvivesMutations) {
  constexpr unsigned kSeed = 3;
  std::mt19937 random(kSeed);
  HostArray array{DType::kF32, {4, 4}, std::vector<std::byte>(64)};
  const auto good = format_npy(array);
  for (int i = 0; i < 20000; ++i) {
    auto bytes = good;
    for (unsigned n = random() % 4 + 1; n > 0; --n) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    bytes.resize(random() % 3 == 0 ? random() % (bytes.size() + 1) : bytes.size());
    try {
      const HostArray read = parse_npy(bytes, "x");
      EXPECT_EQ(read.bytes.size(), element_count(read.shape) * dtype_bytes(read.dtype));
    } catch (const Error&) {
    }
  }
}

TEST(Npy, ZerosNeedNotBeInMemory) {
  const std::string path = "npy_zeros.npy";
  for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{70000, 3}}) {
    const HostArray zeros{DType::kI16, shape,
                          std::vector<std::byte>(byte_count(DType::kI16, shape))};
    const std::string header = npy_header(DType::kI16, shape);
    FileWriter file(path);
    file.add(std::as_bytes(std::span(header)));
    file.add_zeros(zeros.bytes.size());
    file.finish();
    EXPECT_EQ(read_file(path), format_npy(zeros));
    write_npy(path, zeros);
    EXPECT_EQ(read_file(path), format_npy(zeros));
    Digest whole, made;
    whole.add(zeros);
    made.begin(DType::kI16, shape);
    made.add_zeros(zeros.bytes.size());
    EXPECT_EQ(whole.finish(), made.finish());
  }
  std::filesystem::remove(path);
}

TEST(Digest, IsThatOfTheDocumentedBytes) {
  // printf 'f32\0' + u64 1 + u64 2 + 8 bytes 0..7, through sha256sum.
  HostArray array{DType::kF32, {2}, {}};
  for (int i = 0; i < 8; ++i) {
    array.bytes.push_back(static_cast<std::byte>(i));
  }
  Digest digest;
  digest.add(array);
  EXPECT_EQ(digest.finish(), "e35143c4095be4ac3f4f7ffde0931b2bb905a235f4946f2fd995c6517267776b");
  Digest other;
  array.shape = {1, 2};
  other.add(array);
  EXPECT_NE(other.finish(), "e35143c4095be4ac3f4f7ffde0931b2bb905a235f4946f2fd995c6517267776b");
}

// Documented bytes again: of a large array a byte for each piece of zeros, other pieces behind a 1.
TEST(Digest, ZerosOfLargeArraysAreCounted) {
  constexpr uint64_t kOdd = 7;  // bytes of the last piece
  constexpr uint64_t kBytes = Digest::kLargeBytes + kOdd;
  constexpr uint64_t kPieces = Digest::kLargeBytes / Digest::kPieceBytes;
  const Shape shape = {static_cast<int64_t>(kBytes)};
  const std::byte one{1};
  // Only the byte `at` is no zero; what comes at once ends at the places `cuts`.
  const auto of = [&](Digest::Zeros zeros, uint64_t at, const std::vector<uint64_t>& cuts = {}) {
    Digest digest(zeros);
    digest.begin(DType::kU8, shape);
    uint64_t done = 0;
    const auto zeros_to = [&](uint64_t end) {
      digest.add_zeros(end - done);
      done = end;
    };
    for (const uint64_t cut : cuts) {
      zeros_to(cut);
    }
    zeros_to(at);
    digest.add_bytes(std::span(&one, 1));
    ++done;
    zeros_to(kBytes);
    return digest.finish();
  };
  Digest documented;
  documented.begin(DType::kU8, shape);
  documented.add_zeros(2);
  documented.add_bytes(std::span(&one, 1));
  std::vector<std::byte> piece(Digest::kPieceBytes);
  piece[5] = one;
  documented.add_bytes(piece);
  documented.add_zeros(kPieces - 3 + 1);
  const std::string expected = documented.finish();
  constexpr uint64_t kAt = 2 * Digest::kPieceBytes + 5;
  EXPECT_EQ(of(Digest::Zeros::kCounted, kAt), expected);
  EXPECT_EQ(of(Digest::Zeros::kCounted, kAt, {1, 3, Digest::kPieceBytes + 1}), expected);
  EXPECT_NE(of(Digest::Zeros::kCounted, kAt + 1), expected);
  EXPECT_NE(of(Digest::Zeros::kCounted, kBytes - 1), of(Digest::Zeros::kCounted, kBytes - 2));
  // Below that nothing is counted, and what follows a large array begins anew.
  std::vector<std::string> small;
  for (const auto zeros : {Digest::Zeros::kCounted, Digest::Zeros::kHashed}) {
    Digest digest(zeros);
    digest.begin(DType::kU8, {1 << 20});
    digest.add_zeros(1 << 20);
    small.push_back(digest.finish());
  }
  EXPECT_EQ(small[0], small[1]);
}

}  // namespace
}  // namespace tpu::driver
