#include "cli/pod/output_queue.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace tpu::driver {

void OutputQueue::put(std::string_view text) {
  if (failed_) {
    return;
  }
  if (written_ > text_.size() / 2) {
    text_.erase(0, written_);
    written_ = 0;
  }
  text_ += text;
}

// Not O_NONBLOCK: that would hold for all who have the file, such as the shell. A pipe that is
// ready takes PIPE_BUF bytes without a wait.
int OutputQueue::write() {
  while (!is_empty()) {
    pollfd ready{file_, POLLOUT, 0};
    if (::poll(&ready, 1, 0) <= 0) {
      return 0;
    }
    const ssize_t count =
        ::write(file_, text_.data() + written_, std::min<size_t>(size(), PIPE_BUF));
    if (count < 0) {
      if (errno == EAGAIN || errno == EINTR) {
        return 0;
      }
      failed_ = true;
      text_.clear();
      written_ = 0;
      return errno;
    }
    written_ += static_cast<size_t>(count);
  }
  return 0;
}

}  // namespace tpu::driver
