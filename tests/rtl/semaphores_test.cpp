// The semaphore unit's Verilog against a reference of a few lines, on random traffic, and its
// assertions against whoever drives the ports wrongly.
#include <Vsem_128_d1.h>
#include <Vsem_8_d3_checked.h>
#include <Vsem_assertions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "core/verilog/semaphore_verilog.hpp"
#include "run/assertions.hpp"

namespace tpu {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr uint32_t kLimit = 65535;

template <typename Model, uint32_t kSemaphores, size_t kCyclesOfDelay>
struct Size {
  using Verilog = Model;
  static constexpr uint32_t kCount = kSemaphores;
  static constexpr size_t kDelay = kCyclesOfDelay;
};

// What the unit is meant to do, cycle by cycle.
struct Reference {
  Reference(uint32_t count, size_t delay)
      : value(count), overflow(count), line(delay, std::vector<uint32_t>(count)) {}

  void edge(const std::vector<uint32_t>& add, const std::vector<uint32_t>& take, bool clear) {
    if (clear) {
      std::ranges::fill(value, 0U);
      for (auto& stage : line) {
        std::ranges::fill(stage, 0U);
      }
    }
    line.push_back(add);
    line.pop_front();
    const std::vector<uint32_t>& due = line.front();
    for (size_t i = 0; i < value.size(); ++i) {
      const uint32_t left = clear ? 0 : value[i] - take[i];
      overflow[i] = left + due[i] > kLimit;
      value[i] = overflow[i] ? left : left + due[i];
    }
  }

  std::vector<uint32_t> value;
  std::vector<bool> overflow;
  std::deque<std::vector<uint32_t>> line;  // oldest first; the front is what became visible last
};

template <typename Size>
class SemaphoresRtl : public testing::Test {
 protected:
  SemaphoresRtl() {
    model_->rst_ni = 0;
    model_->clear_i = 0;
    set({}, {});
    edge();
    model_->rst_ni = 1;
    model_->eval();
  }
  ~SemaphoresRtl() override {
    EXPECT_EQ(rtl::take_failed_assertions().text(), "");
    model_->final();
  }

  void set(const std::vector<uint32_t>& add, const std::vector<uint32_t>& take) {
    for (uint32_t i = 0; i < Size::kCount; ++i) {
      model_->add_i[i] = add.empty() ? 0 : add[i];
      model_->take_i[i] = static_cast<uint16_t>(take.empty() ? 0 : take[i]);
    }
  }
  void edge() {
    model_->clk_i = 0;
    model_->eval();
    model_->clk_i = 1;
    model_->eval();
  }

