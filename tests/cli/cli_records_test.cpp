// `tpuboard train` from record files, on the null board: what comes out, and every way in which
// files can be wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.hpp"
#include "file/files.hpp"
#include "input/records/example.hpp"
#include "input/records/record_writer.hpp"
#include "tests/cli/cli_fixture.hpp"

namespace tpu::driver {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kExamples = 100;

class CliRecords : public test::Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    test::ProgramBuilder train(8);
    train.argument(DType::kF32, {});
    train.argument(DType::kF32, {16, 2, 2, 1}, true);
    train.argument(DType::kI32, {16}, true);
    train.result(DType::kF32, {}, false, 0);
    train.result(DType::kF32, {});
    write_file(path("train.tpuexe"), train.bytes());
    write_examples("data-0.tfrecord", 0, kExamples / 2);
    write_examples("data-1.tfrecord", kExamples / 2, kExamples);
    configure();
  }

  // Example i: an image of four bytes i and the label i % 10.
  static std::vector<std::byte> example(int i) {
    const std::vector<uint8_t> image(4, static_cast<uint8_t>(i));
    const int64_t label = i % 10;
    const std::vector<input::NamedValue> values = {
        {"image", {DType::kU8, std::as_bytes(std::span(image))}},
        {"label", {DType::kI64, std::as_bytes(std::span(&label, 1))}}};
    return input::format_example(values);
  }

  void write_examples(const std::string& name, int first, int last) const {
    input::RecordWriter writer(path(name), input::Compression::kNone);
    for (int i = first; i < last; ++i) {
      writer.add(example(i));
    }
    writer.finish();
  }

  // `data` and `label`: more keys of [data] and of the label's input.
  void configure(const std::string& data = "", const std::string& label = "",
                 const std::string& image = "", const std::string& records = "data-*.tfrecord") {
    save("c.toml", R"([program]
train = "train.tpuexe"
arguments = ["state", "image", "label"]
[state]
seed = 3
init = ["ones"]
[data]
split_seed = 7
eval_count = 0
records = [")" + records +
                       "\"]\n" + data + "\n[[data.input]]\nname = \"image\"\n" + image +
                       "\n[[data.input]]\nname = \"label\"\n" + label + R"(
[run]
batch = 16
epochs = 2
checkpoint = "ck"
)");
  }

  int train(const std::string& out, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"train", path("c.toml"), "--transport",
                                          "null",  "--out",        path(out)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return call(arguments);
  }

  std::string refused(const std::vector<std::string>& more = {}) {
    EXPECT_EQ(train("refused", more), 1) << out_;
    return error_;
  }

  nlohmann::json report(const std::string& out) const {
    return nlohmann::json::parse(std::ifstream(path(out + "/run.json")));
  }
};

TEST_F(CliRecords, StreamsEpochsAndSaysWhatTheInputDid) {
  configure("shuffle = 20\nthreads = 3\nprefetch = 2\ninterleave_files = 2", "classes = 10",
            "crop_padding = 1\nflip = true");
  ASSERT_EQ(train("a"), 0) << error_;
  const auto json = report("a");
  EXPECT_EQ(json["steps"], 12);  // 100 examples: 6 batches an epoch
  EXPECT_GE(json["input"]["examples"], 12 * 16);
  EXPECT_GE(json["input"]["bytes"], 12 * 16 * example(0).size());
  EXPECT_GE(json["input"]["waited_seconds"], 0.0);
  std::ifstream csv(path("a/metrics.csv"));
  std::string line;
  ASSERT_TRUE(std::getline(csv, line));
  EXPECT_THAT(line, HasSubstr("input_ms"));
}

TEST_F(CliRecords, GoesOnFromTheSameDataOnly) {
  configure("shuffle = 20");
  ASSERT_EQ(train("a", {"--steps", "4"}), 0) << error_;
  const auto from = training::read_checkpoint(path("a/ck/step4.safetensors"));
  EXPECT_THAT(from.input, HasSubstr("\"next\":4"));
  configure("shuffle = 21");
  EXPECT_EQ(train("a", {"--resume"}), 1);
  EXPECT_THAT(error_, HasSubstr("the input cannot continue where another one stopped"));
  configure("shuffle = 20\ninterleave_files = 2");
  EXPECT_EQ(train("a", {"--resume"}), 1);
  EXPECT_THAT(error_, HasSubstr("2 files in turn by 16"));
  configure("shuffle = 20");
  write_examples("data-1.tfrecord", 0, kExamples / 2);  // as long as before
  EXPECT_EQ(train("a", {"--resume"}), 1);
  EXPECT_THAT(error_, AllOf(HasSubstr("the input cannot continue where another one stopped"),
                            HasSubstr("--accept-changes")));
  ASSERT_EQ(train("a", {"--resume", "--accept-changes"}), 0) << error_;
  EXPECT_THAT(error_, HasSubstr("the run continues with a change: the examples"));
  EXPECT_EQ(report("a")["first_step"], 4);
}

