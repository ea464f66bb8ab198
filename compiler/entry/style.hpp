// Styles: in which manner a program is compiled. `best` is the fastest that this compiler makes.
// `xla2019` makes what the production compiler of 2018 to 2019 made, as far as its traces tell, so
// that times can be compared with those of boards that existed. `xla2023` is `best` with what is
// known of the numbers of the compiler of 2023. A style is a set of rules, each with its evidence
// (style.cpp); nothing else in the compiler asks for the style. docs/timing_truth.md holds the
// measurements, docs/adr/0053-compile-styles.md the reasons.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace tpu::compiler {

enum class Style : uint8_t { kBest, kXla2019, kXla2023 };

struct StyleRules {
  // Updates of replicated state are cut over the cores where that is faster (shard_update.hpp;
  // false: only if an option asks for it).
  bool shard_updates = true;
  // Arrays that are summed over the cores travel together, 4 MiB in an exchange (false: each array
  // of a size that is streamed by itself, in an exchange of its own).
  bool sums_together = true;
  // A loop kernel may write several results of the program.
  bool many_results = true;
  // What works on the blocks of a contraction takes blocks of any width (false: one that runs over
  // all elements alike takes whole rows only, or runs behind the contraction).
  bool epilogues_by_columns = false;
  // A cast of an argument that only contractions read is a kernel and a buffer of its own (false:
  // the contraction reads the argument; the matrix unit rounds as the cast does).
  bool casts_in_memory = true;
  // A K tile of a contraction takes products of several taps where each tap would leave a tile of
  // its own half empty (false: of such that lie side by side in memory).
  bool tiles_span_taps = false;
  // Values may stay in VMEM from the kernel that makes them to those that read them.
  bool values_in_vmem = true;
  // Commands of a kernel may run beside those of the kernels around it.
  bool overlap_kernels = true;
  // A product of f32 with a vector runs on the vector unit in full f32 (false: on the matrix unit,
  // which rounds operands to bf16). Changes values.
  bool vector_products_in_f32 = false;
};

StyleRules rules_of(Style style);

const std::map<std::string, Style>& style_names();
std::string_view name_of(Style style);

}  // namespace tpu::compiler
