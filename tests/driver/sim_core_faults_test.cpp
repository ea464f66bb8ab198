// Faults on purpose inside of a core (docs/faults.md): results of matrix units, VMEM, SMEM, memory
// of the control hart.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/driver/copy_program.hpp"
#include "tests/driver/faulty_board.hpp"
#include "tpu/tpu.hpp"

namespace tpu::driver {
namespace {

using test::fault;
using test::SimFaults;

// Products of an argument f32[1024] with itself, as [8, 16] x [16, 64], by each matrix unit.
constexpr const char* kProducts = R"(
.program "products"
.slot argument bytes=4096
.slot result bytes=4096
.arg "x" elem=f32 global=[1024] slot=0
.result "y" elem=f32 global=[1024] slot=1
.op "load" file="m.py" line=1
.op "dot" file="m.py" line=2
.op "store" file="m.py" line=3
  dma_in.dma op=0 signal=0:1 signal=1:1 src=hbm[0]+0 dst=vmem+0 elem_bytes=4 counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  mxu0.matmul op=1 wait=0:1:take signal=2:1 out=vmem+8192 lhs=vmem+0 rhs=vmem+0 m=[1,1,1,8] m_lhs=[0,0,0,64] m_out=[0,0,0,256] t=[1,1,1] k=[1,1,16] k_rhs=[0,0,256] n=[1,64] n_rhs=[0,4] n_out=[0,4]
  mxu1.matmul op=1 wait=1:1:take signal=2:1 out=vmem+10240 lhs=vmem+0 rhs=vmem+0 m=[1,1,1,8] m_lhs=[0,0,0,64] m_out=[0,0,0,256] t=[1,1,1] k=[1,1,16] k_rhs=[0,0,256] n=[1,64] n_rhs=[0,4] n_out=[0,4]
  dma_out.dma op=2 wait=2:2:take signal=3:1 src=vmem+8192 dst=hbm[1]+0 elem_bytes=4 counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  swait r3, r0, 1
  halt
)";

// Copies an argument to its result by way of SMEM, whose first word the sequencer reads as well.
constexpr const char* kThroughSmem = R"(
  dma_in.dma signal=0:1 signal=2:1 src=hbm[0]+0 dst=smem+0 elem_bytes=4 counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  swait r2, r0, 1
  lds32 r5, r0, 0
  dma_out.dma wait=0:1:take signal=1:1 src=smem+0 dst=hbm[1]+0 elem_bytes=4 counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  swait r1, r0, 1
  halt
)";

class SimCoreFaults : public SimFaults {
 protected:
  static HostArray floats() {
    HostArray array = test::counting(DType::kF32, {1024});
    std::vector<float> values(1024);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i % 61) - 30;
    }
    std::memcpy(array.bytes.data(), values.data(), array.bytes.size());
    return array;
  }
  // Bits in which two arrays differ, and the word that has one of them.
  struct Difference {
    int bits = 0;
    size_t word = 0;
    uint32_t mask = 0;
  };
  static Difference difference(const HostArray& a, const HostArray& b) {
    Difference found;
    for (size_t i = 0; i + 4 <= a.bytes.size(); i += 4) {
      uint32_t x = 0;
      uint32_t y = 0;
      std::memcpy(&x, &a.bytes[i], 4);
      std::memcpy(&y, &b.bytes[i], 4);
      if (x != y) {
        found.bits += std::popcount(x ^ y);
        found.word = i / 4;
        found.mask = x ^ y;
      }
    }
    return found;
  }
  static HostArray run(const Executable& program, const Array& argument) {
    return program.run({argument}).outputs[0].to_host();
  }
  std::string smem_program() {
    return std::string(".program \"smem\"") + test::kCopySlots + kThroughSmem;
  }
};

