// Kernels that lower what a graph computes on the host in the middle of a program ("outside
// compilation"): the arrays that the host needs are sent to it, and its results are received.
// TensorFlow leaves these kernels to the library of the TPU. A transfer has the name of its channel
// as an attribute of its HLO instruction; tokens keep the order of operations with side effects.
#include <memory>
#include <string>
#include <vector>

#include "lowering/host_shapes.hpp"
#include "tensorflow/compiler/tf2xla/shape_util.h"
#include "tensorflow/compiler/tf2xla/side_effect_util.h"
#include "tensorflow/compiler/tf2xla/xla_compiler.h"
#include "tensorflow/compiler/tf2xla/xla_helpers.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/core/common_runtime/function_def_utils.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/side_effect_util.h"

namespace tpu::tensorflow {
namespace {

namespace tf = ::tensorflow;

// What the kernels have in common: tokens and transfers.
class HostKernel : public tf::XlaOpKernel {
 public:
  explicit HostKernel(tf::OpKernelConstruction* ctx) : XlaOpKernel(ctx), token_name_(name()) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr(tf::kXlaTokenInputNodesAttrName, &after_));
    static_cast<void>(ctx->GetAttr(tf::kXlaOriginalOutsideCompilationNodeName, &token_name_));
  }

 protected:
  // Behind all operations that the node follows.
  static absl::StatusOr<xla::XlaOp> joined(tf::XlaOpKernelContext& ctx,
                                           const std::vector<xla::XlaOp>& tokens) {
    return tokens.size() == 1 ? tokens[0] : xla::AfterAll(ctx.builder(), tokens);
  }
  absl::StatusOr<xla::XlaOp> token(tf::XlaOpKernelContext& ctx) const {
    std::vector<xla::XlaOp> tokens;
    for (const std::string& node : after_) {
      TF_ASSIGN_OR_RETURN(tokens.emplace_back(), ctx.compiler()->GetNodeToken(node));
    }
    return joined(ctx, tokens);
  }
  absl::Status set_token(tf::XlaOpKernelContext& ctx, xla::XlaOp token) const {
    return ctx.compiler()->SetNodeToken(token_name_, token);
  }

  // An array whose size is known at run time only goes with its padding.
  static absl::StatusOr<xla::XlaOp> send(tf::XlaOpKernelContext& ctx, const std::string& channel,
                                         xla::XlaOp array, xla::XlaOp token) {
    TF_ASSIGN_OR_RETURN(const xla::Shape given, ctx.builder()->GetShape(array));
    const xla::Shape shape = xla::ShapeUtil::MakeShape(given.element_type(), given.dimensions());
    xla::ChannelHandle handle;
    TF_RETURN_IF_ERROR(ctx.compiler()->GetDeviceToHostChannelHandle(channel, &handle));
    const xla::XlaScopedFrontendAttributesAssignment names(ctx.builder(), attributes(channel));
    return xla::SendToHost(array, token, shape, handle);
  }
  // The array and the token.
  static absl::StatusOr<xla::XlaOp> receive(tf::XlaOpKernelContext& ctx, const std::string& channel,
                                            tf::DataType type, const tf::TensorShape& dims,
                                            xla::XlaOp token) {
    xla::Shape shape;
    TF_RETURN_IF_ERROR(tf::TensorShapeToXLAShape(type, dims, &shape));
    xla::ChannelHandle handle;
    TF_RETURN_IF_ERROR(ctx.compiler()->GetHostToDeviceChannelHandle(channel, &handle));
    const xla::XlaScopedFrontendAttributesAssignment names(ctx.builder(), attributes(channel));
    return xla::RecvFromHost(token, shape, handle);
  }

 private:
  static xla::FrontendAttributes attributes(const std::string& channel) {
    xla::FrontendAttributes made;
    (*made.mutable_map())[xla::kXlaHostTransferRendezvousNameAttr] = channel;
    return made;
  }

  std::vector<std::string> after_;  // nodes
  std::string token_name_;
};

