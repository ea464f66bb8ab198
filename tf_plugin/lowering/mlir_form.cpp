#include "lowering/mlir_form.hpp"

#include <memory>

#include "llvm/ADT/ArrayRef.h"

// Of TensorFlow's library, in a header that includes more of LLVM than this.
namespace mlir {
class Pass;
}  // namespace mlir
namespace llvm {
class StringRef {
 public:
  explicit StringRef(const std::string& text) : data(text.data()), size(text.size()) {}
  const char* data;
  size_t size;
};
}  // namespace llvm

namespace tensorflow {
absl::StatusOr<std::string> CompileSerializedMlirToXlaHlo(
    llvm::StringRef module, llvm::ArrayRef<TensorShape> shapes, llvm::StringRef device_type,
    bool use_tuple_args, bool enable_op_fallback,
    XlaShapeLayoutHelpers::ShapeDeterminationFns layouts, XlaCompilationResult* result,
    llvm::MutableArrayRef<std::unique_ptr<mlir::Pass>> passes, llvm::StringRef name,
    bool lower_to_xla_hlo);
}  // namespace tensorflow

namespace tpu::tensorflow {

namespace tf = ::tensorflow;

absl::StatusOr<tf::XlaCompiler::CompilationResult> mlir_to_hlo(
    const std::string& module, const std::vector<tf::TensorShape>& shapes,
    const std::string& device_type) {
  llvm::ArrayRef<tf::TensorShape> of_arguments;
  of_arguments.data = shapes.data();
  of_arguments.size = shapes.size();
  const std::string no_name;
  tf::XlaCompiler::CompilationResult result;
  // Those that MLIR does not lower have kernels, whatever the policy of the fallback says.
  const auto lowered = tf::CompileSerializedMlirToXlaHlo(
      llvm::StringRef(module), of_arguments, llvm::StringRef(device_type),
      /*use_tuple_args=*/true, /*enable_op_fallback=*/false, {}, &result, {},
      llvm::StringRef(no_name), /*lower_to_xla_hlo=*/true);
  if (!lowered.ok()) {
    return absl::Status(
        lowered.status().code(),
        absl::StrCat(
            lowered.status().message(),
            "\nThe graph came by the MLIR bridge, which wants shapes that are known when it "
            "is compiled: use drop_remainder=True, or do not enable the bridge."));
  }
  return result;
}

}  // namespace tpu::tensorflow
