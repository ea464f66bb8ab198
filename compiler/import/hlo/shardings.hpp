// OpSharding as GSPMD's strings, which the import reads (gspmd.hpp). Private to the import.
#pragma once

#include <string>
#include <vector>

#include "import/hlo/hlo_module.hpp"

namespace tpu::compiler::hlo {

class Step;

// By leaf.
class GspmdTexts {
 public:
  explicit GspmdTexts(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  bool empty() const { return texts_.empty(); }
  const std::string& operator[](size_t leaf) const {
    return texts_.size() == 1 ? texts_[0] : texts_[leaf];  // one that holds for all is there once
  }

 private:
  std::vector<std::string> texts_;
};

// A string for each of `leaves` arrays: a sharding that is not a tuple holds for all. Throws
// through `step`.
GspmdTexts gspmd_texts(const Sharding& sharding, size_t leaves, const Step& step);

// True of what says something of an array that is not said by saying nothing.
bool is_constraint(const std::string& text);

}  // namespace tpu::compiler::hlo
