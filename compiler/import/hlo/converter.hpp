// The converter from an HloModule to a RawModule in VHLO's form: tuples are resolved to their
// members, called computations become functions or regions, and each instruction one op or a few.
// Step has what the handlers of opcodes need (opcodes.hpp). Private to the import.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "import/bytecode.hpp"
#include "import/hlo/hlo_module.hpp"
#include "import/hlo/places.hpp"
#include "import/hlo/shardy_texts.hpp"
#include "import/raw_builder.hpp"
#include "ir/error.hpp"

namespace tpu::compiler::hlo {

using bytecode::RawOp;
using bytecode::RawRegion;

// The size of a dimension that is known at run time only: a value of the program.
struct RunTimeSize {
  uint32_t value = 0;
  int64_t dim = 0;
};

// What an instruction gives: the values of its leaves. kNone: a leaf that nothing may read.
struct Bundle {
  const Shape* shape = nullptr;
  std::vector<uint32_t> leaves;
  // Of an instruction whose work ends in another (all-gather-start): what that one gives.
  const Shape* done_shape = nullptr;
  std::vector<uint32_t> done = {};
  // Of a set-dimension-size that only scatters read: its leaf is the whole array then.
  std::optional<RunTimeSize> size = {};
};

// A computation under conversion, at one of its uses.
struct Scope {
  const Computation& computation;
  std::vector<RawOp>& to;
  int depth;                   // regions and inlined computations around it
  std::vector<Bundle> values;  // by instruction
  // Calls, by an instruction that they read; filled when it is asked for.
  std::optional<std::unordered_map<const Instruction*, const Instruction*>> calls = {};
  // By instruction, whether anything but the indices and updates of scatters reads it; as `calls`.
  std::optional<std::vector<bool>> read_elsewhere = {};
};

// Leaves of a shape, in order.
std::vector<const Shape*> leaves_of(const Shape& shape);
// True of shapes with the same arrays in the same tuples, in whatever layout.
bool same_arrays(const Shape& a, const Shape& b);
std::string to_string(const Shape& shape);  // "(f32[2,3], token[])"

class Converter {
 public:
  Converter(const HloModule& module, int64_t num_replicas, int64_t num_partitions)
      : replicas(num_replicas),
        partitions(num_partitions),
        module_(module),
        places_(module, build) {}

  bytecode::RawModule run();

  bytecode::RawModule raw;
  bytecode::RawBuilder build{raw};
  ShardyTexts shardy{build};
  std::unordered_map<const Literal*, uint32_t> constants;  // attributes of those that are made
  const int64_t replicas, partitions;                      // for which the program is compiled

  // For Step.
  const Computation& computation(uint32_t at) const { return module_.computations[at]; }
  uint32_t loc_of(const Instruction& at, const Computation& of) { return places_.loc(at, of); }
  uint32_t type_of(const Shape& leaf);
  uint32_t new_value() { return raw.num_values++; }
  // The attribute of the text, one for all uses.
  uint32_t text(const std::string& text);
  // The shardings of the program are Shardy's: those in `sharding` fields are but near to them.
  bool of_shardy() const { return of_shardy_; }
  // True of the custom call that shards a result of the program and does nothing else.
  bool makes_result(const Instruction& at) const { return makes_result_.contains(&at); }
  // The name of the function that the computation becomes.
  std::string_view function(uint32_t computation);
  // Converts a computation whose parameters are `arguments`; gives its root.
  Bundle inlined(uint32_t computation, std::vector<Bundle> arguments, std::vector<RawOp>& to,
                 int depth);
  // The same in a region of its own, with its leaves as arguments of the region; or bound to values
  // of the scope around it.
  RawRegion region(uint32_t computation, int depth);
  RawRegion bound_region(uint32_t computation, std::vector<Bundle> arguments, int depth);

