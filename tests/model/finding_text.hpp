// Findings of the happens-before checker as one line, for tests to compare.
#pragma once

#include <string>
#include <vector>

#include "tpu/board_report.hpp"

namespace tpu::model::test {

inline std::string text_of(const spec::CommandPlace& place) {
  return "core " + std::to_string(place.core) + " " + place.unit + " (word " +
         std::to_string(place.pc) + ", op " + std::to_string(place.op_id) + ")";
}

inline std::string text_of(const spec::CheckFinding& finding) {
  std::string text = text_of(finding.who) + " " + finding.what;
  text += finding.other ? " " + text_of(*finding.other) : std::string();
  return text + (finding.where.empty() ? std::string() : ": " + finding.where);
}

inline std::vector<std::string> texts_of(const std::vector<spec::CheckFinding>& findings) {
  std::vector<std::string> texts;
  for (const spec::CheckFinding& finding : findings) {
    texts.push_back(text_of(finding));
  }
  return texts;
}

}  // namespace tpu::model::test
