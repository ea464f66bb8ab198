// Assembly text: round trips of compiled programs, a hand-written program that runs, errors.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <set>

#include "asm/assembler.hpp"
#include "asm/disassembler.hpp"
#include "board/board_loader.hpp"
#include "entry/compile.hpp"
#include "exe/code_text.hpp"
#include "import/import.hpp"
#include "untimed_core.hpp"

namespace tpu::compiler {
namespace {

class RoundTrip : public testing::TestWithParam<const char*> {};

TEST_P(RoundTrip, GivesTheSameBytes) {
  const std::string name = GetParam();
  const std::string folder = name == "train_step" ? std::string(TPU_EXAMPLES) + "/mnist_mlp/"
                                                  : std::string(TPU_TEST_DATA) + "/";
  const spec::BoardParams board = spec::load_board("v3_8");
  const exe::ExecutableT e = compile(import_vhlo_file(folder + name + ".mlirbc"), board).executable;
  const std::string text = disassemble(e);
  const exe::ExecutableT again = assemble(text, name, board);
  EXPECT_EQ(exe::write_executable(e), exe::write_executable(again));
  EXPECT_EQ(text, disassemble(again));
}

INSTANTIATE_TEST_SUITE_P(Artifacts, RoundTrip,
                         testing::Values("dense", "elementwise", "dots", "shapes", "constants",
                                         "integers", "collectives", "mlp_adam", "spectrum",
                                         "train_step"),
                         [](const auto& param_info) { return std::string(param_info.param); });

TEST(Assembler, CoresRoundTrip) {
  const spec::BoardParams board = spec::load_board("v3_8");
  CompileOptions options;
  options.cores = {0, 1, 2, 3, 6, 7, 4, 5};
  const std::string path = std::string(TPU_TEST_DATA) + "/collectives.mlirbc";
  const exe::ExecutableT e = compile(import_vhlo_file(path), board, options).executable;
  EXPECT_EQ(e.cores, std::vector<uint8_t>(options.cores.begin(), options.cores.end()));
  const std::string text = disassemble(e);
  EXPECT_EQ(exe::write_executable(e), exe::write_executable(assemble(text, "again", board)));
}

// A code block "asm" of the manual page; `program`: its name.
std::string manual_example(const std::string& program) {
  std::ifstream in(TPU_ASSEMBLER_MANUAL);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const std::string open = "```asm\n";
  const size_t from = text.find(open + ".program \"" + program + "\"") + open.size();
  return text.substr(from, text.find("```", from) - from);
}

TEST(Assembler, ExampleOfTheManualRuns) {
  const spec::BoardParams board = spec::load_board("v3_8");
  const exe::ExecutableT e = exe::read_executable(
      exe::write_executable(assemble(manual_example("axpy"), "axpy.s", board)));
  EXPECT_EQ(e.hbm_bytes, 16000u);
  test::UntimedMachine machine(e, board);
  std::vector<float> x(2000);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(i) / 16;
  }
  std::vector<uint8_t> bytes(8000);
  std::memcpy(bytes.data(), x.data(), bytes.size());
  machine.set_argument(0, 0, bytes);
  machine.run();
  std::vector<float> y(2000);
  std::memcpy(y.data(), machine.result(0, 0).data(), bytes.size());
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(y[i], 2 * x[i] + 1) << i;
  }
}

TEST(Assembler, TheManualsLoopOverSlotsRuns) {
  const spec::BoardParams board = spec::load_board("v3_8");
  const exe::ExecutableT e = assemble(manual_example("three_arrays"), "three_arrays.s", board);
  const std::string text = disassemble(e);
  EXPECT_NE(text.find("src=hbm[0+r5]+0"), std::string::npos) << text;
  EXPECT_EQ(exe::write_executable(e), exe::write_executable(assemble(text, "again", board)));
  test::UntimedMachine machine(e, board);
  for (uint8_t i = 0; i < 3; ++i) {
    machine.set_argument(0, i, std::vector<uint8_t>(4096, i));
  }
  machine.run();
  for (uint8_t i = 0; i < 3; ++i) {
    EXPECT_EQ(machine.result(0, i), std::vector<uint8_t>(4096, i));
  }
}

// Each semaphore has one waiting queue; nobody waits for ever.
TEST(Assembler, TheManualsExampleOfTwoWaitingQueuesRuns) {
  const spec::BoardParams board = spec::load_board("v3_8");
  const exe::ExecutableT e = assemble(manual_example("two_readers"), "two_readers.s", board);
  test::UntimedMachine(e, board).run();
  std::map<int, std::set<std::string>> waiting;
  for (const exe::CodeLine& line : exe::code_around(e, 0, 100)) {
    for (size_t at = line.text.find("wait="); at != std::string::npos;
         at = line.text.find("wait=", at + 1)) {
      waiting[std::stoi(line.text.substr(at + 5))].insert(line.text.substr(0, line.text.find('.')));
    }
  }
  EXPECT_EQ(waiting, (std::map<int, std::set<std::string>>{{0, {"vpu"}}, {1, {"xlu"}}}));
}

