// Figures of a run as files: tables, lines of JSON, TensorBoard's records byte by byte, the page.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "file/crc32c.hpp"
#include "report/line_plot.hpp"
#include "report/metrics_files.hpp"
#include "report/rate_finder.hpp"
#include "report/report_page.hpp"
#include "tpu/error.hpp"

namespace tpu::training {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Metrics : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              (std::string("tpu_metrics_") +
               ::testing::UnitTest::GetInstance()->current_test_info()->name() +
               std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string text(const std::filesystem::path& path) const {
    std::stringstream all;
    all << std::ifstream(folder_ / path, std::ios::binary).rdbuf();
    return all.str();
  }

  static FigureRow step(int64_t number) {
    return {.step = number,
            .epoch = 1,
            .evaluation = false,
            .values = {{"loss", 1.0 / static_cast<double>(number)}, {"step_us", 2.5}}};
  }

  // The messages of the one event file, with its lengths and checksums looked at.
  std::vector<std::string> events() const {
    std::vector<std::string> messages;
    for (const auto& file : std::filesystem::directory_iterator(folder_ / "tensorboard")) {
      EXPECT_THAT(file.path().filename().string(), HasSubstr("events.out.tfevents."));
      std::string rest = text(file.path());
      while (rest.size() >= 16) {
        uint64_t length = 0;
        std::memcpy(&length, rest.data(), sizeof(length));
        EXPECT_EQ(crc_at(rest, 8), masked(rest.substr(0, 8)));
        messages.push_back(rest.substr(12, length));
        EXPECT_EQ(crc_at(rest, 12 + length), masked(messages.back()));
        rest.erase(0, 16 + length);
      }
      EXPECT_TRUE(rest.empty());
    }
    return messages;
  }

  static uint32_t crc_at(const std::string& bytes, size_t at) {
    uint32_t crc = 0;
    std::memcpy(&crc, bytes.data() + at, sizeof(crc));
    return crc;
  }
  static uint32_t masked(const std::string& bytes) {
    const uint32_t crc = spec::crc32c_portable(std::as_bytes(std::span(bytes)));
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
  }

  std::filesystem::path folder_;
};

TEST_F(Metrics, TablesAndLines) {
  MetricsFiles files(folder_, 0);
  files.add(step(1));
  FigureRow odd = step(2);
  odd.values[0].value = NAN;
  files.add(odd);
  files.add({.step = 2, .epoch = 1, .evaluation = true, .values = {{"test_accuracy", 0.5}}});
  files.finish();
  EXPECT_EQ(text("metrics.csv"), "step,epoch,loss,step_us\n1,1,1,2.5\n2,1,nan,2.5\n");
  EXPECT_EQ(text("evaluations.csv"), "step,epoch,test_accuracy\n2,1,0.5\n");
  EXPECT_EQ(text("metrics.jsonl"),
            "{\"step\":1,\"epoch\":1,\"loss\":1.0,\"step_us\":2.5}\n"
            "{\"step\":2,\"epoch\":1,\"loss\":null,\"step_us\":2.5}\n"
            "{\"step\":2,\"epoch\":1,\"test_accuracy\":0.5}\n");
}

// Field 1 of the message is the time (8 bytes), field 2 the step, 5 the summary with one value
// each: tag (1) and simple_value (2).
TEST_F(Metrics, RecordsThatTensorBoardReads) {
  MetricsFiles files(folder_, 0);
  files.add(step(3));
  files.finish();
  const std::vector<std::string> messages = events();
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(messages[0][0], '\x09');
  EXPECT_THAT(messages[0], HasSubstr("\x1a\x0d"
                                     "brain.Event:2"));
  EXPECT_THAT(messages[1], HasSubstr("\x10\x01\x3a\x02\x08\x01"));  // step 1, session START
  const float loss = 1.0f / 3.0f;
  std::string value("\x0a\x04loss\x15", 7);
  value.append(reinterpret_cast<const char*>(&loss), sizeof(loss));
  EXPECT_EQ(messages[2].substr(9, 3), "\x10\x03\x2a");
  EXPECT_THAT(messages[2], HasSubstr(value));
  EXPECT_THAT(messages[2], HasSubstr("step_us"));
}

// The rows behind the checkpoint are those of steps that are done again; a cut line is left out.
TEST_F(Metrics, ARunThatGoesOnKeepsTheRowsBeforeIt) {
  {
    MetricsFiles files(folder_, 0);
    for (int64_t i = 1; i <= 5; ++i) {
      files.add(step(i));
    }
    files.add({.step = 5, .epoch = 1, .evaluation = true, .values = {{"test_loss", 0.5}}});
    files.finish();
  }
  std::ofstream(folder_ / "metrics.jsonl", std::ios::app) << "{\"step\":3,\"epo";
  MetricsFiles files(folder_, 3);
  EXPECT_EQ(files.rows().size(), 3u);
  files.add(step(4));
  files.finish();
  EXPECT_EQ(text("metrics.csv"),
            "step,epoch,loss,step_us\n1,1,1,2.5\n2,1,0.5,2.5\n3,1,0.333333333,2.5\n4,1,0.25,2.5\n");
  EXPECT_EQ(text("evaluations.csv"), "");
}

// A run that is killed behind a checkpoint has the rows of its steps: they do not wait for the next
// flush, which is a second later, nor for a part of the file to be written again.
TEST_F(Metrics, RowsAreThereBeforeACheckpointIs) {
  MetricsFiles killed(folder_, 0);
  for (int64_t i = 1; i <= 3; ++i) {
    killed.add(step(i));
  }
  killed.sync();
  EXPECT_THAT(text("metrics.jsonl"), HasSubstr("{\"step\":3,"));
  EXPECT_THAT(text("metrics.csv"), HasSubstr("\n3,1,"));
  const MetricsFiles resumed(folder_, 3);
  EXPECT_EQ(resumed.rows().size(), 3u);
  EXPECT_THAT(text("metrics.jsonl"), HasSubstr("{\"step\":3,")) << "at once, not at its first row";
  EXPECT_THAT(text("metrics.csv"), HasSubstr("\n3,1,"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ / "tensorboard"), {}), 2)
      << "the events of the run before stay";
}

