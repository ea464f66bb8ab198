// `tpuboard train` as a process of its own on the simulated board, with a small classifier to
// train.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint_folder.hpp"
#include "format/npy.hpp"

namespace tpu::driver::test {

using ::testing::HasSubstr;
using Json = nlohmann::json;

struct Ended {
  int status = 0;
  std::string text;  // both streams
};

class TrainProcess : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              (std::string("tpu_train_process_") + info->name() + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    constexpr unsigned kSeed = 1;
    std::mt19937 random(kSeed);
    std::vector<float> images(80 * 12);
    std::vector<int32_t> labels(80);
    for (float& value : images) {
      value = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
    }
    for (int32_t& label : labels) {
      label = static_cast<int32_t>(random() % 4);
    }
    write_npy(path("images.npy"),
              HostView(DType::kF32, {80, 12}, std::as_bytes(std::span(images))));
    write_npy(path("labels.npy"), HostView(DType::kI32, {80}, std::as_bytes(std::span(labels))));
    std::ofstream(path("c.toml")) << "[program]\ntrain = \"" << TPU_TEST_DATA
                                  << "/mlp_sgd.mlirbc\"\n"
                                  << R"([state]
seed = 1
init = ["zeros", "he_normal", "zeros", "he_normal", "zeros", "he_normal"]
[data]
images = "images.npy"
labels = "labels.npy"
split_seed = 7
eval_count = 10
classes = 4
[run]
batch = 16
epochs = 1000000
checkpoint = "checkpoint"
)";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  // `during`: called with the process and the number of epochs whose line has come; true: never
  // call it again.
  template <typename During>
  Ended train(const std::string& out, std::vector<std::string> more, During during) const {
    std::vector<std::string> words = {TPUBOARD, "train", path("c.toml"), "--out", path(out)};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<char*> argv;
    for (std::string& word : words) {
      argv.push_back(word.data());
    }
    argv.push_back(nullptr);
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    const pid_t child = fork();
    if (child == 0) {
      std::signal(SIGINT, SIG_DFL);  // whoever runs tests in the background may ignore it
      dup2(ends[1], STDOUT_FILENO);
      dup2(ends[1], STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(ends[1]);
    Ended ended;
    FILE* stream = fdopen(ends[0], "r");
    std::array<char, 4096> line{};
    int epochs = 0;
    bool over = false;
    while (std::fgets(line.data(), line.size(), stream) != nullptr) {
      ended.text += line.data();
      epochs += std::string_view(line.data()).starts_with("epoch") ? 1 : 0;
      over = over || during(child, epochs);
    }
    std::fclose(stream);
    waitpid(child, &ended.status, 0);
    return ended;
  }
  Ended train(const std::string& out, const std::vector<std::string>& more) const {
    return train(out, more, [](pid_t, int) { return true; });
  }

  Json report(const std::string& out) const {
    return Json::parse(std::ifstream(path(out + "/run.json")));
  }

  // Step of the newest checkpoint, which must be complete.
  int64_t newest(const std::string& out) const {
    const std::filesystem::path folder = path(out + "/checkpoint");
    const auto name = training::newest_checkpoint(folder);
    EXPECT_TRUE(name);
    return name ? training::read_checkpoint(folder / name->text()).step : -1;
  }

  // Rows of metrics.jsonl of the steps 1 to `last`, each of them there once.
  int64_t rows_up_to(const std::string& out, int64_t last) const {
    std::ifstream file(path(out + "/metrics.jsonl"));
    int64_t rows = 0;
    for (std::string line; std::getline(file, line);) {
      const Json row = Json::parse(line, nullptr, false);
      if (row.is_object() && row.contains("loss") && row["step"].get<int64_t>() <= last) {
        EXPECT_EQ(row["step"].get<int64_t>(), ++rows);
      }
    }
    return rows;
  }

  // The run in `out`, which has ended early, goes on for two more epochs; then it must be as one
  // that never stopped.
  void expect_resumes(const std::string& out) const {
    const int64_t stopped = newest(out);
    const std::vector<std::string> steps = {"--steps", std::to_string(stopped + 9)};
    std::vector<std::string> resume = steps;
    resume.emplace_back("--resume");
    const Ended resumed = train(out, resume);
    EXPECT_EQ(resumed.status, 0) << resumed.text;
    EXPECT_THAT(resumed.text, HasSubstr("resumed at step " + std::to_string(stopped)));
    const Ended straight = train("straight", steps);
    EXPECT_EQ(straight.status, 0) << straight.text;
    const Json a = report(out);
    const Json b = report("straight");
    EXPECT_EQ(a["first_step"], stopped);
    EXPECT_EQ(a["digest"], b["digest"]);
    EXPECT_EQ(a["losses"], b["losses"]);
    EXPECT_EQ(a["epochs"], b["epochs"]);
    EXPECT_EQ(a["losses"].size(), static_cast<size_t>(stopped) + 9);
  }

  std::filesystem::path folder_;
};

}  // namespace tpu::driver::test
