// Bad input at the command line, as a user meets it: tpuc and tpuboard end with exit code 1, a
// message that says what is wrong, and leave no results behind.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "check/host_room.hpp"
#include "exe/executable.hpp"
#include "format/npy.hpp"
#include "tests/cli/command_line_fixture.hpp"
#include "tests/driver/program_builder.hpp"
#include "tpu/spec/program_image.h"

namespace tpu::driver {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Copies its argument to its result through VMEM.
constexpr const char* kCopy = R"(
.program "copy"
.slot argument bytes=256
.slot result bytes=256
.arg "x" elem=i32 global=[64] slot=0
.result "y" elem=i32 global=[64] slot=1
.op "copy" file="model.py" line=42
start:
  dma_in.dma op=0 signal=0:1 src=hbm[0]+0 dst=vmem+0 elem_bytes=4 counts=[1,1,1,1,64] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  dma_out.dma op=0 wait=0:1:take src=vmem+0 dst=hbm[1]+0 elem_bytes=4 counts=[1,1,1,1,64] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  halt
)";

using test::call;
using test::Result;

class BadInput : public test::CommandLineFixture {
 protected:
  void SetUp() override {
    CommandLineFixture::SetUp();
    write_npy(path("i.npy"), test::counting(DType::kI32, {64}));
  }

  static std::vector<std::byte> graph(const std::string& name) {
    return read_file(std::string(TPU_TEST_DATA) + "/" + name + ".mlirbc");
  }

  Result tpuc(const std::string& arguments) const {
    return call(std::string(TPUC) + " " + arguments);
  }
  // Runs an executable of the folder on i.npy.
  Result run(const std::string& program, const std::string& more = "") const {
    return call(std::string(TPUBOARD) + " run " + path(program) + " --in 0=" + path("i.npy") +
                " --out-dir " + path("out") + " " + more);
  }

  void assemble(std::string text, const std::string& from, const std::string& to,
                const std::string& name, const std::string& more = "") const {
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    std::ofstream(path("p.s")) << text.replace(at, from.size(), to);
    const Result made = tpuc("--asm " + path("p.s") + " -o " + path(name) + " " + more);
    ASSERT_EQ(made.code, 0) << made.text;
  }

  // One line, the command's name first.
  static void expect_refused(const Result& r, const std::string& part) {
    EXPECT_EQ(r.code, 1) << r.text;
    EXPECT_TRUE(r.text.starts_with("tpu")) << r.text;
    EXPECT_EQ(std::ranges::count(r.text, '\n'), 1) << r.text;
    EXPECT_THAT(r.text, HasSubstr(part));
  }

  // The board faulted; results are not written.
  void expect_fault(const Result& r, const std::vector<std::string>& parts) const {
    EXPECT_EQ(r.code, 1) << r.text;
    EXPECT_THAT(r.text, HasSubstr("DeviceFault"));
    for (const std::string& part : parts) {
      EXPECT_THAT(r.text, HasSubstr(part));
    }
    EXPECT_FALSE(std::filesystem::exists(path("out/0.npy")));
  }
};

// Page tables alone: the host holds neither arguments nor results of a timing-only run.
TEST_F(BadInput, ArraysOfGibibytesTakeNoHostMemoryWithoutData) {
  std::string text = kCopy;
  const auto replace = [&](const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
  };
  replace(".slot argument bytes=256", ".slot argument bytes=12884901888");
  replace(".slot result bytes=256", ".slot result bytes=1073741824");
  replace("elem=i32 global=[64]", "elem=i32 global=[3221225472]");
  replace("elem=i32 global=[64]", "elem=i32 global=[268435456]");
  assemble(text, "start:", "start:", "big.tpuexe");
  const Result done =
      call(std::string(TPUBOARD) + " run " + path("big.tpuexe") + " --no-data --threads 1");
  EXPECT_EQ(done.code, 0) << done.text;
  rusage usage{};
  ASSERT_EQ(getrusage(RUSAGE_CHILDREN, &usage), 0);
  EXPECT_LT(usage.ru_maxrss, 700 << 10) << "KiB";
}

