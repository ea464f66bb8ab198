// Base of the passes that make two arrays of each array of a type: `split_complex`, `split_double`
// and `split_wide`. It walks the graph and treats what is the same for all types: arguments and
// results of main, ops on each part by itself, and regions, which take two values for each array
// that is split. Passes derive from it and say what becomes of any other op.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "legalize/builder.hpp"

namespace tpu::compiler {

// Form of arguments and results of main that are split: one array in memory, or two values each, as
// in regions.
enum class SplitBorder : uint8_t { kMemory, kParts };

// True if an operand or a result is of the type.
bool touches(const Op& op, Elem elem);

class PairSplitter {
 public:
  virtual ~PairSplitter() = default;

  // True if anything was split.
  bool run(Function& main);

 protected:
  struct Parts {
    Value* first = nullptr;
    Value* second = nullptr;
  };

  // `elems`: types that are split, `part`: that of both parts, `refusal`: why an op has no form on
  // pairs, for the error.
  PairSplitter(std::vector<Elem> elems, Elem part, SplitBorder border, std::string_view refusal)
      : elems_(std::move(elems)), part_(part), border_(border), refusal_(refusal) {}

  // An op without regions that takes part.
  virtual void one(const Op& op) = 0;
  // An op with regions and an array that is split.
  virtual void one_with_regions(std::unique_ptr<Op> op, Region& to) = 0;
  virtual bool takes_part(const Op& op) const { return is_touched(op); }
  // An array in memory.
  virtual Type memory_type(const Type& type) const = 0;
  // Of kMemory: `global` is that of memory_type().
  virtual void mark(ArgInfo& /*info*/) const {}
  virtual void mark(ResultInfo& /*info*/) const {}
  // Of kParts: what is known of the arguments and results, for two values each.
  virtual void expand_infos(Function& main) const;
  virtual Parts unpacked(Value* memory) = 0;
  virtual Value* packed(const Parts& parts) = 0;

  Type part_type(const Type& type) const { return {part_, type.dims}; }
  bool is_split(Elem elem) const;
  bool is_split(const Value* v) const { return is_split(v->type.elem); }
  bool is_touched(const Op& op) const;
  [[noreturn]] void refuse(const Op& op) const { refuse(op, refusal_); }
  [[noreturn]] static void refuse(const Op& op, const std::string& why) {
    throw Error(why, source_name(op.kind), op.loc);
  }

  const Parts& parts(const Value* v) const { return parts_.at(v); }
  // The array in memory; `v` itself if it is not split.
  Value* whole(Value* v);
  void set(const Op& op, const Parts& parts) { parts_[op.result()] = parts; }
  void set(const Op& op, Value* v) { replaced_[op.result()] = v; }
  void set_result(const Value* result, const Parts& parts) { parts_[result] = parts; }
  void set_result(const Value* result, Value* v) { replaced_[result] = v; }

  // Operand i, broadcast to the shape of the result.
  Parts bound(const Op& op, size_t i);
  // The op on each part; operands that are not split are shared.
  void by_parts(const Op& op);
  // One op on all parts, whose results that are split are two.
  void on_all_parts(const Op& op);
  // send and recv, of arrays in memory.
  void send(const Op& op);
  void recv(const Op& op);
  // An op with regions: two values for each that is split, on both sides of their boundary.
  void expand(std::unique_ptr<Op> op, Region& to);
  std::vector<Value*> expanded(const std::vector<Value*>& values) const;
  std::vector<Type> expanded_types(const Op& op) const;
  // Results of an op whose split ones are two.
  void set_expanded(const Op& op, const Op& fresh);
  // Keeps an op that was replaced: it is a key.
  void bury(std::unique_ptr<Op> op) { graveyard_.push_back(std::move(op)); }

  Rewriter rw_;
  Builder b_{rw_};

 private:
  void arguments(Function& main);
  // `main`: of whose body the region is, or null.
  void region(Region& r, Function* main = nullptr);
  void with_regions(std::unique_ptr<Op> op, Region& to);
  std::vector<Value*> returned(const std::vector<Value*>& values, Function& main);
  template <typename Info, typename Values>
  std::vector<Info> expanded(const std::vector<Info>& infos, const Values& values) const;
  Attrs expanded_attrs(const Op& op) const;
  void region_arguments(const Region& from, Region& to, size_t together);
  template <typename Fn>
  void placed(const Op& op, Fn&& fn) const;

  const std::vector<Elem> elems_;
  const Elem part_;
  const SplitBorder border_;
  const std::string refusal_;
  bool any_ = false;
  std::unordered_map<const Value*, Parts> parts_;
  ValueMap replaced_;
  ValueMap whole_;  // arguments of main, as they are in memory
  std::vector<std::unique_ptr<Value>> old_arguments_;
  std::vector<std::unique_ptr<Op>> graveyard_;  // keeps the keys alive
};

}  // namespace tpu::compiler
