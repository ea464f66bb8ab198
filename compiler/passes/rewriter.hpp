// Helper of passes that replace ops one by one: a forward sweep over all regions in which an op may
// be replaced by a value, with ops made on the way placed where it stood.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/graph.hpp"

namespace tpu::compiler {

class Rewriter {
 public:
  // Called for every op, after its operands are final. Returns one value per result to replace the
  // op, or nothing to keep it (it may have been changed in place).
  using Pattern = std::function<std::vector<Value*>(Op&, Rewriter&)>;

  // True if anything was replaced.
  bool run(Region& region, const Pattern& pattern);

  // Makes an op at the place of the one under treatment, with its location.
  Value* make(Kind kind, std::vector<Value*> operands, Type type, Attrs attrs = NoAttrs{});
  Value* constant(Dense value);
  Op* make_op(Kind kind, std::vector<Value*> operands, std::vector<Type> types, Attrs attrs);
  // Calls `fn`; what it makes goes to the end of `region`.
  template <typename Fn>
  void within(Region& region, Fn&& fn) {
    Region* outer = std::exchange(region_, &region);
    fn();
    region_ = outer;
  }
  // Where ops are made at present.
  Region& region() { return *region_; }

  // For walkers of their own: what is made from now on goes to the end of `region`, with the
  // location of `op`, which must outlive that.
  void place(Region& region, const Op& op) {
    region_ = &region;
    current_ = &op;
  }

  // Records a change made in place, so that `run` returns true.
  void changed() { changed_ = true; }

 private:
  void sweep(Region& region, const Pattern& pattern);
  std::vector<Value*> replacement(Op& op, const Pattern& pattern);

  Region* region_ = nullptr;
  const Op* current_ = nullptr;
  bool changed_ = false;
  ValueMap replaced_;
  std::vector<std::unique_ptr<Op>> graveyard_;  // keeps the keys of replaced_ alive
};

// The constant that defines the value, or null.
const Dense* constant_of(const Value* value);
// The same if it is one value everywhere: a splat, or a single element.
const Dense* splat_of(const Value* value);
bool is_zero(const Value* value);  // a constant, everywhere +0 or -0

}  // namespace tpu::compiler
