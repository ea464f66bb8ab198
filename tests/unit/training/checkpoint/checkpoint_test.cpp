// Checkpoints: what is written reads back to the bit, every damage is found, and the folder keeps
// what it should whatever a run before has left there.
#include "checkpoint/checkpoint.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <limits>
#include <thread>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/checkpoint_writer.hpp"
#include "checkpoint/tensors.hpp"
#include "file/files.hpp"
#include "tpu/error.hpp"

namespace tpu::training {
namespace {

namespace fs = std::filesystem;
using driver::DType;
using driver::Error;
using driver::ErrorCode;
using driver::Shape;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Checkpoint sample(int64_t step) {
  Checkpoint made;
  made.step = step;
  made.state_seed = std::numeric_limits<uint64_t>::max();
  made.order = {.split_seed = 7, .examples = 100, .eval_count = 10, .batch = 16};
  made.parts = {.program = "aa", .data = "bb", .board = "v3_8", .cores = 8};
  made.losses.assign(static_cast<size_t>(step), 1.0f / 3.0f);
  made.losses.back() = std::numeric_limits<float>::quiet_NaN();
  made.epochs.push_back({.epoch = 1, .train_loss = 0.1, .eval = {}, .whole = true});
  made.epochs.push_back({.epoch = 2,
                         .train_loss = std::nan(""),
                         .eval = EvalResult{{{"accuracy", 1.0 / 3.0}, {"loss", 0.7}}},
                         .whole = true});
  made.leaves.push_back({DType::kF32, {}, std::vector<std::byte>(4)});
  made.leaves.push_back(
      {DType::kBf16, {3, 5}, std::vector<std::byte>(30, static_cast<std::byte>(step))});
  made.leaves.push_back({DType::kI64, {2}, std::vector<std::byte>(16, std::byte{1})});
  return made;
}

class Checkpoints : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() /
            (std::string("tpu_checkpoint_") +
             ::testing::UnitTest::GetInstance()->current_test_info()->name() +
             std::to_string(getpid()));
    fs::create_directories(root_);
    folder_ = root_ / "checkpoint";
    file_ = root_ / "step5.safetensors";
  }
  void TearDown() override { fs::remove_all(root_); }

  template <typename Action>
  static std::string refusal(Action action) {
    try {
      action();
    } catch (const Error& error) {
      return error.message();
    }
    return "accepted";
  }
  std::string read_refusal() const {
    return refusal([this] { read_checkpoint(file_); });
  }

  // Names in the folder, sorted.
  std::vector<std::string> kept() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  Checkpoint resume(std::vector<std::string>* said = nullptr) const {
    CheckpointFolder folder(folder_, 2);
    return folder.resume([&](const std::string& text) {
      ASSERT_NE(said, nullptr) << text;
      said->push_back(text);
    });
  }

  // The last byte of a file is another one.
  static void damage(const fs::path& file) {
    std::vector<std::byte> bytes = driver::read_file(file.string());
    bytes.back() ^= std::byte{1};
    driver::write_file(file.string(), bytes);
  }

  fs::path root_;
  fs::path folder_;
  fs::path file_;
};

TEST_F(Checkpoints, ReadBackToTheBit) {
  Checkpoint sent = sample(5);
  sent.best = {"largest accuracy", 4, 1.0 / 3.0};
  write_checkpoint(file_, sent);
  const Checkpoint got = read_checkpoint(file_);
  EXPECT_EQ(got.step, 5);
  EXPECT_EQ(got.state_seed, sent.state_seed);
  EXPECT_EQ(got.order, sent.order);
  EXPECT_EQ(got.parts.program, "aa");
  EXPECT_EQ(got.parts.data, "bb");
  EXPECT_EQ(got.parts.board, "v3_8");
  EXPECT_EQ(got.parts.cores, 8);
  EXPECT_EQ(got.best->rule, "largest accuracy");
  EXPECT_EQ(got.best->step, 4);
  EXPECT_EQ(got.best->value, 1.0 / 3.0);
  ASSERT_EQ(got.losses.size(), 5u);
  EXPECT_EQ(std::memcmp(got.losses.data(), sent.losses.data(), 5 * sizeof(float)), 0);
  ASSERT_EQ(got.epochs.size(), 2u);
  EXPECT_EQ(got.epochs[0].train_loss, 0.1);
  EXPECT_FALSE(got.epochs[0].eval);
  EXPECT_TRUE(std::isnan(got.epochs[1].train_loss));
  EXPECT_EQ(got.epochs[1].eval->metrics, sent.epochs[1].eval->metrics);
  ASSERT_EQ(got.leaves.size(), 3u);
  for (size_t i = 0; i < got.leaves.size(); ++i) {
    EXPECT_EQ(got.leaves[i].dtype, sent.leaves[i].dtype);
    EXPECT_EQ(got.leaves[i].shape, sent.leaves[i].shape);
    EXPECT_EQ(got.leaves[i].bytes, sent.leaves[i].bytes);
  }
}