TEST_F(SimCoreFaults, AMatrixUnitHasOneWrongResult) {
  open(fault("mxu", "core 3", "at = \"launch 2\"\nunit = \"mxu1\"\nbit = 30"));
  const Executable products = load(kProducts);
  const Array argument = products.put(0, floats());
  const HostArray clean = run(products, argument);
  const Difference wrong = difference(run(products, argument), clean);
  EXPECT_EQ(wrong.bits, 1);
  EXPECT_EQ(wrong.mask, 1U << 30);
  EXPECT_GE(wrong.word, 512U) << "mxu1 makes the second half";
  EXPECT_EQ(run(products, argument).bytes, clean.bytes);
  EXPECT_EQ(tally("mxu", &spec::FaultTally::fired), 1U);
  EXPECT_EQ(tally("mxu", &spec::FaultTally::seen), 1U);
  const std::string log = close();
  EXPECT_NE(log.find("fault mxu core 3: the next result of mxu1 will be wrong"), std::string::npos)
      << log;
  EXPECT_NE(log.find("damage mxu core 3: bit 30 flips in row "), std::string::npos) << log;
}

TEST_F(SimCoreFaults, AMatrixUnitIsWrongInTheOperationThatIsNamed) {
  open(fault("mxu", "core 3", "at = \"op dot #2\"\nunit = \"mxu0\"\nbits = 2\ncommands = 2"));
  const Executable products = load(kProducts);
  const Array argument = products.put(0, floats());
  const HostArray clean = run(products, argument);
  const Difference first = difference(run(products, argument), clean);
  const Difference second = difference(run(products, argument), clean);
  EXPECT_EQ(first.bits, 2);
  EXPECT_EQ(second.bits, 2);
  EXPECT_LT(first.word, 512U);
  EXPECT_EQ(first.mask, second.mask);
  EXPECT_NE(first.word, second.word);
  EXPECT_EQ(run(products, argument).bytes, clean.bytes);
}

// Commands other than matmul do not count.
TEST_F(SimCoreFaults, OnlyProductsOfAnOperationCount) {
  open(fault("mxu", "core 3", "at = \"op dot #2\"\nunit = \"mxu0\""));
  std::string text = kProducts;
  text.insert(text.find("  mxu0.matmul"), "  mxu0.nop op=1\n");
  const Executable products = load(text);
  const Array argument = products.put(0, floats());
  const HostArray clean = run(products, argument);
  EXPECT_EQ(difference(run(products, argument), clean).bits, 1);
  EXPECT_EQ(run(products, argument).bytes, clean.bytes);
}

TEST_F(SimCoreFaults, SeveralFaultsMeetInOneProduct) {
  open(fault("mxu", "core 3", "at = \"launch 2\"\nunit = \"mxu0\"\nbit = 3") +
       fault("mxu", "core 3", "at = \"op dot #2\"\nunit = \"mxu0\"\nbit = 5") +
       fault("mxu", "core 3", "at = \"op dot #2\"\nunit = \"mxu0\"\nbit = 7"));
  const Executable products = load(kProducts);
  const Array argument = products.put(0, floats());
  const HostArray clean = run(products, argument);
  EXPECT_EQ(difference(run(products, argument), clean).bits, 3);
  EXPECT_EQ(run(products, argument).bytes, clean.bytes);
  EXPECT_EQ(tally("mxu", &spec::FaultTally::seen), 3U);
}

// Its columns are none, so that it computes nothing.
TEST_F(SimCoreFaults, AnEmptyProductHasNoWrongResult) {
  open(fault("mxu", "core 3", "at = \"op dot #2\"\nunit = \"mxu0\""));
  std::string text = kProducts;
  const size_t first = text.find("  mxu0.matmul");
  std::string empty = text.substr(first, text.find('\n', first) + 1 - first);
  empty.replace(empty.find(" n=[1,64]"), 9, " n=[1,0]");
  empty.replace(empty.find(" wait=0:1:take signal=2:1"), 25, "");
  text.insert(text.find("  mxu1.matmul"), empty);
  const Executable products = load(text);
  const Array argument = products.put(0, floats());
  const HostArray clean = run(products, argument);
  EXPECT_EQ(run(products, argument).bytes, clean.bytes);
  EXPECT_EQ(tally("mxu", &spec::FaultTally::fired), 0U);
  const std::string log = close();
  EXPECT_NE(log.find("nothing mxu core 3: the matmul has no results"), std::string::npos) << log;
  EXPECT_EQ(log.find("will be wrong"), std::string::npos) << log;
}

