// Small ELF files of 32 bits, right by default and wrong where a test says so.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tpu/spec/hart_map.h"

namespace tpu::test {

struct ElfBuilder {
  struct Segment {
    Elf32_Phdr head;
    std::vector<std::byte> bytes;
  };

  ElfBuilder() {
    std::memcpy(head.e_ident, ELFMAG, SELFMAG);
    head.e_ident[EI_CLASS] = ELFCLASS32;
    head.e_ident[EI_DATA] = ELFDATA2LSB;
    head.e_ident[EI_VERSION] = EV_CURRENT;
    head.e_type = ET_EXEC;
    head.e_machine = EM_RISCV;
    head.e_version = EV_CURRENT;
    head.e_entry = TPU_HART_ITCM_BASE;
    head.e_ehsize = sizeof(Elf32_Ehdr);
    head.e_phentsize = sizeof(Elf32_Phdr);
    head.e_shentsize = sizeof(Elf32_Shdr);
  }

  // Code or data that is loaded to where it lies; `memory` bytes there.
  Segment& add(uint32_t address, std::vector<std::byte> bytes, uint32_t memory = 0) {
    Segment segment{.head = {}, .bytes = std::move(bytes)};
    segment.head.p_type = PT_LOAD;
    segment.head.p_vaddr = segment.head.p_paddr = address;
    segment.head.p_filesz = static_cast<uint32_t>(segment.bytes.size());
    segment.head.p_memsz = memory == 0 ? segment.head.p_filesz : memory;
    segment.head.p_flags = PF_R | PF_X;
    segments.push_back(std::move(segment));
    return segments.back();
  }

  // Headers, contents of segments, names, symbols, sections: none, code, symbols, names.
  std::vector<std::byte> bytes() const {
    Elf32_Ehdr first = head;
    first.e_phoff = sizeof first;
    first.e_phnum = static_cast<Elf32_Half>(segments.size());
    first.e_shnum = 4;
    auto offset = static_cast<uint32_t>(sizeof first + segments.size() * sizeof(Elf32_Phdr));
    std::vector<std::byte> heads, contents;
    for (const Segment& segment : segments) {
      Elf32_Phdr placed = segment.head;
      placed.p_offset = offset + static_cast<uint32_t>(contents.size());
      append(heads, placed);
      contents.insert(contents.end(), segment.bytes.begin(), segment.bytes.end());
    }
    Elf32_Shdr sections[4] = {};
    sections[1].sh_type = SHT_PROGBITS;
    sections[1].sh_flags = SHF_ALLOC | SHF_EXECINSTR;
    std::string names(1, '\0');
    std::vector<std::byte> table(sizeof(Elf32_Sym));
    for (const auto& [name, address] : symbols) {
      Elf32_Sym symbol{};
      symbol.st_name = static_cast<uint32_t>(names.size());
      symbol.st_value = address;
      symbol.st_info = ELF32_ST_INFO(STB_GLOBAL, STT_FUNC);
      symbol.st_shndx = 1;
      names += name + '\0';
      append(table, symbol);
    }
    sections[2].sh_type = SHT_SYMTAB;
    sections[2].sh_link = 3;
    sections[2].sh_offset = offset + static_cast<uint32_t>(contents.size());
    sections[2].sh_size = static_cast<uint32_t>(table.size());
    contents.insert(contents.end(), table.begin(), table.end());
    sections[3].sh_offset = offset + static_cast<uint32_t>(contents.size());
    sections[3].sh_size = static_cast<uint32_t>(names.size());
    const auto* text = reinterpret_cast<const std::byte*>(names.data());
    contents.insert(contents.end(), text, text + names.size());
    first.e_shoff = offset + static_cast<uint32_t>(contents.size());
    std::vector<std::byte> file;
    append(file, first);
    file.insert(file.end(), heads.begin(), heads.end());
    file.insert(file.end(), contents.begin(), contents.end());
    append(file, sections);
    return file;
  }

  void write(const std::string& path) const { write(path, bytes()); }
  static void write(const std::string& path, const std::vector<std::byte>& bytes) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }

  Elf32_Ehdr head{};
  std::vector<Segment> segments;
  std::vector<std::pair<std::string, uint32_t>> symbols;

 private:
  template <class T>
  static void append(std::vector<std::byte>& to, const T& value) {
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    to.insert(to.end(), from, from + sizeof value);
  }
};

}  // namespace tpu::test
