// Lowers a request for the compilation of a replicated function: the graph becomes an HLO module
// by TensorFlow's own kernels for XLA, then bounded dynamic dimensions are padded, so that shapes
// are static. Built against the headers and the library of one version of tensorflow-tpu.
#include <map>
#include <memory>

#include "lowering/embedding_calls.hpp"
#include "lowering/feed_transfers.hpp"
#include "lowering/lowered.hpp"
#include "lowering/mlir_form.hpp"
#include "lowering/model_parallel.hpp"
#include "lowering/outcome.hpp"
#include "lowering/random.hpp"
#include "tensorflow/compiler/tf2xla/type_util.h"
#include "tensorflow/compiler/tf2xla/xla_compiler.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/protobuf/tpu/compile_metadata.pb.h"
#include "tensorflow/core/tpu/kernels/tpu_compile.pb.h"
#include "xla/client/client_library.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/literal_util.h"
#include "xla/service/batchnorm_expander.h"
#include "xla/service/dynamic_padder.h"
#include "xla/shape_util.h"
#include "xla/side_effect_util.h"
#include "xla/stream_executor/tpu/tpu_platform_interface.h"

namespace tpu::tensorflow {
namespace {

namespace tf = ::tensorflow;
using Metadata = tf::tpu::TPUCompileMetadataProto;
using tf::XlaCompiler;

constexpr char kCompilationDevice[] = "XLA_TPU_JIT";

absl::StatusOr<tf::TensorShape> shape_of(const tf::tpu::TpuCompilationRequestProto& request,
                                         int argument) {
  tf::TensorShape shape;
  const auto& proto = argument < request.arg_shapes_size()
                          ? request.arg_shapes(argument)
                          : request.metadata().args(argument).shape();
  TF_RETURN_IF_ERROR(tf::TensorShape::BuildTensorShape(proto, &shape));
  return shape;
}

absl::StatusOr<std::vector<XlaCompiler::Argument>> arguments_of(
    const tf::tpu::TpuCompilationRequestProto& request) {
  std::vector<XlaCompiler::Argument> arguments(static_cast<size_t>(request.metadata().args_size()));
  int constants = 0;
  for (int i = 0; i < request.metadata().args_size(); ++i) {
    const Metadata::Arg& from = request.metadata().args(i);
    XlaCompiler::Argument& to = arguments[static_cast<size_t>(i)];
    to.type = from.dtype();
    to.name = from.name();
    to.is_same_data_across_replicas = from.is_same_data_across_replicas();
    TF_ASSIGN_OR_RETURN(to.shape, shape_of(request, i));
    switch (from.kind()) {
      case Metadata::Arg::PARAMETER:
        to.kind = XlaCompiler::Argument::kParameter;
        break;
      case Metadata::Arg::VARIABLE:
        to.kind = XlaCompiler::Argument::kResource;
        to.resource_kind = tf::XlaResource::kVariable;
        to.initialized = true;
        break;
      case Metadata::Arg::GUARANTEED_CONSTANT:
        to.kind = XlaCompiler::Argument::kConstant;
        if (constants >= request.guaranteed_constants_size() ||
            !to.constant_value.FromProto(request.guaranteed_constants(constants++))) {
          return absl::InvalidArgumentError(
              absl::StrCat("argument ", i, " is a constant, and its value is missing"));
        }
        break;
      default:
        return absl::UnimplementedError(absl::StrCat("argument ", i, " has kind ", from.kind(),
                                                     ": expected a parameter, a variable or a "
                                                     "constant"));
    }
    for (const bool dynamic : from.is_bounded_dynamic_dim()) {
      if (dynamic) {
        return absl::UnimplementedError(
            absl::StrCat("argument ", i,
                         " has a dynamic dimension of its own; tf.distribute.TPUStrategy passes "
                         "sizes as arguments instead"));
      }
    }
  }
  return arguments;
}

absl::StatusOr<XlaCompiler::CompilationResult> to_hlo(
    const tf::tpu::TpuCompilationRequestProto& request,
    const std::vector<XlaCompiler::Argument>& arguments) {
  if (!request.mlir_module().empty()) {
    std::vector<tf::TensorShape> shapes;
    for (const XlaCompiler::Argument& argument : arguments) {
      shapes.push_back(std::get<tf::TensorShape>(argument.shape));
    }
    return mlir_to_hlo(request.mlir_module(), shapes, kCompilationDevice);
  }
  const tf::FunctionLibraryDefinition library(tf::OpRegistry::Global(), request.fdef_lib());
  // Of 2.19, two libraries have a PlatformManager: this asks the right one.
  auto* const platform = tf::tpu::TpuPlatformInterface::GetRegisteredPlatform();
  if (platform == nullptr) {
    return absl::FailedPreconditionError("TensorFlow has no TPU platform: see its warnings");
  }
  TF_ASSIGN_OR_RETURN(auto* const client, xla::ClientLibrary::GetOrCreateLocalClient(platform));
  XlaCompiler::Options options;
  options.device_type = tf::DeviceType(kCompilationDevice);
  options.client = client;
  options.flib_def = &library;
  options.graph_def_version = request.graph_def_version();
  XlaCompiler::CompileOptions form;
  form.use_tuple_arg = true;
  form.is_entry_computation = true;
  form.alias_resource_update = true;
  XlaCompiler::CompilationResult result;
  XlaCompiler compiler(options);
  TF_RETURN_IF_ERROR(compiler.CompileFunction(form, request.function(), arguments, &result));
  return result;
}

// The arrays that travel between the program and the host, with channels that depend on the program
// alone: TensorFlow counts those of all programs.
absl::Status number_transfers(xla::HloModuleProto& module, std::vector<HostTransfer>& transfers) {
  std::map<int64_t, int64_t> channels;
  for (auto& computation : *module.mutable_computations()) {
    for (auto& instruction : *computation.mutable_instructions()) {
      if (!instruction.is_host_transfer()) {
        continue;
      }
      const auto next = static_cast<int64_t>(channels.size()) + 1;
      const int64_t channel = channels.emplace(instruction.channel_id(), next).first->second;
      instruction.set_channel_id(channel);
      const bool sends = instruction.opcode() == "send";
      if (!sends && instruction.opcode() != "recv") {
        continue;  // the end of one
      }
      const auto& names = instruction.frontend_attributes().map();
      const auto name = names.find(xla::kXlaHostTransferRendezvousNameAttr);
      if (name == names.end() || instruction.shape().tuple_shapes_size() == 0) {
        return absl::InvalidArgumentError(
            "a transfer with the host has no name: expected one of "
            "an operation XlaHostCompute");
      }
      const xla::ShapeProto& array = instruction.shape().tuple_shapes(0);
      TF_ASSIGN_OR_RETURN(const tf::DataType type,
                          tf::EncodePrimitiveTypeAsDataType(array.element_type()));
      transfers.push_back({channel,
                           name->second,
                           sends,
                           type,
                           {array.dimensions().begin(), array.dimensions().end()}});
    }
  }
  return absl::OkStatus();
}

// A part of an array that has fewer elements than the part leaves out is empty.
xla::HloInstruction* not_negative(xla::HloInstruction* size) {
  xla::HloComputation& computation = *size->parent();
  xla::HloInstruction* const none = computation.AddInstruction(
      xla::HloInstruction::CreateConstant(xla::LiteralUtil::Zero(size->shape().element_type())));
  return computation.AddInstruction(
      xla::HloInstruction::CreateBinary(size->shape(), xla::HloOpcode::kMaximum, size, none));
}

// Results that the padder marks as dynamic become arrays of their bounds; their sizes are more
// results, behind all others.
absl::Status move_sizes(xla::HloModule& module, std::vector<DynamicResult>& dynamic) {
  constexpr char kMark[] = "SliceToDynamic";  // operands: the array, the size of each dimension
  xla::HloComputation& entry = *module.entry_computation();
  xla::HloInstruction* const root = entry.root_instruction();
  std::vector<xla::HloInstruction*> results(root->operands().begin(), root->operands().end());
  const size_t count = root->opcode() == xla::HloOpcode::kTuple ? results.size() : 0;
  for (size_t i = 0; i < count; ++i) {
    xla::HloInstruction* const marked = results[i];
    if (!marked->IsCustomCall(kMark)) {
      continue;
    }
    dynamic.push_back({i, results.size(), static_cast<size_t>(marked->operand_count() - 1)});
    results[i] = marked->mutable_operand(0);
    for (int64_t d = 1; d < marked->operand_count(); ++d) {
      results.push_back(not_negative(marked->mutable_operand(d)));
    }
  }
  if (dynamic.empty()) {
    return absl::OkStatus();
  }
  entry.set_root_instruction(entry.AddInstruction(xla::HloInstruction::CreateTuple(results)), true);
  TF_RETURN_IF_ERROR(entry.RemoveInstructionAndUnusedOperands(root));
  *module.mutable_entry_computation_layout() = xla::ComputationLayout(entry.ComputeProgramShape());
  return absl::OkStatus();
}

bool has_dynamic_sizes(const xla::HloModule& module) {
  for (const xla::HloComputation* const computation : module.computations()) {
    for (const xla::HloInstruction* const instruction : computation->instructions()) {
      if (instruction->opcode() == xla::HloOpcode::kSetDimensionSize) {
        return true;
      }
    }
  }
  return false;
}

// The padder knows no batch normalization, only the operations that it is made of.
absl::Status pad(xla::HloModule& module) {
  const bool dynamic = has_dynamic_sizes(module);
  if (dynamic) {
    TF_RETURN_IF_ERROR(xla::BatchNormExpander(/*rewrite_training_op=*/true,
                                              /*rewrite_inference_op=*/true,
                                              /*rewrite_grad_op=*/true)
                           .Run(&module, {})
                           .status());
  }
  absl::Status status = xla::DynamicPadder().Run(&module, {}).status();
  if (status.ok() || !dynamic) {
    return status;
  }
  return {
      status.code(),
      absl::StrCat(status.message(),
                   " A dimension of an array has a size that is known at run time only, and XLA "
                   "cannot pad it here. Give it a known size: by drop_remainder=True, "
                   "padded_batch or tf.ensure_shape in the data set, or by a mask in place of "
                   "tf.boolean_mask")};
}

absl::Status check_transfers(const Shardings& shardings,
                             const std::vector<HostTransfer>& transfers) {
  if (shardings.cores > 1 && !transfers.empty()) {
    return absl::UnimplementedError(absl::StrCat(
        "a part of a step on the host (", transfers[0].name, ") in a replica on ", shardings.cores,
        " cores: expected replicas on one core each; compute it outside of "
        "strategy.run"));
  }
  return absl::OkStatus();
}

// Shapes become static, and random numbers functions of the seed.
absl::StatusOr<xla::HloModuleProto> made_static(const xla::HloModuleProto& module,
                                                const Shardings& shardings, Lowered& lowered) {
  TF_ASSIGN_OR_RETURN(auto config,
                      xla::HloModule::CreateModuleConfigFromProto(module, xla::DebugOptions()));
  config.set_replica_count(lowered.replicas);
  config.set_num_partitions(lowered.cores_per_replica);
  TF_ASSIGN_OR_RETURN(const auto made, xla::HloModule::CreateFromProto(module, config));
  TF_RETURN_IF_ERROR(spread_arguments(shardings, *made));
  TF_RETURN_IF_ERROR(move_feeds(*made, lowered.host_transfers));
  TF_RETURN_IF_ERROR(check_transfers(shardings, lowered.host_transfers));
  TF_RETURN_IF_ERROR(pad(*made));
  TF_RETURN_IF_ERROR(move_sizes(*made, lowered.dynamic_results));
  TF_RETURN_IF_ERROR(move_embeddings(*made, lowered));
  TF_RETURN_IF_ERROR(seed_random_numbers(*made, lowered.seeded, lowered.cores_per_replica));
  return made->ToProto();
}

// Those of a replica beside each other, as the partitions of a program are.
void add_devices(const xla::DeviceAssignmentProto& assignment, Lowered& lowered) {
  for (int replica = 0; replica < lowered.replicas; ++replica) {
    for (const auto& computation : assignment.computation_devices()) {
      if (replica < computation.replica_device_ids_size()) {
        lowered.devices.push_back(static_cast<int>(computation.replica_device_ids(replica)));
      }
    }
  }
}

absl::Status lower(absl::string_view bytes, Lowered& lowered) {
  tf::tpu::TpuCompilationRequestProto request;
  if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError("the request for a compilation is damaged");
  }
  TF_ASSIGN_OR_RETURN(const auto arguments, arguments_of(request));
  TF_ASSIGN_OR_RETURN(const auto result, to_hlo(request, arguments));
  lowered.replicas = request.metadata().num_replicas();
  lowered.cores_per_replica = std::max(1, request.metadata().num_cores_per_replica());
  TF_ASSIGN_OR_RETURN(const Shardings shardings, shardings_of(request.metadata(), result));
  add_devices(request.metadata().device_assignment(), lowered);
  xla::HloModuleProto made = result.computation->proto();
  TF_RETURN_IF_ERROR(number_transfers(made, lowered.host_transfers));
  set_shardings(shardings, made);
  TF_ASSIGN_OR_RETURN(const auto module, made_static(made, shardings, lowered));
  for (const auto& update : result.resource_updates) {
    lowered.modifies_variables |= update.modified;
  }
  xla::HloProto metadata;
  *metadata.mutable_hlo_module() = module;
  lowered.hlo = module.SerializeAsString();
  lowered.metadata = metadata.SerializeAsString();
  TF_ASSIGN_OR_RETURN(lowered.cores, core_interfaces(result, shardings, arguments));
  TF_ASSIGN_OR_RETURN(const auto info, info_of(result, shardings, arguments, /*core=*/0));
  lowered.executable_info = info.SerializeAsString();
  return absl::OkStatus();
}

absl::Status seed(absl::string_view bytes, Lowered& lowered) {
  xla::HloModuleProto proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError("the HLO module is damaged");
  }
  TF_ASSIGN_OR_RETURN(const auto config,
                      xla::HloModule::CreateModuleConfigFromProto(proto, xla::DebugOptions()));
  TF_ASSIGN_OR_RETURN(const auto module, xla::HloModule::CreateFromProto(proto, config));
  TF_RETURN_IF_ERROR(seed_random_numbers(*module, lowered.seeded));
  lowered.hlo = module->ToProto().SerializeAsString();
  return absl::OkStatus();
}

}  // namespace
}  // namespace tpu::tensorflow

extern "C" {

[[gnu::visibility("default")]] const char* tpuboard_tf_version() { return TPU_TF_VERSION; }

[[gnu::visibility("default")]] const char* tpuboard_tf_interface() {
  return TPU_LOWERING_INTERFACE;
}

[[gnu::visibility("default")]] void tpuboard_tf_lower(const char* request, size_t size,
                                                      tpu::tensorflow::Lowered& lowered) {
  tpu::tensorflow::answer(tpu::tensorflow::lower({request, size}, lowered), lowered);
}

[[gnu::visibility("default")]] void tpuboard_tf_seed(const char* module, size_t size,
                                                     tpu::tensorflow::Lowered& lowered) {
  tpu::tensorflow::answer(tpu::tensorflow::seed({module, size}, lowered), lowered);
}

}  // extern "C"