// The product is issued and waits for its operands, which never come.
TEST_F(SimCoreFaults, AProductThatIsNeverMadeHasNoWrongResult) {
  open(fault("core_hang", "core 3", "at = \"launch 2\"\nunit = \"dma_in\"") +
       fault("mxu", "core 3", "at = \"op dot #2\"\nunit = \"mxu0\""));
  const Executable products = load(kProducts);
  const Array argument = products.put(0, floats());
  const HostArray clean = run(products, argument);
  EXPECT_EQ(run(products, argument).bytes, clean.bytes);  // behind the hang it is sent again
  EXPECT_EQ(tally("core_hang", &spec::FaultTally::fired), 1U);
  EXPECT_EQ(run(products, argument).bytes, clean.bytes);
  EXPECT_EQ(tally("mxu", &spec::FaultTally::fired), 1U);
  EXPECT_EQ(tally("mxu", &spec::FaultTally::seen), 0U);
}

// A load of 4 MiB, which lies in VMEM with gaps, and a store of its last row.
constexpr const char* kWide = R"(
.program "wide"
.slot argument bytes=4194304
.slot result bytes=4096
.arg "x" elem=i32 global=[1048576] slot=0
.result "y" elem=i32 global=[1024] slot=1
.op "load" file="m.py" line=1
.op "store" file="m.py" line=2
  dma_in.dma op=0 signal=0:1 src=hbm[0]+0 dst=vmem+0 elem_bytes=4 counts=[1,1,1,1024,1024] src_strides=[0,0,0,4096,4] dst_strides=[0,0,0,8192,4]
  dma_out.dma op=1 wait=0:1:take signal=1:1 src=vmem+8380416 dst=hbm[1]+0 elem_bytes=4 counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  swait r1, r0, 1
  halt
)";

// The load has read what was there when it began, on whatever thread of the host it runs.
class SimHbmFaults : public SimCoreFaults {
 protected:
  void expect_flip_behind_the_load(int threads) {
    open("ecc = false\n" +
             fault("hbm", "core 3", "at = \"op load #2\"\naddress = \"slot 0 + 4194048\"\nbit = 9"),
         threads);
    const Executable wide = load(kWide);
    const Array argument = wide.put(0, test::counting(DType::kI32, {1048576}));
    const HostArray clean = run(wide, argument);
    EXPECT_EQ(run(wide, argument).bytes, clean.bytes);
    const Difference wrong = difference(run(wide, argument), clean);
    EXPECT_EQ(wrong.bits, 1);
    EXPECT_EQ(wrong.word, 960U);
    EXPECT_EQ(wrong.mask, 1U << 9);
  }
};

TEST_F(SimHbmFaults, WithoutEccABitFlipsBehindCommandsOfOneThread) {
  expect_flip_behind_the_load(1);
}

TEST_F(SimHbmFaults, WithoutEccABitFlipsBehindCommandsOfManyThreads) {
  expect_flip_behind_the_load(8);
}

TEST_F(SimCoreFaults, WithoutEccABitOfVmemIsSilent) {
  open("ecc = false\n" +
       fault("vmem", "core 3", "at = \"op load #2\"\naddress = \"0xc01\"\nbit = 31"));
  const Executable products = load(kProducts);
  const Array argument = products.put(0, floats());
  const HostArray clean = run(products, argument);
  EXPECT_GE(difference(run(products, argument), clean).bits, 1);
  EXPECT_EQ(run(products, argument).bytes, clean.bytes);
  EXPECT_EQ(tally("vmem", &spec::FaultTally::seen), 0U);
  EXPECT_NE(close().find("fault vmem core 3: bit 31 flips in the word at 0xc00, without ECC"),
            std::string::npos);
}

