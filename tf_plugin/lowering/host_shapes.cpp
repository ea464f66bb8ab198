#include "lowering/host_shapes.hpp"

#include "tensorflow/core/common_runtime/function_utils.h"
#include "tensorflow/core/common_runtime/lower_function_call_op.h"
#include "tensorflow/core/common_runtime/lower_if_op.h"
#include "tensorflow/core/common_runtime/shape_refiner.h"
#include "tensorflow/core/graph/algorithm.h"

namespace tpu::tensorflow {
namespace {

namespace tf = ::tensorflow;

// Shapes do not go into the functions of nodes: their contents take the place of the nodes. A
// function may hold further ones.
absl::Status expand_functions(tf::Graph& graph, const tf::FunctionLibraryDefinition& library) {
  for (;;) {
    std::vector<tf::Node*> conditionals, calls;
    for (tf::Node* const node : graph.op_nodes()) {
      if (node->IsIfNode()) {
        conditionals.push_back(node);
      } else if (tf::IsFunctionCall(library, *node)) {
        calls.push_back(node);
      }
    }
    if (conditionals.empty() && calls.empty()) {
      return absl::OkStatus();
    }
    for (tf::Node* const node : conditionals) {
      TF_RETURN_IF_ERROR(tf::RewriteIfNode(node, &graph, /*keep_node_fetchable=*/false));
    }
    for (tf::Node* const node : calls) {
      TF_RETURN_IF_ERROR(
          tf::RewriteFunctionCallNode(node, &graph, library, /*keep_caller_fetchable=*/false));
    }
  }
}

absl::Status set_received(tf::ShapeRefiner& refiner, const tf::Node& node,
                          tf::XlaCompiler& compiler) {
  std::string key;
  TF_RETURN_IF_ERROR(tf::GetNodeAttr(node.attrs(), "key", &key));
  std::vector<tf::TensorShape> sent;
  TF_RETURN_IF_ERROR(compiler.GetDeviceToHostShapes(key, &sent));
  if (sent.size() != static_cast<size_t>(node.num_outputs())) {
    return absl::InvalidArgumentError(absl::StrCat("node ", node.name(), " takes ",
                                                   node.num_outputs(), " arrays, and ", sent.size(),
                                                   " are sent to it"));
  }
  tf::shape_inference::InferenceContext& context = *refiner.GetContext(&node);
  for (int i = 0; i < node.num_outputs(); ++i) {
    tf::shape_inference::ShapeHandle shape;
    TF_RETURN_IF_ERROR(context.MakeShapeFromTensorShape(sent[static_cast<size_t>(i)], &shape));
    context.set_output(i, shape);
  }
  return absl::OkStatus();
}

// The last input is the key of the step.
absl::Status add_given(tf::ShapeRefiner& refiner, const tf::Node& node, const std::string& name,
                       std::vector<tf::TensorShape>& shapes) {
  tf::shape_inference::InferenceContext& context = *refiner.GetContext(&node);
  for (int i = 0; i + 1 < node.num_inputs(); ++i) {
    const auto shape = context.input(i);
    if (!context.FullyDefined(shape)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "result ", i, " of the host computation ", name, " has the shape ",
          context.DebugString(shape),
          ": expected one that is known when the program is compiled; use tf.ensure_shape on it in "
          "the function that runs on the host"));
    }
    tf::TensorShapeProto proto;
    context.ShapeHandleToProto(shape, &proto);
    TF_RETURN_IF_ERROR(tf::TensorShape::BuildTensorShape(proto, &shapes.emplace_back()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<tf::TensorShape>> shapes_of_results(
    tf::Graph& graph, const tf::FunctionLibraryDefinition& library, tf::XlaCompiler& compiler,
    const std::string& name) {
  TF_RETURN_IF_ERROR(expand_functions(graph, library));
  tf::FixupSourceAndSinkEdges(&graph);
  tf::ShapeRefiner refiner(graph.versions(), graph.op_registry());
  std::vector<tf::Node*> order;
  tf::GetReversePostOrder(graph, &order);
  std::vector<tf::TensorShape> shapes;
  for (const tf::Node* const node : order) {
    TF_RETURN_IF_ERROR(refiner.AddNode(node));
    if (node->type_string() == "_XlaRecvAtHost") {
      TF_RETURN_IF_ERROR(set_received(refiner, *node, compiler));
    } else if (node->type_string() == "_XlaSendFromHost") {
      TF_RETURN_IF_ERROR(add_given(refiner, *node, name, shapes));
    }
  }
  return shapes;
}

}  // namespace tpu::tensorflow
