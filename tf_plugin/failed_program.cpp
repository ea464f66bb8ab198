#include "failed_program.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "answer.hpp"
#include "format/proto_writer.hpp"
#include "proto_wire.hpp"

namespace tpu::tensorflow {
namespace {

// DataType (types.proto) and the PrimitiveType (xla_data.proto) of an array of it.
constexpr std::array kTypes = {
    std::pair{1, 11}, std::pair{2, 12},  std::pair{3, 4},   std::pair{4, 6},  std::pair{5, 3},
    std::pair{6, 2},  std::pair{8, 15},  std::pair{9, 5},   std::pair{10, 1}, std::pair{14, 16},
    std::pair{17, 7}, std::pair{18, 18}, std::pair{19, 10}, std::pair{22, 8}, std::pair{23, 9}};
constexpr int kTupleType = 13;

struct Argument {
  uint64_t type = 0, kind = 0;  // DataType; TPUCompileMetadataProto.Arg.Kind
  std::vector<int64_t> dims;
};

template <typename Visit>
void each_field(std::string_view bytes, const Visit& visit) {
  pjrt::Reader message(bytes);
  while (const auto field = message.next()) {
    visit(*field);
  }
}

// TensorShapeProto: its sizes.
std::vector<int64_t> dims_of_message(std::string_view bytes) {
  std::vector<int64_t> dims;
  each_field(bytes, [&](const pjrt::Field& dim) {
    if (dim.number == 2) {
      dims.push_back(0);
      each_field(dim.bytes, [&](const pjrt::Field& size) {
        if (size.number == 1) {
          dims.back() = static_cast<int64_t>(size.value);
        }
      });
    }
  });
  return dims;
}

Argument argument_of(std::string_view bytes) {
  Argument argument;
  each_field(bytes, [&](const pjrt::Field& field) {
    if (field.number == 1) {
      argument.type = field.value;
    } else if (field.number == 2) {
      argument.dims = dims_of_message(field.bytes);
    } else if (field.number == 3) {
      argument.kind = field.value;
    }
  });
  return argument;
}

// TpuCompilationRequestProto: the shapes of arguments are beside their descriptions.
std::vector<Argument> arguments_of(std::string_view request) {
  enum : uint32_t { kMetadata = 5, kArgShapes = 6, kArgs = 1 };
  std::vector<Argument> arguments;
  std::vector<std::vector<int64_t>> shapes;
  each_field(request, [&](const pjrt::Field& field) {
    if (field.number == kArgShapes) {
      shapes.push_back(dims_of_message(field.bytes));
    } else if (field.number == kMetadata) {
      each_field(field.bytes, [&](const pjrt::Field& of_metadata) {
        if (of_metadata.number == kArgs) {
          arguments.push_back(argument_of(of_metadata.bytes));
        }
      });
    }
  });
  for (size_t i = 0; i < std::min(shapes.size(), arguments.size()); ++i) {
    arguments[i].dims = shapes[i];
  }
  return arguments;
}

// ShapeProto.
void put_array(spec::ProtoWriter& to, uint32_t field, const Argument& argument) {
  const auto* const type = std::ranges::find(kTypes, static_cast<int>(argument.type),
                                             [](const auto& pair) { return pair.first; });
  to.message(field, [&] {
    to.number(2, type != kTypes.end() ? static_cast<uint64_t>(type->second) : 0);
    to.text(3, pjrt::packed(argument.dims));
    to.message(5, [&] {  // row-major
      std::vector<size_t> order;
      for (size_t d = argument.dims.size(); d-- > 0;) {
        order.push_back(d);
      }
      to.text(1, pjrt::packed(order));
    });
  });
}

struct Failing {
  XLA_TpuProgram* const* programs = nullptr;
  TF_Status* status = nullptr;
  TF_Status error;
};
thread_local Failing failing;

}  // namespace

void fail_when_freed(XLA_TpuProgram* const* programs, TF_Status* status, const TF_Status& error) {
  failing = {programs, status, error};
}

void array_is_freed(XLA_TpuProgram* const* programs) {
  if (failing.status != nullptr && failing.programs == programs) {
    *failing.status = failing.error;
    failing = {};
  }
}

void status_is_freed(const TF_Status* status) {
  if (failing.status == status) {
    failing = {};
  }
}

std::string info_of_request(std::string_view request) {
  enum : uint32_t { kInputShapes = 2, kOutputShape = 3, kElementType = 2, kTupleShapes = 4 };
  constexpr uint64_t kConstant = 3;  // an argument that the program has inside
  spec::ProtoWriter info;
  info.message(kInputShapes, [&] {
    info.number(kElementType, kTupleType);
    for (const Argument& argument : arguments_of(request)) {
      if (argument.kind != kConstant) {
        put_array(info, kTupleShapes, argument);
      }
    }
  });
  info.message(kOutputShape, [&] { info.number(kElementType, kTupleType); });
  return info.take();
}

}  // namespace tpu::tensorflow