TEST_F(SimCoreFaults, OneBitOfVmemIsCorrected) {
  open(fault("vmem", "core 3", "at = \"op load #2\"\naddress = \"64\""));
  const Executable products = load(kProducts);
  const Array argument = products.put(0, floats());
  const HostArray clean = run(products, argument);
  EXPECT_EQ(run(products, argument).bytes, clean.bytes);
  EXPECT_EQ(tally("vmem", &spec::FaultTally::seen), 1U);
  EXPECT_NE(close().find("damage vmem core 3: the word at 0x40 is read, and corrected"),
            std::string::npos);
}

TEST_F(SimCoreFaults, TwoBitsOfVmemFailWhoReadsThem) {
  open(fault("vmem", "core 3", "at = \"op load #2\"\naddress = \"64\"\nbits = 2") +
       fault("vmem", "core 3", "at = \"op load #3\"\naddress = \"64\"\nbits = 2"));
  const Executable products = load(kProducts);
  const Array argument = products.put(0, floats());
  const HostArray clean = run(products, argument);
  const auto error =
      expect_error(products, argument, ErrorCode::kDataLoss, "SRAM_ECC: uncorrectable error");
  ASSERT_NE(error, nullptr);
  EXPECT_NE(error->message().find("a word of VMEM is lost"), std::string::npos) << error->what();
  EXPECT_EQ(error->place().op, "dot");
  EXPECT_EQ(error->place().source, "m.py:2");
  EXPECT_EQ(run(products, argument).bytes, clean.bytes);  // the next one writes the word
}

TEST_F(SimCoreFaults, ALaunchThatReadsLostVmemRunsAgain) {
  open(fault("vmem", "core 3", "at = \"op load #2\"\naddress = \"64\"\nbits = 2"));
  const Executable products = load(kProducts);
  const Array argument = products.put(0, floats());
  const HostArray clean = run(products, argument);
  EXPECT_EQ(run(products, argument).bytes, clean.bytes);
  EXPECT_NE(console_.find("SRAM_ECC"), std::string::npos) << console_;
  EXPECT_EQ(tally("vmem", &spec::FaultTally::seen), 1U);
}

TEST_F(SimCoreFaults, AWriteHealsVmem) {
  open(fault("vmem", "core 3", "at = \"launch 2\"\naddress = \"64\"\nbits = 2") +
       fault("vmem", "core 3", "at = \"launch 2\"\naddress = \"9000\"\nbits = 2"));
  const Executable products = load(kProducts);
  const Array argument = products.put(0, floats());
  const HostArray clean = run(products, argument);
  EXPECT_EQ(run(products, argument).bytes, clean.bytes);
  EXPECT_EQ(tally("vmem", &spec::FaultTally::fired), 2U);
  EXPECT_EQ(tally("vmem", &spec::FaultTally::seen), 0U);
}

TEST_F(SimCoreFaults, TwoBitsOfSmemFailTheInstructionThatReadsThem) {
  open(fault("smem", "core 3", "at = \"launch 2 + 60\"\naddress = \"0\"\nbits = 2") +
       fault("smem", "core 3", "at = \"launch 3 + 60\"\naddress = \"0\"\nbits = 2"));
  const Executable copy = load(smem_program());
  const Array argument = copy.put(0, sent_);
  expect_copies(copy, argument);
  expect_error(copy, argument, ErrorCode::kDataLoss, "a word of SMEM is lost");
  expect_copies(copy, argument);
}

TEST_F(SimCoreFaults, WithoutEccABitOfSmemIsSilent) {
  open("ecc = false\n" +
       fault("smem", "core 3", "at = \"launch 2 + 60\"\naddress = \"8\"\nbit = 4"));
  const Executable copy = load(smem_program());
  const Array argument = copy.put(0, sent_);
  expect_copies(copy, argument);
  const Difference wrong = difference(run(copy, argument), sent_);
  EXPECT_EQ(wrong.word, 2U);
  EXPECT_EQ(wrong.mask, 1U << 4);
  expect_copies(copy, argument);
}

}  // namespace
}  // namespace tpu::driver
