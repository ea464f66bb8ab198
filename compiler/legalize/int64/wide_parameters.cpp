// See wide_parameters.hpp.
#include "legalize/int64/wide_parameters.hpp"

#include <utility>

namespace tpu::compiler {

namespace {

template <typename Info>
void add_values(std::vector<Info>& list, const Info& info) {
  list.push_back(info);
  if (info.global.elem == Elem::kI64 || info.global.elem == Elem::kU64) {
    list.back().part = WordPart::kLow;
    list.push_back(info);
    list.back().part = WordPart::kHigh;
  }
}

}  // namespace

void split_parameters(Function& main) {
  std::vector<int> place;  // of each result among the new ones
  std::vector<ResultInfo> results;
  for (const ResultInfo& info : main.results) {
    place.push_back(static_cast<int>(results.size()));
    add_values(results, info);
  }
  std::vector<ArgInfo> args;
  for (const ArgInfo& info : main.args) {
    const size_t first = args.size();
    add_values(args, info);
    for (size_t i = first; i < args.size() && info.alias_result >= 0; ++i) {
      args[i].alias_result =
          place[static_cast<size_t>(info.alias_result)] + static_cast<int>(i - first);
    }
  }
  main.args = std::move(args);
  main.results = std::move(results);
}

}  // namespace tpu::compiler