// Room for the board with one copy of the array, and not for a second one: 0.5 GiB are the board's
// without any, and the files are not in memory.
TEST_F(BadInput, TheHostHoldsNoArrayTwice) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers take memory of their own";
#endif
  constexpr int64_t kBytes = int64_t{256} << 20;
  test::ProgramBuilder builder(1);
  builder.argument(DType::kU8, {kBytes});
  builder.result(DType::kU8, {kBytes}, false, 0);
  write_file(path("whole.tpuexe"), builder.bytes());
  write_npy(path("whole.npy"), test::counting(DType::kU8, {kBytes}));
  const std::string run = std::string(TPUBOARD) + " run " + path("whole.tpuexe") +
                          " --in 0=" + path("whole.npy") + " --out-dir " + path("out") +
                          " --threads 1";
  const Result r = call("ulimit -d $((960 * 1024)); " + run);
  ASSERT_EQ(r.code, 0) << r.text;
  EXPECT_EQ(call("cmp " + path("whole.npy") + " " + path("out/0.npy")).code, 0);
}

// The file itself takes none: the board's memory is the host's.
TEST_F(BadInput, ArraysLargerThanTheHostsMemoryAreRefused) {
  constexpr int64_t kRowBytes = int64_t{15} << 30;
  if (host_room() >= uint64_t{8 * kRowBytes}) {
    GTEST_SKIP() << "the host has room for the memory of all cores";
  }
  test::ProgramBuilder builder(8);
  builder.argument(DType::kU8, {8, kRowBytes}, true);
  builder.result(DType::kU8, {8, kRowBytes}, true, 0);
  write_file(path("wide.tpuexe"), builder.bytes());
  const std::string header = npy_header(DType::kU8, {8, kRowBytes});
  write_file(path("i.npy"), std::as_bytes(std::span(header)));
  std::error_code failed;
  std::filesystem::resize_file(path("i.npy"), header.size() + uint64_t{8 * kRowBytes},
                               failed);  // a hole
  if (failed) {
    GTEST_SKIP() << "the file system has no files of this size: " << failed.message();
  }
  expect_refused(run("wide.tpuexe"), "bytes of host memory");
}

TEST_F(BadInput, DamagedGraphs) {
  std::vector<std::byte> bytes = graph("dense");
  write_file(path("cut.mlirbc"), std::span(bytes).first(bytes.size() / 2));
  expect_refused(tpuc(path("cut.mlirbc") + " -o " + path("x.tpuexe")), "the artifact is damaged");
  bytes[0] ^= std::byte{0x20};
  write_file(path("flip.mlirbc"), bytes);
  expect_refused(tpuc(path("flip.mlirbc") + " -o " + path("x.tpuexe")), "not a StableHLO");
  expect_refused(run("flip.mlirbc"), "flip.mlirbc");
  EXPECT_FALSE(std::filesystem::exists(path("x.tpuexe")));
}

TEST_F(BadInput, UnknownOpIsNamedWithItsLine) {
  std::vector<std::byte> bytes = graph("dense");
  const std::string old = "tanh_v2";
  const auto same = [](std::byte b, char c) { return b == static_cast<std::byte>(c); };
  const auto at = std::search(bytes.begin(), bytes.end(), old.begin(), old.end(), same);
  ASSERT_NE(at, bytes.end());
  at[3] = static_cast<std::byte>('q');
  write_file(path("op.mlirbc"), bytes);
  expect_refused(tpuc(path("op.mlirbc") + " -o " + path("x.tpuexe")), "tanq: this op is not known");
}

TEST_F(BadInput, DamagedExecutables) {
  assemble(kCopy, "start:", "", "good.tpuexe");
  std::vector<std::byte> bytes = read_file(path("good.tpuexe"));
  write_file(path("cut.tpuexe"), std::span(bytes).first(bytes.size() - 9));
  expect_refused(run("cut.tpuexe"), "cut.tpuexe: truncated executable");
  expect_refused(call(std::string(TPUBOARD) + " objdump " + path("cut.tpuexe")),
                 "cut.tpuexe: truncated executable");
  std::vector<std::byte> more = bytes;
  more.resize(bytes.size() + 9);
  write_file(path("more.tpuexe"), more);
  expect_refused(run("more.tpuexe"), "more.tpuexe: overlong executable");
  write_file(path("text.tpuexe"), std::as_bytes(std::span("no executable")));
  expect_refused(run("text.tpuexe"), "text.tpuexe: not a tpuboard executable");
  bytes[bytes.size() / 2] ^= std::byte{1};
  write_file(path("flip.tpuexe"), bytes);
  expect_refused(run("flip.tpuexe"), "flip.tpuexe: corrupt executable: the SHA-256 does not match");
  expect_refused(tpuc("--disasm " + path("flip.tpuexe")), "SHA-256 does not match");
}

