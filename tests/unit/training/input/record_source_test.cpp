// Examples from record files: features by name and type, many files, the cache.
#include "input/records/record_source.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "arrays.hpp"
#include "input/batch_pipeline.hpp"
#include "input/cached_source.hpp"
#include "input/records/example.hpp"
#include "input/records/record_writer.hpp"

namespace tpu::input {
namespace {

template <typename Number>
std::span<const std::byte> raw(const std::vector<Number>& values) {
  return std::as_bytes(std::span(values));
}

// Example i: an image of 4 bytes i, a label i of i64, a weight i / 2.
std::vector<std::byte> record(int64_t i) {
  const std::vector<uint8_t> image(4, static_cast<uint8_t>(i));
  const std::vector<int64_t> label = {i};
  const std::vector<float> weight = {static_cast<float>(i) / 2.0f};
  const std::vector<NamedValue> values = {{"image", {DType::kU8, raw(image)}},
                                          {"label", {DType::kI64, raw(label)}},
                                          {"weight", {DType::kF32, raw(weight)}}};
  return format_example(values);
}

// `files` files of `each` records, numbered through.
std::vector<std::string> write_files(const ScratchFolder& folder, int files, int each,
                                     Compression compression = Compression::kNone) {
  std::vector<std::string> paths;
  for (int file = 0; file < files; ++file) {
    paths.push_back(folder.file("train-" + std::to_string(1000 + file) + ".tfrecord"));
    RecordWriter writer(paths.back(), compression);
    for (int i = 0; i < each; ++i) {
      writer.add(record(file * each + i));
    }
    writer.finish();
  }
  return paths;
}

std::vector<Feature> usual_features() {
  return {{.name = "label", .type = DType::kI32},
          {.name = "image", .type = DType::kF32, .shape = {2, 2, 1}},
          {.name = "weight", .type = DType::kF32}};
}

std::vector<int32_t> labels_of(const std::shared_ptr<const Source>& source,
                               PipelineOptions options) {
  options.epochs = 1;
  BatchPipeline pipeline(source, usual_features(), options);
  std::vector<int32_t> labels;
  Batch batch;
  while (pipeline.next(batch)) {
    const auto label = values_of<int32_t>(batch.arrays[0].bytes);
    const auto image = values_of<float>(batch.arrays[1].bytes);
    const auto weight = values_of<float>(batch.arrays[2].bytes);
    for (size_t i = 0; i < label.size(); ++i) {
      EXPECT_EQ(image[4 * i + 3], static_cast<float>(label[i] % 256));
      EXPECT_EQ(weight[i], static_cast<float>(label[i]) / 2.0f);
    }
    labels.insert(labels.end(), label.begin(), label.end());
  }
  return labels;
}

std::string refused(const ScratchFolder& folder, const Feature& feature) {
  const auto paths = write_files(folder, 1, 3);
  BatchPipeline pipeline(record_source(paths, {feature}), {feature}, {.threads = 1});
  Batch batch;
  return error_of([&] { pipeline.next(batch); });
}

TEST(RecordSource, ReadsFilesOneBehindTheOther) {
  const ScratchFolder folder;
  write_files(folder, 5, 7);
  const auto source =
      record_source(find_files({folder.file("train-*.tfrecord")}), usual_features());
  EXPECT_EQ(source->examples(), 35u);
  EXPECT_EQ(source->place(8), folder.file("train-1001.tfrecord") + ", record 1 (byte 73)");
  std::vector<int32_t> expected(35);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(labels_of(source, {.batch = 5, .threads = 3}), expected);
}

TEST(RecordSource, ReadsPackedFilesInTheSameOrder) {
  const ScratchFolder plain;
  const auto from_plain = record_source(write_files(plain, 3, 20), usual_features());
  const PipelineOptions options{.batch = 6, .order = {.seed = 4, .shuffle = 15}};
  const std::vector<int32_t> expected = labels_of(from_plain, options);
  for (const Compression compression : {Compression::kGzip, Compression::kZlib}) {
    const auto packed = record_source(write_files(plain, 3, 20, compression), usual_features());
    EXPECT_EQ(labels_of(packed, options), expected);
    EXPECT_EQ(packed->identity(), from_plain->identity());
  }
}

// Records of the same lengths are told apart by their checksums, the last one's too.
TEST(RecordSource, OtherDataHaveAnotherIdentity) {
  const auto identity = [](int64_t first, int64_t last) {
    const ScratchFolder folder;
    RecordWriter writer(folder.file("a.tfrecord"), Compression::kNone);
    for (const int64_t i : {first, int64_t{5}, last}) {
      writer.add(record(i));
    }
    writer.finish();
    return record_source({folder.file("a.tfrecord")}, usual_features())->identity();
  };
  EXPECT_EQ(identity(1, 2), identity(1, 2));
  EXPECT_NE(identity(1, 2), identity(3, 2));
  EXPECT_NE(identity(1, 2), identity(1, 3));
}

// 5 files of 7 records, three at a time by 2; the model below says it in other words.
TEST(RecordSource, TakesRecordsOfSeveralFilesInTurn) {
  const ScratchFolder folder;
  const auto paths = write_files(folder, 5, 7);
  const RecordOptions options{.interleave = {.files = 3, .block = 2}};
  const auto source = record_source(paths, usual_features(), options);
  const std::vector<int32_t> expected = {
      0,  1,  7,  8,  14, 15,              // files 0, 1, 2
      2,  3,  9,  10, 16, 17, 4,  5,  11,  // each to its sixth record
      12, 18, 19, 6,  13, 20,              // and its last
      21, 22, 28, 29, 23, 24, 30, 31, 25, 26, 32, 33, 27, 34};
  for (const unsigned threads : {1u, 3u}) {
    EXPECT_EQ(labels_of(source, {.batch = 5, .threads = threads}), expected);
  }
  EXPECT_EQ(source->place(2), folder.file("train-1001.tfrecord") + ", record 0 (byte 0)");
  EXPECT_NE(source->identity(), record_source(paths, usual_features())->identity());
  // Read ahead by a shuffle, from packed files, one record at a time: each once, the same again.
  const PipelineOptions shuffled{.batch = 5, .order = {.seed = 2, .shuffle = 9}, .threads = 3};
  const std::vector<int32_t> order = labels_of(source, shuffled);
  EXPECT_EQ(labels_of(source, shuffled), order);
  EXPECT_NE(order, expected);
  const auto packed = record_source(write_files(folder, 5, 7, Compression::kGzip), usual_features(),
                                    {.interleave = {.files = 9, .block = 1}});
  std::vector<int32_t> labels = labels_of(packed, {.batch = 5});
  EXPECT_EQ(std::vector<int32_t>(labels.begin(), labels.begin() + 6),
            (std::vector<int32_t>{0, 7, 14, 21, 28, 1}));
  std::sort(labels.begin(), labels.end());
  std::vector<int32_t> all(35);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(labels, all);
  EXPECT_EQ(error_of([&] { record_source(paths, usual_features(), {.interleave = {.files = 0}}); }),
            "an interleave of 0 files or 0 records has no order");
}

TEST(RecordSource, ReadsMoreFilesThanItKeepsOpen) {
  const ScratchFolder folder;
  const auto source = record_source(write_files(folder, 300, 2), usual_features());
  std::vector<int32_t> labels =
      labels_of(source, {.batch = 10, .order = {.shuffle = kShuffleAll}, .threads = 3});
  std::sort(labels.begin(), labels.end());
  std::vector<int32_t> expected(600);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(labels, expected);
}

TEST(RecordSource, RefusesWrongFeatures) {
  const ScratchFolder folder;
  const std::string place = folder.file("train-1000.tfrecord") + ", record 0 (byte 0): ";
  EXPECT_EQ(refused(folder, {.name = "picture"}),
            place + "it has no feature 'picture'; it has 'image', 'label', 'weight'");
  EXPECT_EQ(refused(folder, {.name = "weight", .type = DType::kI32}),
            place + "feature 'weight': stored floats cannot become i32: expected f32 or bf16");
  EXPECT_EQ(
      refused(folder, {.name = "image", .shape = {5}}),
      place + "feature 'image': 4 bytes, 4 elements of ui8; 5 elements are expected (f32[5])");
  EXPECT_EQ(refused(folder, {.name = "image", .type = DType::kI32, .stored_type = DType::kI32}),
            "");
  EXPECT_EQ(refused(folder, {.name = "label", .type = DType::kI32, .range = IntegerRange{1, 9}}),
            place + "feature 'label': value 0 is not in the range 1 to 9");
}

TEST(RecordSource, RefusesRecordsThatAreNoExamples) {
  const ScratchFolder folder;
  const std::string path = folder.file("d");
  const auto error_with = [&](std::string_view text) {
    RecordWriter writer(path, Compression::kNone);
    writer.add(std::as_bytes(std::span(text)));
    writer.finish();
    const Feature feature{.name = "x"};
    BatchPipeline pipeline(record_source({path}, {feature}), {feature}, {});
    Batch batch;
    return error_of([&] { pipeline.next(batch); });
  };
  EXPECT_EQ(error_with("\xFF\xFF\xFF"),
            path + ", record 0 (byte 0): expected a tf.train.Example, found other data");
  EXPECT_EQ(error_with(""), path + ", record 0 (byte 0): it has no feature 'x'; it has none");
  // features { feature { key: "x" value {} } }, and with a list of two strings
  EXPECT_EQ(error_with(std::string_view("\x0A\x07\x0A\x05\x0A\x01x\x12\x00", 9)),
            path + ", record 0 (byte 0): feature 'x': expected a list of values, found none");
  EXPECT_EQ(error_with(std::string_view(
                "\x0A\x0F\x0A\x0D\x0A\x01x\x12\x08\x0A\x06\x0A\x01p\x0A\x01q", 17)),
            path + ", record 0 (byte 0): feature 'x': 2 strings of bytes; one is expected");
}

TEST(RecordSource, ReportsACorruptRecordInItsPlace) {
  const ScratchFolder folder;
  const auto paths = write_files(folder, 2, 4);
  {
    std::fstream file(paths[1], std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(73 + 20);
    file.put('!');
  }
  BatchPipeline pipeline(record_source(paths, usual_features()), usual_features(),
                         {.batch = 1, .threads = 3});
  Batch batch;
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(pipeline.next(batch));
  }
  EXPECT_EQ(error_of([&] { pipeline.next(batch); }),
            paths[1] + ", record 1 (byte 73): corrupt: the checksum of its data is wrong");
}

// As a shell that has found the name hands it on, and as a configuration in such a folder has it.
TEST(RecordSource, FindsNamesThatLookLikePatterns) {
  const ScratchFolder folder;
  const std::string odd = folder.file("a[1] {b,c} *\\?");
  std::filesystem::create_directory(odd);
  for (const char* name : {"x[0].tfrecord", "x[1].tfrecord", "x0.tfrecord"}) {
    std::ofstream(odd + "/" + name, std::ios::binary).close();
  }
  const std::string named = odd + "/x[0].tfrecord";
  EXPECT_EQ(find_files({named}), std::vector<std::string>{named});
  EXPECT_EQ(find_files({pattern_in(odd, "x[0].tfrecord")}), std::vector<std::string>{named});
  EXPECT_EQ(find_files({pattern_in(odd, "x[0-9].tfrecord")}),
            std::vector<std::string>{odd + "/x0.tfrecord"});
  EXPECT_EQ(find_files({pattern_in(odd, "./x*")}).size(), 3u);
  EXPECT_EQ(pattern_in(odd, "/data/*"), "/data/*");
}

TEST(RecordSource, AFileOfSeveralPatternsIsTakenOnce) {
  const ScratchFolder folder;
  const auto paths = write_files(folder, 3, 4);
  EXPECT_EQ(find_files({paths[1], folder.file("*.tfrecord"), folder.file("./*.tfrecord"), paths[1],
                        std::filesystem::relative(paths[2]).string()}),
            (std::vector<std::string>{paths[1], paths[0], paths[2]}));
  const std::string link = folder.file("z.tfrecord");
  std::filesystem::create_symlink(paths[0], link);
  EXPECT_EQ(find_files({paths[0], link}), (std::vector<std::string>{paths[0], link}));
}

TEST(RecordSource, FilesInAnotherOrderAreOtherData) {
  const ScratchFolder folder;
  const auto paths = write_files(folder, 2, 4);
  EXPECT_NE(record_source(paths, usual_features())->identity(),
            record_source({paths[1], paths[0]}, usual_features())->identity());
}

TEST(RecordSource, RefusesEmptyDataSets) {
  const ScratchFolder folder;
  EXPECT_EQ(error_of([&] { find_files({folder.file("*.tfrecord")}); }),
            folder.file("*.tfrecord") + ": no such file");
  std::ofstream(folder.file("empty"), std::ios::binary).close();
  EXPECT_EQ(error_of([&] { record_source({folder.file("empty")}, usual_features()); }),
            folder.file("empty") + ": no records");
  EXPECT_EQ(error_of([&] { record_source({}, usual_features()); }),
            "no record files are named for the input");
}

TEST(CachedSource, ReadsFilesOnceAndGivesTheSame) {
  const ScratchFolder folder;
  const auto paths = write_files(folder, 2, 10);
  const auto source = record_source(paths, usual_features());
  const PipelineOptions options{
      .batch = 4, .order = {.seed = 2, .shuffle = kShuffleAll}, .threads = 4};
  const std::vector<int32_t> expected = labels_of(source, options);
  const auto cached = cached_source(source);
  EXPECT_EQ(labels_of(cached, options), expected);
  for (const std::string& path : paths) {
    std::filesystem::resize_file(path, 5);
  }
  EXPECT_EQ(labels_of(cached, options), expected);
  EXPECT_EQ(cached->identity(), source->identity());
  EXPECT_NE(error_of([&] { labels_of(source, options); }), "");
}

}  // namespace
}  // namespace tpu::input
