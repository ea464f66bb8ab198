// Uses an installed tpuboard as a stranger would: a transport of its own around the library's, an
// error caught across the library's boundary, and a launch of the program of copy.s.
// Usage: installed_user null|sim PROGRAM.tpuexe
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tpu/tpu.hpp"

namespace {

// Passes everything on and counts.
class CountingTransport : public tpu::Transport {
 public:
  CountingTransport(std::unique_ptr<tpu::Transport> inner, int& writes)
      : inner_(std::move(inner)), writes_(writes) {}

  uint32_t read32(int chip, int bar, uint64_t offset) override {
    return inner_->read32(chip, bar, offset);
  }
  void write32(int chip, int bar, uint64_t offset, uint32_t value) override {
    ++writes_;
    inner_->write32(chip, bar, offset, value);
  }
  void write_block(int chip, int bar, uint64_t offset, std::span<const std::byte> data) override {
    inner_->write_block(chip, bar, offset, data);
  }
  tpu::RunOutcome run() override { return inner_->run(); }
  void limit_run(std::chrono::nanoseconds limit) override { inner_->limit_run(limit); }
  std::vector<tpu::ConsoleLine> take_console() override { return inner_->take_console(); }
  uint64_t now() override { return inner_->now(); }
  tpu::TransportStats stats() override { return inner_->stats(); }
  std::vector<tpu::spec::UnitWait> waits() override { return inner_->waits(); }
  std::string close() override { return inner_->close(); }

 private:
  std::unique_ptr<tpu::Transport> inner_;
  int& writes_;
};

void need(bool good, const char* what) {
  if (!good) {
    std::fprintf(stderr, "failed: %s\n", what);
    std::exit(1);
  }
}

void check_errors(const tpu::Board& board) {
  try {
    board.zeros(99, tpu::DType::kF32, {1});
    need(false, "no error for a device that is not there");
  } catch (const tpu::Error& error) {
    need(error.code() == tpu::ErrorCode::kInvalidArgument, "the code of the error");
  }
}

// A copy over the links, a read that waits for an event of the host, and what is given back by
// name.
void check_futures(const tpu::Board& board, const tpu::HostView& view) {
  const tpu::Buffer far = board.copy(board.put(1, view), 6);
  const tpu::HostEvent go = board.make_event();
  std::vector<std::byte> out(far.bytes());
  const tpu::Event read = far.read(out, {go.event()});
  try {
    read.wait_for(std::chrono::milliseconds(1));
    need(false, "no error for a wait that ends early");
  } catch (const tpu::Error& error) {
    need(error.code() == tpu::ErrorCode::kTimeout, "the code of a wait that ends early");
  }
  go.set();
  read.wait();
  need(std::equal(view.bytes.begin(), view.bytes.end(), out.begin(), out.end()), "the copy");
  far.discard();
  need(!far.live() && board.devices()[6].hbm_used == 0, "the memory of a discarded buffer");
}

}  // namespace

int main(int argc, char** argv) {
  need(argc == 3, "usage: installed_user null|sim PROGRAM.tpuexe");
  const bool sim = std::string(argv[1]) == "sim";
  int writes = 0;
  tpu::OpenOptions options;
  options.factory = [&](const tpu::TransportRequest& request, tpu::HostMemory& memory) {
    auto inner =
        sim ? tpu::make_sim_transport(request, memory) : tpu::make_null_transport(request, memory);
    need(request.params.board.chips == 4, "the request holds the board's numbers");
    return std::make_unique<CountingTransport>(std::move(inner), writes);
  };
  const tpu::Board board = tpu::Board::open(options);
  need(writes > 0, "the factory's transport is used");
  check_errors(board);

  std::vector<int32_t> values(1024);
  std::iota(values.begin(), values.end(), 7);
  const tpu::HostView view(tpu::DType::kI32, {1024}, std::as_bytes(std::span(values)));
  const tpu::Executable program = board.load(std::string(argv[2]), 3);
  const tpu::HostArray result = program.run({program.put(0, view)}).outputs[0].to_host();
  if (sim) {  // a launch on the null board does nothing
    need(std::equal(view.bytes.begin(), view.bytes.end(), result.bytes.begin(), result.bytes.end()),
         "the program's result");
    need(board.counters().cores[3].instructions > 0, "the core has run");
  }
  check_futures(board, view);
  const tpu::ProgramCost& cost = program.cost();
  need(cost.argument_bytes == 4096 && cost.hbm_bytes > 8192, "the cost of the program");
  program.unload();
  board.close();
  std::printf("%s: good, %d register writes\n", argv[1], writes);
  return 0;
}
