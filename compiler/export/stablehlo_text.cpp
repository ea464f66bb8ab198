// Modules, functions, regions and locations; attributes are in properties.cpp.
//   module @jit_f attributes {mhlo.num_partitions = 1 : i32, ..} {
//     func.func public @main(%0: tensor<4xf32> loc(#loc1)) -> (tensor<4xf32>) {
//       %1 = "stablehlo.add"(%0, %0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> loc(#loc2)
//       "func.return"(%1) : (tensor<4xf32>) -> ()
//     }
//   }
//   #loc2 = loc("jit(f)/add"("f"("f.py":3:9)))
#include "export/stablehlo_text.hpp"

#include <map>
#include <unordered_map>

#include "export/properties.hpp"

namespace tpu::compiler {
namespace {

using stablehlo::quoted;
using stablehlo::type_text;

// "(a, b)" of what `text` makes of each element.
template <typename Values, typename Text>
std::string tuple_text(const Values& values, Text text) {
  std::string result = "(";
  for (size_t i = 0; i < values.size(); ++i) {
    result += (i ? ", " : "") + text(values[i]);
  }
  return result + ")";
}

std::string value_type(const auto& value) { return type_text(value->type); }

std::string frame_text(const SourceFrame& frame) {
  const std::string place =
      quoted(frame.file) + ":" + std::to_string(frame.line) + ":" + std::to_string(frame.column);
  return frame.function.empty() ? place : quoted(frame.function) + "(" + place + ")";
}

// The op's path around its call stack, innermost frame first.
std::string loc_text(const Loc& loc) {
  std::string stack;
  for (size_t i = loc.frames.size(); i > 0; --i) {
    const std::string frame = frame_text(loc.frames[i - 1]);
    stack = stack.empty() ? frame : "callsite(" + frame + " at " + stack + ")";
  }
  if (loc.path.empty()) {
    return stack.empty() ? "unknown" : stack;
  }
  return quoted(loc.path) + (stack.empty() ? "" : "(" + stack + ")");
}

// Numbers with commas between them.
std::string list_text(const Dims& numbers) {
  std::string text;
  for (const int64_t number : numbers) {
    text += (text.empty() ? "" : ",") + std::to_string(number);
  }
  return text;
}

// As XLA writes HloSharding.
std::string sharding_text(const Module& m, const Sharding& sharding, size_t rank) {
  if (!sharding.unreduced.empty()) {
    return "{unknown}";
  }
  const TileList list = tiles_of(m.mesh, sharding, rank);
  if (list.tiles.empty()) {
    return "{replicated}";
  }
  return "{devices=[" + list_text(list.tiles) + "]" + list_text(list.cores) +
         (list.copies ? " last_tile_dim_replicate" : "") + "}";
}

// Replicas are partitions here, with arrays that have an entry for each.
std::string spmd_attributes(const Module& m) {
  if (m.num_cores == 1) {
    return {};
  }
  std::string parameters, outputs;
  for (size_t i = 0; i < m.main->args.size(); ++i) {
    const size_t rank = m.main->body.args[i]->type.dims.size();
    parameters += (i ? ", " : "") + quoted(sharding_text(m, m.main->args[i].sharding, rank));
  }
  const auto& results = m.main->body.terminator()->operands;
  for (size_t i = 0; i < results.size() && i < m.main->results.size(); ++i) {
    outputs += (i ? ", " : "") +
               sharding_text(m, m.main->results[i].sharding, results[i]->type.dims.size());
  }
  return ", mhlo.spmd_output_sharding = " + quoted("{" + outputs + "}") +
         ", mhlo.spmd_parameters_shardings = [" + parameters + "]";
}

class TextWriter {
 public:
  std::string write(const Module& m) {
    out_ = "module @" + quoted(m.name) +
           " attributes {mhlo.num_partitions = " + std::to_string(m.num_cores) +
           " : i32, mhlo.num_replicas = 1 : i32" + spmd_attributes(m) + "} {\n";
    write_main(*m.main);
    out_ += "}\n";
    for (const auto& [text, number] : locs_) {
      out_ += "#loc" + std::to_string(number) + " = loc(" + text + ")\n";
    }
    return std::move(out_);
  }

