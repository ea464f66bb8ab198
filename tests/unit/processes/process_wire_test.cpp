// Descriptors on their way to another process, and what children made by fork() keep of them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>

#include "processes/build_id.hpp"
#include "processes/meeting.hpp"
#include "processes/wire/frame_socket.hpp"
#include "socket/shared_memory.hpp"
#include "tpu/error.hpp"

namespace tpu::pjrt {

using base::SharedMemory;

std::string library_path() { return "/nowhere/libtpuboard_pjrt.so"; }  // no server starts here

namespace {

size_t open_files() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

struct Ends {
  Descriptor one, other;
};

Ends connected() {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

// A child made by fork(), which does nothing.
class Child {
 public:
  Child() : pid_(::fork()) {
    if (pid_ == 0) {
      ::pause();
      ::_exit(0);
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_;
};

TEST(ProcessWire, AChildOfForkDoesNotKeepAConnection) {
  Ends ends = connected();
  const int descriptor = ends.other.number();
  FrameSocket left(std::move(ends.other));
  std::optional<FrameSocket> ours(std::in_place, std::move(ends.one));
  const Child child;
  ours.reset();
  pollfd end{descriptor, POLLIN, 0};  // readable at once, as nobody has the other end
  ASSERT_EQ(::poll(&end, 1, 10000), 1);
  EXPECT_FALSE(left.receive().has_value());
}

// The numbers of what was closed in a child may be those of its own files when it forks.
TEST(ProcessWire, AChildOfAChildKeepsWhatTheChildHasOpened) {
  Ends ends = connected();
  const int descriptor = ends.one.number();
  const FrameSocket socket(std::move(ends.one));
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool reused = ::dup2(pipe[1], descriptor) == descriptor;
    const pid_t grandchild = ::fork();
    if (grandchild == 0) {
      ::_exit(::write(descriptor, "x", 1) == 1 ? 0 : 1);
    }
    int status = 1;
    ::waitpid(grandchild, &status, 0);
    ::_exit(reused && status == 0 ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST(ProcessWire, ALockOfTheMeetingEndsInChildrenToo) {
  std::string folder = testing::TempDir() + "tpuboard-lock-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  std::optional<MeetingLock> lock(folder);
  const Child child;
  lock.reset();
  const Descriptor again(::open((folder + "/lock").c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_EQ(::flock(again.number(), LOCK_EX | LOCK_NB), 0) << std::strerror(errno);
  std::filesystem::remove_all(folder);
}

TEST(ProcessWire, AFolderOfTheSameNameIsAnother) {
  std::string folder = testing::TempDir() + "tpuboard-folder-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const Descriptor before = open_folder(folder);
  EXPECT_TRUE(MeetingLock(folder).is_folder(before));
  std::filesystem::remove_all(folder);
  EXPECT_FALSE(MeetingLock(folder).is_folder(before));
  std::filesystem::remove_all(folder);
}

// One with a frame is taken; a second one would stay open.
TEST(ProcessWire, MoreDescriptorsThanOneAreRefused) {
  Ends ends = connected();
  FrameSocket socket(std::move(ends.one));
  std::vector<std::byte> frame = write_frame(frame_of(wire::SegmentT()));
  const size_t before = open_files();
  union {
    cmsghdr header;
    char bytes[CMSG_SPACE(2 * sizeof(int))];
  } control{};
  iovec part{frame.data(), frame.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(2 * sizeof(int));
  const int both[] = {STDERR_FILENO, STDERR_FILENO};
  std::memcpy(CMSG_DATA(header), both, sizeof both);
  ASSERT_EQ(::sendmsg(ends.other.number(), &message, 0), static_cast<ssize_t>(frame.size()));
  try {
    static_cast<void>(socket.receive());
    ADD_FAILURE() << "two descriptors with a frame";
  } catch (const driver::Error& error) {
    EXPECT_EQ(error.code(), driver::ErrorCode::kResourceExhausted) << error.message();
  }
  EXPECT_EQ(open_files(), before);
}

TEST(ProcessWire, SharedMemoryLastsWithoutItsFile) {
  const size_t before = open_files();
  SharedMemory memory = SharedMemory::create(1 << 20);
  EXPECT_EQ(open_files(), before + 1);
  const SharedMemory other = SharedMemory::map(Descriptor(::dup(memory.file())), 1 << 20);
  memory.close_file();
  EXPECT_EQ(open_files(), before);
  memory.bytes()[12345] = std::byte{7};
  EXPECT_EQ(other.bytes()[12345], std::byte{7});
}

}  // namespace
}  // namespace tpu::pjrt
