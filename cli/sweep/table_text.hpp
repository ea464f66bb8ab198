// Cells and lines of the tables of a sweep.
#pragma once

#include <string>
#include <vector>

namespace tpu::driver {

/// First line, not too long.
std::string brief(const std::string& text);
/// With quotes where it needs them.
std::string csv_cell(const std::string& text);
/// Columns as wide as their widest cell; the last is as it is. The first, and those from
/// `numbers_from` on, are aligned right.
std::string aligned(const std::vector<std::vector<std::string>>& lines, size_t numbers_from);

}  // namespace tpu::driver
