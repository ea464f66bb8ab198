#include "input/records/record_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "file/crc32c.hpp"
#include "input/records/compression.hpp"
#include "input/records/record_format.hpp"
#include "tpu/error.hpp"

namespace tpu::input {
namespace {

// Headers of small records come in large pieces; between large records little is read.
constexpr uint64_t kLargeRecord = uint64_t{1} << 15;
constexpr uint64_t kLargePiece = uint64_t{1} << 18;
constexpr uint64_t kSmallPiece = uint64_t{1} << 12;

[[noreturn]] void refuse_file(const std::string& path, const std::string& what) {
  throw driver::Error(driver::ErrorCode::kInvalidArgument, fmt::format("{}: {}", path, what));
}

std::vector<std::byte> unpack_file(const std::string& path, const OpenFile& file) {
  std::vector<std::byte> piece(kLargePiece);
  uint64_t at = 0;
  return unpack(
      [&] {
        const size_t count = file.read(at, piece);
        at += count;
        return std::span<const std::byte>(piece).first(count);
      },
      path);
}

// A file that begins with a record is not packed, whatever else its first bytes may mean.
bool is_packed(const OpenFile& file) {
  std::array<std::byte, kRecordHeaderBytes> head{};
  const auto there = std::span<const std::byte>(head).first(file.read(0, head));
  uint64_t length = 0;
  return !(there.size() == head.size() && read_record_header(there, length)) &&
         compression_of(there) != Compression::kNone;
}

}  // namespace

OpenFile::OpenFile(const std::string& path)
    : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (file_ < 0) {
    refuse_file(path, fmt::format("cannot be opened: {}", std::strerror(errno)));
  }
  struct stat info {};
  const bool known = ::fstat(file_, &info) == 0;
  if (!known || !S_ISREG(info.st_mode)) {
    ::close(file_);
    refuse_file(path, known && S_ISDIR(info.st_mode)
                          ? "is a folder; name the files in it, such as 'FOLDER/*.tfrecord'"
                          : "is not a regular file, which can be read at any offset");
  }
  size_ = static_cast<uint64_t>(info.st_size);
}

OpenFile::~OpenFile() { ::close(file_); }

size_t OpenFile::read(uint64_t at, std::span<std::byte> to) const {
  size_t used = 0;
  while (used < to.size()) {
    const ssize_t count =
        ::pread(file_, to.data() + used, to.size() - used, static_cast<off_t>(at + used));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      refuse_file(path_,
                  fmt::format("cannot be read at byte {}: {}", at + used, std::strerror(errno)));
    }
    if (count == 0) {
      break;
    }
    used += static_cast<size_t>(count);
  }
  return used;
}

