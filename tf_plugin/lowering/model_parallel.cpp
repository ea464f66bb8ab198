#include "lowering/model_parallel.hpp"

#include <algorithm>
#include <map>
#include <string>

#include "tensorflow/compiler/tf2xla/shape_util.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/shape_util.h"

namespace tpu::tensorflow {
namespace {

namespace tf = ::tensorflow;
using tf::XlaCompiler;

absl::StatusOr<Place> place_of(const xla::OpSharding& proto, const xla::Shape& shape,
                               const std::string& what) {
  if (proto.type() == xla::OpSharding::REPLICATED) {
    return Place{};
  }
  if (proto.type() == xla::OpSharding::MAXIMAL) {
    const bool said = proto.tile_assignment_devices_size() > 0;
    return Place{xla::HloSharding::Replicate(),
                 said ? static_cast<int>(proto.tile_assignment_devices(0)) : 0};
  }
  TF_ASSIGN_OR_RETURN(const xla::HloSharding sharding, xla::HloSharding::FromProto(proto));
  const xla::Shape part = sharding.TileShape(shape);
  for (size_t d = 0; d < shape.dimensions().size(); ++d) {
    const int64_t whole = shape.dimensions()[d], own = part.dimensions()[d];
    if (own != 0 && whole % own != 0) {
      return absl::UnimplementedError(absl::StrCat(
          what, ", ", shape.ToString(), ", is sharded ", sharding.ToString(), ": dimension ", d,
          " cannot be divided evenly; expected a multiple of the number of its shards"));
    }
  }
  return Place{sharding};
}

xla::OpSharding tuple_of(const std::vector<Place>& places) {
  xla::OpSharding tuple;
  tuple.set_type(xla::OpSharding::TUPLE);
  for (const Place& place : places) {
    *tuple.add_tuple_shardings() = place.sharding.ToProto();
  }
  return tuple;
}

bool on_one_core(const Place& place) { return place.core >= 0; }

bool is_on(const Place& place, int core) { return place.core < 0 || place.core == core; }

xla::Shape part_of(const xla::Shape& whole, const Place& place) {
  return place.sharding.IsReplicated() ? whole : place.sharding.TileShape(whole);
}

// Of those that the core has.
xla::Shape parts_of(const xla::Shape& tuple, const std::vector<Place>& places, int core) {
  std::vector<xla::Shape> members;
  for (size_t i = 0; i < tuple.tuple_shapes().size(); ++i) {
    if (i >= places.size()) {
      members.push_back(tuple.tuple_shapes()[i]);
    } else if (is_on(places[i], core)) {
      members.push_back(part_of(tuple.tuple_shapes()[i], places[i]));
    }
  }
  return xla::ShapeUtil::MakeTupleShape(members);
}

std::vector<int> positions(const std::vector<Place>& places, int core) {
  std::vector<int> all;
  int next = 0;
  for (const Place& place : places) {
    all.push_back(is_on(place, core) ? next++ : -1);
  }
  return all;
}

// An array on one core is whole for the compiler: the operations that TensorFlow has placed on
// single cores are on all of them.
void drop_places(xla::HloModuleProto& module) {
  for (auto& computation : *module.mutable_computations()) {
    for (auto& instruction : *computation.mutable_instructions()) {
      if (instruction.sharding().type() != xla::OpSharding::MAXIMAL ||
          instruction.is_host_transfer()) {
        continue;
      }
      instruction.clear_sharding();
      if (instruction.custom_call_target() == "Sharding") {  // has one in any case
        instruction.mutable_sharding()->set_type(xla::OpSharding::REPLICATED);
      }
    }
  }
}

// An argument that changes its shape takes over no result.
void drop_aliases(const Shardings& shardings, xla::HloModuleProto& module) {
  auto& entries = *module.mutable_input_output_alias()->mutable_entries();
  for (int i = entries.size(); i-- > 0;) {
    const auto& index = entries[i].parameter_shape_index();
    if (!index.empty() && on_one_core(shardings.arguments.at(static_cast<size_t>(index[0])))) {
      entries.DeleteSubrange(i, 1);
    }
  }
}

xla::Shape spread(const xla::Shape& shape, int64_t cores) {
  std::vector<int64_t> dims(shape.dimensions().begin(), shape.dimensions().end());
  dims.insert(dims.begin(), cores);
  return xla::ShapeUtil::MakeShape(shape.element_type(), dims);
}

xla::HloInstruction* entry_of_core(xla::HloInstruction* all, const xla::Shape& shape, int core) {
  xla::HloComputation& computation = *all->parent();
  const auto& dims = all->shape().dimensions();
  std::vector<int64_t> first(dims.size()), last(dims.begin(), dims.end());
  first[0] = core;
  last[0] = core + 1;
  xla::HloInstruction* const own = computation.AddInstruction(xla::HloInstruction::CreateSlice(
      spread(shape, 1), all, first, last, std::vector<int64_t>(dims.size(), 1)));
  return computation.AddInstruction(xla::HloInstruction::CreateReshape(shape, own));
}

}  // namespace

bool Shardings::cores_differ() const {
  return std::any_of(arguments.begin(), arguments.end(), on_one_core) ||
         std::any_of(results.begin(), results.end(), on_one_core);
}

absl::StatusOr<Shardings> shardings_of(const tf::tpu::TPUCompileMetadataProto& metadata,
                                       const XlaCompiler::CompilationResult& result) {
  Shardings made;
  made.cores = std::max(1, metadata.num_cores_per_replica());
  if (made.cores == 1) {
    return made;
  }
  const auto& arguments = result.xla_input_shapes.at(0).tuple_shapes();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const int number = result.input_mapping.at(i);
    TF_ASSIGN_OR_RETURN(made.arguments.emplace_back(),
                        place_of(metadata.args(number).sharding(), arguments[i],
                                 absl::StrCat("argument ", number)));
  }
  const auto& results = result.xla_output_shape.tuple_shapes();
  const auto add = [&](const xla::OpSharding& sharding, const std::string& what) {
    const size_t next = made.results.size();
    if (next >= results.size()) {
      return absl::InternalError(
          absl::StrCat("the request has more results than the ", results.size(), " of the graph"));
    }
    TF_ASSIGN_OR_RETURN(made.results.emplace_back(), place_of(sharding, results[next], what));
    return absl::OkStatus();
  };
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    if (!result.outputs[i].is_constant) {
      TF_RETURN_IF_ERROR(
          add(metadata.retvals(static_cast<int>(i)).sharding(), absl::StrCat("result ", i)));
    }
  }
  for (const auto& update : result.resource_updates) {
    TF_RETURN_IF_ERROR(add(metadata.args(update.input_index).sharding(),
                           absl::StrCat("the new value of argument ", update.input_index)));
  }
  return made;
}