 private:
  void write_main(const Function& main) {
    out_ += "  func.func public @main(";
    for (size_t i = 0; i < main.body.args.size(); ++i) {
      const Value* arg = main.body.args[i].get();
      out_ += (i ? ", " : "") + define(arg) + ": " + type_text(arg->type);
      if (i < main.args.size()) {
        const ArgInfo& info = main.args[i];
        if (info.alias_result >= 0) {
          out_ += " {tf.aliasing_output = " + std::to_string(info.alias_result) + " : i32}";
        } else if (info.donated) {
          out_ += " {jax.buffer_donor = true}";
        }
        out_ += info.name.empty() ? "" : " loc(" + quoted(info.name) + ")";
      }
    }
    const auto& results = main.body.terminator()->operands;
    out_ += ") -> " + tuple_text(results, value_type<Value*>) + " {\n";
    write_ops(main.body, "func.return", 2);
    out_ += "  }\n";
  }

  void write_ops(const Region& region, const char* terminator, size_t depth) {
    for (const auto& op : region.ops) {
      out_.append(2 * depth, ' ');
      if (op->kind == Kind::kMultiplyAdd) {
        write_multiply_add(*op, depth);
        continue;
      }
      write_op(*op, op->kind == Kind::kReturn ? terminator : stablehlo::op_name(op->kind), depth);
    }
  }

  // StableHLO has no op that rounds once.
  void write_multiply_add(const Op& op, size_t depth) {
    const std::string type = type_text(op.type());
    const std::string tail = ") : (" + type + ", " + type + ") -> (" + type + ") loc(#loc" +
                             std::to_string(loc_number(*op.loc)) + ")\n";
    const std::string product = "%" + std::to_string(next_++);
    out_ += product + " = \"stablehlo.multiply\"(" + names_.at(op.operands[0]) + ", " +
            names_.at(op.operands[1]) + tail;
    out_.append(2 * depth, ' ');
    out_ += define(op.result()) + " = \"stablehlo.add\"(" + product + ", " +
            names_.at(op.operands[2]) + tail;
  }

  void write_op(const Op& op, const std::string& name, size_t depth) {
    if (!op.results.empty()) {
      const std::string first = "%" + std::to_string(next_++);
      for (size_t i = 0; i < op.results.size(); ++i) {
        names_[op.result(i)] = first + (op.results.size() > 1 ? "#" + std::to_string(i) : "");
      }
      out_ += first +
              (op.results.size() > 1 ? ":" + std::to_string(op.results.size()) : std::string()) +
              " = ";
    }
    out_ += quoted(name) + tuple_text(op.operands, [this](const Value* v) { return names_.at(v); });
    out_ += stablehlo::properties_text(op, is_collective(op.kind) ? ++channels_ : 0);
    write_regions(op, depth);
    out_ += " : " + tuple_text(op.operands, value_type<Value*>) + " -> " +
            tuple_text(op.results, value_type<std::unique_ptr<Value>>) + " loc(#loc" +
            std::to_string(loc_number(*op.loc)) + ")\n";
  }

  void write_regions(const Op& op, size_t depth) {
    for (size_t i = 0; i < op.regions.size(); ++i) {
      const Region& region = *op.regions[i];
      out_ += i ? ", {\n" : " ({\n";
      if (!region.args.empty()) {
        out_.append(2 * depth, ' ');
        out_ += "^bb0" +
                tuple_text(region.args,
                           [this](const auto& arg) {
                             return define(arg.get()) + ": " + type_text(arg->type);
                           }) +
                ":\n";
      }
      write_ops(region, "stablehlo.return", depth + 1);
      out_.append(2 * depth, ' ');
      out_ += "}";
    }
    out_ += op.regions.empty() ? "" : ")";
  }

  std::string define(const Value* value) { return names_[value] = "%" + std::to_string(next_++); }

  size_t loc_number(const Loc& loc) {
    return locs_.emplace(loc_text(loc), locs_.size() + 1).first->second;
  }

  std::string out_;
  size_t next_ = 0;
  int64_t channels_ = 0;
  std::unordered_map<const Value*, std::string> names_;
  std::map<std::string, size_t> locs_;
};

}  // namespace

std::string stablehlo_text(const Module& module) { return TextWriter().write(module); }

}  // namespace tpu::compiler
