// Assembly text: round trips of compiled programs, a hand-written program that runs, errors.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "asm/assembler.hpp"
#include "asm/disassembler.hpp"
#include "board/board_loader.hpp"
#include "codegen/codegen.hpp"
#include "import/import.hpp"
#include "passes/pass_manager.hpp"
#include "untimed_core.hpp"

namespace tpu::compiler {
namespace {

class RoundTrip : public testing::TestWithParam<const char*> {};

TEST_P(RoundTrip, GivesTheSameBytes) {
  const std::string name = GetParam();
  const std::string folder = name == "train_step" ? std::string(TPU_EXAMPLES) + "/mnist_mlp/"
                                                  : std::string(TPU_TEST_DATA) + "/";
  Module m = import_vhlo_file(folder + name + ".mlirbc");
  run_passes(m, canonical_passes());
  const spec::BoardParams board = spec::load_board("v3_8");
  const exe::ExecutableT e = compile_graph(m, board);
  const std::string text = disassemble(e);
  const exe::ExecutableT again = assemble(text, name, board);
  EXPECT_EQ(exe::write_executable(e), exe::write_executable(again));
  EXPECT_EQ(text, disassemble(again));
}

INSTANTIATE_TEST_SUITE_P(Artifacts, RoundTrip,
                         testing::Values("dense", "elementwise", "dots", "shapes", "constants",
                                         "integers", "collectives", "mlp_adam", "train_step"),
                         [](const auto& param_info) { return std::string(param_info.param); });

// y = 2 * x + 1 on 2,000 elements, written by hand, with a loop in the sequencer.
constexpr const char* kByHand = R"(
.program "by hand"        ; comments run to the end of the line
.slot argument bytes=8000
.slot result bytes=8000
.arg "x" elem=f32 global=[2,1000] slot=0
.result "y" elem=f32 global=[2,1000] slot=1
.op "two x plus one" file="by_hand.s" line=3
  li r5, 0
  li r6, 8000
loop:
  dma_in.dma signal=0:1 wait=2:1:take src=hbm[0]+0+r5 dst=vmem+0 elem_bytes=4 counts=[1,1,1,1,1000] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  vpu.vpu_kernel flags=1 wait=0:1:take signal=1:1 program=@axpy row_loop=255 col_loop=3 loops=[1,1,1,1] rows=1 cols=1000
  .access addr=vmem+0 loop=[0,0,0,4096] lane=4 type=f32
  .access addr=vmem+4096 loop=[0,0,0,4096] lane=4 type=f32
  dma_out.dma wait=1:1:take signal=2:1 src=vmem+4096 dst=hbm[1]+0+r5 elem_bytes=4 counts=[1,1,1,1,1000] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  addi r5, r5, 4000
  halt
.vpu axpy registers=3
body:
  load r0, a0
  imm r1, 0x40000000
  imm r2, 0x3f800000
  fma_f r0, r0, r1, r2
  store r0, a1, all
.end
)";

TEST(Assembler, HandWrittenProgramRuns) {
  // Without the loop-back wait: two copies of the loop body, the first without semaphore 2.
  std::string text = kByHand;
  const size_t from = text.find("loop:"), to = text.find("  halt");
  const std::string body = text.substr(from + 6, to - from - 6);
  std::string first = body;
  first.erase(first.find(" wait=2:1:take"), std::strlen(" wait=2:1:take"));
  std::string second = body;
  second.erase(second.find("signal=2:1 "), std::strlen("signal=2:1 "));
  text.replace(from, to - from, first + second);
  const spec::BoardParams board = spec::load_board("v3_8");
  const exe::ExecutableT e =
      exe::read_executable(exe::write_executable(assemble(text, "by_hand.s", board)));
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

TEST(Assembler, LabelsBecomeWordIndices) {
  const exe::ExecutableT e =
      assemble("  jmp end\nback:\n  dma_in.nop\nend:\n  beq r1, r2, back\n  halt\n", "t.s",
               spec::load_board("v3_8"));
  const std::string text = disassemble(e);
  EXPECT_NE(text.find("jmp L4"), std::string::npos) << text;
  EXPECT_NE(text.find("beq r1, r2, L1"), std::string::npos) << text;
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
        Bad{"\n  frobnicate r1\n", "bad.s:2: unknown instruction 'frobnicate'"},
        Bad{"  li r99, 0\n", "register 99 is not in 0..31"}, Bad{"  li r1\n", "li takes rd,imm"},
        Bad{"  li r1, 0x1ffffffff\n", "32 bits"}, Bad{"  jmp nowhere\n", "unknown label nowhere"},
        Bad{"a:\na:\n", "bad.s:2: label a stands twice"},
        Bad{"  vpu.dma\n", "queue vpu does not take dma"},
        Bad{"  vpu.explode\n", "unknown command 'explode'"},
        Bad{"  dma_in.dma size=4\n", "dma has no field 'size'"},
        Bad{"  dma_in.dma counts=[1,2]\n", "takes 5 values, found 2"},
        Bad{"  dma_in.nop wait=300:1\n", "semaphore 300"},
        Bad{"  dma_in.nop wait=1:1 wait=2:1 wait=3:1\n", "at most two waits"},
        Bad{"  dma_in.dma src=disk+4\n", "unknown memory 'disk'"},
        Bad{"  vpu.vpu_kernel program=@p\n  halt\n", "no vector program p"},
        Bad{"  .access lane=4\n", "must follow a vpu_kernel"},
        Bad{".vpu p registers=1\nbody:\n  jump r1\n.end\n", "unknown vector instruction"},
        Bad{".vpu p registers=1\nbody:\npre:\n.end\n", "order pre .. post"},
        Bad{".vpu p registers=1\n", "no .end"}, Bad{".slot heap bytes=4\n", "kind of slot"},
        Bad{".program \"x\n", "missing quote"}));

TEST(Disassembler, DamagedImagesAreErrorsNotCrashes) {
  const spec::BoardParams board = spec::load_board("v3_8");
  Module m = import_vhlo_file(std::string(TPU_TEST_DATA) + "/dense.mlirbc");
  run_passes(m, canonical_passes());
  const exe::ExecutableT good = compile_graph(m, board);
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
