// Firmware from ELF files: what is loaded, how its places are called, and what is refused.
#include "image/elf_image.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <random>

#include "tests/support/elf_builder.hpp"

namespace tpu::test {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kItcm = TPU_HART_ITCM_BASE;
constexpr uint32_t kDtcm = TPU_HART_DTCM_BASE;

class ElfImageTest : public ::testing::Test {
 protected:
  ElfImageTest() {
    elf_.add(kItcm, std::vector<std::byte>(64, std::byte{0x13}));
    elf_.symbols = {{"start", kItcm}, {"work", kItcm + 32}};
  }
  std::shared_ptr<const firmware::ElfImage> read() {
    elf_.write(path_);
    return firmware::read_elf_image(path_);
  }
  // The error behind the path.
  std::string error_of(const std::vector<std::byte>& file) {
    ElfBuilder::write(path_, file);
    try {
      firmware::read_elf_image(path_);
    } catch (const firmware::ElfError& error) {
      EXPECT_THAT(error.what(), ::testing::StartsWith(path_ + ": "));
      return std::string(error.what()).substr(path_.size() + 2);
    }
    return "taken";
  }
  std::string error() { return error_of(elf_.bytes()); }

  const std::string path_ = ::testing::TempDir() + "/elf_image_" +
                            ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                            ".elf";
  ElfBuilder elf_;
};

TEST_F(ElfImageTest, IsWhatIsLoadedWithItsFunctions) {
  elf_.add(kDtcm, std::vector<std::byte>(6, std::byte{7}), 100).head.p_paddr = kItcm + 70;
  elf_.add(kDtcm + 0x1000, {}, 0x2000);
  elf_.head.e_entry = kItcm + 4;
  const auto image = read();
  EXPECT_EQ(image->entry, kItcm + 4);
  ASSERT_EQ(image->bytes.size(), 76U);  // whole words
  EXPECT_EQ(image->bytes[63], 0x13);
  EXPECT_EQ(image->bytes[64], 0);
  EXPECT_EQ(image->bytes[75], 7);
  EXPECT_EQ(firmware::code_place(image->image, kItcm + 31), "start");
  EXPECT_EQ(firmware::code_place(image->image, kItcm + 32), "work");
  EXPECT_EQ(firmware::code_place(image->image, kItcm + 200), "");
  EXPECT_EQ(firmware::code_place(image->image, 0), firmware::code_place(firmware::image(), 0));
}

TEST_F(ElfImageTest, NeedsNoSymbols) {
  elf_.symbols.clear();
  EXPECT_EQ(firmware::code_place(read()->image, kItcm), "");
}

TEST_F(ElfImageTest, OfTheBuiltInFirmwareIsTheSameImage) {
  const auto image = firmware::read_elf_image(TPU_FIRMWARE_ELF);
  const firmware::Image& built_in = firmware::image();
  ASSERT_EQ(image->bytes.size(), built_in.bytes.size());
  EXPECT_EQ(image->entry, kItcm);
  for (size_t i = 0; i < image->bytes.size(); ++i) {
    if (i / 4 != 1) {  // the build
      ASSERT_EQ(image->bytes[i], built_in.bytes[i]) << i;
    }
  }
  // Of the functions of both; labels of assembly are the ELF file's alone.
  for (const firmware::CodeLine& line : built_in.lines) {
    const std::string place = firmware::code_place(built_in, line.address);
    const std::string name = place.substr(0, place.find(' '));
    if (line.address >= kItcm && !name.empty()) {
      EXPECT_EQ(firmware::code_place(image->image, line.address), name) << line.address;
    }
  }
}

TEST_F(ElfImageTest, RefusesWhatIsNoFirmware) {
  const auto changed = [&](const std::function<void(ElfBuilder&)>& change) {
    ElfBuilder elf = elf_;
    change(elf);
    return error_of(elf.bytes());
  };
  EXPECT_THAT(error_of({}), HasSubstr("not an ELF file; use the output of the linker"));
  EXPECT_THAT(error_of(std::vector<std::byte>(5000, std::byte{0x13})),
              HasSubstr("not an ELF file"));
  EXPECT_THAT(changed([](auto& elf) { elf.head.e_ident[EI_CLASS] = ELFCLASS64; }),
              HasSubstr("not a 32-bit ELF file; compile with -march=rv32imc"));
  EXPECT_THAT(changed([](auto& elf) { elf.head.e_machine = EM_ARM; }),
              HasSubstr("expected 243 (RISC-V, little-endian), found 40 (little-endian)"));
  EXPECT_THAT(changed([](auto& elf) { elf.head.e_ident[EI_DATA] = ELFDATA2MSB; }),
              HasSubstr("found 243 (not little-endian)"));
  EXPECT_THAT(changed([](auto& elf) { elf.head.e_flags = 4; }), HasSubstr("float registers"));
  EXPECT_THAT(changed([](auto& elf) { elf.head.e_type = ET_REL; }),
              HasSubstr("not an executable; link it"));
  EXPECT_THAT(changed([](auto& elf) { elf.head.e_phentsize = 3; }),
              HasSubstr("wrong size of a program header: expected 32 bytes, found 3"));
  EXPECT_THAT(changed([](auto& elf) { elf.segments.clear(); }),
              HasSubstr("it has no segment to load"));
}

TEST_F(ElfImageTest, RefusesEntriesOutsideOfItsCode) {
  for (const uint32_t entry : {0U, kItcm + 64, kItcm + 2, kDtcm}) {
    elf_.head.e_entry = entry;
    EXPECT_THAT(error(), HasSubstr("is not in its code in ITCM; set it with ENTRY()")) << entry;
  }
  elf_.head.e_entry = kItcm + 2;
  elf_.head.e_flags = 1;  // compressed instructions
  EXPECT_EQ(error(), "taken");
  elf_.segments[0].head.p_flags = PF_R | PF_W;
  EXPECT_THAT(error(), HasSubstr("is not in its code"));
}

TEST_F(ElfImageTest, RefusesSegmentsThatDoNotFit) {
  const std::vector<std::byte> word(4);
  const auto with = [&](uint32_t address, uint32_t memory, uint32_t load) {
    ElfBuilder elf = elf_;
    elf.add(address, word, memory).head.p_paddr = load;
    return error_of(elf.bytes());
  };
  EXPECT_THAT(with(0x100, 4, 0x100), HasSubstr("segment 1 (address 0x00000100, 4 bytes) is outside "
                                               "of ITCM (0x10000000, 131072 bytes) and DTCM"));
  EXPECT_THAT(with(kItcm + TPU_HART_ITCM_BYTES - 2, 4, kItcm + 64),
              HasSubstr("is outside of ITCM"));
  EXPECT_THAT(with(kDtcm, TPU_HART_DTCM_BYTES + 1, kItcm + 64), HasSubstr("is outside of ITCM"));
  EXPECT_THAT(with(kDtcm, UINT32_MAX, kItcm + 64), HasSubstr("is outside of ITCM"));
  EXPECT_THAT(
      with(kDtcm, 4, kDtcm),
      HasSubstr("is loaded to 0x20000000: expected a range in ITCM; give it a load address"));
  EXPECT_THAT(with(kDtcm, 4, kItcm + TPU_HART_ITCM_BYTES - 2),
              HasSubstr("expected a range in ITCM"));
  EXPECT_THAT(with(kDtcm, 2, kItcm + 64), HasSubstr("has 4 bytes in the file"));
  EXPECT_THAT(with(kDtcm, 4, kItcm + 62), HasSubstr("segment 1 overlaps another one"));
  EXPECT_EQ(with(kDtcm, TPU_HART_DTCM_BYTES, kItcm + TPU_HART_ITCM_BYTES - 4), "taken");
}

// Wherever a file is cut off or damaged it is refused or taken, and nothing is read behind its end.
TEST_F(ElfImageTest, SurvivesDamage) {
  elf_.add(kDtcm, std::vector<std::byte>(8), 100).head.p_paddr = kItcm + 64;
  const std::vector<std::byte> whole = elf_.bytes();
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_NE(error_of({whole.begin(), whole.begin() + static_cast<int64_t>(bytes)}), "taken");
  }
  std::mt19937 random(13);
  for (int i = 0; i < 300; ++i) {
    std::vector<std::byte> file = whole;
    for (int n = 0; n < 3; ++n) {
      file[random() % file.size()] = static_cast<std::byte>(random());
    }
    static_cast<void>(error_of(file));
  }
}

TEST_F(ElfImageTest, RefusesAFileThatIsNotThere) {
  EXPECT_THROW(firmware::read_elf_image(path_ + ".none"), std::runtime_error);
}

}  // namespace
}  // namespace tpu::test
