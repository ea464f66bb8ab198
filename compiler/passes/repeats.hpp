// What a list repeats without a gap, such as equal layers in a list of operations.
//   a b c x y x y x y x d   ->   first 3, period 2, count 3, slack 1
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tpu::compiler {

struct Repeat {
  size_t first = 0;   // of the list
  size_t period = 0;  // elements of an iteration
  size_t count = 0;   // iterations
  size_t slack = 0;   // elements behind the last iteration that go on with it: `first` may be as
                      // much later

  size_t end() const { return first + period * count + slack; }
  bool operator==(const Repeat&) const = default;
};

// Repeats of at least `fewest` iterations of at least `shortest` elements, those that are `wanted`
// (empty: all). Of those that overlap, the one that saves most elements. In the order of the list.
// Equal numbers are equal elements.
std::vector<Repeat> find_repeats(std::span<const uint32_t> list, size_t shortest, size_t fewest,
                                 const std::function<bool(const Repeat&)>& wanted = {});

}  // namespace tpu::compiler
