// The protocol buffers that cross the interface, as far as we read and write them:
// CompileOptionsProto with its build options and device assignment, and OpSharding.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compiled_program.hpp"
#include "tpu/executable.hpp"

namespace tpu::pjrt {

/// Of CompileOptionsProto. Without parameter_is_tupled_arguments, which JAX sets for more than
/// 2,000 arguments: it says how a runtime of XLA passes them on. The plugin has them one by one.
struct BuildOptions {
  int64_t replicas = 1;
  int64_t partitions = 1;
  bool portable = false;  ///< for any device, named when it runs
  int64_t device_ordinal = -1;
  std::string assignment;    ///< DeviceAssignmentProto as received; may be empty
  std::vector<int> devices;  ///< of it: id by partition, replicas outermost; may be empty
};

/// Throws driver::Error (InvalidArgument) for bytes that are no such message, for a device that is
/// named twice, and for an option that is neither ours nor XLA's.
BuildOptions read_build_options(std::string_view bytes);

/// DeviceAssignmentProto of so many replicas on these devices, replicas outermost.
std::string device_assignment(const std::vector<int>& devices, int64_t replicas);

/// OpSharding of an array that lies on cores as `layout` says; empty bytes: all of it on each.
std::string op_sharding(const driver::Layout& layout, const driver::Shape& global);

/// The same of tiles, and back. Throws driver::Error (Unimplemented) for what tiles do not say.
std::string op_sharding(const compiler::TileList& list);
compiler::TileList read_op_sharding(std::string_view bytes);
std::string tuple_sharding(const std::vector<std::string>& shardings);
std::vector<compiler::TileList> read_tuple_sharding(std::string_view bytes);

/// ShapeProto of an array, and of a tuple of arrays.
std::string shape_proto(const compiler::Type& type);
std::string tuple_shape(const std::vector<std::string>& shapes);

}  // namespace tpu::pjrt
