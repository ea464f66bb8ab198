// Headers, segments and symbols of an ELF file of 32 bits, all of them checked against its size.
#include "image/elf_image.hpp"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <span>

#include "file/whole_file.hpp"
#include "tpu/spec/hart_map.h"

namespace tpu::firmware {
namespace {

constexpr uint64_t kMostBytes = uint64_t{64} << 20;  // of the file, debug information and all
constexpr uint32_t kCompressed = 0x1, kFloatAbi = 0x6, kEmbedded = 0x8;  // of e_flags

class ElfReader {
 public:
  ElfReader(std::string path, std::vector<std::byte> file)
      : path_(std::move(path)), file_(std::move(file)) {}

  void read(ElfImage& to) {
    check_head();
    read_segments(to);
    check_entry(to);
    read_symbols(to);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const { throw ElfError(path_ + ": " + why); }

  template <class T>
  T at(uint64_t offset, const char* what) const {
    T value;
    if (offset > file_.size() || file_.size() - offset < sizeof value) {
      refuse(fmt::format("the file ends inside of its {}; build it again", what));
    }
    std::memcpy(&value, file_.data() + offset, sizeof value);
    return value;
  }

  void check_head() {
    constexpr std::string_view kMagic(ELFMAG, SELFMAG);
    if (file_.size() < SELFMAG || std::memcmp(file_.data(), kMagic.data(), SELFMAG) != 0) {
      refuse("not an ELF file; use the output of the linker, not that of objcopy");
    }
    head_ = at<Elf32_Ehdr>(0, "header");
    if (head_.e_ident[EI_CLASS] != ELFCLASS32) {
      refuse("not a 32-bit ELF file; compile with -march=rv32imc_zicsr -mabi=ilp32");
    }
    if (head_.e_ident[EI_DATA] != ELFDATA2LSB || head_.e_machine != EM_RISCV) {
      refuse(fmt::format(
          "code of another machine: expected {} (RISC-V, little-endian), found {} ({})", EM_RISCV,
          head_.e_machine,
          head_.e_ident[EI_DATA] == ELFDATA2LSB ? "little-endian" : "not little-endian"));
    }
    if ((head_.e_flags & (kFloatAbi | kEmbedded)) != 0) {
      refuse(
          "its ABI is for float registers or for RV32E, but a control hart is RV32IMC; compile "
          "with -mabi=ilp32");
    }
    if (head_.e_type != ET_EXEC) {
      refuse("not an executable; link it, without -r and -pie");
    }
    if (head_.e_phnum != 0 && head_.e_phentsize != sizeof(Elf32_Phdr)) {
      refuse(
          fmt::format("wrong size of a program header: expected {} bytes, found {}; build it again",
                      sizeof(Elf32_Phdr), head_.e_phentsize));
    }
  }

  static bool inside(uint32_t address, uint64_t bytes, uint32_t base, uint32_t size) {
    return address >= base && address - base <= size && bytes <= size - (address - base);
  }

  void check_segment(const Elf32_Phdr& segment, size_t index) const {
    const std::string name = fmt::format("segment {} (address {:#010x}, {} bytes)", index,
                                         segment.p_vaddr, segment.p_memsz);
    if (!inside(segment.p_vaddr, segment.p_memsz, TPU_HART_ITCM_BASE, TPU_HART_ITCM_BYTES) &&
        !inside(segment.p_vaddr, segment.p_memsz, TPU_HART_DTCM_BASE, TPU_HART_DTCM_BYTES)) {
      refuse(fmt::format(
          "{} is outside of ITCM ({:#010x}, {} bytes) and DTCM ({:#010x}, {} "
          "bytes); link with firmware.ld, the linker script of a control hart",
          name, TPU_HART_ITCM_BASE, TPU_HART_ITCM_BYTES, TPU_HART_DTCM_BASE, TPU_HART_DTCM_BYTES));
    }
    if (segment.p_filesz > segment.p_memsz) {
      refuse(fmt::format("{} has {} bytes in the file; build it again", name, segment.p_filesz));
    }
    if (segment.p_filesz != 0 &&
        !inside(segment.p_paddr, segment.p_filesz, TPU_HART_ITCM_BASE, TPU_HART_ITCM_BYTES)) {
      refuse(fmt::format(
          "{} is loaded to {:#010x}: expected a range in ITCM; give it a load address there "
          "(`> DTCM AT > ITCM` in the linker script) and copy it at the start",
          name, segment.p_paddr));
    }
  }

  void read_segments(ElfImage& to) {
    std::map<uint32_t, uint32_t> loaded;  // ends by begin
    for (size_t i = 0; i < head_.e_phnum; ++i) {
      const auto segment =
          at<Elf32_Phdr>(head_.e_phoff + i * sizeof(Elf32_Phdr), "program headers");
      if (segment.p_type != PT_LOAD || segment.p_memsz == 0) {
        continue;
      }
      check_segment(segment, i);
      if (segment.p_filesz == 0) {
        continue;
      }
      if (segment.p_offset > file_.size() || segment.p_filesz > file_.size() - segment.p_offset) {
        refuse(fmt::format("the file ends inside of segment {}; build it again", i));
      }
      const uint32_t begin = segment.p_paddr - TPU_HART_ITCM_BASE;
      const uint32_t end = begin + segment.p_filesz;
      for (const auto& [other, other_end] : loaded) {
        if (begin < other_end && other < end) {
          refuse(fmt::format("segment {} overlaps another one; fix the linker script", i));
        }
      }
      loaded[begin] = end;
      to.bytes.resize(std::max<size_t>(to.bytes.size(), (end + 3) & ~uint32_t{3}));
      std::memcpy(to.bytes.data() + begin, file_.data() + segment.p_offset, segment.p_filesz);
      entry_inside_ |= (segment.p_flags & PF_X) != 0 && segment.p_vaddr == segment.p_paddr &&
                       head_.e_entry - segment.p_vaddr < segment.p_filesz;
    }
    if (to.bytes.empty()) {
      refuse("it has no segment to load; link it with firmware.ld");
    }
  }

  void check_entry(ElfImage& to) const {
    const uint32_t align = (head_.e_flags & kCompressed) != 0 ? 2 : 4;
    if (!entry_inside_ || head_.e_entry % align != 0) {
      refuse(
          fmt::format("its entry {:#010x} is not in its code in ITCM; set it with ENTRY() in "
                      "the linker script",
                      head_.e_entry));
    }
    to.entry = head_.e_entry;
  }

  Elf32_Shdr section(size_t index) const {
    return at<Elf32_Shdr>(head_.e_shoff + index * sizeof(Elf32_Shdr), "section headers");
  }

  // A name may be cut off by the end of the file.
  std::string name_at(const Elf32_Shdr& strings, uint32_t offset) const {
    const uint64_t begin = std::min<uint64_t>(uint64_t{strings.sh_offset} + offset, file_.size());
    const auto* text = reinterpret_cast<const char*>(file_.data() + begin);
    return std::string(text, strnlen(text, file_.size() - begin));
  }

  // Functions, and labels of assembly, by address.
  std::map<uint32_t, std::string> functions() const {
    std::map<uint32_t, std::string> found;
    for (size_t i = 0; i < head_.e_shnum; ++i) {
      const Elf32_Shdr table = section(i);
      if (table.sh_type != SHT_SYMTAB || table.sh_link >= head_.e_shnum) {
        continue;
      }
      const Elf32_Shdr strings = section(table.sh_link);
      for (uint32_t at_byte = 0; at_byte + sizeof(Elf32_Sym) <= table.sh_size;
           at_byte += sizeof(Elf32_Sym)) {
        const auto symbol = at<Elf32_Sym>(uint64_t{table.sh_offset} + at_byte, "symbols");
        const auto type = ELF32_ST_TYPE(symbol.st_info);
        if ((type != STT_FUNC && type != STT_NOTYPE) || symbol.st_shndx >= head_.e_shnum ||
            (section(symbol.st_shndx).sh_flags & SHF_EXECINSTR) == 0) {
          continue;
        }
        const std::string name = name_at(strings, symbol.st_name);
        if (name.empty() || name.front() == '$' || name.front() == '.') {
          continue;
        }
        if (type == STT_FUNC) {
          found[symbol.st_value] = name;
        } else {
          found.try_emplace(symbol.st_value, name);
        }
      }
    }
    return found;
  }

  // With those of the mask ROM, which lies below.
  void read_symbols(ElfImage& to) const {
    const Image& built_in = image();
    to.names.assign(built_in.names.begin(), built_in.names.end());
    for (const CodeLine& line : built_in.lines) {
      if (line.address < TPU_HART_ROM_BASE + TPU_HART_ROM_BYTES) {
        to.lines.push_back(line);
      }
    }
    const std::map<uint32_t, std::string> found = functions();
    to.texts.reserve(found.size() + 1);
    const auto add = [&](uint32_t address, std::string name) {
      if (address >= TPU_HART_ITCM_BASE && to.names.size() <= UINT16_MAX) {
        to.texts.push_back(std::move(name));
        const auto index = static_cast<uint16_t>(to.names.size());
        to.names.push_back(to.texts.back());
        to.lines.push_back({address, index, index, 0});
      }
    };
    for (const auto& [address, name] : found) {
      add(address, name);
    }
    if (!found.empty()) {
      add(TPU_HART_ITCM_BASE + static_cast<uint32_t>(to.bytes.size()), "");
    }
  }

  const std::string path_;
  const std::vector<std::byte> file_;
  Elf32_Ehdr head_{};
  bool entry_inside_ = false;
};

}  // namespace

std::shared_ptr<const ElfImage> read_elf_image(const std::string& path) {
  auto read = std::make_shared<ElfImage>();
  ElfReader(path, spec::read_whole_file(path, kMostBytes)).read(*read);
  Image& image = read->image;
  const Image& built_in = firmware::image();
  image.bytes = read->bytes;
  image.rom = built_in.rom;
  image.lines = read->lines;
  image.names = read->names;
  const auto rom_end = std::ranges::lower_bound(built_in.unwind, uint32_t{TPU_HART_ITCM_BASE}, {},
                                                &UnwindRow::address);
  image.unwind = built_in.unwind.first(static_cast<size_t>(rom_end - built_in.unwind.begin()));
  return read;
}

}  // namespace tpu::firmware
