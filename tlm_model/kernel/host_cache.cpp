#include "kernel/host_cache.hpp"

#include <filesystem>
#include <fstream>

namespace tpu::model {
namespace {

// A number with K, M or G behind it.
uint64_t size_in(const std::filesystem::path& file) {
  uint64_t size = 0;
  char unit = '\0';
  std::ifstream text(file);
  if (!(text >> size)) {
    return 0;
  }
  text >> unit;
  return unit == 'K' ? size << 10 : unit == 'M' ? size << 20 : unit == 'G' ? size << 30 : size;
}

}  // namespace

uint64_t last_level_cache_bytes(const std::string& folder) {
  int last = 0;
  uint64_t bytes = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator cache(folder, error), end; !error && cache != end;
       cache.increment(error)) {
    int level = 0;
    std::ifstream(cache->path() / "level") >> level;
    if (level > last) {
      last = level;
      bytes = size_in(cache->path() / "size");
    }
  }
  return bytes;
}

}  // namespace tpu::model