TEST_F(CliRecords, ACorruptRecordEndsTheRunAndKeepsTheStepsBefore) {
  configure("shuffle = 0");
  const std::string file = path("data-1.tfrecord");
  std::vector<std::byte> bytes = read_file(file);
  const size_t each = bytes.size() / (kExamples / 2);
  bytes[30 * each + 20] ^= std::byte{1};  // example 80, of step 6
  write_file(file, bytes);
  const std::string error = refused();
  EXPECT_THAT(error, HasSubstr("data-1.tfrecord, record 30 (byte " + std::to_string(30 * each) +
                               "): corrupt: the checksum of its data is wrong"));
  EXPECT_THAT(error, HasSubstr("the state after step 5 is in"));
  bytes[20 * each + 3] ^= std::byte{1};  // a length
  write_file(file, bytes);
  EXPECT_THAT(refused(), HasSubstr("data-1.tfrecord, record 20 (byte " + std::to_string(20 * each) +
                                   "): corrupt: the checksum of its length is wrong"));
}

// In the middle of a launch its state is lost; the checkpoint before it stays.
TEST_F(CliRecords, ACorruptRecordEndsALaunchOfSeveralSteps) {
  configure("shuffle = 0");
  const std::string file = path("data-1.tfrecord");
  const std::vector<std::byte> good = read_file(file);
  const size_t each = good.size() / (kExamples / 2);
  const auto error_at = [&](size_t record, const std::string& out,
                            std::vector<std::string> more = {}) {
    std::vector<std::byte> bytes = good;
    bytes[record * each + 20] ^= std::byte{1};
    write_file(file, bytes);
    more.insert(more.end(), {"--steps-per-execution", "3"});
    EXPECT_EQ(train(out, more), 1) << out_;
    EXPECT_THAT(error_, HasSubstr("data-1.tfrecord, record " + std::to_string(record) + " (byte "));
    return error_;
  };
  // Launches of two steps, that end where a checkpoint is due; example 80 is of step 6.
  EXPECT_THAT(error_at(30, "a", {"--checkpoint-every", "2"}),
              HasSubstr("the state after step 4 is in"));
  // Example 55 is of step 4, the first of its launch: nothing is lost.
  EXPECT_THAT(error_at(5, "b"), HasSubstr("the state after step 3 is in"));
  write_file(file, good);
  ASSERT_EQ(train("a", {"--resume", "--steps-per-execution", "3"}), 0) << error_;
  EXPECT_EQ(report("a")["first_step"], 4);
  EXPECT_EQ(report("a")["steps"], 12);
}

TEST_F(CliRecords, FilesThatCannotBeReadAreRefusedAtTheStart) {
  const std::string file = path("data-1.tfrecord");
  const auto whole = std::filesystem::file_size(file);
  std::filesystem::resize_file(file, whole - 5);
  EXPECT_THAT(refused(), AllOf(HasSubstr("data-1.tfrecord, record 49 (byte "),
                               HasSubstr("truncated: expected ")));
  std::filesystem::resize_file(file, whole / 50 * 49 + 7);
  EXPECT_THAT(refused(), HasSubstr("truncated: the file ends in its header"));
  for (const char* name : {"data-0.tfrecord", "data-1.tfrecord"}) {
    std::filesystem::resize_file(path(name), 0);
  }
  EXPECT_THAT(refused(), HasSubstr("data-0.tfrecord and the others: no records"));
  configure("", "", "", "train-*.tfrecord");
  EXPECT_THAT(refused(), HasSubstr("train-*.tfrecord: no such file"));
  save("notes-0.tfrecord", "what is written here is no record at all\n");
  configure("", "", "", "notes-*.tfrecord");
  EXPECT_THAT(refused(), HasSubstr("notes-0.tfrecord, record 0 (byte 0): not a TFRecord file"));
}

