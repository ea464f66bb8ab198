// Reference engine: spec/arith/mxu_column.hpp tile by tile in the hardware's order, one
// multiply-add at a time. Uses the host's FMA unit under FTZ|DAZ where there is one (NaNs
// canonicalised at the tile's end), else spec/arith.
#pragma once

#include "mxu/mxu_engine.hpp"

namespace tpu::model {

class MxuScalarEngine final : public MxuEngine {
 public:
  // `use_host_fma` false computes every operation with the integers of spec/arith (about 20 times
  // slower).
  explicit MxuScalarEngine(const spec::MxuShape& shape, bool use_host_fma = true);

  void run(const MxuJob& job) override;
  const char* name() const override { return "scalar"; }

 private:
  const spec::MxuShape shape_;
  const bool use_host_fma_;
};

}  // namespace tpu::model