void set_shardings(const Shardings& shardings, xla::HloModuleProto& module) {
  if (shardings.cores == 1) {
    return;
  }
  drop_places(module);
  drop_aliases(shardings, module);
  for (auto& computation : *module.mutable_computations()) {
    if (computation.id() != module.entry_computation_id()) {
      continue;
    }
    for (auto& instruction : *computation.mutable_instructions()) {
      if (instruction.opcode() == "parameter" && !shardings.arguments.empty()) {
        *instruction.mutable_sharding() = tuple_of(shardings.arguments);
      }
      if (instruction.id() == computation.root_id() && !shardings.results.empty()) {
        *instruction.mutable_sharding() = tuple_of(shardings.results);
      }
    }
  }
}

absl::Status spread_arguments(const Shardings& shardings, xla::HloModule& module) {
  if (!std::any_of(shardings.arguments.begin(), shardings.arguments.end(), on_one_core)) {
    return absl::OkStatus();
  }
  xla::HloComputation& entry = *module.entry_computation();
  const xla::Shape old = entry.parameter_instruction(0)->shape();
  std::vector<xla::Shape> shapes;
  std::vector<xla::HloSharding> places;
  for (size_t i = 0; i < shardings.arguments.size(); ++i) {
    const xla::Shape& shape = old.tuple_shapes(static_cast<int>(i));
    const Place& place = shardings.arguments[i];
    shapes.push_back(on_one_core(place) ? spread(shape, shardings.cores) : shape);
    std::vector<int64_t> tiles(shapes.back().dimensions().size(), 1);
    if (on_one_core(place)) {
      tiles[0] = shardings.cores;
    }
    places.push_back(on_one_core(place) ? xla::HloSharding::IotaTile(tiles) : place.sharding);
  }
  const xla::Shape tuple = xla::ShapeUtil::MakeTupleShape(shapes);
  xla::HloInstruction* const arguments =
      entry.ReplaceParameter(0, xla::HloInstruction::CreateParameter(0, tuple, "arguments"));
  arguments->set_sharding(xla::HloSharding::Tuple(tuple, places));
  const std::vector<xla::HloInstruction*> users(arguments->users().begin(),
                                                arguments->users().end());
  for (xla::HloInstruction* const user : users) {
    if (user->opcode() != xla::HloOpcode::kGetTupleElement) {
      return absl::InternalError("the tuple of arguments has a user that is not a member of it");
    }
    const int64_t i = user->tuple_index();
    const Place& place = shardings.arguments.at(static_cast<size_t>(i));
    if (on_one_core(place)) {
      xla::HloInstruction* const all =
          entry.AddInstruction(xla::HloInstruction::CreateGetTupleElement(
              tuple.tuple_shapes(static_cast<int>(i)), arguments, i));
      TF_RETURN_IF_ERROR(user->ReplaceAllUsesWith(entry_of_core(all, user->shape(), place.core)));
      TF_RETURN_IF_ERROR(entry.RemoveInstruction(user));
    }
  }
  *module.mutable_entry_computation_layout() = xla::ComputationLayout(entry.ComputeProgramShape());
  return absl::OkStatus();
}