TEST_F(BadInput, OtherIsaVersion) {
  assemble(kCopy, "start:", "", "good.tpuexe");
  exe::ExecutableT exe = exe::read_executable(read_file(path("good.tpuexe")));
  tpu_program_image_header_t header;
  std::memcpy(&header, exe.image.data(), sizeof header);
  header.isa_version = ++exe.isa_version;
  std::memcpy(exe.image.data(), &header, sizeof header);
  write_file(path("isa.tpuexe"), exe::write_executable(exe));
  expect_refused(run("isa.tpuexe"), "is for ISA version");
}

TEST_F(BadInput, BiggerBoard) {
  const Result made =
      tpuc(std::string(TPU_TEST_DATA) + "/mlp_sgd.mlirbc -o " + path("eight.tpuexe"));
  ASSERT_EQ(made.code, 0) << made.text;
  expect_refused(run("eight.tpuexe", "--set board.chips=2 --set board.torus_x=2"),
                 "the program needs 8 cores, this board has 4");
  assemble(kCopy, "start:", "", "one.tpuexe");
  expect_refused(run("one.tpuexe", "--set core.vmem_kib=8192"),
                 "InvalidArgument: " + path("one.tpuexe") + ": compiled for another board");
  expect_refused(run("one.tpuexe", "--set core.vmem_kib=8192 --set core.clock_mhz=700"),
                 "); this one has --set core.vmem_kib=8192, core.clock_mhz=700: compile it again "
                 "with the same, or use those that it was compiled with");
  expect_refused(run("one.tpuexe", "--board v2_8 --set hbm.gbps_per_chip=450"),
                 "); compile it again with the same board file and --set hbm.gbps_per_chip=450");
  ASSERT_EQ(tpuc(std::string(TPU_TEST_DATA) + "/dense.mlirbc --set core.vmem_kib=8192 -o " +
                 path("small.tpuexe"))
                .code,
            0);
  expect_refused(run("small.tpuexe"),
                 "); compile it again for this board, or use the --set that it was compiled with");
}

TEST_F(BadInput, WrongArrays) {
  assemble(kCopy, "start:", "", "good.tpuexe");
  const auto run_with = [&](const std::string& inputs) {
    return call(std::string(TPUBOARD) + " run " + path("good.tpuexe") + " " + inputs);
  };
  write_npy(path("short.npy"), test::counting(DType::kI32, {63}));
  write_npy(path("float.npy"), test::counting(DType::kF32, {64}));
  std::vector<std::byte> cut = read_file(path("i.npy"));
  write_file(path("cut.npy"), std::span(cut).first(cut.size() - 1));
  expect_refused(run_with("--in 0=" + path("short.npy")),
                 "must be i32[64], the file holds i32[63]");
  expect_refused(run_with("--in 0=" + path("float.npy")),
                 "must be i32[64], the file holds f32[64]");
  expect_refused(run_with("--in 0=" + path("cut.npy")), "cut.npy");
  expect_refused(run_with(""), "argument 0 (x, i32[64]) of copy is not given");
  expect_refused(run_with("--in 0=" + path("i.npy") + " --in 1=" + path("i.npy")),
                 "takes 1 arguments");
  expect_refused(run_with("--in 0=" + path("none.npy")), "none.npy: cannot be opened");
}

