// See donations.hpp.
#include "partition/donations.hpp"

#include <set>

namespace tpu::compiler {

void assign_donations(Function& f) {
  std::set<int> taken;
  const auto fits = [&](const ArgInfo& a, const ResultInfo& result) {
    return result.global == a.global && result.is_complex == a.is_complex &&
           result.is_double == a.is_double && result.sharding == a.sharding;
  };
  for (ArgInfo& a : f.args) {
    if (a.alias_result >= 0 &&
        f.results[static_cast<size_t>(a.alias_result)].sharding != a.sharding) {
      a.alias_result = -1;
    }
    taken.insert(a.alias_result);
  }
  for (ArgInfo& a : f.args) {
    for (size_t r = 0; a.donated && a.alias_result < 0 && r < f.results.size(); ++r) {
      if (taken.count(static_cast<int>(r)) == 0 && fits(a, f.results[r])) {
        a.alias_result = static_cast<int>(r);
        taken.insert(a.alias_result);
      }
    }
  }
}

}  // namespace tpu::compiler