void OpenFile::expect(uint64_t at, uint64_t bytes) const {
  ::posix_fadvise(file_, static_cast<off_t>(at), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
}

RecordFile::RecordFile(const std::string& path) : path_(path) {
  const OpenFile file(path);
  if (is_packed(file)) {
    *this = RecordFile(path, unpack_file(path, file));
    return;
  }
  std::vector<std::byte> piece;
  uint64_t piece_at = 0;
  look_through(file.size(), [&](uint64_t at, size_t count) {
    const bool inside = at >= piece_at && at + count <= piece_at + piece.size();
    if (!inside) {
      const uint64_t before = begins_.size() < 2 ? 0 : at - begins_[begins_.size() - 2];
      piece.resize(before > kLargeRecord ? kSmallPiece : kLargePiece);
      piece_at = at;
      piece.resize(file.read(at, piece));
    }
    const auto there = std::span<const std::byte>(piece).subspan(at - piece_at);
    return there.first(std::min(there.size(), count));
  });
}

RecordFile::RecordFile(std::string path, std::vector<std::byte> unpacked)
    : path_(std::move(path)), in_memory_(true), unpacked_(std::move(unpacked)) {
  look_through(unpacked_.size(), [&](uint64_t at, size_t count) {
    const auto there = std::span<const std::byte>(unpacked_).subspan(at);
    return there.first(std::min(there.size(), count));
  });
}

// `read_at` gives so many bytes at a place, or what is there of them. The checksum of a record's
// data stands before the next header: one read takes both.
template <typename ReadAt>
void RecordFile::look_through(uint64_t size, const ReadAt& read_at) {
  while (begins_.back() < size) {
    const uint64_t at = begins_.back();
    const std::span<const std::byte> header = take_checksum(at, kRecordHeaderBytes, read_at);
    if (header.size() < kRecordHeaderBytes) {
      refuse_last("truncated: the file ends in its header");
    }
    uint64_t length = 0;
    if (!read_record_header(header, length)) {
      refuse_last(records() == 0 ? "not a TFRecord file: the checksum of its length is wrong"
                                 : "corrupt: the checksum of its length is wrong");
    }
    const uint64_t room = size - at - kRecordHeaderBytes;
    if (room < kRecordFooterBytes || length > room - kRecordFooterBytes) {
      refuse_last(
          fmt::format("truncated: expected {} bytes and a checksum, found {} bytes", length, room));
    }
    begins_.push_back(at + kRecordHeaderBytes + length + kRecordFooterBytes);
  }
  take_checksum(size, 0, read_at);
}

// Of the record before `at`; what is there of the `count` bytes from `at` on comes back.
template <typename ReadAt>
std::span<const std::byte> RecordFile::take_checksum(uint64_t at, size_t count,
                                                     const ReadAt& read_at) {
  if (records() == 0) {
    return read_at(at, count);
  }
  const auto there = read_at(at - kRecordFooterBytes, kRecordFooterBytes + count);
  if (there.size() < kRecordFooterBytes) {
    refuse(records() - 1, "truncated: the file was cut while it was read");
  }
  checksums_ = spec::crc32c(there.first(kRecordFooterBytes), checksums_);
  return there.subspan(kRecordFooterBytes);
}

// Of the record whose place is known, but not its end.
void RecordFile::refuse_last(const std::string& what) {
  begins_.push_back(begins_.back());
  refuse(records() - 1, what);
}

void RecordFile::refuse(uint64_t record, const std::string& what) const {
  refuse_file(place(record), what);
}

std::string RecordFile::place(uint64_t record) const {
  return fmt::format("{}, record {} (byte {}{})", path_, record, begins_[record],
                     in_memory_ ? " of the unpacked file" : "");
}

std::span<const std::byte> RecordFile::read_framed(uint64_t record, uint64_t end,
                                                   const OpenFile& file,
                                                   RecordBuffer& buffer) const {
  const uint64_t at = begins_[record] + kRecordHeaderBytes;
  const uint64_t size = begins_[record + 1] - at;
  if (buffer.file != this || at < buffer.begin || at + size > buffer.end) {
    const bool in_sequence = buffer.file == this && buffer.next_record == record;
    const uint64_t piece =
        in_sequence && size < kLargeRecord ? std::min(kLargePiece, begins_[end] - at) : size;
    if (buffer.bytes.size() < piece) {
      buffer.bytes.resize(piece);
    }
    buffer.file = this;
    buffer.begin = at;
    buffer.end = at + file.read(at, std::span(buffer.bytes).first(piece));
    if (buffer.end < at + size) {
      refuse(record, "truncated: the file was cut after it was opened");
    }
  }
  buffer.next_record = record + 1;
  return std::span<const std::byte>(buffer.bytes).subspan(at - buffer.begin, size);
}

std::span<const std::byte> RecordFile::read(uint64_t record, const OpenFile* file,
                                            RecordBuffer& buffer, uint64_t end) const {
  const uint64_t at = begins_[record] + kRecordHeaderBytes;
  const std::span<const std::byte> framed =
      in_memory_ ? std::span(unpacked_).subspan(at, begins_[record + 1] - at)
                 : read_framed(record, std::min(end, records()), *file, buffer);
  if (!record_is_whole(framed)) {
    refuse(record, "corrupt: the checksum of its data is wrong");
  }
  return framed.first(framed.size() - kRecordFooterBytes);
}

void RecordFile::expect(const OpenFile& file, uint64_t first, uint64_t count) const {
  file.expect(begins_[first], begins_[first + count] - begins_[first]);
}

uint32_t RecordFile::identity() const {
  return spec::crc32c(std::as_bytes(std::span(begins_)), checksums_);
}

}  // namespace tpu::input