TEST_F(BadInput, WhatHasNoEndIsNotRead) {
  assemble(kCopy, "start:", "", "good.tpuexe");
  const std::string board = "ulimit -v 40000000; cd /; " + std::string(TPUBOARD);
  const std::string zeros = "dev/zero: is a device; name a file";
  expect_refused(call(board + " run " + path("good.tpuexe") + " --in 0=/dev/zero"), zeros);
  expect_refused(call(board + " run /dev/zero"), zeros);
  expect_refused(call(board + " objdump /dev/zero"), zeros);
  expect_refused(call(board + " train /dev/zero"), zeros);
  expect_refused(call(board + " devices --board dev/zero"), zeros);
}

TEST_F(BadInput, AnInputIsNotReplacedByAnOutput) {
  assemble(kCopy, "start:", "", "good.tpuexe");
  const std::string good = path("good.tpuexe");
  std::filesystem::create_directory(path("out"));
  std::filesystem::copy_file(path("i.npy"), path("out/0.npy"));
  std::filesystem::create_symlink(path("out/0.npy"), path("link.npy"));
  const std::string command = std::string(TPUBOARD) + " run " + good + " --in 0=";
  const std::string lost = "out/0.npy: would be written over the input ";
  expect_refused(call(command + path("out/0.npy") + " --out-dir " + path("out")),
                 lost + path("out/0.npy"));
  expect_refused(call(command + path("link.npy") + " --out-dir " + path("out")),
                 lost + path("link.npy"));
  expect_refused(run("good.tpuexe", "--json " + path("i.npy")), "would be written over the input");
  expect_refused(run("good.tpuexe", "--trace " + good), "would be written over the input");
  expect_refused(call(std::string(TPUBOARD) + " objdump " + good + " --json " + good),
                 good + ": would be written over the input " + good);
  EXPECT_EQ(run("good.tpuexe").code, 0);
}

TEST_F(BadInput, MissingFiles) {
  expect_refused(run("none.tpuexe"), "none.tpuexe");
  expect_refused(tpuc(path("none.mlirbc")), "none.mlirbc");
  expect_refused(tpuc("--asm " + path("none.s")), "none.s");
  expect_refused(call(std::string(TPUBOARD) + " train " + path("none.toml")), "none.toml");
  expect_refused(call(std::string(TPUBOARD) + " devices --board " + path("none.toml")),
                 "none.toml: cannot be opened");
}

TEST_F(BadInput, BoardFiles) {
  const auto devices = [&](const std::string& arguments) {
    return call(std::string(TPUBOARD) + " devices " + arguments);
  };
  std::ifstream preset(TPU_BOARD_FILE);
  const std::string text{std::istreambuf_iterator<char>(preset), std::istreambuf_iterator<char>()};
  const auto save = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const size_t at = changed.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    std::ofstream(path("board.toml")) << changed.replace(at, from.size(), to);
  };
  save("clock_mhz", "clock_ghz");
  expect_refused(devices("--board " + path("board.toml")), "unknown key core.clock_ghz");
  expect_refused(tpuc(std::string(TPU_TEST_DATA) + "/dense.mlirbc --board " + path("board.toml")),
                 "unknown key core.clock_ghz");
  save("clock_mhz = { value = 940", "clock_mhz = { value = -1");
  expect_refused(devices("--board " + path("board.toml")), "core.clock_mhz = -1 is out of range");
  // The matrix unit loads two weight rows a cycle; its Verilog knows nothing else.
  expect_refused(devices("--set mxu.weight_rows_per_cycle=1"),
                 "mxu.weight_rows_per_cycle = 1 is out of range");
}

TEST_F(BadInput, DeadlockSaysWhoWaitsForWhom) {
  assemble(kCopy, "wait=0:1:take", "wait=3:1:take", "lock.tpuexe");
  const Result locked = run("lock.tpuexe");
  expect_fault(locked,
               {"DEADLOCK: nothing is in flight", "dma_out", "waits for semaphore 3 >= 1 (is 0)"});
  EXPECT_THAT(locked.text, Not(HasSubstr("\n> word"))) << "no single statement is at fault";
}

TEST_F(BadInput, EndlessLoopMeetsTheWatchdog) {
  const std::string board = "--set mgmt.watchdog_us=50";
  assemble(kCopy, "  halt", "again:\n  ssignal r9, 1\n  swait r9, r0, 1\n  jmp again\n",
           "endless.tpuexe", board);
  expect_fault(run("endless.tpuexe", board), {"WATCHDOG"});
  assemble(kCopy, "  halt", "again:\n  addi r1, r1, 1\n  jmp again\n", "scalar.tpuexe", board);
  expect_fault(run("scalar.tpuexe", board), {"WATCHDOG", "engine sequencer", "model.py:42"});
}

