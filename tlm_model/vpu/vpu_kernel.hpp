// The vector unit's work: one vpu_kernel command = a VPU program with its loops, masks and
// operands. Checks the command and computes its data in VMEM; its cycles are those of
// spec/command/cost.hpp. No SystemC: core/ wraps it into a module. Specification:
// spec/isa/vpu.toml, spec/isa/commands.toml, docs/numerics.md.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "command/cost.hpp"
#include "command/vpu_footprint.hpp"
#include "tpu/spec/isa.hpp"
#include "vpu/vpu_program.hpp"
#include "vpu/vpu_simd.hpp"

namespace tpu::model {

/// Bytes [begin, end) of VMEM that one access of the kernel may touch.
struct VpuFootprint {
  int64_t begin = 0;
  int64_t end = 0;
  bool write = false;
  int access = 0;
};

using spec::vpu_element_bytes;

/// Immutable after construction: run() and run_range() may be called from any thread.
class VpuKernel {
 public:
  /// `bases`: per access the resolved address (offset + scalar register) in VMEM, or the start
  /// value of an index access. `scalars`: low halves of the registers that command.scalar names.
  /// The program must outlive the kernel. Throws VpuError when the command is malformed.
  VpuKernel(const VpuProgram& program, const spec::VpuKernelCommand& command,
            std::span<const spec::VpuAccess> accesses, std::span<const int64_t> bases,
            const std::array<uint32_t, kVpuScalars>& scalars);

  /// Empty when the kernel is legal; else what is wrong with it (loop counts, operand spaces and
  /// types, alignment, bytes outside of VMEM). run() needs a legal kernel.
  std::string check(uint64_t vmem_bytes) const;

  /// The part of check() that looks at loop counts, rows and columns alone.
  std::string check_loops() const;

  /// Every load and store with the bytes that it covers (one interval each, holes included). Of a
  /// legal kernel.
  std::vector<VpuFootprint> footprints() const;

  /// True when what stores overwrite of the bytes that the kernel loads is loaded once alone, and
  /// before: by an access of its own that goes the way of the store's. Then it makes no difference
  /// whether loads see the stores. Of a legal kernel.
  bool loads_before_stores() const;

  /// Calls visit(pattern, write, type of its elements) for the exact bytes of every load and store.
  /// Of a legal kernel.
  void for_each_pattern(const std::function<void(const spec::StridePattern& pattern, bool write,
                                                 spec::Elem type)>& visit) const;

  /// By access: bytes from a load's place in VMEM to where the host has what it loads. Empty: all
  /// 0.
  using Shifts = std::span<const int64_t>;

  /// Computes the whole command. `vmem` is the core's VMEM.
  void run(uint8_t* vmem, VpuSimd simd = vpu_best_simd(), Shifts shifts = {}) const;
  void run(uint8_t* vmem, const VpuOpTable& table, Shifts shifts = {}) const;

  /// A kernel whose iterations of the outermost loop with a count above 1 touch neither each
  /// other's registers nor memory can be cut: run_range() over any partition of [0, split_count()),
  /// in any order or in parallel, equals run().
  bool can_split() const;
  uint64_t split_count() const;
  void run_range(uint8_t* vmem, uint64_t begin, uint64_t end, VpuSimd simd = vpu_best_simd(),
                 Shifts shifts = {}) const;
  void run_range(uint8_t* vmem, uint64_t begin, uint64_t end, const VpuOpTable& table,
                 Shifts shifts = {}) const;

  /// Executions of a section in the whole command.
  uint64_t executions(int section) const;
  /// Lane operations of the whole command, full blocks counted: for host statistics.
  uint64_t lane_operations() const;
  /// Bytes that loads and stores of the whole command read and write, full blocks counted: for host
  /// statistics.
  uint64_t memory_bytes() const;

 private:
  friend class VpuRunner;
  friend class VpuSteps;

  struct Operand {
    spec::VpuAccess access{};
    int64_t base = 0;  // takes the place of its address

    spec::Space space() const { return static_cast<spec::Space>(access.addr.space); }
  };

  bool empty() const;
  bool goes_before(const spec::VpuInsn& load, const spec::VpuInsn& store, int section) const;
  int split_loop() const;
  std::string check_access(const spec::VpuInsn& insn, int section, uint64_t vmem_bytes) const;
  std::string access_problem(const spec::VpuInsn& insn, int section, uint64_t vmem_bytes) const;
  std::string check_alignment(const Operand& operand) const;
  spec::ByteExtent extent(const spec::VpuInsn& insn, spec::VpuLoopMask loops) const;
  std::vector<VpuFootprint> footprints_with(spec::VpuLoopMask loops) const;

  const VpuProgram* program_;
  spec::VpuKernelCommand command_;
  std::vector<Operand> operands_;
  std::array<uint32_t, kVpuScalars> scalars_{};
};

}  // namespace tpu::model
