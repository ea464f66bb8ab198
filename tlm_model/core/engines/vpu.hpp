// Vector unit of a core as a SystemC block: queue, cost and data work of vpu_kernel commands
// (tlm_model/vpu).
#pragma once

#include <optional>
#include <vector>

#include "core/engine.hpp"
#include "vpu/vpu_kernel.hpp"

namespace tpu::model {

class Vpu : public Engine {
 public:
  Vpu(sc_core::sc_module_name name, const EngineContext& context, uint8_t* vmem,
      uint64_t vmem_bytes, VpuSimd simd);

 protected:
  bool start_command(Flight& flight) override;
  void finish_command(Flight& flight) override;
  void settle_data() override;

 private:
  class Work : public LateWork {
   public:
    // `kernel` outlives the job.
    void prepare(const VpuKernel& kernel, uint8_t* vmem, VpuSimd simd);
    // Looks at the results when they are there. In one part.
    void look() { looks_ = true; }
    void run_part(int part) override;
    const NonFiniteScan& scan() const { return scan_; }
    void give_back() {}
    std::optional<VpuKernel> own;  // kernel of a command whose operands come from registers
    std::vector<int64_t> shifts;   // by access, from VMEM to where its bytes lie; empty: all 0

   protected:
    int split(int parts) override;

   private:
    const VpuKernel* kernel_ = nullptr;
    uint8_t* vmem_ = nullptr;
    VpuSimd simd_{};
    uint64_t split_ = 0;
    int parts_count_ = 1;
    bool looks_ = false;
    NonFiniteScan scan_;
  };

  FaultInfo outside_of_vmem(const VpuPlan& plan, const Flight& flight,
                            const VpuKernel& kernel) const;
  bool tell_accesses(const Flight& flight, const VpuKernel& kernel);
  const VpuKernel* resolve(const VpuPlan& plan, Flight& flight, Work& work);
  void find_operands(Work& work, const VpuPlan& plan, const VpuKernel& kernel);
  void shift_loads(Work& work, std::span<const VpuFootprint> prints, size_t accesses);

  uint8_t* const vmem_;
  const uint64_t vmem_bytes_;
  const VpuSimd simd_;
  LateWorks<Work> works_;
};

}  // namespace tpu::model
