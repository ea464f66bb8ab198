// The Verilog of a DMA queue: granules of random boxes against the rules in C++, with memory that
// makes it wait, and bytes moved by its requests; its assertions against wrong drivers.
#include <Vdma_assertions.h>
#include <Vdma_queue_64_checked.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "core/verilog/dma_verilog.hpp"
#include "run/assertions.hpp"

namespace tpu::model {
namespace {

constexpr uint64_t kGranule = 64;
constexpr size_t kCredits = 3;

using spec::BoxSide;
using spec::StridedBox;
using testing::HasSubstr;

struct Traffic {
  int ready_percent = 100;
  int longest_answer = 4;  // cycles
};

class DmaQueueRtl : public testing::Test {
 protected:
  DmaQueueRtl() {
    model_->rst_ni = 0;
    idle();
    cycle();
    model_->rst_ni = 1;
  }
  ~DmaQueueRtl() override {
    EXPECT_EQ(rtl::take_failed_assertions().text(), "");
    model_->final();
  }

  void idle() {
    model_->start_i = 0;
    model_->rd_ready_i = model_->wr_ready_i = 0;
    model_->rd_done_i = model_->wr_done_i = 0;
  }
  void cycle() {
    model_->clk_i = 0;
    model_->eval();
    model_->clk_i = 1;
    model_->eval();
  }
  void offer(const StridedBox& box, bool fill, uint64_t src, uint64_t dst) {
    model_->start_i = 1;
    model_->fill_i = fill;
    model_->src_base_i = src;
    model_->dst_base_i = dst;
    model_->run_i = box.run_bytes;
    const size_t unused = StridedBox::kMaxLevels - static_cast<size_t>(box.levels);
    for (size_t l = 0; l < StridedBox::kMaxLevels; ++l) {
      const bool used = l >= unused;
      model_->count_i[l] = used ? box.count[l - unused] : 1;
      model_->src_stride_i[l] = used ? static_cast<uint64_t>(box.src[l - unused]) : 0;
      model_->dst_stride_i[l] = used ? static_cast<uint64_t>(box.dst[l - unused]) : 0;
    }
  }
  // Runs a transfer against memory; `copied` gets where each byte was read, and written.
  DmaGranules run(const StridedBox& box, bool fill, uint64_t src, uint64_t dst,
                  const Traffic& traffic, std::vector<std::pair<uint64_t, uint64_t>>* copied) {
    offer(box, fill, src, dst);
    DmaGranules granules;
    std::deque<uint64_t> reading, writing;  // cycles of the answers
    std::deque<Granule> on_way;             // of the reads
    std::deque<uint64_t> buffer;            // addresses of bytes that came
    const auto answer_at = [&](std::deque<uint64_t>& way, uint64_t now) {
      const uint64_t at = now + 1 + random_() % static_cast<unsigned>(traffic.longest_answer);
      way.push_back(std::max(at, way.empty() ? 0 : way.back() + 1));
    };
    for (uint64_t now = 0; now < 1'000'000; ++now) {
      model_->rd_ready_i = static_cast<int>(random_() % 100) < traffic.ready_percent;
      model_->wr_ready_i = static_cast<int>(random_() % 100) < traffic.ready_percent;
      model_->rd_done_i = !reading.empty() && reading.front() == now;
      model_->wr_done_i = !writing.empty() && writing.front() == now;
      const size_t there = buffer.size();  // what comes in this cycle is for the next
      if (model_->rd_done_i != 0) {
        reading.pop_front();
        for (uint64_t byte = 0; byte < on_way.front().bytes; ++byte) {
          buffer.push_back(on_way.front().address + byte);
        }
        on_way.pop_front();
      }
      if (model_->wr_done_i != 0) {
        writing.pop_front();
      }
      model_->clk_i = 0;
      model_->eval();
      if (model_->rd_valid_o != 0 && model_->rd_ready_i != 0) {
        granules.reads.push_back({model_->rd_addr_o, model_->rd_bytes_o});
        on_way.push_back(granules.reads.back());
        answer_at(reading, now);
      }
      if (model_->wr_valid_o != 0 && model_->wr_ready_i != 0) {
        granules.writes.push_back({model_->wr_addr_o, model_->wr_bytes_o});
        answer_at(writing, now);
        if (!fill) {
          EXPECT_GE(there, model_->wr_bytes_o) << "written before it came";
          for (uint64_t byte = 0; byte < model_->wr_bytes_o && !buffer.empty(); ++byte) {
            copied->emplace_back(buffer.front(), model_->wr_addr_o + byte);
            buffer.pop_front();
          }
        }
      }
      const bool done = model_->done_o != 0;
      model_->clk_i = 1;
      model_->eval();
      model_->start_i = 0;
      if (done) {
        granules.cycles = now + 1;
        EXPECT_TRUE(reading.empty() && writing.empty() && buffer.empty());
        EXPECT_EQ(model_->reads_o, granules.reads.size());
        EXPECT_EQ(model_->writes_o, granules.writes.size());
        idle();
        return granules;
      }
    }
    ADD_FAILURE() << "the unit stands still";
    return granules;
  }

