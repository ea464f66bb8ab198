// The Verilated array sizes of this build (rtl/CMakeLists.txt). The only file of the model that
// names RTL.
#include "mxu/rtl_array.hpp"

#include <Vmxu_128x128_d1.h>
#include <Vmxu_128x128_d18.h>

#include <filesystem>
#include <stdexcept>

#include "file/file_lock.hpp"
#include "file/ordinary_file.hpp"
#include "mxu/verilated_array.hpp"

namespace tpu::model {

void check_wave_file(const WaveOptions& options) {
  if (options.clock_hz == 0) {
    throw std::runtime_error("waves: the array's clock frequency is not set");
  }
  try {
    const FileLock lock(options.path);
    need_ordinary_file(options.path);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(std::string("waves: ") + error.what());
  }
  if (std::filesystem::space(options.path).available < options.min_free_bytes) {
    throw std::runtime_error("waves: the disk is nearly full; free some space: " + options.path);
  }
}

std::unique_ptr<RtlArray> make_rtl_array(const spec::MxuShape& shape, const std::string& path) {
  constexpr spec::MxuShape kSkew18{.skew = 18};
  constexpr spec::MxuShape kSkew1{.skew = 1};
  if (shape == kSkew18) {
    return std::make_unique<VerilatedArray<Vmxu_128x128_d18>>(shape, path);
  }
  if (shape == kSkew1) {
    return std::make_unique<VerilatedArray<Vmxu_128x128_d1>>(shape, path);
  }
  const auto text = [](uint32_t v) { return std::to_string(v); };
  throw std::runtime_error(
      "mxu: no Verilog array of " + text(shape.rows) + "x" + text(shape.cols) + ", chains " +
      text(shape.chains()) + ", segment_rows " + text(shape.segment_rows()) + ", skew " +
      text(shape.skew) + ", load_rows " + text(shape.load_rows) +
      " in this build; there are 128x128, chains 2, segment_rows 32, load_rows 2, skew 1 or 18. "
      "Use the fast engine, or add the size to rtl/CMakeLists.txt and rtl_array.cpp");
}

}  // namespace tpu::model
