// Damaged executables under sanitizers: 10,000 with a hash that no longer fits, 10,000 with the
// hash made right again. The second kind goes through everything that reads an executable before a
// core runs it: the file reader, the listing, and the device's decoder of core programs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "asm/disassembler.hpp"
#include "board/board_loader.hpp"
#include "core/program.hpp"
#include "exe/executable.hpp"
#include "ir/error.hpp"
#include "tests/fuzz/amount.hpp"
#include "tests/fuzz/corpus.hpp"
#include "tpu/spec/program_image.h"

namespace tpu {
namespace {

constexpr int kMutations = 10000;
constexpr size_t kContainerHead = 48;  // magic, length, hash
constexpr size_t kLengthAt = 8;

using Bytes = std::vector<std::byte>;

uint32_t fuzz_seed() { return test::fuzz_seed(20240602); }

std::vector<Bytes> corpus() { return test::fuzz_corpus(TPU_PROGRAMS, ".tpuexe"); }

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

  // Changes bytes from `first` on; never leaves them as they were.
  template <typename Byte>
  void change(std::vector<Byte>& b, size_t first) {
    const std::vector<Byte> original = b;
    while (b == original) {
      for (size_t n = 1 + below(4); n > 0; --n) {
        change_once(b, first + below(b.size() - first));
      }
    }
  }

 private:
  template <typename Byte>
  void change_once(std::vector<Byte>& b, size_t at) {
    constexpr uint8_t kEdges[] = {0, 1, 0x7f, 0x80, 0xff};
    switch (below(4)) {
      case 0:
        b[at] = static_cast<Byte>(static_cast<uint8_t>(b[at]) ^ (1u << below(8)));
        break;
      case 1:
        b[at] = static_cast<Byte>(below(256));
        break;
      case 2:
        b[at] = static_cast<Byte>(kEdges[below(std::size(kEdges))]);
        break;
      default:  // an aligned word: the extremes of its type, or another word of the file
        if (const size_t word = at & ~size_t{3}; word + 4 <= b.size()) {
          const uint32_t values[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff};
          if (const size_t which = below(std::size(values) + 1); which < std::size(values)) {
            std::memcpy(b.data() + word, &values[which], 4);
          } else {
            std::memmove(b.data() + word, b.data() + (below(b.size() / 4) * 4), 4);
          }
        }
        break;
    }
  }

  std::mt19937 random_;
};

TEST(ExeFuzz, BrokenHashIsAlwaysRefused) {
  const std::vector<Bytes> seeds = corpus();
  ASSERT_GE(seeds.size(), 5u);
  Mutator mutator(fuzz_seed());
  const int mutations = test::fuzz_inputs(kMutations);
  for (int i = 0; i < mutations; ++i) {
    Bytes input = seeds[static_cast<size_t>(i) % seeds.size()];
    if (i % 4 == 0) {
      input.resize(mutator.below(input.size()));
    } else {
      mutator.change(input, 0);
    }
    EXPECT_THROW(static_cast<void>(exe::read_executable(input)), exe::ExecutableError) << i;
  }
}

// What the driver, the listing and the device do with an executable that was accepted.
void use(const exe::ExecutableT& exe, const spec::BoardParams& board) {
  try {
    static_cast<void>(compiler::disassemble(exe));
  } catch (const compiler::Error&) {
  }
  const auto image = std::as_bytes(std::span(exe.image));
  ASSERT_GE(image.size(), sizeof(tpu_program_image_header_t));
  if (model::Program::check_header(image)) {
    return;
  }
  tpu_program_image_header_t header;
  std::memcpy(&header, image.data(), sizeof header);
  const auto code = image.subspan(sizeof header);
  const model::Program program({code.begin(), code.end()}, header.entry_word, header.slots, board);
  for (uint64_t word = 0; word <= code.size() / 8; ++word) {
    if (const model::ProgramItem* item = program.item(word);
        item != nullptr && item->kind == model::ProgramItem::Kind::kCommand) {
      ASSERT_LT(item->command, program.commands().size());
      ASSERT_GT(item->next, word);
    }
  }
}

TEST(ExeFuzz, RepairedHashIsRefusedOrDecoded) {
  const std::vector<Bytes> seeds = corpus();
  ASSERT_GE(seeds.size(), 5u);
  const spec::BoardParams board = spec::load_board("v3_8");
  Mutator mutator(fuzz_seed() + 1);
  int accepted = 0;
  const int mutations = test::fuzz_inputs(kMutations);
  for (int i = 0; i < mutations; ++i) {
    Bytes input = seeds[static_cast<size_t>(i) % seeds.size()];
    if (i % 2 == 0) {  // the code and its operands
      exe::ExecutableT exe = exe::read_executable(input);
      mutator.change(exe.image, i % 4 == 0 ? sizeof(tpu_program_image_header_t) : 0);
      input = exe::write_executable(exe);
    } else {  // anything, and the length made right
      mutator.change(input, kContainerHead);
      if (i % 16 == 1) {
        input.resize(kContainerHead + mutator.below(input.size() - kContainerHead));
      }
      const uint64_t size = input.size() - kContainerHead;
      std::memcpy(input.data() + kLengthAt, &size, sizeof size);
      exe::repair_hash(input);
    }
    try {
      use(exe::read_executable(input), board);
      ++accepted;
    } catch (const exe::ExecutableError&) {
    } catch (const std::exception& e) {
      ADD_FAILURE() << "mutation " << i << " of seed " << fuzz_seed() << ": " << e.what();
    }
  }
  std::printf("%d of %d inputs accepted\n", accepted, mutations);
  EXPECT_GT(accepted, mutations / 4);
  EXPECT_LT(accepted, mutations);
}

}  // namespace
}  // namespace tpu