TEST_F(BadInput, BadDescriptorNamesOpAndSourceLine) {
  assemble(kCopy, "dst=hbm[1]+0", "dst=hbm[1]+4", "range.tpuexe");
  expect_fault(run("range.tpuexe"), {"SLOT_RANGE", "copy", "model.py:42"});
  assemble(kCopy, "src=hbm[0]+0 dst=vmem+0", "src=vmem+0 dst=hbm[0]+0", "space.tpuexe");
  expect_fault(run("space.tpuexe"), {"DESCRIPTOR", "copy", "model.py:42"});
}

// 20,000 times two commands.
constexpr const char* kLong = R"(
  li r3, 20000
again:
  xlu.nop
  vpu.nop
  addi r3, r3, -1
  bne r3, r0, again
)";

TEST_F(BadInput, FullDiskWhileWritingRecords) {
  assemble(kCopy, "start:", kLong, "long.tpuexe");
  // Files of the command may have 1 KiB: enough for the results, not for these.
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small{.rlim_cur = 1024, .rlim_max = old.rlim_max};
  const std::vector<std::pair<std::string, std::string>> records = {
      {"--waves " + path("w.fst"), "w.fst"},
      {"--timeline " + path("t.pftrace"), "t.pftrace failed (is the disk full?)"},
      {"--trace " + path("t.txt"), "t.txt failed (is the disk full?)"},
      {"--xprof " + path("x"), "tpuboard.xplane.pb"}};
  for (const auto& [option, part] : records) {
    std::filesystem::remove_all(path("out"));
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const Result r = run("long.tpuexe", option);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
    EXPECT_EQ(r.code, 1) << option;
    EXPECT_THAT(r.text, HasSubstr(part));
    EXPECT_EQ(read_npy(path("out/0.npy")).bytes, test::counting(DType::kI32, {64}).bytes);
  }
}

// The run goes on without its record. Waves refuse pipes: their library writes back and forth.
TEST_F(BadInput, AReaderThatGoesAway) {
  assemble(kCopy, "start:", kLong, "long.tpuexe");
  const std::string pipe = path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const char* option : {"--timeline ", "--trace "}) {
    std::filesystem::remove_all(path("out"));
    std::thread reader([&] {
      std::ifstream file(pipe);
      file.get();
    });
    const Result r = run("long.tpuexe", option + pipe);
    ::close(::open(pipe.c_str(), O_RDWR | O_NONBLOCK));  // where nobody has written, it goes on
    reader.join();
    EXPECT_EQ(r.code, 1) << option << r.text;
    EXPECT_THAT(r.text, HasSubstr("writing " + pipe + " failed (its reader has gone)"));
    EXPECT_EQ(read_npy(path("out/0.npy")).bytes, test::counting(DType::kI32, {64}).bytes);
  }
  std::filesystem::create_symlink(pipe, path("pipe.fst"));
  EXPECT_THAT(run("long.tpuexe", "--waves " + path("pipe.fst")).text,
              HasSubstr("pipe.fst is a device or a pipe; name a file"));
}

