// Checkpoints: what is written reads back to the bit, and after a failure or a crash at any point
// of the writing a complete one is found.
#include "checkpoint/checkpoint.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "files/files.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

using training::check_checkpoint_folder;
using training::Checkpoint;
using training::EvalResult;
using training::FileActions;
using training::read_checkpoint;
using training::write_checkpoint;

namespace fs = std::filesystem;
using ::testing::HasSubstr;

Checkpoint sample(int64_t step) {
  Checkpoint made;
  made.step = step;
  made.order = {.split_seed = 7, .examples = 100, .eval_count = 10, .batch = 16};
  made.losses.assign(static_cast<size_t>(step), 1.0f / 3.0f);
  made.losses.back() = std::numeric_limits<float>::quiet_NaN();
  made.epochs.push_back({.epoch = 1, .train_loss = 0.1, .eval = {}, .whole = true});
  made.epochs.push_back(
      {.epoch = 2,
       .train_loss = std::nan(""),
       .eval = EvalResult{{{"accuracy", 1.0 / 3.0}, {"loss", 0.7}, {"perplexity", 4.5}}},
       .whole = true});
  made.leaves.push_back({DType::kF32, {}, std::vector<std::byte>(4)});
  made.leaves.push_back(
      {DType::kBf16, {3, 5}, std::vector<std::byte>(30, static_cast<std::byte>(step))});
  return made;
}

// Does not wait for the disk.
class Quick : public FileActions {
 public:
  void write(const fs::path& path, std::span<const std::byte> bytes) override {
    write_file(path.string(), bytes);
  }
  void sync(const fs::path&) override {}
};

// Fails at the action number `at`, as a full disk does (an Error) or as a crash does: then nothing
// that comes later happens either.
class Failing : public Quick {
 public:
  Failing(int at, bool crash, bool can_exchange)
      : at_(at), crash_(crash), can_exchange_(can_exchange) {}

  void make_folder(const fs::path& path) override {
    count();
    Quick::make_folder(path);
  }
  void write(const fs::path& path, std::span<const std::byte> bytes) override {
    if (left_ == at_) {
      Quick::write(path, bytes.first(bytes.size() / 2));
    }
    count();
    Quick::write(path, bytes);
  }
  void sync(const fs::path& folder) override {
    count();
    Quick::sync(folder);
  }
  bool exchange(const fs::path& a, const fs::path& b) override {
    count();
    return can_exchange_ && Quick::exchange(a, b);
  }
  void rename(const fs::path& from, const fs::path& to) override {
    count();
    Quick::rename(from, to);
  }
  void remove(const fs::path& folder) override {
    count();
    Quick::remove(folder);
  }
  bool failed() const { return left_ > at_; }

 private:
  void count() {
    const bool now = crash_ ? left_ >= at_ : left_ == at_;
    ++left_;
    if (now) {
      throw Error(ErrorCode::kInternal, "No space left on device");
    }
  }

  int at_;
  bool crash_;
  bool can_exchange_;
  int left_ = 0;
};

class Checkpoints : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() /
            (std::string("tpu_checkpoint_") +
             ::testing::UnitTest::GetInstance()->current_test_info()->name() +
             std::to_string(getpid()));
    fs::create_directories(root_);
    folder_ = root_ / "checkpoint";
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string refusal() const {
    try {
      read_checkpoint(folder_);
    } catch (const Error& error) {
      return error.message();
    }
    return "accepted";
  }

  fs::path root_;
  fs::path folder_;
};

TEST_F(Checkpoints, ReadBackToTheBit) {
  const Checkpoint sent = sample(5);
  write_checkpoint(folder_, sent);
  const Checkpoint got = read_checkpoint(folder_);
  EXPECT_EQ(got.step, 5);
  EXPECT_EQ(got.order, sent.order);
  ASSERT_EQ(got.losses.size(), 5u);
  EXPECT_EQ(std::memcmp(got.losses.data(), sent.losses.data(), 5 * sizeof(float)), 0);
  ASSERT_EQ(got.epochs.size(), 2u);
  EXPECT_EQ(got.epochs[0].train_loss, 0.1);
  EXPECT_FALSE(got.epochs[0].eval);
  EXPECT_TRUE(std::isnan(got.epochs[1].train_loss));
  EXPECT_EQ(got.epochs[1].eval->metrics, sample(2).epochs[1].eval->metrics);
  ASSERT_EQ(got.leaves.size(), 2u);
  EXPECT_EQ(got.leaves[1].shape, (Shape{3, 5}));
  EXPECT_EQ(got.leaves[1].bytes, sent.leaves[1].bytes);
}

