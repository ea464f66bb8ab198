// Batches: the same for any number of threads, after a restored position, with and without a
// remainder; and errors in their place.
#include "input/batch_pipeline.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>

#include "arrays.hpp"

namespace tpu::input {
namespace {

using Rows = std::vector<int32_t>;

std::vector<Feature> number_feature() { return {{.name = "numbers", .type = DType::kI32}}; }

// Every batch until the end, at most `most`.
std::vector<Rows> batches_of(BatchPipeline& pipeline, size_t most = 1000) {
  std::vector<Rows> batches;
  Batch batch;
  while (batches.size() < most && pipeline.next(batch)) {
    batches.push_back(values_of<int32_t>(batch.arrays[0].bytes));
  }
  return batches;
}

std::vector<Rows> run(PipelineOptions options, int32_t examples = 103) {
  BatchPipeline pipeline(counting_source(examples), number_feature(), std::move(options));
  return batches_of(pipeline);
}

TEST(InputBatches, GivesTheSameBatchesForAnyNumberOfThreads) {
  const PipelineOptions options{
      .batch = 5, .epochs = 3, .order = {.seed = 1, .shuffle = 20}, .threads = 1, .prefetch = 1};
  const std::vector<Rows> expected = run(options);
  EXPECT_EQ(expected.size(), 60u);
  for (const unsigned threads : {2u, 3u, 8u}) {
    for (const unsigned prefetch : {1u, 2u, 7u}) {
      PipelineOptions other = options;
      other.threads = threads;
      other.prefetch = prefetch;
      EXPECT_EQ(run(other), expected) << threads << " threads, " << prefetch << " ahead";
    }
  }
}

TEST(InputBatches, DropsKeepsOrPadsTheRemainder) {
  EXPECT_EQ(run({.batch = 2, .epochs = 1}, 5), (std::vector<Rows>{{0, 1}, {2, 3}}));
  EXPECT_EQ(run({.batch = 2, .remainder = Remainder::kKeep, .epochs = 1}, 5),
            (std::vector<Rows>{{0, 1}, {2, 3}, {4}}));
  EXPECT_EQ(run({.batch = 2, .remainder = Remainder::kPad, .epochs = 2}, 3),
            (std::vector<Rows>{{0, 1}, {2, 0}, {0, 1}, {2, 0}}));
  // In memory that other batches have filled: of two pieces in turn, three batches an epoch.
  EXPECT_EQ(
      run({.batch = 2, .remainder = Remainder::kPad, .epochs = 4, .threads = 1, .prefetch = 1}, 5)
          .back(),
      (Rows{4, 0}));
  BatchPipeline pipeline(counting_source(3), number_feature(),
                         {.batch = 4, .remainder = Remainder::kPad, .epochs = 1});
  Batch batch;
  ASSERT_TRUE(pipeline.next(batch));
  EXPECT_EQ(batch.examples, 3u);
  EXPECT_EQ(batch.arrays[0].shape, (Shape{4}));
  EXPECT_FALSE(pipeline.next(batch));
  EXPECT_FALSE(pipeline.next(batch));
}

TEST(InputBatches, ShardsHaveAsManyBatchesEach) {
  for (uint32_t shard = 0; shard < 3; ++shard) {
    const PipelineOptions options{.batch = 2, .epochs = 1, .order = {.shard = shard, .shards = 3}};
    EXPECT_EQ(run(options, 14).size(), 2u);  // shards of 5, 5 and 4 examples
  }
}

TEST(InputBatches, GoesOnWhereItWasLeft) {
  for (const uint64_t shuffle : std::vector<uint64_t>{0, 30, kShuffleAll}) {
    const PipelineOptions options{.batch = 4,
                                  .remainder = Remainder::kKeep,
                                  .epochs = 3,
                                  .order = {.seed = 7, .shuffle = shuffle}};
    const std::vector<Rows> whole = run(options);
    for (const size_t given : {0u, 1u, 25u, 26u, 40u, 77u, 78u}) {
      BatchPipeline first(counting_source(103), number_feature(), options);
      ASSERT_EQ(batches_of(first, given),
                std::vector<Rows>(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(given)));
      const std::string saved = first.position().text();
      BatchPipeline second(counting_source(103), number_feature(), options);
      second.restore(Position::parse(saved));
      EXPECT_EQ(batches_of(second),
                std::vector<Rows>(whole.begin() + static_cast<ptrdiff_t>(given), whole.end()))
          << "shuffle " << shuffle << ", " << given << " given";
    }
  }
}

// Of the given batches and those after a restored position, each comes once.
TEST(InputBatches, FreeOrderLosesNothingOverARestoredPosition) {
  const PipelineOptions options{
      .batch = 3, .epochs = 2, .threads = 4, .prefetch = 6, .free_order = true};
  BatchPipeline first(counting_source(99), number_feature(), options);
  std::vector<Rows> all = batches_of(first, 17);
  BatchPipeline second(counting_source(99), number_feature(), options);
  second.restore(first.position());
  for (Rows& rows : batches_of(second)) {
    all.push_back(std::move(rows));
  }
  std::vector<Rows> expected = run({.batch = 3, .epochs = 2}, 99);
  std::sort(all.begin(), all.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(all, expected);
}

TEST(InputBatches, SkipsWhatFreeOrderHasGivenBeforehand) {
  // With one batch ahead, batches 2 and 3 are looked at after batch 1 was given.
  for (const unsigned prefetch : {1u, 4u}) {
    const PipelineOptions options{.batch = 2, .epochs = 2, .threads = 1, .prefetch = prefetch};
    BatchPipeline pipeline(counting_source(6), number_feature(), options);
    Position position = pipeline.position();
    position.next = 1;
    position.beyond = {2, 3};
    pipeline.restore(position);
    EXPECT_EQ(batches_of(pipeline), (std::vector<Rows>{{2, 3}, {2, 3}, {4, 5}}));
  }
}

TEST(InputBatches, RefusesThePositionOfAnotherInput) {
  BatchPipeline pipeline(counting_source(6), number_feature(), {.batch = 2});
  BatchPipeline other(counting_source(8), number_feature(), {.batch = 2});
  EXPECT_EQ(
      error_of([&] { other.restore(pipeline.position()); }),
      "the input cannot continue where another one stopped: that was [arrays i32[6]; seed 0, "
      "as stored, shard 0 of 1; batches of 2, remainder dropped], this is [arrays i32[8]; seed "
      "0, as stored, shard 0 of 1; batches of 2, remainder dropped]");
  const uint64_t end = (uint64_t{1} << 32) * 4;
  struct Damaged {
    uint64_t next;
    std::vector<uint64_t> beyond;
    std::string what;
  };
  for (const Damaged& damaged : {
           Damaged{end + 1, {}, "next is batch 17179869185, expected at most 17179869184"},
           {0, {5, 4}, "batch 4 in beyond, expected one above 5 and below 17179869184"},
           {0, {5, 5}, "batch 5 in beyond, expected one above 5 and below 17179869184"},
           {0, {0}, "batch 0 in beyond, expected one above 0 and below 17179869184"},
           {3, {2}, "batch 2 in beyond, expected one above 3 and below 17179869184"},
           {0, {2, end}, "batch 17179869184 in beyond, expected one above 2 and below 17179869184"},
       }) {
    Position broken = other.position();
    broken.next = damaged.next;
    broken.beyond = damaged.beyond;
    EXPECT_EQ(error_of([&] { other.restore(broken); }),
              "the saved position of the input is damaged: " + damaged.what);
  }
  Batch batch;
  ASSERT_TRUE(other.next(batch));
  EXPECT_EQ(error_of([&] { other.restore(other.position()); }),
            "the input has given batches already; restore before the first one");
  EXPECT_EQ(error_of([] { Position::parse("{\"next\": 1}"); }),
            "the saved position of the input is damaged: beyond: expected an array, found no such "
            "member");
}

// What is drawn for an example is another in each epoch, and the same when an epoch is begun in.
TEST(InputBatches, AugmentsEachEpochAnew) {
  std::vector<uint8_t> pixels(16 * 2);
  std::iota(pixels.begin(), pixels.end(), uint8_t{0});
  const std::vector<Feature> features = {
      {.name = "image", .type = DType::kU8, .shape = {1, 2, 1}, .flip = true}};
  const PipelineOptions options{.batch = 16, .epochs = 3, .order = {.seed = 5}};
  const auto source =
      array_source({memory_column("image", array_of(DType::kU8, {16, 1, 2, 1}, pixels))});
  BatchPipeline pipeline(source, features, options);
  Position behind_one;
  std::vector<std::vector<uint8_t>> epochs;
  Batch batch;
  while (pipeline.next(batch)) {
    behind_one = epochs.empty() ? pipeline.position() : behind_one;
    epochs.push_back(values_of<uint8_t>(batch.arrays[0].bytes));
  }
  ASSERT_EQ(epochs.size(), 3u);
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  BatchPipeline resumed(source, features, options);
  resumed.restore(behind_one);
  ASSERT_TRUE(resumed.next(batch));
  EXPECT_EQ(values_of<uint8_t>(batch.arrays[0].bytes), epochs[1]);
}

// A label out of range fails its own batch, after all before it.
TEST(InputBatches, FailsInThePlaceOfTheBadExample) {
  for (const unsigned threads : {1u, 4u}) {
    std::vector<Feature> features = number_feature();
    features[0].range = IntegerRange{0, 40};
    BatchPipeline pipeline(counting_source(100), features,
                           {.batch = 8, .threads = threads, .prefetch = 8});
    Batch batch;
    for (int i = 0; i < 5; ++i) {
      ASSERT_TRUE(pipeline.next(batch));
    }
    const std::string expected =
        "numbers: example 41: feature 'numbers': value 41 is not in the range 0 to 40";
    EXPECT_EQ(error_of([&] { pipeline.next(batch); }), expected);
    EXPECT_EQ(error_of([&] { pipeline.next(batch); }), expected);
  }
}

// Examples that are read must have been announced before, front to back.
class AnnouncedSource : public Source {
 public:
  static constexpr uint64_t kExamples = 40;

  explicit AnnouncedSource(int64_t numbers) : numbers_(static_cast<size_t>(numbers)) {}
  uint64_t examples() const override { return kExamples; }
  std::unique_ptr<Reader> reader() const override { return std::make_unique<OneReader>(*this); }
  std::string place(uint64_t) const override { return {}; }
  std::string identity() const override { return {}; }
  void expect(uint64_t first, uint64_t count) const override {
    EXPECT_EQ(first, first == 0 ? 0 : end_.load());
    end_ = first + count;
    announced += count;
  }
  mutable std::atomic<uint64_t> announced = 0;
  mutable std::atomic<uint64_t> surprises = 0;  // reads of others

 private:
  class OneReader : public Reader {
   public:
    explicit OneReader(const AnnouncedSource& source) : source_(source) {}
    uint64_t read(uint64_t example, std::span<Value> values) override {
      source_.surprises += example < source_.end_ ? 0 : 1;
      values[0] = {DType::kI32, std::as_bytes(std::span(source_.numbers_))};
      return 0;
    }

   private:
    const AnnouncedSource& source_;
  };
  const std::vector<int32_t> numbers_;  // of each example
  mutable std::atomic<uint64_t> end_ = 0;
};

TEST(InputBatches, TheSourceHearsOfExamplesBeforeTheyAreRead) {
  constexpr uint64_t kEpochs = 2;
  for (const int64_t numbers : {int64_t{1}, int64_t{1} << 13}) {
    for (const uint64_t shuffle : {uint64_t{0}, uint64_t{10}}) {
      const auto source = std::make_shared<AnnouncedSource>(numbers);
      BatchPipeline pipeline(
          source, {{.name = "numbers", .type = DType::kI32, .shape = {numbers}}},
          {.batch = 2, .epochs = kEpochs, .order = {.shuffle = shuffle}, .prefetch = 1});
      EXPECT_EQ(batches_of(pipeline).size(), kEpochs * AnnouncedSource::kExamples / 2);
      // Small ones as stored are not announced: the host sees by itself where that goes.
      const bool told = numbers > 1 || shuffle > 0;
      EXPECT_EQ(source->announced, told ? kEpochs * AnnouncedSource::kExamples : 0);
      EXPECT_EQ(source->surprises == 0, told);
    }
  }
}

TEST(InputBatches, RefusesTooFewExamples) {
  EXPECT_EQ(error_of([] { run({.batch = 8}, 7); }),
            "7 examples are fewer than a batch of 8; take a smaller batch, or keep or pad the "
            "remainder");
  EXPECT_EQ(error_of([] { run({.batch = 1, .order = {.examples = std::vector<uint32_t>{}}}, 7); }),
            "the input is empty (arrays i32[7])");
  EXPECT_NE(error_of([] { run({.batch = 0}, 7); }), "");
  EXPECT_NE(error_of([] { run({.batch = uint64_t{1} << 62, .remainder = Remainder::kPad}, 7); }),
            "");
  EXPECT_NE(error_of([] { BatchPipeline(counting_source(3), {}, {}); }), "");
}

TEST(InputBatches, CountsWhatItRead) {
  BatchPipeline pipeline(counting_source(10), number_feature(), {.batch = 5, .epochs = 1});
  EXPECT_EQ(batches_of(pipeline).size(), 2u);
  const Rates rates = pipeline.rates();
  EXPECT_EQ(rates.examples, 10u);
  EXPECT_EQ(rates.bytes, 40u);
  EXPECT_EQ(rates.ready, 0u);
  EXPECT_GT(rates.seconds, 0.0);
}

TEST(InputBatches, UsesTheMemoryOfABatchAgain) {
  BatchPipeline pipeline(counting_source(1000), number_feature(),
                         {.batch = 10, .threads = 1, .prefetch = 1});
  Batch batch;
  std::vector<const std::byte*> seen;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(pipeline.next(batch));
    if (std::find(seen.begin(), seen.end(), batch.arrays[0].bytes.data()) == seen.end()) {
      seen.push_back(batch.arrays[0].bytes.data());
    }
  }
  EXPECT_LE(seen.size(), 3u);
}

}  // namespace
}  // namespace tpu::input