absl::StatusOr<tf::TPUExecutableInfoProto> info_of(
    const XlaCompiler::CompilationResult& result, const Shardings& shardings,
    const std::vector<XlaCompiler::Argument>& arguments, int core) {
  tf::TPUExecutableInfoProto info;
  for (const xla::Shape& shape : result.xla_input_shapes) {
    *info.add_input_shapes() = parts_of(shape, shardings.arguments, core).ToProto();
  }
  *info.mutable_output_shape() =
      parts_of(result.xla_output_shape, shardings.results, core).ToProto();
  size_t next = 0;  // of the results that are not constants
  const auto add_shape = [&](const tf::TensorShape& whole, bool is_constant) {
    tf::TensorShape shape = whole;
    if (!is_constant && next < shardings.results.size()) {
      const Place& place = shardings.results[next];
      const xla::Shape part =
          part_of(result.xla_output_shape.tuple_shapes(static_cast<int>(next++)), place);
      TF_RETURN_IF_ERROR(tf::XLAShapeToTensorShape(part, &shape));
      if (!is_on(place, core)) {
        return absl::OkStatus();
      }
    }
    shape.AsProto(info.add_output_tensor_shapes());
    return absl::OkStatus();
  };
  for (const auto& output : result.outputs) {
    TF_RETURN_IF_ERROR(add_shape(output.shape, output.is_constant));
  }
  std::map<int, bool> updated;
  for (const auto& update : result.resource_updates) {
    updated[update.input_index] = update.modified;
    TF_RETURN_IF_ERROR(add_shape(update.shape, false));
  }
  // Variables are numbered among the arguments that the core has.
  std::map<int, Place> places;
  for (size_t i = 0; i < shardings.arguments.size(); ++i) {
    places[result.input_mapping.at(i)] = shardings.arguments[i];
  }
  int index = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto number = static_cast<int>(i);
    if (!is_on(places[number], core)) {
      continue;
    }
    if (arguments[i].kind == XlaCompiler::Argument::kResource) {
      auto* const variable = info.add_variable_indices();
      variable->set_index(index);
      variable->set_updated(updated[number]);
    }
    ++index;
  }
  return info;
}

absl::StatusOr<std::vector<CoreInterface>> core_interfaces(
    const XlaCompiler::CompilationResult& result, const Shardings& shardings,
    const std::vector<XlaCompiler::Argument>& arguments) {
  std::vector<CoreInterface> all;
  for (int core = 0; core < shardings.cores && shardings.cores_differ(); ++core) {
    TF_ASSIGN_OR_RETURN(const auto info, info_of(result, shardings, arguments, core));
    all.push_back({info.SerializeAsString(), positions(shardings.arguments, core),
                   positions(shardings.results, core)});
  }
  return all;
}

}  // namespace tpu::tensorflow
