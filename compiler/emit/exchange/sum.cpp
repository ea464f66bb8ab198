#include "emit/exchange/sum.hpp"

#include "vpu/vpu_build.hpp"
#include "vpu/vpu_gen.hpp"

namespace tpu::compiler {

SumProgram sum_program(CommandSink& sink, const Op& op) {
  const Elem elem = op.operand_type(0).elem;
  VpuProgram sum;
  sum.header.registers = 2;
  sum.header.section[kBody] = 4;
  const auto insn = [&](spec::VpuOp o, int rd, int rs1, int rs2, uint32_t imm) {
    sum.code.push_back({static_cast<uint8_t>(o), static_cast<uint8_t>(rd),
                        static_cast<uint8_t>(rs1), static_cast<uint8_t>(rs2), imm});
  };
  insn(spec::VpuOp::kLoad, 0, 0, 0, 0);
  insn(spec::VpuOp::kLoad, 1, 0, 0, 1);
  insn(reduce_op(op, *simple_reducer(*op.regions[0]), elem), 0, 0, 1, 0);
  insn(spec::VpuOp::kStore, 0, 0, 0, 2);
  return {sink.listing.add_program(std::move(sum)), static_cast<uint8_t>(isa_elem(elem)),
          elem_bytes(elem)};
}

void combine(CommandSink& sink, const SumProgram& p, const spec::Addr& a, const spec::Addr& b,
             const spec::Addr& out, int64_t bytes, std::vector<MemRange> windows, uint32_t id) {
  const int64_t count = bytes / p.elem_bytes;
  auto c = flat_vpu_kernel(count, id);
  Command command;
  for (const spec::Addr& addr : {a, b, out}) {
    spec::VpuAccess access{};
    access.addr = addr;
    access.type = p.type;
    access.lane = static_cast<int32_t>(p.elem_bytes);
    access.loop[3] = static_cast<int32_t>(1024 * p.elem_bytes);
    command.accesses.push_back(access);
  }
  command.program = p.program;
  command.body = c;
  command.windows = std::move(windows);
  sink.append(std::move(command));
}

}  // namespace tpu::compiler