// The results are there; what else was asked for is not, and the exit code tells.
TEST_F(BadInput, FilesThatWereAskedForAndNotWritten) {
  assemble(kCopy, "start:", "start:", "copy.tpuexe");
  const auto expect = [&](const std::string& options, const std::string& part) {
    std::filesystem::remove_all(path("out"));
    const Result r = run("copy.tpuexe", "--launches 3 " + options);
    EXPECT_EQ(r.code, 1) << options << r.text;
    EXPECT_THAT(r.text, HasSubstr(part)) << options;
    EXPECT_TRUE(std::filesystem::exists(path("out/0.npy"))) << options;
  };
  if (std::filesystem::exists("/dev/full")) {
    expect("--trace /dev/full", "trace: writing /dev/full failed (is the disk full?)");
  }
  expect("--waves " + path("w.fst") + " --waves-steps 3..9",
         "of the steps 3 to 9 none ran; the board ran 3 steps, counted from 0 (those before a "
         "snapshot too); --waves-steps chooses; the file stays, with no values");
  expect("--waves " + path("w.fst") + " --waves-trigger op=77",
         "the trigger op=77 never came; the board ran 3 steps");
  expect("--timeline " + path("t.pftrace") + " --timeline-steps 3..9",
         "of the steps 3 to 9 none ran; the board ran 3 steps");
  expect("--xprof " + path("x") + " --xprof-steps 3..9", "of the steps 3 to 9 none ran");
  expect("--mxu board.*=lockstep@1..2", "nothing was compared");
  expect("--verilog board.*.dma_remote=lockstep", "nothing was compared");
  expect("--mxu board.chip1.*=rtl --mxu-waves " + path("m.fst"),
         "through the Verilog went 0 tiles, counted from 0; the file is of "
         "board.chip1.core0.mxu0, the first unit that --mxu chooses");
  EXPECT_THAT(run("copy.tpuexe", "--verilog board.chip0.*.vpu=rtl").text,
              AllOf(HasSubstr("matches no block with Verilog; this board has "
                              "board.chip0.core0.sem"),
                    HasSubstr("; vpu has no Verilog: matrix units (--mxu), semaphores and DMA "
                              "queues (--verilog) have")));
  EXPECT_THAT(run("copy.tpuexe", "--verilog sem=rtl").text, HasSubstr("; write '*.sem'"));
  EXPECT_THAT(run("copy.tpuexe", "--verilog board.*.mxu0=rtl").text,
              HasSubstr("; matrix units are chosen by --mxu"));
  EXPECT_THAT(run("copy.tpuexe", "--mxu mxu0=rtl").text,
              HasSubstr("matches no matrix unit; this board has board.chip0.core0.mxu0 to "
                        "board.chip3.core1.mxu1; write '*.mxu0'"));
  EXPECT_THAT(run("copy.tpuexe", "--mxu board.*.hart=rtl").text,
              HasSubstr("; hart has no Verilog"));
  EXPECT_THAT(run("copy.tpuexe", "--mxu board.*.dma_in=rtl").text,
              HasSubstr("; semaphores and DMA queues are chosen by --verilog"));
  EXPECT_THAT(run("copy.tpuexe", "--verilog board.*=rtl --set dma.granule_bytes=256").text,
              HasSubstr("granules of 512 bytes, not of 256"));
  const Result r = run("copy.tpuexe", "--mxu-waves " + path("m.fst"));
  EXPECT_EQ(r.code, 1);
  EXPECT_THAT(r.text, HasSubstr("no matrix unit runs the Verilog"));
  EXPECT_THAT(run("copy.tpuexe", "--transport null --trace " + path("t.txt")).text,
              HasSubstr("needs --transport to be sim"));
}

// What could only be in the waves is missing for one reason, which is said once.
TEST_F(BadInput, ATriggerThatNeverCameIsSaidOnce) {
  assemble(kCopy, "start:", "start:", "copy.tpuexe");
  const std::string trigger = "--waves " + path("w.fst") + " --waves-trigger op=77";
  const auto expect_once = [&](const Result& r, int code) {
    EXPECT_EQ(r.code, code) << r.text;
    const std::string said = "the trigger op=77 never came";
    const size_t first = r.text.find(said);
    EXPECT_NE(first, std::string::npos) << r.text;
    EXPECT_EQ(r.text.find(said, first + 1), std::string::npos) << r.text;
    EXPECT_THAT(r.text, Not(HasSubstr("nothing was compared")));
    EXPECT_THAT(r.text, Not(HasSubstr("of the tiles")));
  };
  expect_once(run("copy.tpuexe", trigger), 1);
  expect_once(run("copy.tpuexe", trigger + " --mxu board.chip0.core0.mxu0=lockstep@waves --mxu "
                                           "board.chip1.core0.mxu0=lockstep@waves"),
              1);
  expect_once(run("copy.tpuexe",
                  trigger + " --mxu board.chip0.core0.mxu0=rtl@waves --mxu-waves " + path("m.fst")),
              1);
  expect_once(call(std::string(TPUBOARD) + " report " + path("copy.tpuexe") + " -o " +
                   path("r.html") + " " + trigger),
              1);
  EXPECT_TRUE(std::filesystem::exists(path("r.html")));
  // Units that are Verilog at any time were not waiting for the trigger.
  EXPECT_THAT(run("copy.tpuexe", trigger + " --mxu board.chip0.core0.mxu0=lockstep").text,
              HasSubstr("nothing was compared"));
  // A launch that fails is told of, and so is that its waves are empty.
  assemble(kCopy, "dst=vmem+0", "dst=vmem+16777215", "fault.tpuexe");
  const Result fault = run("fault.tpuexe", trigger);
  expect_once(fault, 1);
  EXPECT_THAT(fault.text, HasSubstr("VMEM_RANGE"));
}

