// See partitioner.hpp. Arrays cross the interface as XLA's protocol buffers ShapeProto and
// OpSharding; the answer's program is MLIR bytecode.
#include "partitioner.hpp"

#include <map>
#include <utility>

#include "calls.hpp"
#include "errors.hpp"
#include "protos.hpp"
#include "python_exit.hpp"
#include "sync/mutex.hpp"

namespace tpu::pjrt {
namespace {

using Partitioners = JAX_CustomCallPartitioner_Callbacks;
using String = JAX_CustomCallPartitioner_string;

struct Registry {
  base::Mutex mutex;
  // Never destroyed: owned by Python.
  std::map<std::string, Partitioners*, std::less<>> by_target TPU_GUARDED_BY(mutex);
};

Registry& registry() {
  static auto* all = new Registry;
  return *all;
}

Partitioners* callbacks_of(std::string_view target) {
  Registry& all = registry();
  const base::MutexLock lock(all.mutex);
  const auto it = all.by_target.find(target);
  return it == all.by_target.end() ? nullptr : it->second;
}

String view_of(const std::string& text) { return {text.data(), text.size()}; }
std::string text_of(const String& view) {
  return view.size == 0 ? "" : std::string(view.data, view.size);
}

// Strings that avals point into.
struct Avals {
  std::vector<std::string> shapes, shardings;
  std::vector<JAX_CustomCallPartitioner_aval> list;

  void add(std::string shape, std::string sharding) {
    shapes.push_back(std::move(shape));
    shardings.push_back(std::move(sharding));
  }
  void finish() {
    for (size_t i = 0; i < shapes.size(); ++i) {
      list.push_back({view_of(shapes[i]), true, view_of(shardings[i])});
    }
  }
};

// What a call of the framework leaves is freed when it is read.
class Answer {
 public:
  explicit Answer(JAX_CustomCallPartitioner_version_and_error& header) : header_(header) {}
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;
  ~Answer() {
    if (header_.cleanup_fn != nullptr) {
      header_.cleanup_fn(header_.data);
    }
  }

 private:
  JAX_CustomCallPartitioner_version_and_error& header_;
};

compiler::FrameworkPart partition(const compiler::PartitionRequest& request) {
  Partitioners* callbacks = callbacks_of(request.target);
  if (callbacks == nullptr) {
    throw compiler::Error("no partitioner is registered for the custom call '" + request.target +
                          "'; see jax.experimental.custom_partitioning");
  }
  Avals arrays;
  for (size_t i = 0; i < request.operands.size(); ++i) {
    arrays.add(shape_proto(request.operands[i]), op_sharding(request.operand_tiles[i]));
  }
  std::vector<std::string> shapes, shardings;
  for (size_t i = 0; i < request.results.size(); ++i) {
    shapes.push_back(shape_proto(request.results[i]));
    shardings.push_back(op_sharding(request.result_tiles[i]));
  }
  const bool tuple = shapes.size() != 1;
  arrays.add(tuple ? tuple_shape(shapes) : shapes[0],
             tuple ? tuple_sharding(shardings) : shardings[0]);
  arrays.finish();
  JAX_CustomCallPartitioner_Partition_Args args{};
  args.num_args = request.operands.size();
  args.op_args = arrays.list.data();
  args.op_result = arrays.list.back();
  args.backend_config = view_of(request.config);
  end_host_calls_with_python();
  {
    const HostCallUnderWay under_way;
    callbacks->partition(callbacks, &args);
  }
  const Answer answer(args.header);
  if (args.header.has_error) {
    throw compiler::Error(text_of(args.header.error_msg));
  }
  compiler::FrameworkPart part;
  const auto* code = reinterpret_cast<const std::byte*>(args.mlir_module.data);
  part.artifact.assign(code, code + args.mlir_module.size);
  for (size_t i = 0; i < args.num_args; ++i) {
    part.operand_tiles.push_back(read_op_sharding(text_of(args.args_sharding[i])));
  }
  const std::string result = text_of(args.result_sharding);
  part.result_tiles = tuple ? read_tuple_sharding(result)
                            : std::vector<compiler::TileList>{read_op_sharding(result)};
  return part;
}

}  // namespace

compiler::FrameworkPartitioner framework_partitioner() {
  Registry& all = registry();
  const base::MutexLock lock(all.mutex);
  return all.by_target.empty() ? compiler::FrameworkPartitioner() : partition;
}

void call(PJRT_Register_Custom_Partitioner_Args& args) {
  Partitioners& callbacks = need(args.callbacks, "callbacks");
  if (callbacks.version != 0 && callbacks.version != 1) {
    throw_unimplemented("a custom partitioner of version " + std::to_string(callbacks.version));
  }
  Registry& all = registry();
  const base::MutexLock lock(all.mutex);
  all.by_target[std::string(args.name, args.name_size)] = &callbacks;
}

// Calls that work alike on every entry of a batch belong to other plugins.
void call(PJRT_Register_Batch_Partitionable_Args& args) { need(args.name, "name"); }

}  // namespace tpu::pjrt
