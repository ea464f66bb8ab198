// The Verilog's multiply-add and addition, combinational, against spec/arith: all special values
// with each other, then millions of seeded random operands, among them sums that cancel.
#include <Vmxu_arith_probe.h>
#include <gtest/gtest.h>

#include "arith/bf16.hpp"
#include "arith/f32.hpp"
#include "operands.hpp"

namespace tpu {
namespace {

using spec::f32_add_bits;
using spec::f32_fma_bits;
using test::OperandSource;
using test::special_f32;

constexpr size_t kCopies = 128;
constexpr uint64_t kSeed = 2;

// Collects operands until all copies have some, then compares them in one evaluation.
class Probe {
 public:
  // a serves as bf16 (its low half) in a * b + c and as f32 in a + c.
  void push(uint32_t a, uint32_t b, uint32_t c) {
    model_.a_i[used_] = a;
    model_.b_i[used_] = b;
    model_.c_i[used_] = c;
    if (++used_ == kCopies) {
      flush();
    }
  }
  void flush() {
    model_.eval();
    for (size_t i = 0; i < used_; ++i) {
      const uint32_t a = model_.a_i[i];
      const uint32_t b = model_.b_i[i];
      const uint32_t c = model_.c_i[i];
      const uint32_t fma = f32_fma_bits(a << 16, b << 16, c);
      ASSERT_EQ(model_.fma_o[i], fma)
          << std::hex << (a & 0xffff) << " * " << (b & 0xffff) << " + " << c;
      ASSERT_EQ(model_.add_o[i], f32_add_bits(a, c)) << std::hex << a << " + " << c;
    }
    checked_ += used_;
    used_ = 0;
  }
  size_t checked() const { return checked_; }

 private:
  Vmxu_arith_probe model_;
  size_t used_ = 0;
  size_t checked_ = 0;
};

TEST(MxuArithRtl, EqualsTheLawOnAllSpecialValues) {
  Probe probe;
  for (const uint32_t a : special_f32()) {
    for (const uint32_t b : special_f32()) {
      for (const uint32_t c : special_f32()) {
        probe.push(a >> 16, b >> 16, c);
        if (HasFatalFailure()) {
          return;
        }
      }
      probe.push(a, b, b);  // the f32 addition of all pairs
    }
  }
  probe.flush();
  EXPECT_GT(probe.checked(), 370'000u);
}

TEST(MxuArithRtl, EqualsTheLawOnAllProductsOfSmallAndLargeExponents) {
  Probe probe;
  // Every pair of exponents with a few significands: the product's exponent runs from -253 to 256.
  for (uint32_t ea = 0; ea < 256; ++ea) {
    for (uint32_t eb = 0; eb < 256; ++eb) {
      for (const uint32_t c : {0x80000000u, 0x00800000u, 0x3f800001u, 0x7f7fffffu}) {
        probe.push(ea << 7 | 0x7f, eb << 7 | 0x8055, c);
      }
    }
    if (HasFatalFailure()) {
      return;
    }
  }
  probe.flush();
}

TEST(MxuArithRtl, EqualsTheLawOnRandomValues) {
  Probe probe;
  OperandSource source(kSeed);
  for (int i = 0; i < 3'000'000 && !HasFatalFailure(); ++i) {
    const uint32_t a = source.next();
    const uint32_t b = source.next();
    probe.push(i % 2 == 0 ? a : a >> 16, b >> 16, source.next());
  }
  probe.flush();
}

TEST(MxuArithRtl, EqualsTheLawWhenSumsCancel) {
  Probe probe;
  OperandSource source(kSeed + 1);
  for (int i = 0; i < 1'000'000 && !HasFatalFailure(); ++i) {
    const uint32_t a = source.next() >> 16;
    const uint32_t b = source.next() >> 16;
    const uint32_t near =
        (f32_fma_bits(a << 16, b << 16, 0x80000000u) ^ 0x80000000u) + source.next() % 5 - 2;
    probe.push(a, b, near);
    const uint32_t c = source.next();
    probe.push((c ^ 0x80000000u) + source.next() % 5 - 2, b, c);
  }
  probe.flush();
}

}  // namespace
}  // namespace tpu