 private:
  void measure();
  void count(const Computation& function);  // throws if the program becomes too large
  RawOp function_op(const Computation& computation, std::string_view name);
  void entry_attributes(const Computation& entry, RawOp& function);
  void read_meshes(std::vector<RawOp>& to);
  std::vector<uint32_t> listed_shardings(std::string_view key, size_t leaves);
  // Attributes by leaf, kNone for those without one.
  std::vector<uint32_t> shardy_arguments(const Computation& entry);
  std::vector<uint32_t> shardy_results(const Computation& entry);
  uint32_t host_memory();  // the text that names it
  std::vector<uint32_t> argument_attributes(const Computation& entry);
  std::vector<uint32_t> result_attributes(const Instruction& root);
  RawOp return_op(const Bundle& root, const Computation& of);
  Bundle arguments(const Instruction& parameter, const Computation& of, RawRegion& region);
  void convert(Scope& scope);

  const HloModule& module_;
  Places places_;
  struct Size {
    double ops = 0, leaves = 0;
    double bytes = 0;    // of constants
    double devices = 0;  // that collectives name
  };
  std::vector<Size> sizes_;                         // by computation
  Size in_all_;                                     // of the functions so far
  std::map<uint32_t, std::string_view> functions_;  // by computation: those that are called
  std::vector<uint32_t> waiting_;                   // functions that are not converted yet
  std::map<std::string, int, std::less<>> names_;   // taken; the last number added to each
  std::map<std::string, uint32_t> texts_;           // attributes
  bool of_shardy_ = false;
  std::vector<const Instruction*> result_makers_;  // by leaf of the root; null: another instruction
  std::unordered_set<const Instruction*> makes_result_;
};

// One instruction under conversion.
class Step {
 public:
  Step(Converter& owner, Scope& within, const Instruction& instruction)
      : converter(owner), scope(within), at(instruction) {}

  Converter& converter;
  Scope& scope;
  const Instruction& at;

  // The program contradicts itself.
  [[noreturn]] void fail(const std::string& why) const;
  // Calls `read`, whose errors are about the frontend attribute.
  template <typename Read>
  auto read_attribute(std::string_view key, const Read& read) const {
    try {
      return read();
    } catch (const Error& e) {
      fail("its frontend attribute '" + std::string(key) + "': " + e.message());
    }
  }
  // An op that the import refuses by the opcode's name.
  void refuse() const;

  bytecode::RawBuilder& build() const { return converter.build; }
  size_t num_operands() const { return at.operands.size(); }
  const Bundle& operand(size_t i) const;
  const Shape& shape(size_t i) const { return *operand(i).shape; }
  uint32_t value(size_t i) const;                        // of an operand that is one array or token
  std::vector<uint32_t> values(size_t first = 0) const;  // leaves of the operands from `first` on
  uint32_t called(size_t i) const;                       // computation
  int64_t dim() const;                                   // the only entry of `dimensions`

  RawOp op(std::string_view vhlo) const;
  // Appends the op with results of these shapes, and gives them.
  std::vector<uint32_t> add(RawOp op, const std::vector<const Shape*>& results) const;
  uint32_t add(RawOp op, const Shape& result) const;
  RawRegion region(size_t called_at) const;

  // Marks the end of an instruction whose work ends in another: what that one gives.
  void begin(const Shape& result, std::vector<uint32_t> leaves) const;
  // What the instruction gives; the shape that it states must be that of the values.
  void define(std::vector<uint32_t> leaves) const;
  void define(const Bundle& same) const;
  // Appends an op that has the results of the instruction.
  void finish(RawOp op) const;
  // The op with all operands, as all of the instruction.
  void finish(std::string_view vhlo) const { finish(with_operands(vhlo)); }
  RawOp with_operands(std::string_view vhlo) const;

  // Attributes beside the op's own: sharding, frontend attributes.
  uint32_t dictionary() const;
  // Puts the sharding of the instruction on its arrays.
  void constrain() const;
  // A placement behind an instruction that moves an array to the host's memory or back.
  void place() const;

  uint32_t constant(const Ints& values, Ints dims) const;  // of s64
};

// The module in VHLO's form. Views point into the bytes that `module` was read from. Where it does
// not say for how many replicas and partitions it is, these are the numbers (0: one).
bytecode::RawModule to_raw(const HloModule& module, int64_t replicas, int64_t partitions);

}  // namespace tpu::compiler::hlo