// Every action of a replacement fails once, as an error and as a crash, with and without the
// exchange of names.
TEST_F(Checkpoints, OneIsCompleteWhateverFails) {
  for (const bool crash : {false, true}) {
    for (const bool can_exchange : {false, true}) {
      bool failed = true;
      int at = 0;
      for (; failed; ++at) {
        fs::remove_all(root_);
        fs::create_directories(root_);
        Quick quick;
        write_checkpoint(folder_, sample(5), quick);
        Failing actions(at, crash, can_exchange);
        bool thrown = false;
        try {
          write_checkpoint(folder_, sample(6), actions);
        } catch (const Error&) {
          thrown = true;
        }
        failed = actions.failed();
        EXPECT_EQ(thrown, failed);
        const Checkpoint found = read_checkpoint(folder_);
        EXPECT_TRUE(found.step == 5 || (found.step == 6 && at > 5)) << at << " " << found.step;
        // The next attempt is not disturbed by what was left, and leaves nothing.
        write_checkpoint(folder_, sample(7), quick);
        EXPECT_EQ(read_checkpoint(folder_).step, 7);
        EXPECT_EQ(std::distance(fs::directory_iterator(root_), fs::directory_iterator()), 1);
      }
      EXPECT_GT(at, 9);
    }
  }
}

// The first checkpoint of all that was complete when the crash came is not thrown away.
TEST_F(Checkpoints, ACrashBeforeTheLastRenameLosesNothing) {
  write_checkpoint(root_ / "checkpoint.partial", sample(3));
  EXPECT_EQ(read_checkpoint(folder_).step, 3);
  Failing actions(3, true, true);  // removed, renamed, removed, then nothing more
  EXPECT_THROW(write_checkpoint(folder_, sample(4), actions), Error);
  EXPECT_EQ(read_checkpoint(folder_).step, 3);
}

TEST_F(Checkpoints, DamageIsNamed) {
  EXPECT_THAT(refusal(), HasSubstr("no checkpoint to resume from"));
  write_checkpoint(folder_, sample(5));
  const std::string leaf = (folder_ / "1.npy").string();
  std::vector<std::byte> bytes = read_file(leaf);
  bytes.back() ^= std::byte{1};
  write_file(leaf, bytes);
  EXPECT_THAT(refusal(), HasSubstr("do not have the digest"));
  fs::remove(leaf);
  EXPECT_THAT(refusal(), HasSubstr("1.npy: cannot be opened"));
  for (const char* text :
       {"", "[]", "{\"version\": 1}", "nonsense", "{\"version\": 1, \"step\": 1e300}",
        "{\"version\": 1, \"step\": 18446744073709551615}", "{\"version\": 2}"}) {
    std::ofstream(folder_ / "checkpoint.json") << text;
    EXPECT_THAT(refusal(), HasSubstr("checkpoint")) << text;
  }
}

TEST_F(Checkpoints, FoldersWithOtherFilesAreNotReplaced) {
  const auto refused = [](const fs::path& folder) -> std::string {
    try {
      check_checkpoint_folder(folder);
    } catch (const Error& error) {
      return error.message();
    }
    return "accepted";
  };
  EXPECT_EQ(refused(folder_), "accepted");
  write_checkpoint(folder_, sample(5));
  EXPECT_EQ(refused(folder_), "accepted");
  std::ofstream(folder_ / "notes.txt") << "mine";
  EXPECT_THAT(refused(folder_), HasSubstr("'notes.txt' in it is no part of one"));
  EXPECT_THAT(refused(root_ / "."), HasSubstr("must name a folder of its own"));
  EXPECT_THAT(refused(root_ / ".."), HasSubstr("must name a folder of its own"));
  EXPECT_THAT(refused(folder_ / "notes.txt"), HasSubstr("cannot be written there"));
}

}  // namespace
}  // namespace tpu::driver