TEST_F(CliRecords, FewerExamplesThanABatchAreRefused) {
  write_examples("few.tfrecord", 0, 15);
  configure("", "", "", "few.tfrecord");
  EXPECT_THAT(refused(), HasSubstr("15 training examples are less than one batch of 16"));
}

TEST_F(CliRecords, FeaturesThatDoNotFitAreNamed) {
  configure("", "", "stored_shape = [2, 3, 1]");
  EXPECT_THAT(refused(), HasSubstr("data-0.tfrecord, record 0 (byte 0): feature 'image' has 4 "
                                   "values; 6 are wanted"));
  configure("", "", "stored_shape = [1, 4, 1]");
  EXPECT_THAT(refused(), HasSubstr("feature 'image': f32[2,2,1] cannot be cut out of"));
  const auto other = [&](const std::string& name, const Shape& shape, DType type) {
    const std::vector<std::byte> bytes(byte_count(type, shape));
    const std::vector<input::NamedValue> values = {
        {name, {type, bytes}}, {"label", {DType::kI64, std::span(bytes).first(0)}}};
    return input::format_example(values);
  };
  const auto refused_of = [&](const std::vector<std::byte>& record) {
    input::RecordWriter writer(path("other.tfrecord"), input::Compression::kNone);
    writer.add(record);
    writer.finish();
    configure("", "", "", "other.tfrecord");
    return refused();
  };
  EXPECT_THAT(refused_of(other("picture", {4}, DType::kU8)),
              HasSubstr("record 0 (byte 0): it has no feature 'image'; it has 'picture', 'label'"));
  EXPECT_THAT(refused_of(other("image", {5}, DType::kU8)),
              HasSubstr("feature 'image' has 5 values; 4 are wanted, for the program's "
                        "f32[16,2,2,1]"));
  EXPECT_THAT(refused_of(other("image", {4}, DType::kI64)),
              HasSubstr("i64 cannot be converted to the program's f32"));
}

// A later record that is not like the first.
TEST_F(CliRecords, AnExampleUnlikeTheFirstIsNamed) {
  const auto refused_with = [&](const std::vector<std::byte>& last) {
    input::RecordWriter writer(path("odd.tfrecord"), input::Compression::kNone);
    for (int i = 0; i < 31; ++i) {
      writer.add(example(i));
    }
    writer.add(last);
    writer.finish();
    configure("shuffle = 0", "classes = 10", "", "odd.tfrecord");
    return refused();
  };
  const auto of = [](DType image, size_t bytes, int64_t label) {
    const std::vector<std::byte> zeros(bytes);
    const std::vector<input::NamedValue> values = {
        {"image", {image, zeros}}, {"label", {DType::kI64, std::as_bytes(std::span(&label, 1))}}};
    return input::format_example(values);
  };
  EXPECT_THAT(refused_with(of(DType::kU8, 4, 10)),
              AllOf(HasSubstr("odd.tfrecord, record 31 (byte "),
                    HasSubstr("feature 'label': value 10 is not in the range 0 to 9")));
  EXPECT_THAT(refused_with(of(DType::kU8, 4, -1)), HasSubstr("value -1 is not in the range"));
  EXPECT_THAT(refused_with(of(DType::kU8, 3, 1)), HasSubstr("feature 'image': 3 bytes"));
  EXPECT_THAT(refused_with(of(DType::kF32, 16, 1)),
              HasSubstr("feature 'image': stored as f32; ui8 is expected"));
}

TEST_F(CliRecords, KeysThatMakeNoSenseAreRefused) {
  configure("shuffle = -1");
  EXPECT_THAT(refused(), HasSubstr("data.shuffle must be an integer of at least 0"));
  configure("interleave_files = 0");
  EXPECT_THAT(refused(), HasSubstr("data.interleave_files must be an integer of at least 1"));
  configure("threads = 0");
  EXPECT_THAT(refused(), HasSubstr("data.threads must be an integer of at least 1"));
  configure("", "", "stored_shape = [2, -2, 1]");
  EXPECT_THAT(refused(), HasSubstr("data.input.stored_shape must be a list of integers in 1 .."));
  configure("", "flip = true");
  EXPECT_THAT(refused(), HasSubstr("feature 'label': only images [height, width, channels] can be "
                                   "cut and mirrored"));
}

}  // namespace
}  // namespace tpu::driver