// What errors and traces call "word 73" can be found in the listing, and read again.
TEST(Disassembler, StatementsHaveTheirWords) {
  const spec::BoardParams board = spec::load_board("v3_8");
  const exe::ExecutableT e = assemble(manual_example("axpy"), "axpy.s", board);
  const std::string text = disassemble(e);
  EXPECT_NE(text.find("  li r5, 0  ; word 0\n  li r6, 8000  ; word 1\nL2:\n  dma_in.dma"),
            std::string::npos)
      << text;
  const std::vector<exe::CodeLine> lines = exe::code_around(e, 2, 1);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].word, 1U);
  EXPECT_EQ(lines[0].text, "li r6, 8000");
  EXPECT_EQ(lines[1].word, 2U);
  EXPECT_EQ(lines[1].text.substr(0, 31), "dma_in.dma op=0 signal=0:1 src=");
  EXPECT_EQ(lines[2].text.substr(0, 19), "vpu.vpu_kernel op=0");
  for (const exe::CodeLine& line : exe::code_around(e, 0, 100)) {
    const std::string listed = "  " + line.text + "  ; word " + std::to_string(line.word) + "\n";
    EXPECT_NE(text.find(listed), std::string::npos) << listed;
  }
  EXPECT_TRUE(exe::code_around(e, 3, 1).empty());     // inside of a command
  EXPECT_TRUE(exe::code_around(e, 9999, 1).empty());  // behind the code
}

TEST(Assembler, BoardWithoutHashIsTheBoardAssembledFor) {
  const spec::BoardParams board = spec::load_board("v3_8");
  const exe::ExecutableT e = assemble(".board \"v3_8\"\n  halt\n", "t.s", board);
  EXPECT_EQ(e.board_hash, spec::board_hash(board));
  EXPECT_EQ(exe::read_executable(exe::write_executable(e)).board_hash, e.board_hash);
  EXPECT_EQ(assemble(".board \"other\" hash=7\n  halt\n", "t.s", board).board_hash, 7u);
}

TEST(Assembler, SemaphoresAbove31RoundTrip) {
  const exe::ExecutableT e =
      assemble("  swait r40, r0, 1\n  halt\n", "t.s", spec::load_board("v3_8"));
  EXPECT_NE(disassemble(e).find("swait r40, r0, 1"), std::string::npos);
}

TEST(Assembler, LabelsBecomeWordIndices) {
  const exe::ExecutableT e =
      assemble("  jmp end\nback:\n  dma_in.nop\nend:\n  beq r1, r2, back\n  halt\n", "t.s",
               spec::load_board("v3_8"));
  const std::string text = disassemble(e);
  EXPECT_NE(text.find("jmp L4"), std::string::npos) << text;
  EXPECT_NE(text.find("beq r1, r2, L1"), std::string::npos) << text;
}

TEST(Assembler, FlagsHaveNames) {
  const std::string all = "mxu0.matmul op=0 flags=accumulate+rhs_transposed";
  for (const char* flags : {"3", "accumulate+2", "rhs_transposed+accumulate"}) {
    const exe::ExecutableT e = assemble("  mxu0.matmul flags=" + std::string(flags) + "\n  halt\n",
                                        "t.s", spec::load_board("v3_8"));
    EXPECT_NE(disassemble(e).find(all), std::string::npos) << disassemble(e);
  }
  const exe::ExecutableT rest =
      assemble("  mxu0.matmul flags=133\n  halt\n", "t.s", spec::load_board("v3_8"));
  EXPECT_NE(disassemble(rest).find("flags=accumulate+132"), std::string::npos);
}

struct Bad {
  const char* text;
  const char* message;
};

class AssemblerError : public testing::TestWithParam<Bad> {};

