// RemoteLink: the connection of this process to the one that has the board. Calls wait for their
// answers; events come by themselves, on a thread of the link, whose callbacks may call again. When
// the other process has ended, all that waits fails, and so does every call.
#pragma once

#include <sys/types.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "processes/host_call_answers.hpp"
#include "processes/segments.hpp"
#include "processes/wire/frame_socket.hpp"
#include "sync/mutex.hpp"
#include "tpu/executable.hpp"

namespace tpu::pjrt {

/// First call of a connection: says who this process is. Returns the other process. Throws
/// driver::Error: why it refuses, Unavailable when it ends before it answers.
pid_t greet(FrameSocket& socket, wire::HelloT hello);

/// Never destroyed: its threads last as long as the process.
class RemoteLink {
 public:
  /// `server`: the process at the other end, which has been greeted.
  RemoteLink(FrameSocket socket, pid_t server);
  RemoteLink(const RemoteLink&) = delete;
  RemoteLink& operator=(const RemoteLink&) = delete;
  ~RemoteLink() = delete;

  /// Throws driver::Error: what the call fails with, Unavailable without the other process,
  /// FailedPrecondition in a child made by fork().
  template <class BodyT>
  wire::AnswerT call(BodyT body) {
    return call_frame(frame_of(std::move(body), new_number()));
  }
  /// A call without answer, which cannot fail; in a child made by fork() nothing happens.
  template <class BodyT>
  void tell(BodyT body) {
    tell_frame(frame_of(std::move(body)));
  }

  /// For arrays, programs and events; each is given once.
  uint64_t new_number();

  /// Takes what came along with an event, before it becomes ready.
  using Take = std::function<void(const wire::EventDoneT& done)>;
  /// An event that the other process sets by EventDone with this number.
  driver::Event expect(uint64_t number, Take take = {});
  /// The call that should have set the event has failed.
  void forget(uint64_t number);
  /// Shared memory for the bytes of calls.
  SegmentPool& segments() { return segments_; }
  HostCallAnswers& host_calls() { return *host_calls_; }

  /// What was lost, if it was.
  std::optional<driver::Error> lost() const;

 private:
  struct Call {
    std::optional<wire::AnswerT> answer;
  };
  struct Expected {
    driver::HostEvent event;
    Take take;
  };

  wire::AnswerT call_frame(const wire::FrameT& frame);
  void tell_frame(const wire::FrameT& frame);
  void send(const wire::FrameT& frame, int descriptor = -1);
  void check_fork() const;
  void receive_all();
  void take(ReceivedFrame& received);
  void lose(const std::string& why);
  void tell_events();
  void tell_segment(uint64_t number, const SharedMemory* memory);
  void end_event(const wire::EventDoneT& done);
  void fail_all();

  const pid_t process_, server_;
  FrameSocket socket_;
  base::Mutex sending_;

  mutable base::Mutex mutex_;
  base::CondVar answered_, came_;
  uint64_t last_number_ TPU_GUARDED_BY(mutex_) = 0;
  std::unordered_map<uint64_t, Call*> calls_ TPU_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, Expected> expected_ TPU_GUARDED_BY(mutex_);
  std::deque<wire::EventDoneT> done_ TPU_GUARDED_BY(mutex_);
  std::string why_ended_ TPU_GUARDED_BY(mutex_);  // as the other process says
  std::optional<driver::Error> lost_ TPU_GUARDED_BY(mutex_);

  SegmentPool segments_;
  HostCallAnswers* const host_calls_;
};

}  // namespace tpu::pjrt
