#include "processes/build_id.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstring>

#include "calls.hpp"

namespace tpu::pjrt {
namespace {

struct Search {
  uintptr_t code = 0;  // an address of this library
  std::string id;
};

// The note NT_GNU_BUILD_ID among those of a segment.
std::string id_in(const char* notes, size_t size) {
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) head;
    std::memcpy(&head, notes, sizeof head);
    const auto padded = [](size_t bytes) { return (bytes + 3) / 4 * 4; };
    const size_t name = sizeof head;
    const size_t contents = name + padded(head.n_namesz);
    const size_t end = contents + padded(head.n_descsz);
    if (end > size) {
      break;
    }
    if (head.n_type == NT_GNU_BUILD_ID && std::memcmp(notes + name, "GNU", 4) == 0) {
      std::string id;
      for (size_t i = 0; i < head.n_descsz; ++i) {
        id += fmt::format("{:02x}", static_cast<unsigned char>(notes[contents + i]));
      }
      return id;
    }
    notes += end;
    size -= end;
  }
  return {};
}

int look(dl_phdr_info* library, size_t /*size*/, void* data) {
  auto& search = *static_cast<Search*>(data);
  bool ours = false;
  std::string id;
  for (size_t i = 0; i < library->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = library->dlpi_phdr[i];
    const uintptr_t begin = library->dlpi_addr + part.p_vaddr;
    ours = ours ||
           (part.p_type == PT_LOAD && search.code >= begin && search.code < begin + part.p_memsz);
    if (part.p_type == PT_NOTE && id.empty()) {
      id = id_in(reinterpret_cast<const char*>(begin), part.p_memsz);
    }
  }
  if (ours) {
    search.id = id;
  }
  return ours ? 1 : 0;
}

}  // namespace

std::string build_id() {
  Search search{reinterpret_cast<uintptr_t>(&GetPjrtApi), {}};
  ::dl_iterate_phdr(look, &search);
  return search.id;
}

std::string library_path() {
  Dl_info here{};
  return ::dladdr(reinterpret_cast<const void*>(&GetPjrtApi), &here) != 0 ? here.dli_fname : "";
}

}  // namespace tpu::pjrt