TEST_P(AssemblerError, NamesTheLine) {
  try {
    assemble(GetParam().text, "bad.s", spec::load_board("v3_8"));
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(GetParam().message), std::string::npos) << e.what();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Statements, AssemblerError,
    testing::Values(
        Bad{"\n  frobnicate r1\n", "bad.s:2:3: unknown instruction 'frobnicate'"},
        Bad{".frobnicate 1\n", "bad.s:1:1: unknown directive '.frobnicate'"},
        Bad{".slots argument\n", "unknown directive '.slots'; did you mean '.slot'?"},
        Bad{"  frobnicate.dma\n", "unknown queue 'frobnicate'; known: mxu0, mxu1, vpu"},
        Bad{"  dma_in.frobnicate\n", "unknown command 'frobnicate'; known: nop, matmul"},
        Bad{"  adi r1, r1, 1\n", "unknown instruction 'adi'; did you mean 'addi'?"},
        Bad{"  li r1, 5 ; fine\n  add r1, r2, x3\n",
            "bad.s:2:15: expected a register such as r5, found 'x3'"},
        Bad{".slot argument byts=512\n",
            "bad.s:1:16: .slot has no operand 'byts=512'; did you mean 'bytes'?"},
        Bad{".slot argument bytes=1 bytes=2\n", "bad.s:1:24: bytes= is given twice"},
        Bad{".board \"v9\"\n", "board \"v9\" is not the one assembled for (\"v3_8\")"},
        Bad{".partitions 0\n", "the number of cores 0 is not in 1..2048"},
        Bad{".arg \"x\" global=[1] slot=0\n.partitions 8\n", "must come before .arg"},
        Bad{".arg \"x\" global=[1] slot=4294967296\n", "slot 4294967296 is not in 0..4294967295"},
        Bad{".arg \"x\" global=[1\n", "bad.s:1:10: missing ] of a list"},
        Bad{".word\n", ".word takes one number"},
        Bad{"a: halt\n", "bad.s:1:4: 'halt' behind 'a:': expected it on a separate line"},
        Bad{"  halt r1\n", "unexpected operand 'r1': halt takes no operands"},
        Bad{"  li r99, 0\n", "register 99 is not in 0..31"}, Bad{"  li r1\n", "li takes rd,imm"},
        Bad{"  li r1, 0x1ffffffff\n", "the 32-bit immediate 0x1ffffffff is not in"},
        Bad{"\n  jmp nowhere\n", "bad.s:2:7: branch to the unknown label nowhere"},
        Bad{"a:\na:\n", "bad.s:2:1: label a is defined twice"},
        Bad{"  vpu.dma\n", "queue vpu does not take dma"},
        Bad{"  vpu.explode\n", "unknown command 'explode'"},
        Bad{"  dma_in.dma size=4\n", "dma has no field 'size'"},
        Bad{"  mxu0.matmul flags=acumulate\n", "no flag 'acumulate'; did you mean 'accumulate'?"},
        Bad{"  vpu.vpu_kernel flags=256\n", "flags 256 is not in 0..255"},
        Bad{"  dma_in.dma counts=[1,2]\n", "takes 5 values, found 2"},
        Bad{"  dma_in.nop wait=300:1\n", "semaphore 300"},
        Bad{"  dma_in.nop wait=1:1 wait=2:1 wait=3:1\n", "at most two waits"},
        Bad{"  dma_in.dma src=disk+4\n", "unknown memory 'disk'"},
        Bad{"  vpu.vpu_kernel program=@p\n  halt\n", "bad.s:1:18: there is no VPU program p"},
        Bad{"  .access lane=4\n", "must follow a vpu_kernel"},
        Bad{".vpu p registers=1\nbody:\n  jump r1\n.end\n", "unknown vector instruction"},
        Bad{".vpu p registers=4\nbody:\n  fma r3, r0, r1, r2\n.end\n",
            "bad.s:3:3: unknown vector instruction 'fma'; did you mean 'fma_f'?"},
        Bad{".vpu p registers=3\nbody:\n  add r2, r0, r1\n.end\n",
            "unknown vector instruction 'add'; did you mean 'add_f' or 'add_i'?"},
        Bad{".vpu p registers=1\nbody:\n  imm r0, 2.0\n.end\n",
            "bad.s:3:11: immediate 2.0: floats are written by their bits: 0x40000000"},
        Bad{".vpu p registers=1\nbody:\n  imm r0, -1.5e3f\n.end\n", "their bits: 0xc4bb8000"},
        Bad{".vpu p registers=1\nbody:\n  imm r0, 1e-3\n.end\n", "their bits: 0x3a83126f"},
        Bad{".vpu p registers=1\nbody:\n  imm r0, two\n.end\n", "expected a number, found 'two'"},
        Bad{".vpu p registers=2\nbody:\n  imm r0, 0\n  add_f r1, r0, r2\n.end\n",
            "bad.s:4:17: register r2: the program has registers=2, from r0 on; it needs .vpu NAME "
            "registers=3"},
        Bad{".vpu p registers=0\nbody:\n  imm r0, 0\n.end\n", "registers=1"},
        Bad{".vpu p registers=3\nbody:\n  fma_f r0, r1, r2, r3\n.end\n", "registers=4"},
        Bad{".vpu p registers=1\nbody:\npre:\n.end\n", "order pre .. post"},
        Bad{".vpu p registers=1\n", "no .end"}, Bad{".slot heap bytes=4\n", "kind of slot"},
        Bad{".program \"x\n", "missing quote"}));

TEST(Disassembler, DamagedImagesAreErrorsNotCrashes) {
  const spec::BoardParams board = spec::load_board("v3_8");
  const exe::ExecutableT good =
      compile(import_vhlo_file(std::string(TPU_TEST_DATA) + "/dense.mlirbc"), board).executable;
  const std::vector<std::byte> file = exe::write_executable(good);
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    exe::ExecutableT e = exe::read_executable(file);
    e.image[64 + random() % (e.image.size() - 64)] = static_cast<uint8_t>(random());
    if (i % 4 == 0) {
      e.image.resize(64 + random() % (e.image.size() - 64));
    }
    try {
      disassemble(e);
    } catch (const Error&) {
      // A clear refusal is fine.
    }
  }
}

}  // namespace
}  // namespace tpu::compiler
