// What a serialized HloModuleProto holds, as plain structs: the fields that have a meaning here.
// The names are those of the messages; texts are views into the bytes. Private to the import.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tpu::compiler::hlo {

using Ints = std::vector<int64_t>;

// PrimitiveType of xla_data.proto, as far as it is named in code; the others: types.cpp.
namespace primitive {
constexpr int64_t kPred = 1, kS32 = 4, kS64 = 5, kU32 = 8, kU64 = 9, kF32 = 11, kF64 = 12,
                  kTuple = 13, kOpaque = 14, kC64 = 15, kToken = 17, kC128 = 18, kBuffer = 34;
}

// The size of a dimension that is known at run time only.
constexpr int64_t kDynamic = std::numeric_limits<int64_t>::min();

// The memory space of a layout that is the host's: S(5). All others are the device's.
constexpr int64_t kHostSpace = 5;

struct Shape {
  int64_t type = 0;
  Ints dims;
  Ints minor_to_major;         // empty: the last dimension is the minor one
  int64_t memory_space = 0;    // of the layout
  std::vector<Shape> members;  // of a tuple
  size_t leaves = 1;           // arrays, tokens and others that are not tuples

  bool is_tuple() const { return type == primitive::kTuple; }
  bool is_token() const { return type == primitive::kToken; }
  bool in_host() const { return memory_space == kHostSpace; }
};

struct Literal {
  Shape shape;
  std::vector<std::byte> elements;  // in the order of the layout
  std::vector<Literal> members;
};

struct Sharding {
  enum Type : int64_t { kReplicated, kMaximal, kTuple, kOther, kManual, kUnknown, kUnreduced };

  int64_t type = kReplicated;
  Ints tiles, devices, iota_dims, iota_order, last_tile_types;
  bool copies_last = false;
  std::optional<int64_t> group;
  bool group_is_like = false;
  std::vector<Sharding> members;  // of a tuple, one a leaf
};

struct WindowDimension {
  int64_t size = 0, stride = 1, low = 0, high = 0, window_dilation = 1, base_dilation = 1;
  bool reversed = false;
};

struct DotDimensions {
  Ints lhs_contract, rhs_contract, lhs_batch, rhs_batch;
};

struct ConvDimensions {
  int64_t input_batch = 0, input_feature = 0, kernel_input = 0, kernel_output = 0, output_batch = 0,
          output_feature = 0;
  Ints input_spatial, kernel_spatial, output_spatial;
};

// GatherDimensionNumbers; ScatterDimensionNumbers have the same fields in the same order.
struct IndexDimensions {
  Ints window, collapsed, map, operand_batching, index_batching;
  int64_t index_vector_dim = 0;
};

struct TriangularSolve {
  bool left = false, lower = false, unit_diagonal = false;
  int64_t transpose = 0;
};

struct Metadata {
  std::string_view op_name, file;
  int64_t line = 0, column = 0, frame = 0;
};

using Attributes = std::vector<std::pair<std::string_view, std::string_view>>;

struct Instruction {
  std::string_view name, opcode;
  Shape shape;
  Metadata metadata;
  std::unique_ptr<Literal> literal;
  int64_t parameter = 0, tuple_index = 0;
  Ints same;  // of a parameter: for each of its arrays whether all replicas have the same
  Ints dims;  // `dimensions`
  std::vector<WindowDimension> window;
  std::optional<ConvDimensions> conv;
  int64_t feature_groups = 1, batch_groups = 1;
  std::vector<std::array<int64_t, 3>> slices;  // start, limit, stride
  int64_t exponent_bits = 0, mantissa_bits = 0;
  Ints slice_sizes;                             // of dynamic-slice and gather
  std::vector<std::array<int64_t, 3>> padding;  // low, high, interior
  int64_t distribution = 0;
  float epsilon = 0;
  int64_t feature_index = 0;
  int64_t channel = 0;
  std::string_view target;  // of a custom call
  std::optional<DotDimensions> dot;
  int64_t fft_type = 0;
  Ints fft_length;
  std::string_view direction, comparison_type;
  std::optional<IndexDimensions> gather, scatter;
  int64_t id = 0;
  Ints operand_ids, called_ids;
  std::optional<Sharding> sharding;
  std::string_view backend_config;
  std::vector<Ints> groups;
  // Another form of them, by the number of its field; it is read where it is used, because a few
  // bytes can name many devices.
  uint32_t group_field = 0;
  std::string_view group_bytes;
  bool global_ids = false, to_host = false, stable = false;
  std::vector<std::array<int64_t, 2>> pairs;
  Ints precision;
  int64_t algorithm = 0;
  TriangularSolve triangular;
  bool lower = false;  // cholesky
  bool side_effect = false, sorted = false, unique = false;
  Attributes attributes;  // frontend_attributes
  int64_t rng_algorithm = 0;
  int64_t k = 0;
  bool largest = false, composite = false, sparse = false;

  // Filled when the computation has been read: positions of the operands in it, all in front of
  // this one, and of the called computations in the module, all in front of this computation.
  std::vector<uint32_t> operands, called;
};

struct Computation {
  std::string_view name;
  std::vector<Instruction> instructions;
  int64_t id = 0, root_id = 0;
  uint32_t root = 0;                 // position
  std::vector<uint32_t> parameters;  // positions, by number
};

struct Alias {
  Ints result, argument_index;  // paths in tuples
  int64_t argument = 0;
  bool has_result = true;  // false: a donor without a result of its own
};

struct Frame {
  int64_t location = 0, parent = 0;  // 1-based; 0: none
};
struct FileLocation {
  int64_t file = 0, function = 0, line = 0, column = 0;
};
struct StackFrames {
  std::vector<std::string_view> files, functions;
  std::vector<FileLocation> locations;
  std::vector<Frame> frames;
};

struct HloModule {
  std::string_view name, entry_name;
  int64_t entry_id = 0;
  std::vector<Computation> computations;
  uint32_t entry = 0;  // position
  std::vector<Alias> aliases;
  StackFrames stack;
  Attributes attributes;
  int64_t replicas = 0, partitions = 0;  // 0: the module does not say
};

}  // namespace tpu::compiler::hlo
