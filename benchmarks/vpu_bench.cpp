// Speed of the vector unit's model on one thread: element operations per second for flat kernels of
// one repeated instruction, for the ten operations of run.py's vpu_chain, an Adam update and the
// passes of a batch norm, on each SIMD width of the host, with fused code and without. Usage:
// vpu_bench [seconds per measurement].
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "timing.hpp"
#include "vpu/vpu_kernel.hpp"
#include "vpu/vpu_ops.hpp"

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
  // Rows of 128 channels in place of a flat vector; the last accesses are one row for all.
  bool rows = false;
  uint32_t row_vectors = 0;
  std::vector<spec::VpuInsn> pre = {};
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

// The operations of numpy_chain in references.py.
Case chain() {
  Case result{"chain (10 ops)", {}, 3};
  auto& body = result.body;
  const uint32_t constants[] = {0x3fc00000u, 0xc0000000u, 0x40000000u, 0x406ccccdu};
  for (int i = 0; i < 4; ++i) {
    body.push_back(insn(VpuOp::kImm, 10 + i, 0, 0, constants[i]));
  }
  body.push_back(insn(VpuOp::kLoad, 0, 0, 0, 0));
  body.push_back(insn(VpuOp::kLoad, 1, 0, 0, 1));
  body.push_back(insn(VpuOp::kMulF, 2, 0, 10));
  body.push_back(insn(VpuOp::kAddF, 2, 2, 1));
  body.push_back(insn(VpuOp::kMaxF, 2, 2, 11));
  body.push_back(insn(VpuOp::kMinF, 2, 2, 12));
  body.push_back(insn(VpuOp::kSubF, 2, 2, 0));
  body.push_back(insn(VpuOp::kAbsF, 2, 2));
  body.push_back(insn(VpuOp::kSqrtF, 2, 2));
  body.push_back(insn(VpuOp::kMulF, 2, 2, 1));
  body.push_back(insn(VpuOp::kDivF, 2, 2, 13));
  body.push_back(insn(VpuOp::kNegF, 2, 2));
  body.push_back(insn(VpuOp::kStore, 0, 2, 0, 2));
  return result;
}

// sum += x; squares += x * x
Case norm_statistics() {
  Case result{"norm sums", {}, 1, true, 0};
  result.pre = {insn(VpuOp::kImm, 0), insn(VpuOp::kImm, 1)};
  result.body = {insn(VpuOp::kLoad, 2), insn(VpuOp::kAddF, 0, 0, 2), insn(VpuOp::kMulF, 3, 2, 2),
                 insn(VpuOp::kAddF, 1, 1, 3)};
  return result;
}

// y = max((x - mean) * scale + shift, 0)
Case norm_forward() {
  Case result{"norm forward", {}, 5, true, 3};
  result.pre = {insn(VpuOp::kImm, 9)};
  result.body = {insn(VpuOp::kLoad, 0, 0, 0, 0), insn(VpuOp::kLoad, 1, 0, 0, 2),
                 insn(VpuOp::kSubF, 0, 0, 1),    insn(VpuOp::kLoad, 1, 0, 0, 3),
                 insn(VpuOp::kMulF, 0, 0, 1),    insn(VpuOp::kLoad, 1, 0, 0, 4),
                 insn(VpuOp::kAddF, 0, 0, 1),    insn(VpuOp::kMaxF, 0, 0, 9),
                 insn(VpuOp::kStore, 0, 0, 0, 1)};
  return result;
}

