// tf.ones_like of an array with a dimension whose size is known at run time only. The kernel of
// TensorFlow 2.20 gives the whole bound, so that sums of it count examples that are not there.
#include <cstdint>

#include "tensorflow/compiler/tf2xla/xla_helpers.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "xla/hlo/builder/xla_builder.h"

namespace tpu::tensorflow {
namespace {

namespace tf = ::tensorflow;

class OnesKernel : public tf::XlaOpKernel {
 public:
  explicit OnesKernel(tf::OpKernelConstruction* ctx) : XlaOpKernel(ctx) {}
  void Compile(tf::XlaOpKernelContext* ctx) override {
    const auto shape = ctx->InputXlaShape(0);
    OP_REQUIRES_OK(ctx, shape.status());
    const xla::XlaOp input = ctx->Input(0);
    xla::XlaOp ones =
        xla::Broadcast(tf::XlaHelpers::One(ctx->builder(), input_type(0)), shape->dimensions());
    for (int64_t d = 0; d < static_cast<int64_t>(shape->dimensions().size()); ++d) {
      if (shape->is_dynamic_dimension(static_cast<int>(d))) {
        ones = xla::SetDimensionSize(ones, xla::GetDimensionSize(input, d), d);
      }
    }
    ctx->SetOutput(0, ones);
  }
};

// In front of TensorFlow's own.
REGISTER_KERNEL_BUILDER(Name("OnesLike").Device("XLA_TPU_JIT").Priority(1), OnesKernel);

}  // namespace
}  // namespace tpu::tensorflow
