// The Verilated arrays of the tests: small ones of both views beside the full ones of the model.
#pragma once

#include <memory>
#include <string>

#include "mxu/rtl_array.hpp"

namespace tpu::test {

// Folded: "32x8", "64x4_d3", "128x16_d1", "128x16_d18", "128x128_d1", "128x128_d18"; structural:
// "array_32x8", "array_64x4_d3".
std::unique_ptr<model::RtlArray> make_test_array(const std::string& name);

}  // namespace tpu::test