// A part of the graph that runs on the host: all its inputs go there, and then its results come.
class HostComputeKernel : public HostKernel {
 public:
  explicit HostComputeKernel(tf::OpKernelConstruction* ctx) : HostKernel(ctx) {
    std::string key;
    tf::NameAttrList inference;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("key", &key));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("send_key", &send_key_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("recv_key", &receive_key_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("Tinputs", &input_types_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("Toutputs", &result_types_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("shape_inference_graph", &inference));
    send_key_ = send_key_.empty() ? key : send_key_;
    receive_key_ = receive_key_.empty() ? key : receive_key_;
    if (inference.name().empty()) {
      OP_REQUIRES_OK(ctx, ctx->GetAttr("shapes", &result_dims_));
      return;
    }
    OP_REQUIRES(ctx, ctx->function_library() != nullptr,
                absl::InternalError("a host computation without a function library"));
    const auto* const library = ctx->function_library()->GetFunctionLibraryDefinition();
    const tf::FunctionDef* const function = library->Find(inference.name());
    OP_REQUIRES(ctx, function != nullptr,
                absl::InvalidArgumentError("the function " + inference.name() +
                                           ", of the shapes of a host computation, is missing"));
    OP_REQUIRES_OK(ctx, tf::FunctionDefToBodyHelper(*function, tf::AttrSlice(&inference.attr()),
                                                    library, &inference_));
  }

  void Compile(tf::XlaOpKernelContext* ctx) override { OP_REQUIRES_OK(ctx, lower(*ctx)); }

 private:
  absl::Status lower(tf::XlaOpKernelContext& ctx) {
    std::vector<xla::XlaOp> arrays;
    std::vector<tf::TensorShape> dims;
    TF_RETURN_IF_ERROR(ctx.InputList("inputs", &arrays, &dims));
    TF_ASSIGN_OR_RETURN(xla::XlaOp at, token(ctx));
    std::vector<xla::XlaOp> done;
    for (size_t i = 0; i < arrays.size(); ++i) {
      const auto place = static_cast<int>(i);
      TF_ASSIGN_OR_RETURN(
          done.emplace_back(),
          send(ctx, tf::GetDeviceToHostChannelName(send_key_, place), arrays[i], at));
    }
    if (!done.empty()) {
      TF_ASSIGN_OR_RETURN(at, joined(ctx, done));
      TF_RETURN_IF_ERROR(ctx.compiler()->SetDeviceToHostMetadata(send_key_, input_types_, dims));
    }
    TF_ASSIGN_OR_RETURN(at, receive_results(ctx, at));
    return set_token(ctx, at);
  }

  absl::StatusOr<xla::XlaOp> receive_results(tf::XlaOpKernelContext& ctx, xla::XlaOp at) {
    std::vector<tf::TensorShape> dims = result_dims_;
    if (inference_) {
      const auto* const library = ctx.function_library()->GetFunctionLibraryDefinition();
      TF_ASSIGN_OR_RETURN(dims,
                          shapes_of_results(*inference_->graph, *library, *ctx.compiler(), name()));
    }
    if (dims.size() != result_types_.size()) {
      return absl::InvalidArgumentError(absl::StrCat("the host computation ", name(), " gives ",
                                                     dims.size(), " results, expected ",
                                                     result_types_.size()));
    }
    if (dims.empty()) {
      return at;
    }
    TF_RETURN_IF_ERROR(ctx.compiler()->SetHostToDeviceMetadata(receive_key_, result_types_, dims));
    std::vector<xla::XlaOp> done;
    for (size_t i = 0; i < dims.size(); ++i) {
      const auto place = static_cast<int>(i);
      TF_ASSIGN_OR_RETURN(const xla::XlaOp received,
                          receive(ctx, tf::GetHostToDeviceChannelName(receive_key_, place),
                                  result_types_[place], dims[i], at));
      ctx.SetOutput(place, xla::GetTupleElement(received, 0));
      done.push_back(xla::GetTupleElement(received, 1));
    }
    return joined(ctx, done);
  }

  std::string send_key_, receive_key_;
  tf::DataTypeVector input_types_, result_types_;
  std::vector<tf::TensorShape> result_dims_;     // without inference_
  std::unique_ptr<tf::FunctionBody> inference_;  // gives the shapes from those of the inputs
};

// One array, as the condition of a loop that the host runs along with the program.
class SendKernel : public HostKernel {
 public:
  explicit SendKernel(tf::OpKernelConstruction* ctx) : HostKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("key", &key_));
  }
  void Compile(tf::XlaOpKernelContext* ctx) override { OP_REQUIRES_OK(ctx, lower(*ctx)); }

 private:
  absl::Status lower(tf::XlaOpKernelContext& ctx) {
    TF_ASSIGN_OR_RETURN(const xla::XlaOp at, token(ctx));
    TF_ASSIGN_OR_RETURN(const xla::XlaOp done, send(ctx, key_, ctx.Input(0), at));
    return set_token(ctx, done);
  }

  std::string key_;
};

class ReceiveKernel : public HostKernel {
 public:
  explicit ReceiveKernel(tf::OpKernelConstruction* ctx) : HostKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("Toutput", &type_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("shape", &dims_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("key", &key_));
  }
  void Compile(tf::XlaOpKernelContext* ctx) override { OP_REQUIRES_OK(ctx, lower(*ctx)); }

 private:
  absl::Status lower(tf::XlaOpKernelContext& ctx) {
    TF_ASSIGN_OR_RETURN(const xla::XlaOp at, token(ctx));
    TF_ASSIGN_OR_RETURN(const xla::XlaOp received, receive(ctx, key_, type_, dims_, at));
    ctx.SetOutput(0, xla::GetTupleElement(received, 0));
    return set_token(ctx, xla::GetTupleElement(received, 1));
  }

  tf::DataType type_ = tf::DT_INVALID;
  tf::TensorShape dims_;
  std::string key_;
};

// Directly for the device: this library is loaded when those of TensorFlow have been registered.
REGISTER_KERNEL_BUILDER(Name("XlaHostCompute").Device("XLA_TPU_JIT"), HostComputeKernel);
REGISTER_KERNEL_BUILDER(Name("XlaSendToHost").Device("XLA_TPU_JIT"), SendKernel);
REGISTER_KERNEL_BUILDER(Name("XlaRecvFromHost").Device("XLA_TPU_JIT"), ReceiveKernel);

}  // namespace
}  // namespace tpu::tensorflow