  StridedBox random_box(std::array<uint32_t, 5>* counts, std::array<int64_t, 5>* from,
                        std::array<int64_t, 5>* to) {
    const uint32_t elem = 1U << random_() % 4;
    // From the inside out; each level beyond the one before it, forwards or backwards, and often
    // without a gap.
    const auto choose = [&](std::array<int64_t, 5>& strides) {
      int64_t reach = elem;
      for (size_t l = 5; l-- > 0;) {
        const int64_t gap = random_() % 2 == 0 ? 0 : static_cast<int64_t>(random_() % 5) * elem;
        const int64_t sign = random_() % 6 == 0 ? -1 : 1;
        strides[l] = sign * (reach + gap);
        reach = (reach + gap) * (*counts)[l];
      }
    };
    for (uint32_t& count : *counts) {
      count = random_() % 3 == 0 ? 1 : 1 + static_cast<uint32_t>(random_() % 6);
    }
    choose(*from);
    choose(*to);
    return spec::normalise_box(elem, *counts, from, *to);
  }

  VerilatedContext context_;
  std::unique_ptr<Vdma_queue_64_checked> model_ =
      std::make_unique<Vdma_queue_64_checked>(&context_);
  std::mt19937 random_{11};
};

TEST_F(DmaQueueRtl, GranulesOfRandomBoxesAreThoseOfTheLaw) {
  for (int turn = 0; turn < 400; ++turn) {
    std::array<uint32_t, 5> counts{};
    std::array<int64_t, 5> from{}, to{};
    const StridedBox box = random_box(&counts, &from, &to);
    const bool fill = random_() % 5 == 0;
    const StridedBox filled = spec::normalise_box(box.elem_bytes, counts, nullptr, to);
    const StridedBox& used = fill ? filled : box;
    const Traffic traffic{.ready_percent = turn % 3 == 0 ? 100 : 30,
                          .longest_answer = 1 + turn % 9};
    const uint64_t src = 1'000'000 + random_() % 1000;
    const uint64_t dst = 5'000'000 + random_() % 1000;
    std::vector<std::pair<uint64_t, uint64_t>> copied;
    const DmaGranules granules = run(used, fill, src, dst, traffic, &copied);
    ASSERT_EQ(granules.writes, side_granules(used, BoxSide::kDst, dst, kGranule)) << turn;
    ASSERT_EQ(granules.writes.size() * kGranule,
              spec::box_granule_bytes(used, BoxSide::kDst, kGranule));
    if (fill) {
      ASSERT_TRUE(granules.reads.empty());
      continue;
    }
    ASSERT_EQ(granules.reads, side_granules(used, BoxSide::kSrc, src, kGranule)) << turn;
    ASSERT_EQ(granules.reads.size() * kGranule,
              spec::box_granule_bytes(used, BoxSide::kSrc, kGranule));
    // Byte by byte, from the loops of the command itself.
    std::vector<std::pair<uint64_t, uint64_t>> wanted;
    std::array<uint32_t, 5> i{};
    for (i[0] = 0; i[0] < counts[0]; ++i[0]) {
      for (i[1] = 0; i[1] < counts[1]; ++i[1]) {
        for (i[2] = 0; i[2] < counts[2]; ++i[2]) {
          for (i[3] = 0; i[3] < counts[3]; ++i[3]) {
            for (i[4] = 0; i[4] < counts[4]; ++i[4]) {
              uint64_t a = src, b = dst;
              for (size_t l = 0; l < 5; ++l) {
                a += static_cast<uint64_t>(i[l] * from[l]);
                b += static_cast<uint64_t>(i[l] * to[l]);
              }
              for (uint32_t byte = 0; byte < box.elem_bytes; ++byte) {
                wanted.emplace_back(a + byte, b + byte);
              }
            }
          }
        }
      }
    }
    ASSERT_EQ(copied, wanted) << turn;
  }
}

TEST_F(DmaQueueRtl, CountsOfMoreThan32BitsAreWalked) {
  StridedBox box;
  box.levels = 1;
  box.count[0] = uint64_t{1} << 33;
  box.src[0] = 16;
  box.dst[0] = 4;
  box.run_bytes = box.elem_bytes = 4;
  box.total_bytes = 4 * box.count[0];
  offer(box, true, 0, 0);
  cycle();
  model_->start_i = 0;
  model_->wr_ready_i = 1;
  std::deque<int> answers;
  uint64_t writes = 0;
  for (int now = 0; now < 100; ++now) {
    model_->wr_done_i = !answers.empty() && answers.front() == now;
    if (model_->wr_done_i != 0) {
      answers.pop_front();
    }
    model_->clk_i = 0;
    model_->eval();
    if (model_->wr_valid_o != 0) {
      EXPECT_EQ(model_->wr_addr_o, writes++ * kGranule);  // the destination is one run
      EXPECT_EQ(model_->wr_bytes_o, kGranule);
      answers.push_back(now + 1);
    }
    model_->clk_i = 1;
    model_->eval();
    EXPECT_EQ(model_->done_o, 0);
  }
  EXPECT_GT(writes, 50U);
}

TEST_F(DmaQueueRtl, NeverAsksForMoreThanItsCredits) {
  StridedBox box;
  box.run_bytes = box.total_bytes = 64 * kGranule;
  box.elem_bytes = 4;
  offer(box, false, 0, 1 << 20);
  uint64_t reads = 0;
  for (int now = 0; now < 50; ++now) {  // memory takes all and answers nothing
    model_->rd_ready_i = 1;
    model_->clk_i = 0;
    model_->eval();
    reads += model_->rd_valid_o;
    EXPECT_EQ(model_->wr_valid_o, 0);
    model_->clk_i = 1;
    model_->eval();
    model_->start_i = 0;
  }
  EXPECT_EQ(reads, kCredits);
}

TEST_F(DmaQueueRtl, AssertionsTellWrongDrivers) {
  const auto tells = [&](const char* text, auto drive) {
    model_->rst_ni = 0;
    idle();
    cycle();
    model_->rst_ni = 1;
    cycle();
    drive();
    cycle();
    EXPECT_THAT(rtl::take_failed_assertions().text(), HasSubstr(text));
  };
  tells("rd_done_i without a read in flight", [&] { model_->rd_done_i = 1; });
  tells("wr_done_i without a write in flight", [&] { model_->wr_done_i = 1; });
  tells("start_i with a transfer of 0 bytes", [&] {
    StridedBox box;
    box.elem_bytes = 1;
    offer(box, false, 0, 0);
  });
}

TEST(DmaVerilog, TellsTheAssertionThatFailedInATransfer) {
  DmaVerilog unit(512);
  StridedBox box;
  box.run_bytes = box.total_bytes = 1024;
  box.elem_bytes = 4;
  EXPECT_EQ(unit.run(box, false, 0, 4096).failed, "");
  box.run_bytes = box.total_bytes = 0;
  const std::string failed = unit.run(box, false, 0, 4096).failed;
  EXPECT_THAT(failed, HasSubstr("in cycle 0 of the transfer: dma_queue_sva.sv:"));
  EXPECT_THAT(failed, HasSubstr("start_i with a transfer of 0 bytes"));
}

// A unit that does wrong, played by the test: what its ports show in a few cycles.
struct Ports {
  bool start = false, rd_valid = false, rd_ready = false, rd_done = false, wr_valid = false,
       wr_ready = false, done = false;
  uint32_t bytes = 4;
};
struct Wrong {
  const char* text;
  std::vector<Ports> cycles;
};

class DmaAssertions : public testing::TestWithParam<Wrong> {};

// Plays the cycles; what failed.
std::string play(const std::vector<Ports>& cycles) {
  VerilatedContext context;
  Vdma_assertions checks(&context);
  const auto edge = [&checks] {
    checks.clk_i = 0;
    checks.eval();
    checks.clk_i = 1;
    checks.eval();
  };
  edge();
  checks.rst_ni = 1;
  edge();
  checks.start_ready_o = 1;
  checks.run_i = 8;
  std::ranges::fill(checks.count_i, uint64_t{1});
  for (const Ports& ports : cycles) {
    checks.start_i = ports.start;
    checks.rd_valid_o = ports.rd_valid;
    checks.rd_ready_i = ports.rd_ready;
    checks.rd_done_i = ports.rd_done;
    checks.wr_valid_o = ports.wr_valid;
    checks.wr_ready_i = ports.wr_ready;
    checks.done_o = ports.done;
    checks.rd_bytes_o = checks.wr_bytes_o = static_cast<uint8_t>(ports.bytes);
    edge();
  }
  return rtl::take_failed_assertions().first;
}

TEST_P(DmaAssertions, TellAUnitThatDoesWrong) {
  EXPECT_EQ(play({{.start = true}, {.rd_valid = true, .rd_ready = true, .bytes = 8}}), "");
  EXPECT_THAT(play(GetParam().cycles), HasSubstr(GetParam().text));
}

constexpr Ports kRead{.rd_valid = true, .rd_ready = true};
constexpr Ports kReadAll{.rd_valid = true, .rd_ready = true, .bytes = kGranule};
constexpr Ports kReadAllAndAnswer{
    .rd_valid = true, .rd_ready = true, .rd_done = true, .bytes = kGranule};
constexpr Ports kWrite{.wr_valid = true, .wr_ready = true};

INSTANTIATE_TEST_SUITE_P(
    Each, DmaAssertions,
    testing::Values(
        Wrong{"a read request changed", {{.rd_valid = true}, {}}},
        Wrong{"a read request changed", {{.rd_valid = true}, {.rd_valid = true, .bytes = 5}}},
        Wrong{"a write request changed", {{.wr_valid = true}, {}}},
        Wrong{"a read of 0 bytes, or of more than a granule", {{.rd_valid = true, .bytes = 0}}},
        Wrong{"a write of 0 bytes, or of more than a granule",
              {{.wr_valid = true, .bytes = kGranule + 1}}},
        Wrong{"the reserved bytes exceed the buffer",
              {kReadAll, kReadAllAndAnswer, kReadAllAndAnswer, kReadAllAndAnswer, {}}},
        Wrong{"bytes whose read was not requested", {kWrite, {}}},
        Wrong{"the granules in flight exceed the credits", {kRead, kRead, kRead, kRead, {}}},
        Wrong{"done before all bytes", {{.start = true}, kRead, {.done = true}}}));

}  // namespace
}  // namespace tpu::model
