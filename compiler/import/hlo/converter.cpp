// See converter.hpp: computations, functions and regions; the interface of the program is in
// entry.cpp.
#include "import/hlo/converter.hpp"

#include <algorithm>

#include "import/codes.hpp"
#include "import/hlo/opcodes.hpp"
#include "import/hlo/order.hpp"
#include "import/hlo/read_parts.hpp"
#include "import/hlo/types.hpp"
#include "ir/error.hpp"

namespace tpu::compiler::hlo {

using bytecode::Dialect;
using bytecode::kNone;

namespace {

constexpr size_t kMostOps = 2'000'000;
constexpr size_t kMostLeavesInAll = 16'000'000;
constexpr size_t kMostConstantBytes = size_t{1} << 34;  // of constants

constexpr size_t kMostDevicesInAll = 32'000'000;

// Collectives that become an op for each array, with a computation of its own.
double ops_for(const Instruction& at) {
  const bool each =
      at.opcode.starts_with("reduce-scatter") || at.opcode.starts_with("collective-permute") ||
      at.opcode.starts_with("all-to-all") || at.opcode.starts_with("collective-broadcast");
  return each ? static_cast<double>(at.shape.leaves) : 1;
}

double devices_of(const Instruction& at) {
  size_t count = at.pairs.size();
  for (const Ints& group : groups_of(at)) {
    count += group.size();
  }
  return static_cast<double>(count);
}

size_t bytes_of(const Literal& literal) {
  size_t bytes = literal.elements.size();
  for (const Literal& member : literal.members) {
    bytes += bytes_of(member);
  }
  return bytes;
}

void collect(const Shape& shape, std::vector<const Shape*>& to) {
  if (!shape.is_tuple()) {
    to.push_back(&shape);
    return;
  }
  for (const Shape& member : shape.members) {
    collect(member, to);
  }
}

}  // namespace

std::vector<const Shape*> leaves_of(const Shape& shape) {
  std::vector<const Shape*> leaves;
  leaves.reserve(shape.leaves);
  collect(shape, leaves);
  return leaves;
}

bool same_arrays(const Shape& a, const Shape& b) {
  return a.type == b.type && a.dims == b.dims &&
         std::equal(a.members.begin(), a.members.end(), b.members.begin(), b.members.end(),
                    same_arrays);
}

bytecode::RawModule Converter::run() {
  measure();
  raw.producer = "HLO";
  raw.module.dialect = Dialect::kBuiltin;
  raw.module.dialect_name = "builtin";
  raw.module.name = "module";
  if (!module_.name.empty()) {
    raw.module.properties.emplace_back("sym_name", build.text(module_.name));
  }
  std::vector<std::pair<std::string_view, uint32_t>> counts;
  if (module_.partitions > 0) {
    counts.emplace_back("mhlo.num_partitions", build.integer(module_.partitions));
  }
  if (module_.replicas > 0) {
    counts.emplace_back("mhlo.num_replicas", build.integer(module_.replicas));
  }
  raw.module.dictionary = build.dictionary(counts);
  names_.emplace("main", 0);
  const Computation& entry = module_.computations[module_.entry];
  std::vector<RawOp>& functions = raw.module.regions.emplace_back().ops;
  read_meshes(functions);
  functions.push_back(function_op(entry, "main"));
  entry_attributes(entry, functions.back());
  while (!waiting_.empty()) {
    const uint32_t at = waiting_.back();
    waiting_.pop_back();
    functions.push_back(function_op(module_.computations[at], functions_.at(at)));
  }
  return std::move(raw);
}

uint32_t Converter::text(const std::string& text) {
  const auto [at, added] = texts_.emplace(text, 0);
  if (added) {
    at->second = build.kept_text(text);
  }
  return at->second;
}

uint32_t Converter::type_of(const Shape& leaf) { return vhlo_type_of(leaf, build); }

// What the computation becomes where its own are written out within it; functions are not.
void Converter::measure() {
  for (const Computation& c : module_.computations) {
    Size& size = sizes_.emplace_back();
    for (const Instruction& at : c.instructions) {
      size.ops += 1;
      size.leaves += static_cast<double>(at.shape.leaves);
      for (const uint32_t operand : at.operands) {
        const bool part = at.opcode == "get-tuple-element";  // it takes no more than it gives
        size.leaves += part ? 0 : static_cast<double>(c.instructions[operand].shape.leaves);
      }
      size.bytes += at.literal == nullptr ? 0 : static_cast<double>(bytes_of(*at.literal));
      const bool function = at.opcode == "call" || at.opcode == "custom-call";
      const double each = ops_for(at);
      size.devices += each * devices_of(at);
      const double times = function ? 0 : each;
      for (const uint32_t called : at.called) {
        size.ops += times * sizes_[called].ops;
        size.leaves += times * sizes_[called].leaves;
        size.bytes += times * sizes_[called].bytes;
        size.devices += times * sizes_[called].devices;
      }
    }
  }
}

void Converter::count(const Computation& function) {
  const Size& size = sizes_[static_cast<size_t>(&function - module_.computations.data())];
  in_all_.ops += size.ops;
  in_all_.leaves += size.leaves;
  in_all_.bytes += size.bytes;
  in_all_.devices += size.devices;
  const auto refuse = [&](double count, size_t most, const char* what) {
    if (count > static_cast<double>(most)) {
      throw Error("computation '" + std::string(function.name) +
                  "': with the computations that it calls written out the program has more than " +
                  std::to_string(most) + " " + what);
    }
  };
  refuse(in_all_.ops, kMostOps, "instructions");
  refuse(in_all_.leaves, kMostLeavesInAll, "arrays in tuples");
  refuse(in_all_.bytes, kMostConstantBytes, "bytes of constants");
  refuse(in_all_.devices, kMostDevicesInAll, "devices in the groups of collectives");
}

std::string_view Converter::function(uint32_t computation) {
  const auto [at, added] = functions_.emplace(computation, std::string_view());
  if (added) {
    const std::string wanted(module_.computations[computation].name);
    std::string name = wanted;
    while (!names_.emplace(name, 0).second) {
      name = wanted + "." + std::to_string(++names_.at(wanted));
    }
    at->second = build.keep(std::move(name));
    waiting_.push_back(computation);
  }
  return at->second;
}

// The leaves of a parameter as arguments of the region.
Bundle Converter::arguments(const Instruction& parameter, const Computation& of,
                            RawRegion& region) {
  Bundle bundle;
  bundle.shape = &parameter.shape;
  for (const Shape* leaf : leaves_of(parameter.shape)) {
    bundle.leaves.push_back(new_value());
    region.args.push_back({bundle.leaves.back(), type_of(*leaf), loc_of(parameter, of)});
  }
  return bundle;
}

RawOp Converter::return_op(const Bundle& root, const Computation& of) {
  const Instruction& at = of.instructions[of.root];
  if (std::find(root.leaves.begin(), root.leaves.end(), kNone) != root.leaves.end()) {
    throw Error("the HLO module is damaged: computation '" + std::string(of.name) +
                "', instruction '" + std::string(at.name) +
                "': the root has no value that a program can read");
  }
  RawOp op;
  op.dialect = Dialect::kVhlo;
  op.dialect_name = "vhlo";
  op.name = "return_v1";
  op.loc = loc_of(at, of);
  op.operands = root.leaves;
  return op;
}

RawRegion Converter::region(uint32_t computation, int depth) {
  const Computation& c = module_.computations[computation];
  RawRegion made;
  std::vector<Bundle> taken;
  for (const uint32_t parameter : c.parameters) {
    taken.push_back(arguments(c.instructions[parameter], c, made));
  }
  const Bundle root = inlined(computation, std::move(taken), made.ops, depth);
  made.ops.push_back(return_op(root, c));
  return made;
}

RawRegion Converter::bound_region(uint32_t computation, std::vector<Bundle> arguments, int depth) {
  RawRegion made;
  const Bundle root = inlined(computation, std::move(arguments), made.ops, depth);
  made.ops.push_back(return_op(root, module_.computations[computation]));
  return made;
}

RawOp Converter::function_op(const Computation& c, std::string_view name) {
  count(c);
  RawOp f;
  f.dialect = Dialect::kVhlo;
  f.dialect_name = "vhlo";
  f.name = "func_v1";
  f.regions.push_back(region(static_cast<uint32_t>(&c - module_.computations.data()), 0));
  std::vector<uint32_t> inputs, outputs;
  for (const auto& arg : f.regions[0].args) {
    inputs.push_back(arg.type);
  }
  for (const Shape* leaf : leaves_of(c.instructions[c.root].shape)) {
    outputs.push_back(type_of(*leaf));
  }
  f.properties = {
      {"sym_name", build.text(name)},
      {"function_type", build.of_type(build.function_type(inputs, outputs))},
  };
  return f;
}

Bundle Converter::inlined(uint32_t computation, std::vector<Bundle> arguments,
                          std::vector<RawOp>& to, int depth) {
  const Computation& c = module_.computations[computation];
  if (depth > bytecode::kMaxRegionDepth) {
    throw Error("computation '" + std::string(c.name) + "': computations lie more than " +
                std::to_string(bytecode::kMaxRegionDepth) +
                " deep in each other; make the nest of loops and branches flatter");
  }
  if (arguments.size() != c.parameters.size()) {
    throw Error("the HLO module is damaged: computation '" + std::string(c.name) + "' has " +
                std::to_string(c.parameters.size()) + " parameters, it is called with " +
                std::to_string(arguments.size()) + " arguments");
  }
  Scope scope{c, to, depth, std::vector<Bundle>(c.instructions.size())};
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Step step(*this, scope, c.instructions[c.parameters[i]]);
    step.define(arguments[i]);
  }
  convert(scope);
  return std::move(scope.values[c.root]);
}

void Converter::convert(Scope& scope) {
  for (const uint32_t position : order_of(scope.computation)) {
    const Instruction& at = scope.computation.instructions[position];
    const Step step(*this, scope, at);
    const Opcode* opcode = find_opcode(at.opcode);
    if (opcode != nullptr && opcode->operands >= 0 &&
        at.operands.size() != static_cast<size_t>(opcode->operands) &&
        (at.opcode != "infeed" || at.operands.size() > 1)) {
      step.fail("it has " + std::to_string(at.operands.size()) + " operands, expected " +
                std::to_string(opcode->operands));
    }
    if (opcode == nullptr || opcode->convert == nullptr) {
      step.refuse();
      continue;
    }
    opcode->convert(step, opcode->vhlo);
    step.constrain();
    step.place();
  }
}

bytecode::RawModule to_raw(const HloModule& module, int64_t replicas, int64_t partitions) {
  const auto count = [](int64_t wanted, int64_t own) {
    return std::max<int64_t>(wanted > 0 ? wanted : own, 1);
  };
  return Converter(module, count(replicas, module.replicas), count(partitions, module.partitions))
      .run();
}

}  // namespace tpu::compiler::hlo
