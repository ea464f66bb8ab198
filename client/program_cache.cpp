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
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "board/board_loader.hpp"
#include "file/output_file.hpp"
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

constexpr std::string_view kSuffix = ".cached";
// What a process that ended while it wrote has left; nobody writes for so long.
constexpr std::chrono::hours kAbandoned{1};

// In front of the executable, with the key behind it: what tells a file of the cache, and of which
// program, whatever its name.
struct Head {
  std::array<char, 8> magic = {'T', 'P', 'U', 'C', 'A', 'C', 'H', 'E'};
  uint32_t version = 1;
  uint32_t key_bytes = 0;
  bool operator==(const Head&) const = default;
};
constexpr size_t kMostKeyBytes = 256;

std::string head_of(const std::string& key) {
  Head head;
  head.key_bytes = static_cast<uint32_t>(key.size());
  return std::string(reinterpret_cast<const char*>(&head), sizeof head) + key;
}

// A file of the folder, opened as it stands there: links are not followed.
class CacheFile {
 public:
  explicit CacheFile(const std::string& path)
      : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)),
        error_(file_ < 0 ? errno : 0) {
    if (file_ >= 0 && ::fstat(file_, &facts_) != 0) {
      error_ = errno;
    }
  }
  ~CacheFile() {
    if (file_ >= 0) {
      ::close(file_);
    }
  }
  CacheFile(const CacheFile&) = delete;
  CacheFile& operator=(const CacheFile&) = delete;

  int error() const { return error_; }
  const struct stat& facts() const { return facts_; }
  // Why this is no file that this user's cache has written under `key`; empty: it is one.
  std::string foreign(const std::string& key) const {
    if (error_ != 0) {
      return std::strerror(error_);
    }
    if (!S_ISREG(facts_.st_mode)) {
      return "is not a regular file";
    }
    if (facts_.st_uid != ::geteuid()) {
      return fmt::format("belongs to the user {}", facts_.st_uid);
    }
    const std::string wanted = head_of(key);
    return key.size() <= kMostKeyBytes && text(0, wanted.size()) == wanted
               ? std::string()
               : "is not a file of the cache, or belongs to another program";
  }
  // What is there of so many bytes.
  std::string text(uint64_t at, size_t count) const {
    std::string bytes(count, '\0');
    size_t used = 0;
    while (used < count) {
      const ssize_t n =
          ::pread(file_, bytes.data() + used, count - used, static_cast<off_t>(at + used));
      if (n < 0 && errno == EINTR) {
        continue;
      }
      if (n <= 0) {
        break;
      }
      used += static_cast<size_t>(n);
    }
    bytes.resize(used);
    return bytes;
  }
  void touch() const {
    const timespec now_and_as_it_was[] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
    ::futimens(file_, now_and_as_it_was);
  }

 private:
  int file_;
  int error_;
  struct stat facts_ {};
};

struct KeptFile {
  std::string path;
  uint64_t bytes = 0;
  timespec used = {};  // time of access, set by find()
};

bool is_abandoned(const struct stat& facts) {
  return std::chrono::system_clock::from_time_t(facts.st_mtime) + kAbandoned <
         std::chrono::system_clock::now();
}

// The files that a cache of this user has written; half written ones that were left go.
std::vector<KeptFile> kept_files(const std::string& folder) {
  std::vector<KeptFile> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const std::string_view target = spec::part_target(name);
    const std::string_view whole = target.empty() ? std::string_view(name) : target;
    if (!whole.ends_with(kSuffix)) {
      continue;
    }
    const CacheFile file(entry->path().string());
    if (!file.foreign(std::string(whole.substr(0, whole.size() - kSuffix.size()))).empty()) {
      continue;
    }
    if (target.empty()) {
      files.push_back({entry->path().string(), static_cast<uint64_t>(file.facts().st_size),
                       file.facts().st_atim});
    } else if (is_abandoned(file.facts())) {
      std::error_code gone;
      fs::remove(entry->path(), gone);
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

ProgramCache::ProgramCache(std::string folder, uint64_t limit_bytes,
                           std::function<void(const std::string&)> say)
    : folder_(std::move(folder)),
      limit_bytes_(limit_bytes),
      say_(std::move(say)),
      unseen_bytes_(limit_bytes) {}

std::string ProgramCache::path_of(const std::string& key) const {
  return folder_ + "/" + key + std::string(kSuffix);
}

void ProgramCache::complain(const std::string& path, const std::string& why) const {
  const base::MutexLock lock(said_mutex_);
  if (!said_) {
    said_ = true;
    say_(fmt::format(
        "compile cache: {}: {}; programs are compiled without it. TPUBOARD_CACHE=FOLDER sets "
        "another folder, TPUBOARD_CACHE=off disables the cache",
        path, why));
  }
}

std::optional<exe::ExecutableT> ProgramCache::find(const std::string& key) const {
  if (folder_.empty() || build_id().empty()) {
    return std::nullopt;
  }
  const std::string path = path_of(key);
  const CacheFile file(path);
  if (file.error() == ENOENT) {
    return std::nullopt;
  }
  if (const std::string why = file.foreign(key); !why.empty()) {
    complain(path, why);
    return std::nullopt;
  }
  try {
    const uint64_t head = head_of(key).size();
    const auto size = static_cast<uint64_t>(file.facts().st_size);
    const std::string container = file.text(head, std::min(size, spec::kMaxInputBytes) - head);
    exe::ExecutableT kept = exe::read_executable(std::as_bytes(std::span(container)));
    file.touch();
    return kept;
  } catch (const std::exception& error) {
    complain(path, error.what());  // and it is replaced
    return std::nullopt;
  }
}

// Other processes may keep and remove files meanwhile: what cannot be removed is gone.
void ProgramCache::make_room(const std::string& kept_path, uint64_t bytes) {
  const base::MutexLock lock(mutex_);
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

// A program that is compiled is not lost because it cannot be kept.
void ProgramCache::keep(const std::string& key, const exe::ExecutableT& executable) {
  if (folder_.empty() || build_id().empty()) {
    return;
  }
  const std::string path = path_of(key);
  try {
    fs::create_directories(folder_);
    const CacheFile there(path);
    if (const std::string why = there.foreign(key); !why.empty() && there.error() != ENOENT) {
      return complain(path, why);  // and stays as it is
    }
    const std::vector<std::byte> container = exe::write_executable(executable);
    const std::string head = head_of(key);
    spec::OutputFile file(path);
    file.add(std::as_bytes(std::span(head)));
    file.add(container);
    file.finish();
    make_room(path, head.size() + container.size());
  } catch (const std::exception& error) {
    complain(path, error.what());
  }
}

}  // namespace tpu::client
