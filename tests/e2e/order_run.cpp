// Runs two steps of a program with a module in the same SystemC kernel that does not belong to the
// board: its events come at random cycles and deltas, which changes the order in which the kernel
// keeps events of one cycle. Prints a digest of all results, and of the cycles, and the number of
// the module's events. Seed 0: without the module.
// Usage: order_run BOARD PROGRAM SEED ARGUMENT.bin..
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <systemc>
#include <vector>

#include "tpu/tpu.hpp"

namespace {

class Stranger : public sc_core::sc_module {
 public:
  Stranger(const sc_core::sc_module_name& name, uint32_t seed) : sc_module(name), random_(seed) {
    SC_HAS_PROCESS(Stranger);
    SC_THREAD(run);
    SC_METHOD(hear);
    dont_initialize();
    for (const sc_core::sc_event& event : events_) {
      sensitive << event;
    }
  }
  uint64_t heard() const { return heard_; }

 private:
  uint64_t below(uint64_t end) { return random_() % end; }
  void run() {
    for (;;) {
      wait(sc_core::sc_time::from_value(1 + below(40)));
      events_[below(events_.size())].notify(sc_core::sc_time::from_value(below(60)));
      if (below(4) == 0) {
        wait(sc_core::SC_ZERO_TIME);
      }
    }
  }
  void hear() { ++heard_; }

  std::mt19937 random_;
  std::array<sc_core::sc_event, 8> events_;
  uint64_t heard_ = 0;
};

class Digest {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) {
      value_ = (value_ ^ static_cast<uint64_t>(byte)) * 0x100000001b3;
    }
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325;
};

std::vector<std::byte> bytes_of(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void run(const std::string& board_name, const std::string& path, uint32_t seed,
         std::span<char* const> files) {
  std::unique_ptr<Stranger> stranger;
  if (seed != 0) {
    stranger = std::make_unique<Stranger>("stranger", seed);
  }
  tpu::OpenOptions options;
  options.preset = board_name;
  options.sim.threads = 1;
  tpu::Board board = tpu::Board::open(options);
  tpu::Executable program = board.load(path);
  const auto parameters = program.arguments();
  if (parameters.size() != files.size()) {
    throw std::runtime_error("expected " + std::to_string(parameters.size()) + " arguments");
  }
  std::vector<tpu::Array> arguments;
  tpu::RunOptions keep;
  for (size_t i = 0; i < files.size(); ++i) {
    tpu::HostArray array;
    array.dtype = parameters[i].dtype;
    array.shape = parameters[i].shape;
    array.bytes = bytes_of(files[i]);
    arguments.push_back(program.put(i, array));
    keep.keep.push_back(i);
  }
  board.synchronize();
  const uint64_t start = board.now();
  Digest values;
  std::vector<uint64_t> times;
  for (int step = 0; step < 2; ++step) {
    auto result = program.run(arguments, keep);
    result.done.wait();
    times.push_back(board.now() - start);
    for (const uint64_t cycles : board.run_cycles()) {
      times.push_back(cycles);
    }
    for (const tpu::Array& output : result.outputs) {
      values.add(output.to_host().bytes);
    }
  }
  Digest cycles;
  cycles.add(std::as_bytes(std::span(times)));
  std::printf("%016llx %016llx %llu\n", static_cast<unsigned long long>(values.value()),
              static_cast<unsigned long long>(cycles.value()),
              static_cast<unsigned long long>(stranger ? stranger->heard() : 0));
  std::fflush(stdout);
  std::_Exit(0);  // the kernel has a process of the module, whose stack nobody unwinds
}

}  // namespace

int sc_main(int /*argc*/, char* /*argv*/[]) { return 0; }

int main(int argc, char** argv) {
  try {
    const std::span<char* const> given(argv, static_cast<size_t>(argc));
    if (given.size() < 4) {
      throw std::runtime_error("usage: order_run BOARD PROGRAM SEED ARGUMENT.bin..");
    }
    run(given[1], given[2], static_cast<uint32_t>(std::stoul(given[3])), given.subspan(4));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "order_run: %s\n", error.what());
    return 1;
  }
}