TEST_F(Metrics, WhatCannotBeWrittenIsSaid) {
  std::filesystem::create_directories(folder_ / "metrics.csv");
  MetricsFiles files(folder_, 0);
  files.add(step(1));
  try {
    files.finish();
    FAIL() << "written";
  } catch (const driver::Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("the metrics of the run could not be written"));
  }
  std::ofstream(folder_ / "file") << "x";
  EXPECT_THROW(MetricsFiles(folder_ / "file", 0), driver::Error);
}

TEST_F(Metrics, ThePageHasACurveForEachFigure) {
  std::vector<FigureRow> rows;
  for (int64_t i = 1; i <= 2000; ++i) {
    rows.push_back(step(i));
  }
  rows.push_back({.step = 7, .epoch = 1, .evaluation = true, .values = {{"test_loss", NAN}}});
  const std::string html = report_page("a<b>.toml", {{"board", "v3_8"}, {"losses", {1, 2}}}, rows);
  EXPECT_THAT(html, HasSubstr("<h1>a&lt;b&gt;.toml</h1>"));
  EXPECT_THAT(html, HasSubstr("<td>board</td><td>v3_8</td>"));
  EXPECT_THAT(html, HasSubstr("test_loss</text>"));
  EXPECT_THAT(html, Not(HasSubstr("nan")));
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("href")));
  size_t plots = 0;
  for (size_t at = html.find("<svg"); at != std::string::npos; at = html.find("<svg", at + 1)) {
    ++plots;
  }
  EXPECT_EQ(plots, 2u);            // test_loss is drawn with loss
  EXPECT_LT(html.size(), 40000u);  // not one point a step
}

TEST_F(Metrics, TheBestRateIsWhereTheLossFallsFastest) {
  std::vector<RatePoint> points;
  for (int i = 0; i < 40; ++i) {
    const double smooth = i < 20 ? 3.0 : i < 25 ? 3.0 - 0.4 * (i - 20) : 1.0 + 0.3 * (i - 25);
    points.push_back({std::pow(10.0, i / 10.0 - 3), smooth + 0.01, smooth});
  }
  const double rate = best_rate(points);
  EXPECT_GT(rate, points[20].rate);
  EXPECT_LT(rate, points[25].rate);
  EXPECT_EQ(best_rate({}), 0.0);
  write_rates(folder_, points);
  EXPECT_THAT(text("learning_rates.csv"),
              HasSubstr("learning_rate,loss,smooth_loss\n0.001,3.01,3"));
  EXPECT_THAT(text("learning_rates.svg"), HasSubstr("<polyline"));
}

}  // namespace
}  // namespace tpu::training