// dx = scale * ((y > 0 ? dy : 0) - mean_dy - (x - mean) * factor)
Case norm_backward() {
  Case result{"norm backward", {}, 8, true, 4};
  result.pre = {insn(VpuOp::kImm, 9)};
  result.body = {insn(VpuOp::kLoad, 0, 0, 0, 0),   insn(VpuOp::kLoad, 1, 0, 0, 1),
                 insn(VpuOp::kLoad, 2, 0, 0, 2),   insn(VpuOp::kCmpF, 2, 2, 9, 4),
                 insn(VpuOp::kSelect, 1, 2, 1, 9), insn(VpuOp::kLoad, 3, 0, 0, 4),
                 insn(VpuOp::kSubF, 1, 1, 3),      insn(VpuOp::kLoad, 3, 0, 0, 5),
                 insn(VpuOp::kSubF, 0, 0, 3),      insn(VpuOp::kLoad, 3, 0, 0, 6),
                 insn(VpuOp::kMulF, 0, 0, 3),      insn(VpuOp::kSubF, 1, 1, 0),
                 insn(VpuOp::kLoad, 3, 0, 0, 7),   insn(VpuOp::kMulF, 1, 1, 3),
                 insn(VpuOp::kStore, 0, 1, 0, 3)};
  return result;
}

double measure(const Case& what, const model::VpuOpTable& table, double seconds) {
  spec::VpuProgramHeader header;
  header.section[static_cast<size_t>(VpuSection::kBody)] = static_cast<uint16_t>(what.body.size());
  header.registers = model::kVpuRegisters;
  header.section[static_cast<size_t>(VpuSection::kPre)] = static_cast<uint16_t>(what.pre.size());
  std::vector<spec::VpuInsn> insns = what.pre;
  insns.insert(insns.end(), what.body.begin(), what.body.end());
  std::vector<std::byte> code(sizeof header + insns.size() * sizeof(spec::VpuInsn));
  std::memcpy(code.data(), &header, sizeof header);
  std::memcpy(code.data() + sizeof header, insns.data(), code.size() - sizeof header);
  const auto program = model::VpuProgram::decode(code, 0);

  spec::VpuKernelCommand command;
  command.head.flags = command.kFlat;
  command.row_loop = 255;
  command.col_loop = 3;
  command.loops = {1, 1, 1, kElements / 1024};
  command.rows = 1;
  command.cols = kElements;
  if (what.rows) {
    command.head.flags = 0;
    command.row_loop = 3;
    command.col_loop = 255;
    command.rows = kElements / model::kVpuLanes;
    command.cols = model::kVpuLanes;
  }
  command.accesses = static_cast<uint8_t>(what.accesses);
  std::vector<spec::VpuAccess> accesses(what.accesses);
  std::vector<int64_t> bases;
  for (uint32_t i = 0; i < what.accesses; ++i) {
    accesses[i].addr.space = static_cast<uint8_t>(spec::Space::kVmem);
    accesses[i].loop = {0, 0, 0, 4096};
    accesses[i].lane = 4;
    if (what.rows) {
      const bool row = i + what.row_vectors >= what.accesses;
      accesses[i].loop = {0, 0, 0, row ? 0 : 4096};
      accesses[i].sub = row ? 0 : 512;
    }
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
  kernel.run(vmem.data(), table);
  const double start = thread_seconds();
  double elapsed = 0;
  uint64_t runs = 0;
  while (elapsed < seconds) {
    kernel.run(vmem.data(), table);
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
  for (const Case& c : {chain(), adam(), norm_statistics(), norm_forward(), norm_backward()}) {
    cases.push_back(c);
  }
  struct Column {
    std::string name;
    model::VpuOpTable table;
  };
  std::vector<Column> columns;
  for (const auto simd : model::vpu_host_simds()) {
    const model::VpuOpTable table = model::vpu_ops(simd);
    columns.push_back({std::string(model::vpu_simd_name(simd)), table});
    if (table.fused != model::FusedIsa::kNone) {
      columns.push_back({columns.back().name + " unfused", table});
      columns.back().table.fused = model::FusedIsa::kNone;
    }
  }
  std::printf("%-16s", "G lane ops/s");
  for (const Column& column : columns) {
    std::printf("%16s", column.name.c_str());
  }
  std::printf("\n");
  for (const Case& c : cases) {
    std::printf("%-16s", c.name.c_str());
    for (const Column& column : columns) {
      std::printf("%16.2f", measure(c, column.table, seconds));
    }
    std::printf("\n");
  }
}