  VerilatedContext context_;
  std::unique_ptr<typename Size::Verilog> model_ =
      std::make_unique<typename Size::Verilog>(&context_);
};

using Sizes = testing::Types<Size<Vsem_128_d1, 128, 1>, Size<Vsem_8_d3_checked, 8, 3>>;
TYPED_TEST_SUITE(SemaphoresRtl, Sizes);

TYPED_TEST(SemaphoresRtl, DoesWhatTheReferenceDoes) {
  std::mt19937 random(7);
  const auto below = [&random](uint32_t bound) { return static_cast<uint32_t>(random() % bound); };
  Reference reference(TypeParam::kCount, TypeParam::kDelay);
  bool idle = true;  // nothing has been added for as long as the delay
  size_t since_add = TypeParam::kDelay;
  uint64_t overflows = 0, clears = 0;
  for (int cycle = 0; cycle < 20000; ++cycle) {
    const bool clear = below(500) == 0;
    const bool quiet = below(4) == 0;
    std::vector<uint32_t> add(TypeParam::kCount), take(TypeParam::kCount);
    for (uint32_t i = 0; i < TypeParam::kCount; ++i) {
      if (!quiet && below(8) == 0) {
        add[i] = below(40) == 0 ? below((1 << 20) - 1) : below(3000);
      }
      if (!clear && below(4) == 0) {
        take[i] = below(reference.value[i] + 1);
      }
    }
    this->set(add, take);
    this->model_->clear_i = clear;
    this->model_->eval();
    uint32_t nonzero = 0, first = TypeParam::kCount;
    for (uint32_t i = TypeParam::kCount; i-- > 0;) {
      const uint32_t left = clear ? 0 : reference.value[i] - take[i];
      ASSERT_EQ(this->model_->value_o[i], left) << "cycle " << cycle << " semaphore " << i;
      ASSERT_EQ(this->model_->overflow_o[i] != 0, reference.overflow[i]) << cycle;
      overflows += reference.overflow[i] ? 1 : 0;
      nonzero += left != 0 ? 1 : 0;
      first = left != 0 ? i : first;
    }
    ASSERT_EQ(this->model_->nonzero_o, nonzero) << cycle;
    ASSERT_EQ(this->model_->first_nonzero_o, first) << cycle;
    ASSERT_EQ(this->model_->settled_o != 0, idle) << cycle;
    reference.edge(add, take, clear);
    this->edge();
    clears += clear ? 1 : 0;
    const bool added = std::ranges::any_of(add, [](uint32_t amount) { return amount != 0; });
    since_add = added ? 1 : (clear ? TypeParam::kDelay : since_add + 1);
    idle = since_add >= TypeParam::kDelay;
  }
  EXPECT_GT(overflows, 100U);
  EXPECT_GT(clears, 10U);
}

TYPED_TEST(SemaphoresRtl, AnAssertionTellsATakeOfMoreThanThereIs) {
  this->set({}, std::vector<uint32_t>(TypeParam::kCount, 1));
  this->edge();
  const rtl::FailedAssertions failed = rtl::take_failed_assertions();
  EXPECT_EQ(failed.count, TypeParam::kCount);
  EXPECT_THAT(failed.first, HasSubstr("semaphores_sva.sv:"));
  EXPECT_THAT(failed.first, HasSubstr("take_what_is_there"));
  EXPECT_THAT(failed.first, HasSubstr("take_i exceeds the value of semaphore 0"));
}

TEST(SemaphoreVerilog, TellsTheCycleOfAFailedAssertion) {
  std::vector<std::pair<uint64_t, std::string>> failed;
  model::SemaphoreVerilog unit(128, 1, [&failed](uint64_t cycle, const std::string& text) {
    failed.emplace_back(cycle, text);
  });
  unit.add(5, 3, 1);
  unit.take(9, 3, 1);
  EXPECT_EQ(unit.value(20, 3), 0U);
  EXPECT_THAT(failed, IsEmpty());
  unit.take(30, 3, 1);
  unit.value(31, 3);
  ASSERT_THAT(failed, SizeIs(1));
  EXPECT_EQ(failed[0].first, 30U);
  EXPECT_THAT(failed[0].second, HasSubstr("take_i exceeds the value of semaphore 3"));
}

// A unit that does wrong, played by the test: what it shows of semaphore 0; nothing is added.
struct TwoCycles {
  const char* text;
  bool settled;
  uint16_t before, after;
  bool overflow;
};

class SemaphoreAssertions : public testing::TestWithParam<TwoCycles> {};

TEST_P(SemaphoreAssertions, TellAUnitThatDoesWrong) {
  VerilatedContext context;
  Vsem_assertions checks(&context);
  const auto edge = [&checks] {
    checks.clk_i = 0;
    checks.eval();
    checks.clk_i = 1;
    checks.eval();
  };
  edge();
  checks.rst_ni = 1;
  checks.settled_o = GetParam().settled;
  checks.value_o[0] = GetParam().before;
  edge();
  EXPECT_EQ(rtl::take_failed_assertions().text(), "");
  checks.value_o[0] = GetParam().after;
  checks.overflow_o[0] = GetParam().overflow;
  edge();
  EXPECT_THAT(rtl::take_failed_assertions().text(), HasSubstr(GetParam().text));
}

INSTANTIATE_TEST_SUITE_P(
    Each, SemaphoreAssertions,
    testing::Values(TwoCycles{"changed without a signal", true, 3, 4, false},
                    TwoCycles{"decreased by more than take_i", false, 3, 2, false},
                    TwoCycles{"changed although it overflowed", false, 3, 4, true}));

}  // namespace
}  // namespace tpu
