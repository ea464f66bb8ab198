// Replay of a tile; the differences are printed as they are found.
#include "replay/mxu_replay.hpp"

#include <algorithm>
#include <iomanip>
#include <ostream>
#include <stdexcept>
#include <vector>

#include "mxu/mxu_fast.hpp"
#include "mxu/mxu_rtl.hpp"
#include "mxu/mxu_scalar.hpp"
#include "mxu/mxu_tile.hpp"

namespace tpu::model {
namespace {

uint64_t count_differences(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  uint64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    count += a[i] != b[i] ? 1 : 0;
  }
  return count;
}

}  // namespace

MxuReplayResult mxu_replay(const std::string& path, const std::string& waves_path,
                           uint64_t clock_hz, std::ostream& out) {
  const MxuTileDump dump = mxu_read_dump(path);
  const spec::MxuShape& shape = dump.tile.shape;
  MxuScalarEngine reference_engine(shape, /*use_host_fma=*/false);
  const std::vector<uint32_t> expected = mxu_run_tile(reference_engine, dump.tile);
  out << "tile " << dump.tile.ordinal << ": " << dump.tile.rows << " rows, " << expected.size()
      << " outputs; differences from the reference:\n";
  const auto compare = [&](const std::string& what, const std::vector<uint32_t>& bits) {
    const uint64_t differences = count_differences(bits, expected);
    out << "  " << std::left << std::setw(20) << what << std::right << std::setw(8) << differences;
    if (differences > 0) {
      const auto at = static_cast<size_t>(
          std::mismatch(bits.begin(), bits.end(), expected.begin()).first - bits.begin());
      out << "; first: row " << at / shape.cols << ", column " << at % shape.cols << std::hex
          << std::setfill('0') << ": 0x" << std::setw(8) << bits[at] << ", the reference gives 0x"
          << std::setw(8) << expected[at] << std::dec << std::setfill(' ');
    }
    out << "\n";
    return differences;
  };
  MxuReplayResult result;
  result.recorded_verilog = compare("recorded Verilog", dump.rtl);
  result.recorded_engine = compare("recorded engine", dump.engine);
  MxuRtlEngine rtl(make_rtl_array(shape));
  if (!waves_path.empty()) {
    rtl.set_wave_window({.path = waves_path, .depth = 1, .clock_hz = clock_hz, .tiles = 1});
  }
  result.verilog = compare("Verilog now", mxu_run_tile(rtl, dump.tile));
  for (const MxuSimd simd : base::host_simd()) {
    MxuFastEngine engine(shape, simd);
    result.engines += compare(std::string("fast ") + base::simd_name(simd) + " now",
                              mxu_run_tile(engine, dump.tile));
  }
  if (const std::string error = rtl.wave_error(); !error.empty()) {
    throw std::runtime_error(error);
  }
  return result;
}

}  // namespace tpu::model
