// Damaged TFRecord files, compressed files, messages and .npz archives under sanitizers: each is
// read, or refused with an error of its own; a record whose bytes differ is never read.
#include <gtest/gtest.h>
#include <unistd.h>
#include <zip.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <span>
#include <string>

#include "file/files.hpp"
#include "format/npy.hpp"
#include "format/npz.hpp"
#include "input/records/compression.hpp"
#include "input/records/example.hpp"
#include "input/records/record_file.hpp"
#include "input/records/record_format.hpp"
#include "tests/fuzz/amount.hpp"
#include "tpu/error.hpp"

namespace tpu::input {
namespace {

using Bytes = std::vector<std::byte>;

uint32_t fuzz_seed() { return test::fuzz_seed(20261123); }

class InputFuzz : public ::testing::Test {
 protected:
  void SetUp() override { std::printf("TPU_FUZZ_SEED=%u\n", fuzz_seed()); }

  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

  // Other bytes, fewer, or some twice; never as they were.
  Bytes damaged(const Bytes& good) {
    Bytes bad = good;
    while (bad == good) {
      for (size_t n = 1 + below(3); n > 0; --n) {
        const size_t at = below(bad.size());
        switch (below(5)) {
          case 0:
            bad.resize(std::max<size_t>(1, at));
            break;
          case 1: {
            const Bytes part(bad.begin() + static_cast<ptrdiff_t>(at),
                             bad.begin() + static_cast<ptrdiff_t>(std::min(bad.size(), at + 16)));
            bad.insert(bad.begin() + static_cast<ptrdiff_t>(at), part.begin(), part.end());
            break;
          }
          case 2:
            std::memset(bad.data() + at, below(2) == 0 ? 0 : 0xFF,
                        std::min<size_t>(8, bad.size() - at));
            break;
          default:
            bad[at] = static_cast<std::byte>(below(256));
        }
      }
    }
    return bad;
  }

  std::mt19937 random_{fuzz_seed()};
};

std::span<const std::byte> raw(const std::string& text) { return std::as_bytes(std::span(text)); }

Bytes example(const std::string& image) {
  const std::vector<int64_t> labels = {1, -2, 300000};
  const std::vector<float> weights = {0.5f, 2.0f};
  const std::vector<NamedValue> values = {
      {"image", {DType::kU8, raw(image)}},
      {"label", {DType::kI64, std::as_bytes(std::span(labels))}},
      {"weight", {DType::kF32, std::as_bytes(std::span(weights))}}};
  return format_example(values);
}

std::vector<Bytes> good_records() {
  return {example("abcdef"), {}, example(std::string(700, 'x')), example("")};
}

Bytes good_file() {
  Bytes file;
  for (const Bytes& record : good_records()) {
    append_record(file, record);
  }
  return file;
}

// True when nothing was refused.
bool passes(const std::function<void()>& call) {
  try {
    call();
    return true;
  } catch (const driver::Error&) {
    return false;
  } catch (const BadExample&) {
    return false;
  }
}

TEST_F(InputFuzz, RecordsAreWholeOrRefused) {
  const Bytes good = good_file();
  const std::vector<Bytes> records = good_records();
  RecordBuffer buffer;
  const int inputs = test::fuzz_inputs(20000);
  for (int i = 0; i < inputs; ++i) {
    const Bytes bad = damaged(good);
    passes([&] {
      const RecordFile file("damaged", bad);
      for (uint64_t n = 0; n < file.records(); ++n) {
        const auto record = file.read(n, nullptr, buffer);
        const Bytes copy(record.begin(), record.end());
        ASSERT_NE(std::find(records.begin(), records.end(), copy), records.end())
            << "case " << i << ": record " << n << " has bytes that nobody wrote";
      }
    });
  }
}

TEST_F(InputFuzz, PackedFilesAreReadOrRefused) {
  const int inputs = test::fuzz_inputs(4000);
  for (const Compression compression : {Compression::kGzip, Compression::kZlib}) {
    Packer packer(compression);
    const auto packed = packer.add(good_file(), true);
    const Bytes good(packed.begin(), packed.end());
    for (int i = 0; i < inputs / 2; ++i) {
      const Bytes bad = damaged(good);
      passes([&] {
        bool given = false;
        RecordFile file("damaged", unpack(
                                       [&] {
                                         const auto piece = std::span<const std::byte>(bad).first(
                                             given ? 0 : bad.size());
                                         given = true;
                                         return piece;
                                       },
                                       "damaged"));
        ASSERT_LE(file.records(), 8u);
      });
    }
  }
}

TEST_F(InputFuzz, ExamplesAreParsedOrRefused) {
  const Bytes good = example("abcdef");
  ExampleParser parser({{.name = "label", .type = DType::kI32, .shape = {3}},
                        {.name = "image", .type = DType::kU8, .shape = {6}}});
  std::vector<Value> values(2);
  int parsed = 0;
  const int inputs = test::fuzz_inputs(20000);
  for (int i = 0; i < inputs; ++i) {
    const Bytes bad = damaged(good);
    parsed += passes([&] {
      parser.parse(bad, values);
      Bytes all;
      for (const Value& value : values) {
        all.insert(all.end(), value.bytes.begin(), value.bytes.end());
      }
      ASSERT_LE(all.size(), size_t{1} << 16);
    });
    passes([&] { static_cast<void>(features_of(bad)); });
  }
  EXPECT_GT(parsed, inputs / 200);  // else the damage never comes to the values
  EXPECT_LT(parsed, inputs - inputs / 200);
}

TEST_F(InputFuzz, ArchivesAreReadOrRefused) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("tpu_fuzz_" + std::to_string(::getpid()) + ".npz");
  const driver::HostArray array{DType::kU8, {4}, Bytes(4)};
  const Bytes member = driver::format_npy(array);
  zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
  ASSERT_NE(archive, nullptr);
  zip_file_add(archive, "x.npy", zip_source_buffer(archive, member.data(), member.size(), 0), 0);
  ASSERT_EQ(zip_close(archive), 0);
  const Bytes good = driver::read_file(path);
  ASSERT_EQ(driver::read_npz(path, "x").bytes, array.bytes);
  const int inputs = test::fuzz_inputs(300);
  for (int i = 0; i < inputs; ++i) {
    const Bytes bad = damaged(good);
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bad.data()), static_cast<std::streamsize>(bad.size()));
    passes([&] {
      for (const std::string& name : driver::npz_names(path)) {
        static_cast<void>(driver::read_npz(path, name));
      }
    });
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tpu::input
