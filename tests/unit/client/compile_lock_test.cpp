// Processes that want one program at the same time.
#include "compile_lock.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>

#include "compiled_program.hpp"
#include "file/whole_file.hpp"
#include "process_board.hpp"

namespace tpu::client {
namespace {

using std::chrono::milliseconds;

class CompileLocks : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(::mkdtemp(folder_.data()), nullptr); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_ = testing::TempDir() + "tpuboard-locks-XXXXXX";
};

TEST_F(CompileLocks, OneHasItAndTheOthersWait) {
  std::optional<CompileLock> first(std::in_place, folder_, "key");
  EXPECT_TRUE(first->holds());
  EXPECT_FALSE(first->has_waited());
  EXPECT_TRUE(CompileLock(folder_, "other key").holds());
  EXPECT_FALSE(CompileLock(folder_, "key", milliseconds(50)).holds());
  std::thread releases([&first] {
    std::this_thread::sleep_for(milliseconds(100));
    first.reset();
  });
  const CompileLock second(folder_, "key");
  EXPECT_TRUE(second.holds());
  EXPECT_TRUE(second.has_waited());
  releases.join();
}

TEST_F(CompileLocks, NothingIsLeft) {
  { const CompileLock lock(folder_, "key"); }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(CompileLocks, AProcessThatIsKilledDoesNotKeepIt) {
  const pid_t child = ::fork();
  if (child == 0) {
    const CompileLock lock(folder_, "key");
    ::raise(SIGKILL);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(CompileLock(folder_, "key").holds());
}

// Of one that is killed. Its own child, which has its files, goes on.
TEST_F(CompileLocks, ChildrenDoNotKeepTheLockOfTheirParent) {
  int line[2];
  ASSERT_EQ(::pipe(line), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const CompileLock lock(folder_, "key");
    pid_t grandchild = ::fork();
    if (grandchild == 0) {
      ::pause();
    }
    static_cast<void>(!::write(line[1], &grandchild, sizeof(grandchild)));
    ::raise(lock.holds() ? SIGKILL : SIGTERM);
  }
  pid_t grandchild = 0;
  ASSERT_EQ(::read(line[0], &grandchild, sizeof(grandchild)), ssize_t{sizeof(grandchild)});
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  EXPECT_TRUE(CompileLock(folder_, "key", milliseconds(1000)).holds());
  ::kill(grandchild, SIGKILL);
  ::close(line[0]);
  ::close(line[1]);
}

// A child takes no part of its parent's lock, and gives none of it back.
TEST_F(CompileLocks, AChildWaitsForItsParent) {
  const CompileLock lock(folder_, "key");
  for (int i = 0; i < 2;
       ++i) {  // the end of the first one does not give the lock of its parent back
    const pid_t child = ::fork();
    if (child == 0) {
      const bool waits = !CompileLock(folder_, "key", milliseconds(50)).holds();
      ::_exit(waits && CompileLock(folder_, "other key", milliseconds(50)).holds() ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << i;
  }
}

TEST_F(CompileLocks, WhoWaitsLongSaysForWhom) {
  int line[2];
  ASSERT_EQ(::pipe(line), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const CompileLock lock(folder_, "key");
    static_cast<void>(!::write(line[1], "", 1));
    ::pause();
  }
  char byte = 1;
  ASSERT_EQ(::read(line[0], &byte, 1), 1);
  testing::internal::CaptureStderr();
  EXPECT_FALSE(CompileLock(folder_, "key", milliseconds(200), milliseconds(50)).holds());
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "tpuboard: waits for process " + std::to_string(child) +
                ", which compiles the same program (" + folder_ + "/key.lock)\n");
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(line[0]);
  ::close(line[1]);
}

TEST_F(CompileLocks, WithoutAFolderNobodyWaits) {
  const CompileLock none("", "key");
  EXPECT_FALSE(none.holds());
  const CompileLock nowhere("/dev/null/folder", "key");
  EXPECT_FALSE(nowhere.holds());
  EXPECT_FALSE(nowhere.has_waited());
}

// How many of four children compile it. Who does has its text, which the cache does not keep. Of a
// process that has read its options with another folder: none.
int compilations(const std::string& folder, const std::vector<std::byte>& artifact) {
  ::setenv("TPUBOARD_CACHE", folder.c_str(), 1);
  if (ProcessBoard::options().cache_folder != folder) {
    return 0;
  }
  int start[2];
  if (::pipe(start) != 0) {
    return 0;
  }
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(::fork());
    if (children.back() == 0) {
      ::close(start[1]);
      char byte = 0;
      static_cast<void>(!::read(start[0], &byte, 1));  // until all are there
      const auto program = compile_program(artifact, {.text = true});
      const base::MutexLock lock(program->text_mutex);
      ::_exit(program->text.empty() ? 0 : 1);
    }
  }
  ::close(start[0]);
  ::close(start[1]);
  int compiled = 0;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    compiled += WIFEXITED(status) ? WEXITSTATUS(status) : 100;
  }
  return compiled;
}

TEST_F(CompileLocks, OneOfFourProcessesCompilesAProgram) {
  const std::vector<std::byte> step = spec::read_whole_file(
      std::string(TPU_TEST_DATA) + "/../../examples/mnist_mlp/train_step.mlirbc");
  const pid_t child = ::fork();  // options of a process are read once
  if (child == 0) {
    ::_exit(compilations(folder_, step));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

}  // namespace
}  // namespace tpu::client
