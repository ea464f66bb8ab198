// Which scalars of buffers lie in SMEM: an index that several dynamic slices and updates of a piece
// use is fetched once. A value does not change within a piece (it is made once), so its copy in
// SMEM stays true until another scalar takes its place, or until the piece ends: in the next
// iteration of a loop the same value is another number, and another arm may not have fetched it.
#pragma once

#include <cstdint>
#include <list>
#include <optional>

#include "plan/scalars.hpp"

namespace tpu::compiler {

class FetchedScalars {
 public:
  // Address in SMEM; nothing if it is not there.
  std::optional<int64_t> find(const ScalarPlace& scalar);
  // A place for it, of the scalar whose last use is furthest back.
  int64_t add(const ScalarPlace& scalar);
  void forget() { held_.clear(); }

 private:
  struct Held {
    const Value* value = nullptr;
    int64_t offset = 0;
    int64_t address = 0;
  };
  std::list<Held> held_;  // by their last use
};

}  // namespace tpu::compiler
