// What passes tell of their work, for `tpuc --stats`.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tpu::compiler {

// Of one run of a pass.
class PassLog {
 public:
  // The pass left something as it is. `why`: the same short text for the same reason, without
  // names or numbers of the program: such runs are counted together.
  void gave_up(std::string_view why, int64_t times = 1);

  const std::map<std::string, int64_t, std::less<>>& reasons() const { return reasons_; }

 private:
  std::map<std::string, int64_t, std::less<>> reasons_;
};

// Of all runs of a pass in a compilation.
struct PassStats {
  std::string pass;
  std::string unit;  // what `before`, `after` and `made` count: "ops" or "kernels"
  int64_t runs = 0;
  double seconds = 0;
  int64_t before = 0, after = 0;  // the first run, behind the last
  int64_t made = 0, removed = 0;  // by all runs
  std::map<std::string, int64_t, std::less<>> gave_up;

  // A run. `new_ones`: those that it made and that are there behind it; -1: the difference alone is
  // known.
  void add(double run_seconds, int64_t size_before, int64_t size_after, int64_t new_ones,
           const PassLog& log);
};

// In the order of the first runs.
class PassReport {
 public:
  PassStats& of(std::string_view pass, std::string_view unit);
  const std::vector<PassStats>& passes() const { return passes_; }

 private:
  std::vector<PassStats> passes_;
};

}  // namespace tpu::compiler
