// See file.hpp. C streams: they say why a read fails.
#include "import/file.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "ir/error.hpp"

namespace tpu::compiler {

std::vector<std::byte> read_file(const std::string& path) {
  const auto fail = [&] { throw Error("cannot read '" + path + "': " + std::strerror(errno)); };
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (file == nullptr) {
    fail();
  }
  std::vector<std::byte> bytes;
  constexpr size_t kChunk = 1 << 16;
  for (size_t n = kChunk; n == kChunk;) {
    const size_t size = bytes.size();
    bytes.resize(size + kChunk);
    n = std::fread(bytes.data() + size, 1, kChunk, file.get());
    bytes.resize(size + n);
  }
  if (std::ferror(file.get()) != 0) {
    fail();
  }
  return bytes;
}

}  // namespace tpu::compiler
