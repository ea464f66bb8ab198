// The compiler's version is the build id of the binary that holds it: the linker's hash of its
// contents.
#include "program_cache.hpp"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include "board/board_loader.hpp"
#include "file/whole_file.hpp"

namespace tpu::client {
namespace {

namespace fs = std::filesystem;

// What dl_iterate_phdr() looks for: the notes of the object that holds an address.
struct BuildIdSearch {
  uintptr_t address;
  std::string id;
};

void take_build_id(const char* note, const char* end, std::string& id) {
  while (note + sizeof(ElfW(Nhdr)) <= end) {
    ElfW(Nhdr) head;
    std::memcpy(&head, note, sizeof head);
    const char* name = note + sizeof head;
    const char* text = name + ((head.n_namesz + 3U) & ~3U);
    if (head.n_type == NT_GNU_BUILD_ID && text + head.n_descsz <= end) {
      id.assign(text, head.n_descsz);
    }
    note = text + ((head.n_descsz + 3U) & ~3U);
  }
}

int look_at_object(dl_phdr_info* object, size_t /*size*/, void* data) {
  auto& search = *static_cast<BuildIdSearch*>(data);
  bool holds = false;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& part = object->dlpi_phdr[i];
    const uintptr_t begin = object->dlpi_addr + part.p_vaddr;
    holds |=
        part.p_type == PT_LOAD && search.address >= begin && search.address < begin + part.p_memsz;
  }
  for (int i = 0; holds && i < object->dlpi_phnum; ++i) {
    const auto& part = object->dlpi_phdr[i];
    if (part.p_type == PT_NOTE) {
      const char* notes = reinterpret_cast<const char*>(object->dlpi_addr + part.p_vaddr);
      take_build_id(notes, notes + part.p_memsz, search.id);
    }
  }
  return holds ? 1 : 0;
}

const std::string& build_id() {
  static const std::string id = [] {
    BuildIdSearch search{reinterpret_cast<uintptr_t>(&look_at_object), {}};
    dl_iterate_phdr(look_at_object, &search);
    return search.id;
  }();
  return id;
}

class Hash {
 public:
  Hash() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
  }
  // With its length in front, so that parts cannot run into each other.
  void add(const void* data, size_t bytes) {
    const uint64_t length = bytes;
    EVP_DigestUpdate(context_.get(), &length, sizeof length);
    EVP_DigestUpdate(context_.get(), data, bytes);
  }
  void add(const std::string& text) { add(text.data(), text.size()); }
  std::string hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    EVP_DigestFinal_ex(context_.get(), digest, &length);
    std::string text;
    for (unsigned i = 0; i < length; ++i) {
      text += fmt::format("{:02x}", digest[i]);
    }
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

constexpr const char kSuffix[] = ".tpuexe";
// What a process that ended while it wrote has left; nobody writes for so long.
constexpr std::chrono::hours kAbandoned{1};

struct KeptFile {
  std::string path;
  uint64_t bytes = 0;
  timespec used = {};  // time of access, set by find()
};

std::vector<KeptFile> kept_files(const std::string& folder) {
  std::vector<KeptFile> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string path = entry->path().string();
    struct stat facts {};
    if (path.find(kSuffix) == std::string::npos || ::stat(path.c_str(), &facts) != 0 ||
        !S_ISREG(facts.st_mode)) {
      continue;
    }
    if (path.ends_with(kSuffix)) {
      files.push_back({path, static_cast<uint64_t>(facts.st_size), facts.st_atim});
    } else if (std::chrono::system_clock::from_time_t(facts.st_mtime) + kAbandoned <
               std::chrono::system_clock::now()) {
      std::error_code gone;
      fs::remove(path, gone);
    }
  }
  return files;
}

}  // namespace

// Of the board what was read of it, and not where: a file may have changed since.
std::string program_key(std::span<const std::byte> artifact, const spec::BoardParams& board,
                        const std::vector<int>& cores, const std::string& form) {
  Hash hash;
  hash.add(artifact.data(), artifact.size());
  for (const spec::BoardKey& key : spec::kBoardKeys) {
    hash.add(spec::value_text(key, board));
  }
  for (const int core : cores) {
    hash.add("core " + std::to_string(core));
  }
  if (!form.empty()) {
    hash.add("form " + form);
  }
  hash.add(build_id());
  return hash.hex();
}

std::string ProgramCache::path_of(const std::string& key) const {
  return folder_ + "/" + key + kSuffix;
}

std::optional<exe::ExecutableT> ProgramCache::find(const std::string& key) const {
  if (folder_.empty() || build_id().empty() || !fs::exists(path_of(key))) {
    return std::nullopt;
  }
  const std::string path = path_of(key);
  try {
    exe::ExecutableT kept = exe::read_executable(spec::read_whole_file(path));
    const timespec now_and_as_it_was[] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
    ::utimensat(AT_FDCWD, path.c_str(), now_and_as_it_was, 0);
    return kept;
  } catch (const std::exception&) {
    return std::nullopt;  // it is compiled anew, and replaced
  }
}

// Other processes may keep and remove files meanwhile: what cannot be removed is gone.
void ProgramCache::make_room(const std::string& kept_path, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  unseen_bytes_ += bytes;
  if (unseen_bytes_ < limit_bytes_ / 8) {
    return;
  }
  unseen_bytes_ = 0;
  std::vector<KeptFile> files = kept_files(folder_);
  std::sort(files.begin(), files.end(), [](const KeptFile& a, const KeptFile& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) > std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  uint64_t sum = bytes;
  for (const KeptFile& file : files) {
    if (file.path == kept_path) {
      continue;
    }
    sum += file.bytes;
    if (sum > limit_bytes_) {
      std::error_code gone;
      fs::remove(file.path, gone);
    }
  }
}

void ProgramCache::keep(const std::string& key, const exe::ExecutableT& executable) {
  if (folder_.empty() || build_id().empty()) {
    return;
  }
  static std::atomic<unsigned> count{0};
  std::error_code error;
  fs::create_directories(folder_, error);
  const std::vector<std::byte> container = exe::write_executable(executable);
  const std::string made = fmt::format("{}.{}.{}", path_of(key), getpid(), count++);
  std::ofstream file(made, std::ios::binary);
  file.write(reinterpret_cast<const char*>(container.data()),
             static_cast<std::streamsize>(container.size()));
  file.close();
  if (file) {
    fs::rename(made, path_of(key), error);
  }
  if (!file || error) {
    fs::remove(made, error);
    return;
  }
  make_room(path_of(key), container.size());
}

}  // namespace tpu::client
