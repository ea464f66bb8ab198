// BoardHandles: what the handles of one board point to, and whether a handle that a call is given
// belongs to that board. Guarded by the board lock.
#pragma once

#include <memory>
#include <vector>

#include "src/events/outbox.hpp"
#include "src/lock/board_lock.hpp"
#include "src/operations/buffer_state.hpp"
#include "src/operations/contents.hpp"
#include "src/operations/operation.hpp"
#include "tpu/event.hpp"

namespace tpu::driver {

class BoardHandles {
 public:
  /// What buffers keep alive and events wait by. Once, before anything else.
  void set_board(const std::shared_ptr<BoardImpl>& board) TPU_REQUIRES(board_lock);

  std::shared_ptr<BoardImpl> board() const { return board_.lock(); }
  bool owns(const BufferState& buffer) const { return buffer.board.get() == identity_; }

  std::shared_ptr<EventState> make_event() const TPU_REQUIRES(board_lock);
  /// An event that the host sets.
  std::shared_ptr<EventState> make_host_event() TPU_REQUIRES(board_lock);
  /// Those of them that nobody has set.
  void fail_host_events(Outbox& outbox, const ErrorPtr& error) TPU_REQUIRES(board_lock);
  std::shared_ptr<BufferState> make_buffer(int device, DType dtype, const Shape& shape,
                                           std::shared_ptr<Allocation> memory,
                                           std::shared_ptr<EventState> ready) const
      TPU_REQUIRES(board_lock);

  /// Throws InvalidArgument when one of them is of another board.
  void check_after(const std::vector<Event>& after) const TPU_REQUIRES(board_lock);
  /// As check_after(); the operation is sent when they are ready, and fails when one has failed.
  void depend(Operation& op, const std::vector<Event>& after) const TPU_REQUIRES(board_lock);
  /// Memory of a buffer that a call may use. Throws InvalidArgument for a buffer of another board,
  /// FailedPrecondition for one that was donated or deleted.
  std::shared_ptr<Allocation> hold(const BufferState& buffer) const TPU_REQUIRES(board_lock);
  /// The same of all memory that its contents lie in.
  Contents contents(const BufferState& buffer) const TPU_REQUIRES(board_lock);

 private:
  std::weak_ptr<BoardImpl> board_;
  const BoardImpl* identity_ = nullptr;
  std::vector<std::weak_ptr<EventState>> host_events_;
};

}  // namespace tpu::driver
