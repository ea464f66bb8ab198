// Seed inputs of the fuzz tests: every file of a folder with a given suffix, in order of name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

namespace tpu::test {

inline std::vector<std::vector<std::byte>> fuzz_corpus(const std::string& folder,
                                                       const std::string& suffix) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == suffix) {
      paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::vector<std::byte>> out;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> text((std::istreambuf_iterator<char>(file)), {});
    const auto bytes = std::as_bytes(std::span(text));
    out.emplace_back(bytes.begin(), bytes.end());
  }
  return out;
}

}  // namespace tpu::test
