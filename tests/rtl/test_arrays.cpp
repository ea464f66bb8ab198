// Names to Verilated classes, see test_arrays.hpp.
#include "test_arrays.hpp"

#include <Vmxu_128x16_d1.h>
#include <Vmxu_128x16_d18.h>
#include <Vmxu_32x8.h>
#include <Vmxu_64x4_checked.h>
#include <Vmxu_64x4_d3.h>
#include <Vmxu_array_32x8.h>
#include <Vmxu_array_64x4_checked.h>
#include <Vmxu_array_64x4_d3.h>

#include <stdexcept>

#include "mxu/verilated_array.hpp"

namespace tpu::test {
namespace {

template <typename Model>
std::unique_ptr<model::RtlArray> make(uint32_t rows, uint32_t cols, uint32_t skew) {
  return std::make_unique<model::VerilatedArray<Model>>(
      spec::MxuShape{.rows = rows, .cols = cols, .skew = skew});
}

}  // namespace

std::unique_ptr<model::RtlArray> make_test_array(const std::string& name) {
  if (name == "32x8") {
    return make<Vmxu_32x8>(32, 8, 18);
  }
  if (name == "64x4_d3") {
    return make<Vmxu_64x4_d3>(64, 4, 3);
  }
  if (name == "128x16_d1") {
    return make<Vmxu_128x16_d1>(128, 16, 1);
  }
  if (name == "128x16_d18") {
    return make<Vmxu_128x16_d18>(128, 16, 18);
  }
  if (name == "array_32x8") {
    return make<Vmxu_array_32x8>(32, 8, 18);
  }
  if (name == "array_64x4_d3") {
    return make<Vmxu_array_64x4_d3>(64, 4, 3);
  }
  if (name == "64x4_checked") {
    return make<Vmxu_64x4_checked>(64, 4, 3);
  }
  if (name == "array_64x4_checked") {
    return make<Vmxu_array_64x4_checked>(64, 4, 3);
  }
  if (name == "128x128_d1") {
    return model::make_rtl_array({.skew = 1});
  }
  if (name == "128x128_d18") {
    return model::make_rtl_array({.skew = 18});
  }
  throw std::runtime_error("no test array " + name);
}

}  // namespace tpu::test
