// 64-bit integers in HBM: an array is two planes of 32-bit words, all low words and then all high
// ones, since a core computes with words (docs/numerics.md#64-bit-integers). The host has elements.
// All copies between the two pass through here; of an array of one element both are the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "tpu/types.hpp"

namespace tpu::driver {

/// True for types whose arrays lie in planes.
bool in_planes(DType dtype);

/// Elements to words. `low` and `high` have room for one word of each element.
void split_words(std::span<const std::byte> elements, std::byte* low, std::byte* high);
/// Words to elements.
void join_words(const std::byte* low, const std::byte* high, std::span<std::byte> elements);

/// Makes the elements at byte `at`, and takes those that lie there.
using ElementSource = std::function<void(uint64_t at, std::span<std::byte> elements)>;
using ElementSink = std::function<void(uint64_t at, std::span<const std::byte> elements)>;

/// Elements from byte `at` on, as many as fill `planes`, from a source.
void fill_planes(const ElementSource& source, uint64_t at, std::span<std::byte> planes);
/// The elements in `planes`, of which the first lies at byte `at`, to a sink: only their bytes
/// [first, end).
void drain_planes(std::span<const std::byte> planes, uint64_t at, uint64_t first, uint64_t end,
                  const ElementSink& sink);

/// A whole array where it is: from elements to planes, and back.
void to_planes(std::span<std::byte> array);
void to_elements(std::span<std::byte> array);

}  // namespace tpu::driver
