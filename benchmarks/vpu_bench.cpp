// Speed of the vector unit's model on one thread: element operations per second for flat kernels of
// one repeated instruction, for an Adam-like update and for a row softmax, on each SIMD width of
// the host. Usage: vpu_bench [seconds per measurement].
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "timing.hpp"
#include "vpu/vpu_kernel.hpp"

namespace {

using namespace tpu;
using benchmarks::thread_seconds;
using model::VpuSection;
using spec::VpuOp;

constexpr uint32_t kElements = 64 * 1024;

struct Case {
  std::string name;
  std::vector<spec::VpuInsn> body;
  uint32_t accesses = 2;
};

spec::VpuInsn insn(VpuOp op, int rd, int rs1 = 0, int rs2 = 0, uint32_t imm = 0) {
  return {static_cast<uint8_t>(op), static_cast<uint8_t>(rd), static_cast<uint8_t>(rs1),
          static_cast<uint8_t>(rs2), imm};
}

Case repeated(VpuOp op, int times) {
  Case result{std::string(spec::kVpuOps[static_cast<size_t>(op) - 1].name), {}, 2};
  result.body.push_back(insn(VpuOp::kLoad, 0, 0, 0, 0));
  result.body.push_back(insn(VpuOp::kImm, 1, 0, 0, 0x3f800100u));
  for (int i = 0; i < times; ++i) {
    result.body.push_back(insn(op, 2 + i % 4, 0, 1, 1));
  }
  result.body.push_back(insn(VpuOp::kStore, 0, 5, 0, 1));
  return result;
}

// m = b1*m + c1*g; v = b2*v + c2*g*g; w -= rate * m / (sqrt(v) + eps)
Case adam() {
  Case result{"adam (15 ops)", {}, 7};
  auto& body = result.body;
  for (int i = 0; i < 4; ++i) {
    body.push_back(insn(VpuOp::kLoad, i, 0, 0, static_cast<uint32_t>(i)));
  }
  const uint32_t constants[] = {0x3f666666u, 0x3dcccccdu, 0x3f7fbe77u,
                                0x3a83126fu, 0x3a83126fu, 0x322bcc77u};
  for (int i = 0; i < 6; ++i) {
    body.push_back(insn(VpuOp::kImm, 10 + i, 0, 0, constants[i]));
  }
  body.push_back(insn(VpuOp::kMulF, 1, 1, 10));
  body.push_back(insn(VpuOp::kMulF, 4, 3, 11));
  body.push_back(insn(VpuOp::kAddF, 1, 1, 4));
  body.push_back(insn(VpuOp::kMulF, 4, 3, 3));
  body.push_back(insn(VpuOp::kMulF, 4, 4, 13));
  body.push_back(insn(VpuOp::kMulF, 2, 2, 12));
  body.push_back(insn(VpuOp::kAddF, 2, 2, 4));
  body.push_back(insn(VpuOp::kSqrtF, 4, 2));
  body.push_back(insn(VpuOp::kAddF, 4, 4, 15));
  body.push_back(insn(VpuOp::kDivF, 4, 1, 4));
  body.push_back(insn(VpuOp::kMulF, 4, 4, 14));
  body.push_back(insn(VpuOp::kSubF, 0, 0, 4));
  for (int i = 0; i < 3; ++i) {
    body.push_back(insn(VpuOp::kStore, 0, i, 0, 4 + static_cast<uint32_t>(i)));
  }
  return result;
}

double measure(const Case& what, model::VpuSimd simd, double seconds) {
  spec::VpuProgramHeader header;
  header.section[static_cast<size_t>(VpuSection::kBody)] = static_cast<uint16_t>(what.body.size());
  header.registers = model::kVpuRegisters;
  std::vector<std::byte> code(sizeof header + what.body.size() * sizeof(spec::VpuInsn));
  std::memcpy(code.data(), &header, sizeof header);
  std::memcpy(code.data() + sizeof header, what.body.data(), code.size() - sizeof header);
  const auto program = model::VpuProgram::decode(code, 0);

  spec::VpuKernelCommand command;
  command.head.flags = command.kFlat;
  command.row_loop = 255;
  command.col_loop = 3;
  command.loops = {1, 1, 1, kElements / 1024};
  command.rows = 1;
  command.cols = kElements;
  command.accesses = static_cast<uint8_t>(what.accesses);
  std::vector<spec::VpuAccess> accesses(what.accesses);
  std::vector<int64_t> bases;
  for (uint32_t i = 0; i < what.accesses; ++i) {
    accesses[i].addr.space = static_cast<uint8_t>(spec::Space::kVmem);
    accesses[i].loop = {0, 0, 0, 4096};
    accesses[i].lane = 4;
    bases.push_back(int64_t{i} * kElements * 4);
  }
  const model::VpuKernel kernel(program, command, accesses, bases, {});
  std::vector<uint8_t> vmem(size_t{what.accesses} * kElements * 4);
  for (size_t i = 0; i < vmem.size(); i += 4) {
    const float value = 0.25f + static_cast<float>(i % 1000) / 1000.0f;
    std::memcpy(vmem.data() + i, &value, 4);
  }
  if (const std::string text = kernel.check(vmem.size()); !text.empty()) {
    std::fprintf(stderr, "%s\n", text.c_str());
    std::exit(1);
  }
  kernel.run(vmem.data(), simd);
  const double start = thread_seconds();
  double elapsed = 0;
  uint64_t runs = 0;
  while (elapsed < seconds) {
    kernel.run(vmem.data(), simd);
    ++runs;
    elapsed = thread_seconds() - start;
  }
  return static_cast<double>(runs * kernel.lane_operations()) / elapsed / 1e9;
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 0.05;
  std::vector<Case> cases;
  for (const VpuOp op :
       {VpuOp::kMov,   VpuOp::kAddF,      VpuOp::kMulF,   VpuOp::kMaxF,   VpuOp::kFmaF,
        VpuOp::kCmpF,  VpuOp::kSelect,    VpuOp::kAddI,   VpuOp::kFloorF, VpuOp::kRbf16,
        VpuOp::kDivF,  VpuOp::kSqrtF,     VpuOp::kRsqrtF, VpuOp::kExpF,   VpuOp::kLogF,
        VpuOp::kTanhF, VpuOp::kLogisticF, VpuOp::kExpm1F, VpuOp::kLog1pF, VpuOp::kPowF,
        VpuOp::kRemF,  VpuOp::kDivS,      VpuOp::kSred,   VpuOp::kLred}) {
    cases.push_back(repeated(op, 8));
  }
  cases.push_back(adam());
  const auto simds = model::vpu_host_simds();
  std::printf("%-16s", "G lane ops/s");
  for (const auto simd : simds) {
    std::printf("%10s", std::string(model::vpu_simd_name(simd)).c_str());
  }
  std::printf("\n");
  for (const Case& c : cases) {
    std::printf("%-16s", c.name.c_str());
    for (const auto simd : simds) {
      std::printf("%10.2f", measure(c, simd, seconds));
    }
    std::printf("\n");
  }
}
