// Sections, index and checksums of a snapshot.
#include "file/snapshot_file.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "file/crc32c.hpp"

namespace tpu::spec {
namespace {

constexpr uint64_t kHeadMagic = 0x0A1A504E53555054;  // "TPUSNP\x1a\n"
constexpr uint64_t kTailMagic = 0x0A444E4550414E53;
constexpr size_t kSmallBytes = size_t{1} << 16;

struct Head {
  uint64_t magic = kHeadMagic;
  uint32_t version = kSnapshotVersion;
  uint32_t reserved = 0;
};
struct Tail {
  uint64_t index_offset = 0;
  uint32_t index_crc = 0;
  uint32_t reserved = 0;
  uint64_t magic = kTailMagic;
};
static_assert(sizeof(Head) == 16 && sizeof(Tail) == 24);

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

[[noreturn]] void cut_off() {
  throw ArchiveError(
      "the snapshot is cut off: its end is missing; copy it again, or save a new one");
}

}  // namespace

SnapshotWriter::SnapshotWriter(Output output) : Archive(false), output_(std::move(output)) {
  small_.reserve(kSmallBytes);
  put(bytes_of(Head()));
}

void SnapshotWriter::section(const std::string& name) {
  sections_.push_back({name, written_, 0, 0});
}

void SnapshotWriter::bytes(std::span<std::byte> data) {
  if (sections_.empty()) {
    throw std::logic_error("internal: state is written before the first section of the snapshot");
  }
  SnapshotSection& section = sections_.back();
  section.crc = crc32c(data, section.crc);
  section.bytes += data.size();
  put(data);
}

void SnapshotWriter::put(std::span<const std::byte> data) {
  written_ += data.size();
  if (small_.size() + data.size() > kSmallBytes) {
    flush();
  }
  if (data.size() >= kSmallBytes) {
    output_(data);
  } else {
    small_.insert(small_.end(), data.begin(), data.end());
  }
}

void SnapshotWriter::flush() {
  if (!small_.empty()) {
    output_(small_);
    small_.clear();
  }
}

void SnapshotWriter::finish() {
  // The index is a section that nobody names.
  std::vector<SnapshotSection> sections = sections_;
  section({});
  (*this)(sections);
  const SnapshotSection& index = sections_.back();
  put(bytes_of(Tail{.index_offset = index.offset, .index_crc = index.crc}));
  flush();
}

SnapshotReader::SnapshotReader(std::span<const std::byte> file) : Archive(true), file_(file) {
  Head head;
  if (file.size() < sizeof head) {
    throw ArchiveError(
        "not a snapshot of a board: the file is shorter than the header of a snapshot");
  }
  std::memcpy(&head, file.data(), sizeof head);
  if (head.magic != kHeadMagic) {
    throw ArchiveError(
        "not a snapshot of a board: the file does not begin with the header of a snapshot");
  }
  if (head.version != kSnapshotVersion) {
    throw ArchiveError(
        fmt::format("snapshot of version {}: this program reads version {}; save a new snapshot "
                    "with this program, or open this one with the program that saved it",
                    head.version, kSnapshotVersion));
  }
  read_index();
  for (const SnapshotSection& section : sections_) {
    if (section.offset > file.size() || section.bytes > file.size() - section.offset) {
      cut_off();
    }
    if (crc32c(file.subspan(section.offset, section.bytes)) != section.crc) {
      throw ArchiveError(
          fmt::format("the snapshot is damaged: the checksum of its section '{}' is wrong; copy it "
                      "again, or save a new one",
                      section.name));
    }
  }
}

void SnapshotReader::read_index() {
  Tail tail;
  if (file_.size() < sizeof(Head) + sizeof tail) {
    cut_off();
  }
  const uint64_t end = file_.size() - sizeof tail;
  std::memcpy(&tail, file_.data() + end, sizeof tail);
  if (tail.magic != kTailMagic || tail.reserved != 0 || tail.index_offset > end) {
    cut_off();
  }
  rest_ = file_.subspan(tail.index_offset, end - tail.index_offset);
  if (crc32c(rest_) != tail.index_crc) {
    throw ArchiveError(
        "the snapshot is damaged: the checksum of its index is wrong; copy it again, or save a new "
        "one");
  }
  (*this)(sections_);
  rest_ = {};
}

void SnapshotReader::end_section() const {
  if (!rest_.empty()) {
    throw ArchiveError(fmt::format(
        "section '{}' has {} unexpected bytes: the snapshot was saved by another build of tpuboard",
        sections_[next_ - 1].name, rest_.size()));
  }
}

void SnapshotReader::section(const std::string& name) {
  end_section();
  if (next_ == sections_.size() || sections_[next_].name != name) {
    throw ArchiveError(fmt::format(
        "section '{}' is missing: the snapshot was saved by another build of tpuboard", name));
  }
  const SnapshotSection& found = sections_[next_++];
  rest_ = file_.subspan(found.offset, found.bytes);
}

std::span<const std::byte> SnapshotReader::view(uint64_t count) {
  if (count > rest_.size()) {
    throw ArchiveError(fmt::format(
        "section '{}' has fewer bytes than this program reads: it was saved by another build",
        next_ == 0 ? "index" : sections_[next_ - 1].name));
  }
  const std::span<const std::byte> found = rest_.first(count);
  rest_ = rest_.subspan(count);
  return found;
}

void SnapshotReader::bytes(std::span<std::byte> data) {
  const std::span<const std::byte> found = view(data.size());
  if (!found.empty()) {
    std::memcpy(data.data(), found.data(), found.size());
  }
}

void SnapshotReader::finish() {
  end_section();
  if (next_ != sections_.size()) {
    throw ArchiveError(
        fmt::format("unknown section '{}': it was saved by another build", sections_[next_].name));
  }
}

}  // namespace tpu::spec