// There was nothing to record, and the one reason is the input.
TEST_F(BadInput, ARunWithoutItsInputSaysNothingOfItsTrigger) {
  assemble(kCopy, "start:", "start:", "copy.tpuexe");
  const Result r =
      call(std::string(TPUBOARD) + " run " + path("copy.tpuexe") + " --in 0=" + path("none.npy") +
           " --waves " + path("w.fst") + " --waves-trigger op=77 --timeline " + path("t.pftrace") +
           " --timeline-steps 3..9");
  EXPECT_EQ(r.code, 1) << r.text;
  EXPECT_THAT(r.text, HasSubstr("none.npy: cannot be opened"));
  EXPECT_THAT(r.text, Not(HasSubstr("never came")));
  EXPECT_THAT(r.text, Not(HasSubstr("nothing was recorded")));
}

TEST_F(BadInput, StepsOfAllLaunchesAreInTheTrace) {
  assemble(kCopy, "start:", "start:", "copy.tpuexe");
  const Result r = run("copy.tpuexe", "--launches 3 --trace " + path("t.txt") + " --waves " +
                                          path("w.fst") + " --waves-steps 2..2");
  ASSERT_EQ(r.code, 0) << r.text;
  std::ifstream file(path("t.txt"));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  for (const char* step : {"step=0", "step=1", "step=2"}) {
    EXPECT_THAT(text, HasSubstr(step));
  }
  EXPECT_THAT(text, Not(HasSubstr("step=3")));
}

TEST_F(BadInput, WhatLockstepComparesOfBlocksIsCounted) {
  assemble(kCopy, "start:", "start:", "copy.tpuexe");
  const auto lockstep = [&](const std::string& options) {
    const Result r = run("copy.tpuexe", "--launches 2 --json " + path("r.json") + " " + options);
    EXPECT_EQ(r.code, 0) << r.text;
    return nlohmann::json::parse(std::ifstream(path("r.json")))["lockstep"];
  };
  const nlohmann::json none = {
      {"tiles", 0}, {"semaphore_values", 0}, {"transfers", 0}, {"mismatches", 0}};
  EXPECT_EQ(lockstep(""), none);
  nlohmann::json some = none;
  some["semaphore_values"] = 2;  // one signal a launch
  EXPECT_EQ(lockstep("--verilog board.chip0.core0.sem=lockstep"), some);
  some["transfers"] = 4;
  EXPECT_EQ(lockstep("--verilog 'board.*=lockstep'"), some);
  EXPECT_EQ(lockstep("--verilog 'board.*=rtl'"), none);
}

TEST_F(BadInput, OverlappingCopyNamesOpAndSourceLine) {
  assemble(kCopy, "dma_out.dma op=0 wait=0:1:take src=vmem+0",
           "dma_in.dma op=0 signal=1:1 src=vmem+0 dst=vmem+8 elem_bytes=4 counts=[1,1,1,1,62] "
           "src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4] wait=0:1:take\n"
           "  dma_out.dma op=0 wait=1:1:take src=vmem+0",
           "overlap.tpuexe");
  for (const char* options :
       {"--threads 1", "--threads 2", "--threads 4 --simd scalar", "--check", "--no-data"}) {
    expect_fault(run("overlap.tpuexe", options), {"DESCRIPTOR", "overlaps", "copy", "model.py:42"});
  }
}

}  // namespace
}  // namespace tpu::driver
