// Layers that main repeats: from where each op of a layer takes its operands, and which results are
// read behind them. See roll.hpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/graph.hpp"
#include "passes/repeats.hpp"

namespace tpu::compiler {

// Values of equal layers, in one array: the value is `stack`[`layer`].
struct Stacked {
  Value* stack = nullptr;
  int64_t layer = 0;
};
using Stacks = std::unordered_map<const Value*, Stacked>;

class RepeatedLayers {
 public:
  // Where an operand of an op of each layer comes from.
  struct Source {
    enum class Kind : uint8_t { kInside, kCarried, kSame, kPick };
    Kind kind = Kind::kSame;
    size_t op = 0;      // inside: of the layer
    size_t result = 0;  // of it
    size_t index = 0;   // carried: of carried(); pick: of picks()
  };
  // Result of an op that the next layer reads; `first`: what the first layer reads.
  struct Carried {
    size_t op = 0, result = 0;
    Value* first = nullptr;
  };
  // What the layers read from outside, each its own. If a stack of these values exists, layer t
  // reads stack[start + t * step].
  struct Pick {
    std::vector<Value*> values = {};
    Value* stack = nullptr;
    int64_t start = 0, step = 1;
  };
  // Result of an op that is read behind the layers: of the last one only, or of others too. Without
  // those that the last layer would carry to a next one: see `last`.
  struct Read {
    size_t op = 0, result = 0;
    bool last_only = false;
  };

  struct Place {
    size_t layer = 0, op = 0;
  };

  // Where the layers begin. Chosen: where the fewest bytes cross, and they read each other. Given:
  // where the list says, and they may be independent of each other.
  enum class Begin : uint8_t { kChosen, kGiven };

  // `list`: the ops that `repeat` counts; all must outlive this. `fewest`: layers, fewer are not
  // planned.
  RepeatedLayers(const std::vector<Op*>& list, const Repeat& repeat, const Stacks& stacks,
                 size_t fewest, Begin begin = Begin::kChosen)
      : list_(list),
        repeat_(repeat),
        given_(begin == Begin::kGiven),
        shifted_(given_),
        stacks_(stacks),
        fewest_(fewest) {}

  // Nothing: they can be a loop. Else why not. Layers at the ends that differ are left out.
  std::string_view plan(const Uses& uses);

  size_t layers() const { return repeat_.count; }
  size_t ops() const { return repeat_.period; }
  Op* op(size_t layer, size_t i) const { return list_[repeat_.first + layer * repeat_.period + i]; }
  bool holds(const Op* op) const { return place_.contains(op); }
  bool read_behind(const Value* v, const Uses& uses) const;
  // Of the op that makes it; nothing: it is made elsewhere.
  std::optional<Place> place_of(const Value* v) const;

  const std::vector<std::vector<Source>>& sources() const { return sources_; }  // by op, operand
  const std::vector<Carried>& carried() const { return carried_; }
  const std::vector<Pick>& picks() const { return picks_; }
  const std::vector<Read>& reads() const { return reads_; }
  // Of carried(): those whose value of the last layer is read behind the layers.
  const std::vector<size_t>& last() const { return last_; }

 private:
  void shift();
  std::vector<int64_t> crossing_bytes() const;
  std::string_view find_sources();
  std::optional<Source> source_of(size_t i, size_t k);
  bool made_by(const std::vector<Value*>& values, const Place& by, size_t behind) const;
  Source carried_source(size_t by, size_t result, Value* initial);
  Source outside_source(std::vector<Value*> values);
  bool leave_out_ends();
  void find_reads(const Uses& uses);

  const std::vector<Op*>& list_;
  Repeat repeat_;
  const bool given_;
  bool shifted_;
  const Stacks& stacks_;
  const size_t fewest_;
  std::unordered_map<const Op*, Place> place_;
  std::vector<std::vector<Source>> sources_;
  std::vector<Carried> carried_;
  std::vector<Pick> picks_;
  std::vector<Read> reads_;
  std::vector<size_t> last_;
};

// Attributes of layers are equal whatever the numbers of their channels.
Attrs without_channel(Attrs attrs);

// Ops of equal text do the same with operands of equal types: kind, attributes, types, regions.
std::string layer_text(const Op& op);

}  // namespace tpu::compiler
