// Bytes of a record.
#include "record/step_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "board/board_loader.hpp"
#include "file/crc32c.hpp"
#include "record/step_record_check.hpp"

namespace tpu::spec {
namespace {

constexpr std::string_view kMagic = "TPUREC05";

class RecordWriter final : public Archive {
 public:
  explicit RecordWriter(size_t most) : Archive(false) { text_.reserve(most); }
  void section(const std::string& /*name*/) override {}
  void bytes(std::span<std::byte> data) override {
    text_.append(reinterpret_cast<const char*>(data.data()), data.size());
  }
  uint64_t left() const override { return 0; }
  std::string& text() { return text_; }

 private:
  std::string text_{kMagic};
};

class RecordReader final : public Archive {
 public:
  explicit RecordReader(std::span<const std::byte> rest) : Archive(true), rest_(rest) {}
  void section(const std::string& /*name*/) override {}
  void bytes(std::span<std::byte> data) override {
    if (data.size() > rest_.size()) {
      throw RecordError("the recorded step is truncated; record the step again");
    }
    if (!data.empty()) {
      std::memcpy(data.data(), rest_.data(), data.size());
    }
    rest_ = rest_.subspan(data.size());
  }
  uint64_t left() const override { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace

uint64_t StepRecord::begin() const {
  uint64_t first = UINT64_MAX;
  for (const RecordedCore& core : cores) {
    first = std::min(first, core.begin);
  }
  return first;
}

uint64_t StepRecord::end() const {
  uint64_t last = 0;
  for (const RecordedCore& core : cores) {
    last = std::max(last, core.end);
  }
  return last;
}

std::string write_record(StepRecord record) {
  size_t lists = 0;  // nearly all of it: a gigabyte is not moved while it grows
  for (const RecordedCore& core : record.cores) {
    lists += core.commands.size() * sizeof(RecordedCommand);
    lists += core.items.size() * sizeof(SequencerItem);
  }
  RecordWriter writer(lists + (size_t{1} << 20));
  writer(record);
  const uint32_t crc = crc32c(std::as_bytes(std::span(writer.text())));
  writer.text().append(reinterpret_cast<const char*>(&crc), sizeof crc);
  return std::move(writer.text());
}

bool is_record(std::span<const std::byte> bytes) {
  constexpr size_t kName = 6;  // without the version
  return bytes.size() >= kMagic.size() && std::memcmp(bytes.data(), kMagic.data(), kName) == 0;
}

StepRecord read_record(std::span<const std::byte> bytes) {
  if (!is_record(bytes)) {
    throw RecordError(
        "expected a recorded step, found another file; SimOptions::record writes one");
  }
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    throw RecordError(
        "the recorded step is from another version of tpuboard; record the step again");
  }
  uint32_t crc = 0;
  const auto damaged = [] { return RecordError("the recorded step is damaged or cut off"); };
  if (bytes.size() < kMagic.size() + sizeof crc) {
    throw damaged();
  }
  std::memcpy(&crc, bytes.data() + bytes.size() - sizeof crc, sizeof crc);
  const auto all = bytes.first(bytes.size() - sizeof crc);
  if (crc32c(all) != crc) {
    throw damaged();
  }
  RecordReader reader(all.subspan(kMagic.size()));
  StepRecord record;
  try {
    reader(record);
  } catch (const ArchiveError&) {
    throw damaged();
  }
  if (reader.left() != 0) {
    throw damaged();
  }
  check_record(record);
  return record;
}

std::vector<std::string> board_texts(const BoardParams& board) {
  std::vector<std::string> texts;
  for (const BoardKey& key : kBoardKeys) {
    texts.push_back(fmt::format("{}.{}={}", key.section, key.name, value_text(key, board)));
  }
  return texts;
}

BoardParams board_of(const StepRecord& record) {
  try {
    return load_board(board_preset_names().front(), record.board);
  } catch (const BoardError& error) {
    throw RecordError(fmt::format("the recorded step has an invalid board: {}", error.what()));
  }
}

}  // namespace tpu::spec