// Wherever it is: in the header, in a tensor, in the losses. Every fifth byte, for the time.
TEST_F(Checkpoints, AChangeOfAByteIsFound) {
  write_checkpoint(file_, sample(5));
  const std::vector<std::byte> good = driver::read_file(file_.string());
  const std::string text(reinterpret_cast<const char*>(good.data()), good.size());
  for (size_t at = 0; at < good.size(); at += 5) {
    std::vector<std::byte> bytes = good;
    bytes[at] ^= std::byte{4};
    std::ofstream(file_, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    EXPECT_NE(read_refusal(), "accepted") << at;
  }
  for (const size_t size : {size_t{0}, size_t{7}, good.size() / 2, good.size() - 1}) {
    std::ofstream(file_, std::ios::binary).write(text.data(), static_cast<std::streamsize>(size));
    EXPECT_THAT(read_refusal(), HasSubstr("step5.safetensors: ")) << size;
  }
}

TEST_F(Checkpoints, WhatIsNoCheckpointIsNamed) {
  EXPECT_THAT(read_refusal(), HasSubstr("step5.safetensors: cannot be opened"));
  const std::vector<float> values(3);
  const NamedViews tensors = {
      {"w", driver::HostView(DType::kF32, {3}, std::as_bytes(std::span(values)))}};
  write_tensors(file_, tensors, {});
  EXPECT_THAT(read_refusal(), HasSubstr("found another safetensors file"));
  write_tensors(file_, tensors, {{"tpuboard_checkpoint", "3"}});
  EXPECT_THAT(read_refusal(), HasSubstr("a checkpoint of form 3; this tpuboard reads form 2"));
  write_tensors(file_, tensors, {{"tpuboard_checkpoint", "2"}});
  EXPECT_THAT(read_refusal(), HasSubstr("do not have the SHA-256 that it names"));
}

TEST_F(Checkpoints, TheLastOnesAndTheBestAreKept) {
  CheckpointFolder folder(folder_, 2);
  for (const int64_t step : {1, 2, 3, 10, 11}) {
    Checkpoint made = sample(step);
    if (step >= 2) {
      made.best = {"largest accuracy", 2, 0.5};
    }
    folder.save(made);
  }
  EXPECT_THAT(kept(), ElementsAre("step10.safetensors", "step11.safetensors", "step2.safetensors"));
  Checkpoint better = sample(12);
  better.best = {"largest accuracy", 12, 0.6};
  folder.save(better);
  EXPECT_THAT(kept(), ElementsAre("step11.safetensors", "step12.safetensors"));
}

TEST_F(Checkpoints, TheOneBeforeADamagedOneIsTakenAndThatIsSaid) {
  EXPECT_THAT(refusal([this] { resume(); }), HasSubstr("no checkpoint to resume from"));
  {
    CheckpointFolder folder(folder_, 3);
    for (const int64_t step : {5, 6, 7}) {
      folder.save(sample(step));
    }
  }
  EXPECT_EQ(resume().step, 7);
  damage(folder_ / "step7.safetensors");
  damage(folder_ / "step6.safetensors");
  std::vector<std::string> said;
  {
    CheckpointFolder folder(folder_, 2);
    EXPECT_EQ(folder.resume([&](const std::string& text) { said.push_back(text); }).step, 5);
    ASSERT_EQ(said.size(), 2u);
    EXPECT_THAT(said[0], HasSubstr("step7.safetensors: damaged: "));
    EXPECT_THAT(said[0], HasSubstr("the one before it is taken: step6.safetensors"));
    EXPECT_THAT(said[1], HasSubstr("step6.safetensors.damaged from here on"));
    // The damaged ones do not count as the newest.
    folder.save(sample(6));
  }
  EXPECT_THAT(kept(), ElementsAre("step5.safetensors", "step6.safetensors",
                                  "step6.safetensors.damaged", "step7.safetensors.damaged"));
  EXPECT_EQ(resume().step, 6);
  damage(folder_ / "step6.safetensors");
  fs::remove(folder_ / "step5.safetensors");
  EXPECT_THAT(refusal([this] { resume(); }), HasSubstr("step6.safetensors: damaged: "));
  EXPECT_TRUE(fs::exists(folder_ / "step6.safetensors")) << "the only one is left as it is";
}

// A run that starts anew replaces what an earlier one has left when its own first one is there.
TEST_F(Checkpoints, ANewRunTakesThePlaceOfAnEarlierOne) {
  for (const int64_t step : {100, 200}) {
    CheckpointFolder(folder_, 2).save(sample(step));
  }
  EXPECT_THAT(kept(), ElementsAre("run2.step200.safetensors"));
  EXPECT_EQ(resume().step, 200);
  {
    CheckpointFolder third(folder_, 2);
    third.open();
    EXPECT_THAT(kept(), ElementsAre("run2.step200.safetensors"));
    third.save(sample(1));
  }
  EXPECT_THAT(kept(), ElementsAre("run3.step1.safetensors"));
  // As after a crash before the older ones were removed.
  write_checkpoint(folder_ / "step900.safetensors", sample(900));
  EXPECT_EQ(resume().step, 1);
  CheckpointFolder goes_on(folder_, 2);
  goes_on.resume([](const std::string&) {});
  goes_on.save(sample(2));
  EXPECT_THAT(kept(), ElementsAre("run3.step1.safetensors", "run3.step2.safetensors"));
}

TEST_F(Checkpoints, OtherFilesStayAndHalfWrittenOnesGo) {
  fs::create_directories(folder_);
  for (const char* name :
       {"notes.txt", "step.safetensors", "step01.safetensors", "model.safetensors", "notes.part",
        "run1.step3.safetensors", "step99999999999999999999.safetensors"}) {
    std::ofstream(folder_ / name) << "mine";
  }
  std::ofstream(folder_ / "step7.safetensors.0123456789abcdef.part") << "of another program";
  for (const char* name :
       {"run2.step7.safetensors.123.part", "step7.safetensors.0123456789abcdee.part"}) {
    write_checkpoint(folder_ / name, sample(7));
    fs::resize_file(folder_ / name, fs::file_size(folder_ / name) - 5);
  }
  CheckpointFolder folder(folder_, 1);
  folder.save(sample(1));
  folder.save(sample(2));
  EXPECT_THAT(kept(),
              ElementsAre("model.safetensors", "notes.part", "notes.txt", "run1.step3.safetensors",
                          "step.safetensors", "step01.safetensors", "step2.safetensors",
                          "step7.safetensors.0123456789abcdef.part",
                          "step99999999999999999999.safetensors"));
}

// Weights of another tool under a checkpoint's name.
TEST_F(Checkpoints, FilesOfOthersUnderTheirNamesStay) {
  fs::create_directories(folder_);
  const std::vector<float> values(3);
  const NamedViews tensors = {
      {"w", driver::HostView(DType::kF32, {3}, std::as_bytes(std::span(values)))}};
  write_tensors(folder_ / "step5000.safetensors", tensors, {{"format", "pt"}});
  std::ofstream(folder_ / "step6000.safetensors") << "no safetensors at all";
  {
    std::vector<std::string> moved;
    CheckpointFolder folder(folder_, 1, [&](const std::string& text) { moved.push_back(text); });
    for (const int64_t step : {1, 2, 3}) {
      folder.save(sample(step));
    }
    EXPECT_THAT(kept(), ElementsAre("run2.step3.safetensors", "step5000.safetensors",
                                    "step6000.safetensors"));
    EXPECT_THAT(moved, ::testing::IsEmpty());
    for (const char* text : {"mine", "too"}) {
      std::ofstream(folder_ / "run2.step3.safetensors") << text;
      folder.save(sample(3));
    }
    EXPECT_THAT(moved, ElementsAre(HasSubstr("run2.step3.safetensors: was not a checkpoint of this "
                                             "user's runs; it is renamed to "
                                             "run2.step3.safetensors.other"),
                                   HasSubstr("renamed to run2.step3.safetensors.other2")));
    std::ofstream(folder_ / "run2.step4.safetensors") << "mine";
  }
  std::vector<std::string> said;
  EXPECT_EQ(resume(&said).step, 3);
  EXPECT_THAT(said,
              ElementsAre(HasSubstr("run2.step4.safetensors: not a safetensors file, or damaged")));
  EXPECT_THAT(said[0], HasSubstr("; it is left as it is, and the one before it is taken: "
                                 "run2.step3.safetensors"));
  EXPECT_THAT(kept(), ElementsAre("run2.step3.safetensors", "run2.step3.safetensors.other",
                                  "run2.step3.safetensors.other2", "run2.step4.safetensors",
                                  "step5000.safetensors", "step6000.safetensors"));
  EXPECT_EQ(fs::file_size(folder_ / "run2.step3.safetensors.other"), 4u);
}

TEST_F(Checkpoints, LinksAndFilesOfOtherUsersAreNotRemoved) {
  write_checkpoint(root_ / "elsewhere.safetensors", sample(1));
  fs::create_directories(folder_);
  fs::create_symlink(root_ / "elsewhere.safetensors", folder_ / "step1.safetensors");
  write_checkpoint(folder_ / "step2.safetensors", sample(2));
  const bool root = geteuid() == 0;
  if (root) {
    ASSERT_EQ(::chown((folder_ / "step2.safetensors").c_str(), 65534, 65534), 0);
  }
  CheckpointFolder(folder_, 1).save(sample(3));
  EXPECT_TRUE(fs::is_symlink(folder_ / "step1.safetensors"));
  EXPECT_EQ(fs::exists(folder_ / "step2.safetensors"), root);
}

// That a file cannot be opened just now says nothing about what it holds.
TEST_F(Checkpoints, OneThatCannotBeOpenedIsNotDamaged) {
  {
    CheckpointFolder folder(folder_, 2);
    for (const int64_t step : {5, 6}) {
      folder.save(sample(step));
    }
  }
  fs::permissions(folder_ / "step6.safetensors", fs::perms::none);
  const pid_t child = fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;  // root opens everything: another user tries it
    if (geteuid() == 0 && (::chown(folder_.c_str(), kNobody, kNobody) != 0 ||
                           setgid(kNobody) != 0 || setuid(kNobody) != 0)) {
      _exit(2);
    }
    const std::string said = refusal([this] { resume(); });
    const char* const expected = "step6.safetensors: cannot be opened: Permission denied";
    _exit(said.find(expected) != std::string::npos ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(kept(), ElementsAre("step5.safetensors", "step6.safetensors"));
}

TEST_F(Checkpoints, AFolderHasOneRunAtATime) {
  CheckpointFolder folder(folder_, 2);
  folder.save(sample(1));
  CheckpointFolder other(folder_, 2);
  EXPECT_THAT(refusal([&] { other.open(); }), HasSubstr("another run writes there"));
  EXPECT_THAT(refusal([&] { other.resume([](const std::string&) {}); }),
              HasSubstr("another run writes there"));
  std::ofstream(root_ / "file") << "mine";
  EXPECT_THAT(refusal([&] { CheckpointFolder(root_ / "file", 2).open(); }),
              HasSubstr("file: cannot create this folder"));
}

TEST_F(Checkpoints, TheFormOfNpyFilesIsNamed) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "checkpoint.json") << "{}";
  EXPECT_THAT(
      refusal([this] { resume(); }),
      HasSubstr("holds a checkpoint of an earlier format (checkpoint.json and .npy files)"));
}

