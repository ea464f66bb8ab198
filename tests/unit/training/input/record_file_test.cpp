// TFRecord files: frames, compression, and what is refused of damaged ones, by record and byte.
#include "input/records/record_file.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <string_view>

#include "arrays.hpp"
#include "input/records/record_format.hpp"
#include "input/records/record_writer.hpp"

namespace tpu::input {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::vector<std::byte> framed(const std::vector<std::string>& records) {
  std::vector<std::byte> file;
  for (const std::string& record : records) {
    append_record(file, bytes_of(record));
  }
  return file;
}

void write(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

std::vector<std::string> records_of(const RecordFile& records, const OpenFile* file) {
  std::vector<std::string> texts;
  RecordBuffer buffer;
  for (uint64_t i = 0; i < records.records(); ++i) {
    const auto record = records.read(i, file, buffer);
    texts.emplace_back(reinterpret_cast<const char*>(record.data()), record.size());
  }
  return texts;
}

// The error of opening or reading a file in memory.
std::string refused(std::vector<std::byte> bytes) {
  return error_of([&] { records_of(RecordFile("d", std::move(bytes)), nullptr); });
}

// The bytes of the one-record file of "hello" stand in no document; those of an empty record do in
// many: length 0, its checksum, and the checksum of nothing.
TEST(RecordFormat, FramesAsPublished) {
  EXPECT_EQ(masked_crc32c({}), 0xA282EAD8u);
  const std::vector<std::byte> file = framed({""});
  const std::vector<uint8_t> expected = {0,    0,    0,    0,    0,    0,    0,    0,
                                         0x29, 0x03, 0x98, 0x07, 0xD8, 0xEA, 0x82, 0xA2};
  EXPECT_EQ(values_of<uint8_t>(file), expected);
}

TEST(RecordFile, ReadsWhatWasWritten) {
  std::vector<std::string> texts = {"", "a", std::string(100, 'b'), std::string(300000, 'c')};
  for (int i = 0; i < 1000; ++i) {
    texts.push_back(std::to_string(i));
  }
  const ScratchFolder folder;
  for (const Compression compression :
       {Compression::kNone, Compression::kGzip, Compression::kZlib}) {
    const std::string path = folder.file("r" + std::to_string(static_cast<int>(compression)));
    RecordWriter writer(path, compression);
    for (const std::string& text : texts) {
      writer.add(bytes_of(text));
    }
    writer.finish();
    const RecordFile records(path);
    EXPECT_EQ(records.in_memory(), compression != Compression::kNone);
    const OpenFile file(path);
    EXPECT_EQ(records_of(records, &file), texts);
  }
}

TEST(RecordFile, JoinsGzipMembers) {
  const ScratchFolder folder;
  std::vector<std::byte> both;
  for (const std::string text : {"one", "two"}) {
    Packer packer(Compression::kGzip);
    const auto packed = packer.add(framed({text}), true);
    both.insert(both.end(), packed.begin(), packed.end());
  }
  write(folder.file("d.gz"), both);
  EXPECT_EQ(records_of(RecordFile(folder.file("d.gz")), nullptr),
            (std::vector<std::string>{"one", "two"}));
}

// 35615 = 0x8B1F: the length's bytes are those that begin a gzip file.
TEST(RecordFile, TakesNoRecordForAPackedFile) {
  const ScratchFolder folder;
  const std::string text(35615, 'x');
  write(folder.file("d"), framed({text}));
  const OpenFile file(folder.file("d"));
  EXPECT_EQ(records_of(RecordFile(folder.file("d")), &file), (std::vector<std::string>{text}));
}

TEST(RecordFile, NamesTheCorruptRecord) {
  const std::vector<std::byte> good = framed({"hello", "world", "again"});
  for (size_t i = 0; i < good.size(); ++i) {
    std::vector<std::byte> bad = good;
    bad[i] ^= std::byte{0x10};
    const size_t record = i / 21;
    const std::string place = "d, record " + std::to_string(record) + " (byte " +
                              std::to_string(record * 21) + " of the unpacked file): ";
    const std::string what = i % 21 >= 12 ? "corrupt: the checksum of its data is wrong"
                             : record == 0
                                 ? "not a TFRecord file: the checksum of its length is wrong"
                                 : "corrupt: the checksum of its length is wrong";
    ASSERT_EQ(refused(bad), place + what) << i;
  }
}

TEST(RecordFile, RefusesTruncatedFiles) {
  const std::vector<std::byte> good = framed({"hello", "world"});
  for (size_t size = 0; size < good.size(); ++size) {
    const std::string error = refused({good.begin(), good.begin() + static_cast<ptrdiff_t>(size)});
    if (size % 21 == 0) {
      ASSERT_EQ(error, "") << size;
    } else {
      ASSERT_NE(error.find("truncated: "), std::string::npos) << size;
    }
  }
  EXPECT_EQ(refused({good.begin(), good.begin() + 40}),
            "d, record 1 (byte 21 of the unpacked file): truncated: expected 5 bytes and a "
            "checksum, found 7 bytes");
}

TEST(RecordFile, RefusesEndlessLengths) {
  for (const uint64_t length :
       {UINT64_MAX, UINT64_MAX - 15, uint64_t{1} << 63, uint64_t{1} << 40}) {
    std::vector<std::byte> file(16);
    std::memcpy(file.data(), &length, 8);
    const uint32_t sum = masked_crc32c(std::span(file).first(8));
    std::memcpy(file.data() + 8, &sum, 4);
    EXPECT_EQ(refused(file), "d, record 0 (byte 0 of the unpacked file): truncated: expected " +
                                 std::to_string(length) + " bytes and a checksum, found 4 bytes");
  }
}

TEST(RecordFile, RefusesDamagedCompression) {
  const ScratchFolder folder;
  Packer packer(Compression::kGzip);
  const auto packed = packer.add(framed({std::string(5000, 'q'), "tail"}), true);
  std::vector<std::byte> file(packed.begin(), packed.end());
  const std::string path = folder.file("d.gz");
  write(path, std::span(file).first(file.size() - 9));
  EXPECT_NE(error_of([&] { RecordFile records(path); }).find("the file ends in the middle"),
            std::string::npos);
  file[file.size() - 8] ^= std::byte{1};
  write(path, file);
  EXPECT_EQ(error_of([&] {
              RecordFile records(path);
            }).find(path + ": damaged compressed data near byte "),
            0u);
}

TEST(RecordFile, SeesThatAFileWasCutWhileItWasOpen) {
  const ScratchFolder folder;
  const std::string path = folder.file("d");
  write(path, framed({"hello", "world"}));
  const RecordFile records(path);
  const OpenFile file(path);
  std::filesystem::resize_file(path, 30);
  EXPECT_EQ(error_of([&] { records_of(records, &file); }),
            path + ", record 1 (byte 21): truncated: the file was cut after it was opened");
}

TEST(RecordFile, RefusesWhatIsNoFile) {
  const ScratchFolder folder;
  EXPECT_EQ(error_of([&] { RecordFile records(folder.file("none")); }),
            folder.file("none") + ": cannot be opened: No such file or directory");
  std::filesystem::create_directory(folder.file("sub"));
  EXPECT_EQ(
      error_of([&] { RecordFile records(folder.file("sub")); }),
      folder.file("sub") + ": is a folder; name the files in it, such as 'FOLDER/*.tfrecord'");
  EXPECT_EQ(error_of([] { RecordFile records("/dev/zero"); }),
            "/dev/zero: is not a regular file, which can be read at any offset");
  write(folder.file("locked"), framed({"a"}));
  std::filesystem::permissions(folder.file("locked"), std::filesystem::perms::none);
  if (::geteuid() != 0) {  // root reads everything
    EXPECT_EQ(error_of([&] { RecordFile records(folder.file("locked")); }),
              folder.file("locked") + ": cannot be opened: Permission denied");
  }
}

}  // namespace
}  // namespace tpu::input
