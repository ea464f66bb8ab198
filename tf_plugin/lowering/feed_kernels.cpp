// Kernels for the operations by which a step takes from its infeed and gives to its outfeed.
// TensorFlow leaves them to the library of the TPU. feed_transfers.hpp goes on from here.
#include <string>
#include <vector>

#include "tensorflow/compiler/tf2xla/shape_util.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/shape_util.h"

namespace tpu::tensorflow {
namespace {

namespace tf = ::tensorflow;

absl::StatusOr<xla::Shape> xla_shape(tf::DataType type, const tf::TensorShape& dims) {
  xla::Shape shape;
  TF_RETURN_IF_ERROR(tf::TensorShapeToXLAShape(type, dims, &shape));
  return shape;
}

class InfeedKernel : public tf::XlaOpKernel {
 public:
  explicit InfeedKernel(tf::OpKernelConstruction* ctx) : XlaOpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("dtype", &type_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("shape", &dims_));
  }
  void Compile(tf::XlaOpKernelContext* ctx) override {
    const auto shape = xla_shape(type_, dims_);
    OP_REQUIRES_OK(ctx, shape.status());
    ctx->SetOutput(0, xla::Infeed(ctx->builder(), *shape));
  }

 private:
  tf::DataType type_ = tf::DT_INVALID;
  tf::TensorShape dims_;
};

class InfeedTupleKernel : public tf::XlaOpKernel {
 public:
  explicit InfeedTupleKernel(tf::OpKernelConstruction* ctx) : XlaOpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("dtypes", &types_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("shapes", &dims_));
    OP_REQUIRES(ctx, types_.size() == dims_.size(),
                absl::InvalidArgumentError(absl::StrCat(name(), ": found ", types_.size(),
                                                        " dtypes and ", dims_.size(),
                                                        " shapes, expected as many of both")));
  }
  void Compile(tf::XlaOpKernelContext* ctx) override {
    std::vector<xla::Shape> shapes;
    for (size_t i = 0; i < types_.size(); ++i) {
      const auto shape = xla_shape(types_[i], dims_[i]);
      OP_REQUIRES_OK(ctx, shape.status());
      shapes.push_back(*shape);
    }
    const xla::XlaOp all = xla::Infeed(ctx->builder(), xla::ShapeUtil::MakeTupleShape(shapes));
    for (int i = 0; i < static_cast<int>(shapes.size()); ++i) {
      ctx->SetOutput(i, xla::GetTupleElement(all, i));
    }
  }

 private:
  std::vector<tf::DataType> types_;
  std::vector<tf::TensorShape> dims_;
};

class OutfeedKernel : public tf::XlaOpKernel {
 public:
  explicit OutfeedKernel(tf::OpKernelConstruction* ctx) : XlaOpKernel(ctx) {}
  void Compile(tf::XlaOpKernelContext* ctx) override {
    const auto shape = ctx->builder()->GetShape(ctx->Input(0));
    OP_REQUIRES_OK(ctx, shape.status());
    xla::Outfeed(ctx->Input(0), *shape, "");
  }
};

class OutfeedTupleKernel : public tf::XlaOpKernel {
 public:
  explicit OutfeedTupleKernel(tf::OpKernelConstruction* ctx) : XlaOpKernel(ctx) {}
  void Compile(tf::XlaOpKernelContext* ctx) override {
    std::vector<xla::XlaOp> arrays;
    for (int i = 0; i < ctx->num_inputs(); ++i) {
      arrays.push_back(ctx->Input(i));
    }
    const xla::XlaOp all = xla::Tuple(ctx->builder(), arrays);
    const auto shape = ctx->builder()->GetShape(all);
    OP_REQUIRES_OK(ctx, shape.status());
    xla::Outfeed(all, *shape, "");
  }
};

// As those of host_compute.cpp.
REGISTER_KERNEL_BUILDER(Name("InfeedDequeue").Device("XLA_TPU_JIT"), InfeedKernel);
REGISTER_KERNEL_BUILDER(Name("InfeedDequeueTuple").Device("XLA_TPU_JIT"), InfeedTupleKernel);
REGISTER_KERNEL_BUILDER(Name("OutfeedEnqueue").Device("XLA_TPU_JIT"), OutfeedKernel);
REGISTER_KERNEL_BUILDER(Name("OutfeedEnqueueTuple").Device("XLA_TPU_JIT"), OutfeedTupleKernel);

}  // namespace
}  // namespace tpu::tensorflow
