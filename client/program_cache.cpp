// The compiler's version is the build id of the binary that holds it: the linker's hash of its
// contents.
#include "program_cache.hpp"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

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

}  // namespace

// Of the board what was read of it, and not where: a file may have changed since.
std::string program_key(std::span<const std::byte> artifact, const spec::BoardParams& board,
                        const std::vector<int>& cores) {
  Hash hash;
  hash.add(artifact.data(), artifact.size());
  spec::BoardParams params = board;
  for (const spec::BoardKey& key : spec::kBoardKeys) {
    hash.add(key.number != nullptr ? std::to_string(key.number(params)) : key.text(params));
  }
  for (const int core : cores) {
    hash.add("core " + std::to_string(core));
  }
  hash.add(build_id());
  return hash.hex();
}

std::string ProgramCache::path_of(const std::string& key) const {
  return folder_ + "/" + key + ".tpuexe";
}

std::optional<exe::ExecutableT> ProgramCache::find(const std::string& key) const {
  if (folder_.empty() || build_id().empty() || !fs::exists(path_of(key))) {
    return std::nullopt;
  }
  try {
    return exe::read_executable(spec::read_whole_file(path_of(key)));
  } catch (const std::exception&) {
    return std::nullopt;  // it is compiled anew, and replaced
  }
}

void ProgramCache::keep(const std::string& key, const exe::ExecutableT& executable) const {
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
  }
}

}  // namespace tpu::client
