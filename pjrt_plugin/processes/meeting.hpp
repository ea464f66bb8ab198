// The folder in which processes that share a board meet: a socket of the process that has the
// board, and a lock. Whoever comes first starts that process, on a socket that already listens, so
// that nobody waits for it to be there.
#pragma once

#include <string>

#include "processes/place.hpp"
#include "processes/wire/frame_socket.hpp"

namespace tpu::pjrt {

/// A connection to the process that has the board. Throws driver::Error: FailedPrecondition for a
/// folder that others can write, Unavailable when the process cannot be started.
FrameSocket meet(const ProcessPlace& place);

/// Empty where there is none.
Descriptor open_folder(const std::string& folder);

/// Makes it where there is none. Throws driver::Error (FailedPrecondition) if others can write it.
Descriptor private_folder(const std::string& folder);

/// Its device and number, which processes that see the same folder have in common.
std::string identity_of(const Descriptor& folder);

/// Keeps others from connecting and from starting that process.
class MeetingLock {
 public:
  /// Waits. Throws driver::Error (FailedPrecondition).
  explicit MeetingLock(const std::string& folder);
  MeetingLock(const MeetingLock&) = delete;
  MeetingLock& operator=(const MeetingLock&) = delete;
  ~MeetingLock();

  /// False: the name leads to another folder by now.
  bool is_folder(const Descriptor& folder) const;

  /// "/proc/self/fd/5/board.sock": paths of sockets are short.
  std::string socket_path() const;

 private:
  Descriptor folder_, lock_;
};

}  // namespace tpu::pjrt
