// What the facets of a board share: the handle. A facet is a set of calls about one subject; Board
// is all of them, and a facet can be passed to code that needs no more.
#pragma once

#include <memory>
#include <utility>

namespace tpu::driver {

class BoardImpl;

/// A handle of a board. Copies share the board; the last handle to go closes it.
class BoardFacet {
 public:
  /// False for an empty handle; still true after close().
  bool valid() const { return impl_ != nullptr; }

 protected:
  BoardFacet() = default;  ///< an empty handle
  /// A handle of an open board.
  explicit BoardFacet(std::shared_ptr<BoardImpl> impl) : impl_(std::move(impl)) {}
  /// Shares the board. No moves: the facets of one object share this, and each would move it.
  BoardFacet(const BoardFacet&) = default;
  /// Shares the other board, and drops its own.
  BoardFacet& operator=(const BoardFacet&) = default;
  ~BoardFacet() = default;  ///< not through this class: facets are not deleted by it

  std::shared_ptr<BoardImpl> impl_;  ///< the board, or null

 private:
  friend struct Access;
};

}  // namespace tpu::driver
