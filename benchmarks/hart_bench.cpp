// Speed of the control hart's simulator: a loop of loads, stores, branches and multiplies, run in
// slices as the board model runs it. Prints millions of instructions a second, of the best of ten
// parts. Usage: hart-bench [--seconds S] [--json]
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "hart/hart.hpp"

namespace {

// for (;;) { for (i = 256; i != 0; --i) { v = *p; if (v & 1) { v = v * 3 + 1; } *p++ = v; } p -=
// 256; }
constexpr uint32_t kProgram[] = {
    0x200004b7,  // outer: lui   s1, 0x20000
    0x10000413,  //        li    s0, 256
    0x0004a503,  // inner: lw    a0, 0(s1)
    0x00157593,  //        andi  a1, a0, 1
    0x00058863,  //        beqz  a1, even
    0x00300613,  //        li    a2, 3
    0x02c50533,  //        mul   a0, a0, a2
    0x00150513,  //        addi  a0, a0, 1
    0x00a4a023,  // even:  sw    a0, 0(s1)
    0x00448493,  //        addi  s1, s1, 4
    0xfff40413,  //        addi  s0, s0, -1
    0xfc041ee3,  //        bnez  s0, inner
    0xfd1ff06f,  //        j     outer
};

}  // namespace

int main(int argc, char* argv[]) {
  constexpr uint32_t kCode = 0x1000'0000;
  constexpr uint64_t kQuantum = 256;
  double seconds = 0.5;
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      json = true;
    } else if (std::strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
      seconds = std::atof(argv[++i]);
    } else {
      std::fprintf(stderr, "usage: hart-bench [--seconds S] [--json]\n");
      return 2;
    }
  }
  std::vector<uint8_t> code(4096);
  std::vector<uint8_t> data(4096);
  std::memcpy(code.data(), kProgram, sizeof kProgram);
  for (size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<uint8_t>(i * 37);
  }
  tpu::model::Hart hart(
      0, {.taken_branch_cycles = 1, .load_cycles = 1, .mul_cycles = 2, .div_cycles = 16});
  hart.add_memory({kCode, 4096, code.data(), true, true});
  hart.add_memory({0x2000'0000, 4096, data.data(), true, false});
  const std::unique_ptr<tpu::model::HartCode> host_code = tpu::model::HartCode::make();
  if (host_code != nullptr) {
    hart.use_code(*host_code);
  }
  hart.reset(kCode);
  using Clock = std::chrono::steady_clock;
  constexpr int kParts = 10;
  double best = 0;
  for (int part = 0; part < kParts; ++part) {
    const Clock::time_point begin = Clock::now();
    const uint64_t before = hart.instret();
    double elapsed = 0;
    while (elapsed < seconds / kParts) {
      for (int i = 0; i < 1'000; ++i) {
        if (hart.run(kQuantum).reason != tpu::model::HartStop::kBudget) {
          std::fprintf(stderr, "hart-bench: the loop stopped at pc 0x%08x\n", hart.pc());
          return 1;
        }
      }
      elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
    }
    best = std::max(best, static_cast<double>(hart.instret() - before) / elapsed / 1e6);
  }
  std::printf(json ? "{\"hart_mips\": %.1f}\n" : "hart: %.0f million instructions a second\n",
              best);
  return 0;
}
