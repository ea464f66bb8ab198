// Smallest use of the driver: open a board, move data, run a program if one is given.
// Usage: driver_api [sim|null] [PROGRAM.tpuexe]. The program runs once on zeros.
#include <cstdio>
#include <numeric>
#include <vector>

#include "tpu/tpu.hpp"

namespace {

std::vector<float> counting(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

void run_on_zeros(const tpu::Board& board, const char* path) {
  const tpu::Executable program = board.load(std::string(path));
  std::vector<tpu::Array> arguments;
  for (size_t i = 0; i < program.arguments().size(); ++i) {
    const auto& info = program.arguments()[i];
    tpu::HostArray zero{info.dtype, info.shape, {}};
    zero.bytes.resize(tpu::driver::element_count(info.shape) *
                      tpu::driver::dtype_bytes(info.dtype));
    arguments.push_back(program.put(i, zero));
  }
  const auto result = program.run(arguments);  // returns at once
  result.done.wait();                          // simulated time passes here
  std::printf("%s: %zu results\n", program.name().c_str(), result.outputs.size());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string transport = argc > 1 ? argv[1] : "sim";
    tpu::OpenOptions options;
    options.transport = transport;
    const tpu::Board board = tpu::Board::open(options);
    std::printf("%zu devices at %.0f MHz\n", board.devices().size(), board.clock_hz() / 1e6);

    const std::vector<float> values = counting(1024);
    const tpu::HostView view(tpu::DType::kF32, {8, 128}, std::as_bytes(std::span(values)));
    const tpu::Array everywhere = board.replicate(view);
    const tpu::Array rows = board.shard(view);  // one row a core
    const bool same = everywhere.to_host_checked("copy").bytes == rows.to_host().bytes;
    std::printf("round trip %s\n", same ? "ok" : "differs");
    if (argc > 2) {
      run_on_zeros(board, argv[2]);
    }
    board.close();
    return same ? 0 : 1;
  } catch (const tpu::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
