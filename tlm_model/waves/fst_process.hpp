// Writes an FST file from a helper process: the FST library ends its process on I/O errors, which
// must not take the board with it. The parent sends records over a socket; a full disk or a dead
// helper is noticed and reported, and everything sent afterwards is dropped.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tpu::model {

class FstProcess {
 public:
  // Creates `path`; times are picoseconds. Throws std::runtime_error when the
  // file cannot be created or another run writes it.
  explicit FstProcess(const std::string& path);
  ~FstProcess();  // finishes; errors are lost, so call finish() to see them
  FstProcess(const FstProcess&) = delete;
  FstProcess& operator=(const FstProcess&) = delete;

  // Declarations come first, scopes nest.
  void push_scope(std::string_view name);
  void pop_scope();
  uint32_t add_bits(std::string_view name, uint32_t width);  // 1..64
  uint32_t add_string(std::string_view name);

  // Times never go back.
  void time(uint64_t picoseconds);
  void set_bits(uint32_t signal, uint64_t value);
  void set_string(uint32_t signal, std::string_view value);

  // Closes the file. Empty, or what went wrong (also during the writes before).
  std::string finish();

  // True as long as no write has failed.
  bool healthy() const { return error_.empty(); }

 private:
  void put(const void* data, size_t size);
  void put_text(std::string_view text);
  void flush();

  std::string path_;
  std::string error_;
  std::vector<char> buffer_;
  pid_t child_ = -1;
  int socket_ = -1;
  uint32_t signals_ = 0;
};

}  // namespace tpu::model
