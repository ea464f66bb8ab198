// Ring entries that arrive damaged at the simulated board: they are sent again, and the order of
// what waits for them stays, since driver and firmware count alike behind the resume.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "asm/assembler.hpp"
#include "board/board_loader.hpp"
#include "file/crc32c.hpp"
#include "tests/driver/copy_program.hpp"
#include "tests/driver/program_builder.hpp"
#include "tpu/spec/rings.h"
#include "tpu/tpu.hpp"
#include "tpu/transport.hpp"

namespace tpu::driver {
namespace {

using test::copy_program;
using test::counting;

// Host memory of which the board reads the next command with `opcode` with one bit wrong, as often
// as it looks at it; what is sent again has another place in the ring.
class DamagedMemory : public HostMemory {
 public:
  explicit DamagedMemory(HostMemory& memory) : memory_(memory) {}

  std::span<std::byte> span(uint64_t iova, uint64_t bytes, bool write) override {
    const std::span<std::byte> real = memory_.span(iova, bytes, write);
    if (write || real.size() % TPU_CMD_ENTRY_BYTES != 0) {
      return real;
    }
    for (size_t at = 0; at < real.size(); at += TPU_CMD_ENTRY_BYTES) {
      const auto entry = real.subspan(at, TPU_CMD_ENTRY_BYTES);
      tpu_command_head_t head;
      uint32_t crc = 0;
      std::memcpy(&head, entry.data(), sizeof(head));
      std::memcpy(&crc, entry.last(sizeof(crc)).data(), sizeof(crc));
      if (opcode != 0 && head.opcode == opcode && !(place_ == iova + at && seq_ == head.seq) &&
          crc == spec::crc32c(entry.first(TPU_CMD_ENTRY_BYTES - sizeof(crc)))) {
        opcode = 0;
        place_ = iova + at;
        seq_ = head.seq;
      }
      if (place_ == iova + at && seq_ == head.seq) {
        std::vector<std::byte>& copy = copies_.emplace_back(real.begin(), real.end());
        copy[at + kSpoiltByte] ^= std::byte{0x10};
        return copy;
      }
    }
    return real;
  }

  uint16_t opcode = 0;

 private:
  static constexpr size_t kSpoiltByte = 30;

  HostMemory& memory_;
  uint64_t place_ = 0;
  uint32_t seq_ = 0;
  std::deque<std::vector<std::byte>> copies_;
};

TEST(SimRing, DamagedEntriesAreSentAgainAndWaitsHoldBehindThem) {
  std::unique_ptr<DamagedMemory> memory;
  OpenOptions options;
  options.factory = [&](const TransportRequest& request, HostMemory& real) {
    memory = std::make_unique<DamagedMemory>(real);
    return make_sim_transport(request, *memory);
  };
  Board board = Board::open(options);
  const auto exe = compiler::assemble(copy_program(), "test.s", spec::load_board("v3_8"));
  const Executable copy = board.load(exe::write_executable(exe), 3);
  constexpr std::array<uint16_t, 4> kOpcodes = {TPU_OP_COPY, TPU_OP_LAUNCH, TPU_OP_READ_COUNTERS,
                                                TPU_OP_LOAD_PROGRAM};
  uint8_t round = 0;
  for (const uint16_t opcode : kOpcodes) {
    memory->opcode = opcode;
    const Executable loaded = board.load(exe::write_executable(exe), 3);
    const HostArray sent = counting(DType::kI32, {1024}, ++round);
    const RunResult first = copy.run({copy.put(0, sent)});
    const RunResult second = copy.run({first.outputs[0]});
    EXPECT_EQ(second.outputs[0].to_host().bytes, sent.bytes) << opcode;
    EXPECT_EQ(board.counters().cores.size(), 8u);
    EXPECT_EQ(board.counters().recoveries, round);
  }
  board.close();
}

}  // namespace
}  // namespace tpu::driver