// A limit of file sizes stands for a full disk.
TEST_F(Checkpoints, AFullDiskLeavesTheOneBefore) {
  CheckpointFolder folder(folder_, 2);
  folder.save(sample(1));
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  for (const rlim_t bytes : std::initializer_list<rlim_t>{0, 1, 100, 1000, 1500}) {
    const rlimit small{.rlim_cur = bytes, .rlim_max = old.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const std::string text = refusal([&] { folder.save(sample(1000)); });
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
    EXPECT_THAT(text, HasSubstr("cannot be written: File too large; make room")) << bytes;
    EXPECT_THAT(kept(), ElementsAre("step1.safetensors"));
  }
  std::signal(SIGXFSZ, before);
  folder.save(sample(1000));
  EXPECT_THAT(kept(), ElementsAre("step1.safetensors", "step1000.safetensors"));
}

TEST_F(Checkpoints, AWriterTellsWhatHasBecomeOfEachOnce) {
  CheckpointWriter writer([](const Checkpoint& made) {
    if (made.step == 2) {
      throw Error(ErrorCode::kResourceExhausted, "the disk is full");
    }
  });
  EXPECT_TRUE(writer.idle());
  EXPECT_FALSE(writer.take());
  writer.start(sample(1));
  std::optional<CheckpointWriter::Outcome> outcome = writer.wait();
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->step, 1);
  EXPECT_EQ(outcome->error, nullptr);
  EXPECT_FALSE(writer.wait());
  writer.start(sample(2));
  while (!(outcome = writer.take())) {
    std::this_thread::yield();
  }
  EXPECT_NE(outcome->error, nullptr);
}

TEST_F(Checkpoints, WhatMakesAnotherRunIsNamed) {
  const RunParts mine{.program = "aa", .data = "bb", .board = "v3_8", .cores = 8};
  EXPECT_TRUE(changed_parts(mine, mine).empty());
  EXPECT_TRUE(notes_on_parts(mine, mine).empty());
  RunParts other = mine;
  other.program = "cc";
  EXPECT_THAT(changed_parts(mine, other), ElementsAre(HasSubstr("program.train holds another")));
  other.program = "";  // an executable does not tell its source
  EXPECT_TRUE(changed_parts(mine, other).empty());
  other.data = "dd";
  EXPECT_THAT(changed_parts(mine, other), ElementsAre(HasSubstr("the examples are others")));
  other.board = "small";
  EXPECT_THAT(notes_on_parts(mine, other), ElementsAre(HasSubstr("the bits are the same")));
  other.cores = 1;
  EXPECT_THAT(notes_on_parts(mine, other),
              ElementsAre(HasSubstr("with 8 cores, the run continues")));
}

}  // namespace
}  // namespace tpu::training
