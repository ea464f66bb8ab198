// Whether each op of a program made what it should have made of what its operands were: the values
// that a board gave (kept_values.hpp) against the reference evaluation of the graph, op by op. An
// op is evaluated on the board's own operands, so that a wrong op is found alone and what follows
// from it is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "instrument/kept_values.hpp"
#include "ir/eval.hpp"

namespace tpu::compiler {

struct ValueDifference {
  size_t value = 0;  // number of the kept value
  size_t core = 0;
  int64_t elements = 0;  // that differ
  int64_t element = 0;   // of them the one that is farthest off
  double made = 0;
  double expected = 0;
};

struct ValueCheck {
  // Largest difference of an element of a sum, which kernels take in another order, as a part of
  // the sum of its terms' magnitudes; of what has loops or branches inside and the like, as a part
  // of the largest element. Elementwise ops and moves have no other bits than the reference.
  double tolerance = 1e-4;
  // The bytes of kept value `value` on core `core`, as the board made them.
  std::function<std::vector<std::byte>(size_t value, size_t core)> board;
};

struct ValueChecked {
  std::optional<ValueDifference> first;  // in program order; nothing: all are as they should be
  std::vector<size_t> not_covered;       // kept values of ops that the reference does not evaluate
};

class ValueReference {
 public:
  // Throws Error as compile() does.
  explicit ValueReference(std::span<const std::byte> artifact);

  const KeptValues& kept() const { return kept_; }
  // Up to the first op that made something else. `arguments`: global arrays. Throws Error when they
  // do not fit.
  ValueChecked check(const std::vector<std::vector<std::byte>>& arguments,
                     const ValueCheck& how) const;

 private:
  Module module_;
  KeptValues kept_;
  std::unordered_map<const Value*, size_t> numbers_;  // of kept values
};

}  // namespace tpu::compiler
