// OutputFile: how every writer of a whole file writes. The bytes go to a file that has no name yet
// (O_TMPFILE), or, where the file system has no such files, to a new one of a random name beside
// the target; finish() puts it in the target's place in one step. So two writers of one target
// never share a file, whatever their process numbers; a link that somebody has put there is not
// followed; and a writer that is killed leaves nothing behind where files without a name exist.
// Not for streams (traces, logs, waves, tables of metrics), which are read while they grow and are
// to be there when the process that writes them has died: these are written in their place, under
// a lock (base/file/file_lock.hpp, FolderLock).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tpu::spec {

/// What ends the name of a file that is being written: "TARGET.0123456789abcdef.part".
inline constexpr std::string_view kPartSuffix = ".part";

/// The target of "TARGET.0123456789abcdef.part"; empty for any other name.
std::string_view part_target(std::string_view name);

/// Where the bytes are until they stand under their name.
enum class Unfinished : uint8_t {
  kWithoutName,  ///< in a file that has none, where the file system has such files; else as below
  kRandomName,   ///< in a new file of a random name
};

/// All functions throw std::system_error with the reason as in errno; the target is then as it was.
class OutputFile {
 public:
  /// A regular file, or none, is replaced by finish(): what a link points to, not the link. Devices
  /// and pipes are opened and written to as they are. EISDIR: a folder.
  explicit OutputFile(const std::string& path, Unfinished unfinished = Unfinished::kWithoutName);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void add(std::span<const std::byte> bytes);
  /// The last call. `synced`: contents and name are on the disk when it returns.
  void finish(bool synced = false);

  /// The open file, for seeks.
  int descriptor() const { return file_; }

 private:
  void begin(mode_t mode, Unfinished unfinished);
  void name_it();
  void close_file();
  void remove_named() noexcept;

  std::string path_;
  std::string target_;  // empty: a device or a pipe
  std::string named_;   // where the bytes are until then; empty: in a file without a name
  int file_ = -1;
};

/// Waits until the names in a folder are on the disk; "" is the current one.
void sync_folder(const std::string& path);

}  // namespace tpu::spec
