// One TFRecord file: where its records begin, and each of them with its checksum verified.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tpu::input {

/// A file open to be read at any place by any number of threads. Throws driver::Error
/// InvalidArgument that names it.
class OpenFile {
 public:
  explicit OpenFile(const std::string& path);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  uint64_t size() const { return size_; }
  /// As many bytes as there are from `at` on.
  size_t read(uint64_t at, std::span<std::byte> to) const;
  /// A hint: this part is read soon.
  void expect(uint64_t at, uint64_t bytes) const;

 private:
  std::string path_;
  int file_;
  uint64_t size_ = 0;
};

class RecordFile;

/// What a thread has read last. Small records that are read one behind the other come in large
/// pieces.
struct RecordBuffer {
  std::vector<std::byte> bytes;
  const RecordFile* file = nullptr;
  uint64_t begin = 0;  ///< in the file, of `bytes`
  uint64_t end = 0;
  uint64_t next_record = 0;
};

class RecordFile {
 public:
  /// Looks through the lengths and checksums of all records. Compressed files are unpacked into
  /// memory. Throws driver::Error InvalidArgument: file, record, byte.
  explicit RecordFile(const std::string& path);
  /// Of a file that is in memory already.
  RecordFile(std::string path, std::vector<std::byte> unpacked);

  const std::string& path() const { return path_; }
  uint64_t records() const { return begins_.size() - 1; }
  /// Of the records with their frames, unpacked.
  uint64_t bytes() const { return begins_.back(); }
  bool in_memory() const { return in_memory_; }
  /// "train.tfrecord, record 17 (byte 1234)"
  std::string place(uint64_t record) const;

  /// A record without its frame: in `buffer`, or in this object when it is in memory. `file`: this
  /// one, opened; not looked at when it is in memory. `end`: nothing is read ahead from there on.
  /// Throws as the constructor.
  std::span<const std::byte> read(uint64_t record, const OpenFile* file, RecordBuffer& buffer,
                                  uint64_t end = UINT64_MAX) const;
  /// Hints that these records are read soon.
  void expect(const OpenFile& file, uint64_t first, uint64_t count) const;
  /// Tells these records from others, by their lengths and the checksums that stand behind them.
  uint32_t identity() const;

 private:
  std::span<const std::byte> read_framed(uint64_t record, uint64_t end, const OpenFile& file,
                                         RecordBuffer& buffer) const;
  template <typename ReadAt>
  void look_through(uint64_t size, const ReadAt& read_at);
  template <typename ReadAt>
  std::span<const std::byte> take_checksum(uint64_t at, size_t count, const ReadAt& read_at);
  [[noreturn]] void refuse(uint64_t record, const std::string& what) const;
  [[noreturn]] void refuse_last(const std::string& what);

  std::string path_;
  bool in_memory_ = false;
  std::vector<std::byte> unpacked_;
  std::vector<uint64_t> begins_ = {0};  // of each record's frame, and the end of the last
  uint32_t checksums_ = 0;              // of the checksums of all records
};

}  // namespace tpu::input
