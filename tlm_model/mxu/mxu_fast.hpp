// Fast engine of the matrix unit: packs operands once a command, then runs register-blocked kernels
// of the host's SIMD (AVX2, AVX-512 with or without BF16, AMX; NEON). Same bits as the scalar
// reference on every host: two chains a segment of 32 rows, as spec/arith/mxu_column.hpp says; the
// serial order (chains = 1) runs on the reference engine.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mxu/mxu_engine.hpp"
#include "mxu/mxu_fast_kernels.hpp"
#include "processor/host_simd.hpp"

namespace tpu::model {

using MxuSimd = base::HostSimd;  // what this host can run: base::host_simd()

// The set of a name; "" or "auto" gives the best. Throws std::runtime_error on an unknown name and
// on one that this host lacks, naming those it has.
MxuSimd mxu_simd_from_name(const std::string& name);

// Of a host that has them; null: the reference engine's work.
const MxuKernelSet* mxu_kernels(MxuSimd simd);

class MxuFastEngine : public MxuEngine {
 public:
  MxuFastEngine(const spec::MxuShape& shape, MxuSimd simd);
  // On the given kernels; null: on the reference.
  MxuFastEngine(const spec::MxuShape& shape, const MxuKernelSet* kernels);

  void run(const MxuJob& job) override;
  void run_together(std::span<const MxuJob> jobs) override;
  uint64_t group(const MxuJob& job) const override;
  bool shares_operands() const override { return kernels_ != nullptr; }
  const char* name() const override { return "fast"; }

 private:
  const spec::MxuShape shape_;
  const MxuKernelSet* kernels_ = nullptr;  // null: reference
  std::unique_ptr<MxuEngine> reference_;
};

}  // namespace tpu::model
