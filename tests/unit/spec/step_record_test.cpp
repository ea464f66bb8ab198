// Records of a step as bytes: what is written is read, and what no board has made is refused.
#include "record/step_record.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <string>

#include "board/board_loader.hpp"
#include "file/crc32c.hpp"

namespace tpu::spec {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Core 3 issues a copy from HBM and a matmul that waits for it.
StepRecord small_record() {
  StepRecord record{.program = "p", .board = board_texts(load_board("v2_8")), .step = 7};
  record.ops = {{"dot", "model.py", 12}};
  RecordedCore core{.core = 3, .begin = 100, .end = 400};
  core.commands.push_back({.issued = 104,
                           .start = 104,
                           .free_at = 105,
                           .done = 250,
                           .flow_end = 150,
                           .bytes = 4096,
                           .signal = {SemaphoreUse{.amount = 1, .core = 3, .semaphore = 9}},
                           .from_core = 3,
                           .to_core = 3,
                           .from = RecordedMemory::kHbm,
                           .to = RecordedMemory::kVmem,
                           .queue = static_cast<uint8_t>(Queue::kDmaIn),
                           .opcode = static_cast<uint8_t>(Opcode::kDma)});
  core.commands.push_back(
      {.issued = 108,
       .start = 251,
       .free_at = 300,
       .done = 399,
       .flops = 1000,
       .wait = {SemaphoreUse{.amount = 1, .core = 3, .semaphore = 9, .takes = 1}},
       .queue = static_cast<uint8_t>(Queue::kMxu0),
       .opcode = static_cast<uint8_t>(Opcode::kMatmul)});
  using Kind = SequencerItem::Kind;
  core.items = {{104, 104, 0, 0, Kind::kIssue},
                {108, 108, 1, 0, Kind::kIssue},
                {109, 400, 0, 0, Kind::kHalt}};
  core.host = {{120, 300, 64, 1}};
  record.cores.push_back(core);
  record.vmem = {{104, 4096}, {251, 0}};
  record.argument_bytes = 4096;
  return record;
}

StepRecord read_back(const StepRecord& record) {
  const std::string bytes = write_record(record);
  return read_record(std::as_bytes(std::span(bytes)));
}

auto refusal(const std::string& bytes) {
  return [bytes] { read_record(std::as_bytes(std::span(bytes))); };
}

TEST(StepRecord, ReadsWhatWasWritten) {
  StepRecord record = small_record();
  EXPECT_EQ(write_record(read_back(record)), write_record(record));
  const StepRecord back = read_back(record);
  EXPECT_EQ(back.begin(), 100u);
  EXPECT_EQ(back.end(), 400u);
  EXPECT_EQ(back.cores.at(0).commands.at(1).flops, 1000u);
  EXPECT_EQ(back.ops.at(0).file, "model.py");
  EXPECT_EQ(board_of(back).board.name, "v2_8");
}

TEST(StepRecord, RefusesWhatIsNoRecord) {
  EXPECT_THAT(refusal("TPUEXE01 and more"),
              ThrowsMessage<RecordError>(HasSubstr("expected a recorded step")));
  EXPECT_THAT(refusal(""), ThrowsMessage<RecordError>(HasSubstr("expected a recorded step")));
  EXPECT_THAT(refusal("TPUREC99 and more"),
              ThrowsMessage<RecordError>(HasSubstr("another version")));
}

TEST(StepRecord, RefusesEveryCutAndEveryFlippedBit) {
  const std::string bytes = write_record(small_record());
  for (size_t size = 8; size < bytes.size(); size += 7) {
    EXPECT_THAT(refusal(bytes.substr(0, size)), ThrowsMessage<RecordError>(HasSubstr("damaged")));
  }
  for (size_t at = 8; at < bytes.size(); at += 5) {
    std::string flipped = bytes;
    flipped[at] = static_cast<char>(flipped[at] ^ 4);
    EXPECT_THAT(refusal(flipped), ThrowsMessage<RecordError>(HasSubstr("damaged")));
  }
}

// With a right checksum a list may still be longer than the file.
TEST(StepRecord, RefusesALengthThatTheFileDoesNotHave) {
  std::string bytes = write_record(small_record());
  const uint64_t huge = uint64_t{1} << 60;
  std::memcpy(bytes.data() + 8, &huge, sizeof huge);  // of the program's name
  const size_t end = bytes.size() - sizeof(uint32_t);
  const uint32_t crc = crc32c(std::as_bytes(std::span(bytes)).first(end));
  std::memcpy(bytes.data() + end, &crc, sizeof crc);
  EXPECT_THAT(refusal(bytes), ThrowsMessage<RecordError>(HasSubstr("damaged")));
}

TEST(StepRecord, RefusesWhatNoBoardMakes) {
  const auto refused = [](const auto& change, const std::string& why) {
    StepRecord record = small_record();
    change(record);
    EXPECT_THAT([&] { read_back(record); }, ThrowsMessage<RecordError>(HasSubstr(why)));
  };
  refused([](StepRecord& r) { r.cores[0].core = 8; }, "core 8");
  refused([](StepRecord& r) { r.cores.push_back(r.cores[0]); }, "core 3");
  refused([](StepRecord& r) { r.cores.clear(); }, "no cores");
  refused([](StepRecord& r) { r.cores[0].end = 99; }, "before it begins");
  refused([](StepRecord& r) { r.cores[0].commands[0].queue = 77; }, "command 0");
  refused([](StepRecord& r) { r.cores[0].commands[0].to_core = 5; }, "command 0");
  refused([](StepRecord& r) { r.cores[0].commands[0].signal[0].semaphore = 200; }, "command 0");
  refused([](StepRecord& r) { r.cores[0].commands[1].done = 401; }, "command 1");
  refused([](StepRecord& r) { r.cores[0].items[1].index = 0; }, "sequencer");
  refused([](StepRecord& r) { r.cores[0].items.pop_back(); }, "sequencer");
  refused([](StepRecord& r) { r.cores[0].items[2].went = 50; }, "sequencer");
  refused([](StepRecord& r) { r.cores[0].host[0].end = 119; }, "transfer with the host");
  refused([](StepRecord& r) { r.cores[0].host[0].end = 401; }, "transfer with the host");
  refused([](StepRecord& r) { r.cores[0].host.push_back({299, 300, 4, 0}); }, "transfer with the");
  refused([](StepRecord& r) { r.faults.push_back({.cycle = 99}); }, "fault on purpose");
  refused([](StepRecord& r) { r.faults.push_back({.cycle = 401}); }, "fault on purpose");
  refused([](StepRecord& r) { r.faults.push_back({.cycle = 300, .core = 8}); }, "core 8: a fault");
  refused([](StepRecord& r) { r.board[0] = "board.legs=4"; }, "board");
}

}  // namespace
}  // namespace tpu::spec
