// Texts of several lines, made line by line.
#pragma once

#include <string>

namespace tpu::model {

inline void append_line(std::string& text, const std::string& line) {
  text += (text.empty() ? "" : "\n") + line;
}

}  // namespace tpu::model
