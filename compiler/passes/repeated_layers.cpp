#include "passes/repeated_layers.hpp"

#include <algorithm>
#include <type_traits>
#include <variant>

namespace tpu::compiler {

namespace {

// The longest range of neighbours that go through one stack in equal steps.
std::pair<size_t, size_t> longest_walk(const std::vector<Stacked>& of) {
  std::pair<size_t, size_t> best{0, 0};
  for (size_t begin = 0; begin + 1 < of.size(); ++begin) {
    if (of[begin].stack == nullptr) {
      continue;
    }
    const int64_t step = of[begin + 1].layer - of[begin].layer;
    size_t end = begin + 1;
    while (end < of.size() && of[end].stack == of[begin].stack &&
           of[end].layer - of[end - 1].layer == step) {
      ++end;
    }
    if (end - begin > best.second - best.first) {
      best = {begin, end};
    }
  }
  return best;
}

}  // namespace

Attrs without_channel(Attrs attrs) {
  std::visit(
      [](auto& a) {
        using T = std::remove_cvref_t<decltype(a)>;
        if constexpr (std::is_same_v<T, CollectiveAttrs> || std::is_same_v<T, PermuteAttrs>) {
          a.channel = 0;
        }
      },
      attrs);
  return attrs;
}

std::string layer_text(const Op& op) {
  std::string text{kind_name(op.kind)};
  text += to_string(without_channel(op.attrs));
  for (const Value* v : op.operands) {
    text += ' ' + to_string(v->type);
  }
  text += " ->";
  for (const auto& result : op.results) {
    text += ' ' + to_string(result->type);
  }
  for (const auto& region : op.regions) {
    text += '\n' + print(*region);
  }
  return text;
}

std::string_view RepeatedLayers::plan(const Uses& uses) {
  for (;;) {
    shift();
    if (const std::string_view why = find_sources(); !why.empty()) {
      return why;
    }
    if (!leave_out_ends()) {
      break;
    }
    if (repeat_.count < fewest_) {
      return "too few layers read stacked values in one order";
    }
  }
  find_reads(uses);
  return {};
}

bool RepeatedLayers::read_behind(const Value* v, const Uses& uses) const {
  const auto users = uses.find(v);
  return users != uses.end() &&
         std::ranges::any_of(users->second, [&](const Op* user) { return !holds(user); });
}

// A layer begins where it takes the fewest bytes from the layer in front. All layers can begin at
// few places only; where one layer less can begin with half of the bytes, it is left out.
void RepeatedLayers::shift() {
  if (!shifted_) {
    shifted_ = true;
    const std::vector<int64_t> crossing = crossing_bytes();
    const auto behind = crossing.begin() + static_cast<ptrdiff_t>(repeat_.slack) + 1;
    const auto all = std::min_element(crossing.begin(), behind);
    const auto fewer = std::min_element(behind, crossing.end());
    const bool leave_out = repeat_.count > fewest_ && fewer != crossing.end() && *fewer < *all / 2;
    repeat_.first += static_cast<size_t>((leave_out ? fewer : all) - crossing.begin());
    repeat_.count -= leave_out ? 1 : 0;
    repeat_.slack = 0;
  }
  place_.clear();
  for (size_t i = 0; i < repeat_.count * repeat_.period; ++i) {
    place_[list_[repeat_.first + i]] = {i / repeat_.period, i % repeat_.period};
  }
}

// By how much later layers begin: bytes that the third layer reads of the second one.
std::vector<int64_t> RepeatedLayers::crossing_bytes() const {
  const size_t begin = repeat_.first + repeat_.period;
  const size_t ops = std::min(3 * repeat_.period, repeat_.end() - begin);
  std::unordered_map<const Op*, size_t> at;
  for (size_t i = 0; i < ops; ++i) {
    at[list_[begin + i]] = i;
  }
  std::unordered_map<const Value*, size_t> last_use;
  for (size_t i = 0; i < ops; ++i) {
    for (const Value* v : list_[begin + i]->operands) {
      if (v->def != nullptr && at.contains(v->def)) {
        last_use[v] = i;
      }
    }
  }
  std::vector<int64_t> change(ops + 2);
  for (const auto& [v, use] : last_use) {
    change[at[v->def] + 1] += v->type.bytes();
    change[use + 1] -= v->type.bytes();
  }
  std::vector<int64_t> bytes;
  int64_t live = 0;
  for (size_t i = 0; i < std::min(2 * repeat_.period, ops); ++i) {
    live += change[i];
    if (i >= repeat_.period) {
      bytes.push_back(live);
    }
  }
  return bytes;
}

std::optional<RepeatedLayers::Place> RepeatedLayers::place_of(const Value* v) const {
  const auto found = v->def == nullptr ? place_.end() : place_.find(v->def);
  return found == place_.end() ? std::nullopt : std::optional(found->second);
}

std::string_view RepeatedLayers::find_sources() {
  sources_.assign(ops(), {});
  carried_.clear();
  picks_.clear();
  for (size_t i = 0; i < ops(); ++i) {
    const Attrs attrs = without_channel(op(0, i)->attrs);
    for (size_t t = 1; t < layers(); ++t) {
      if (!attrs_equal(attrs, without_channel(op(t, i)->attrs))) {
        return "attributes of the layers differ";
      }
    }
    for (size_t k = 0; k < op(0, i)->operands.size(); ++k) {
      const std::optional<Source> source = source_of(i, k);
      if (!source) {
        return "layers read values of other layers in different ways";
      }
      sources_[i].push_back(*source);
    }
  }
  return carried_.empty() && !given_ ? "layers do not read each other" : "";
}

std::optional<RepeatedLayers::Source> RepeatedLayers::source_of(size_t i, size_t k) {
  std::vector<Value*> values;
  for (size_t t = 0; t < layers(); ++t) {
    values.push_back(op(t, i)->operands[k]);
  }
  const std::optional<Place> first = place_of(values[0]), second = place_of(values[1]);
  if (first) {
    if (first->layer != 0 || !made_by(values, *first, 0)) {
      return std::nullopt;
    }
    return Source{Source::Kind::kInside, first->op, static_cast<size_t>(values[0]->index), 0};
  }
  if (second) {
    if (second->layer != 0 || !made_by(values, *second, 1)) {
      return std::nullopt;
    }
    return carried_source(second->op, static_cast<size_t>(values[1]->index), values[0]);
  }
  if (std::ranges::any_of(values, [&](const Value* v) { return place_of(v).has_value(); })) {
    return std::nullopt;
  }
  return outside_source(std::move(values));
}

// True if each layer reads the same result of the layer `behind` places in front of it.
bool RepeatedLayers::made_by(const std::vector<Value*>& values, const Place& by,
                             size_t behind) const {
  for (size_t t = behind; t < values.size(); ++t) {
    const std::optional<Place> at = place_of(values[t]);
    if (!at || at->layer + behind != t || at->op != by.op ||
        values[t]->index != values[behind]->index) {
      return false;
    }
  }
  return true;
}

RepeatedLayers::Source RepeatedLayers::carried_source(size_t by, size_t result, Value* initial) {
  const auto known = std::ranges::find_if(carried_, [&](const Carried& c) {
    return c.op == by && c.result == result && c.first == initial;
  });
  const auto index = static_cast<size_t>(known - carried_.begin());
  if (known == carried_.end()) {
    carried_.push_back({by, result, initial});
  }
  return {Source::Kind::kCarried, by, result, index};
}

RepeatedLayers::Source RepeatedLayers::outside_source(std::vector<Value*> values) {
  if (std::ranges::count(values, values[0]) == std::ssize(values)) {
    return {Source::Kind::kSame, 0, 0, 0};
  }
  const auto known = std::ranges::find(picks_, values, &Pick::values);
  const auto index = static_cast<size_t>(known - picks_.begin());
  if (known == picks_.end()) {
    picks_.push_back({std::move(values)});
  }
  return {Source::Kind::kPick, 0, 0, index};
}

// Finds the stacks of what is picked. Layers at the ends that read something else than the next
// layer of a stack are left out: true, and all is to be planned again.
bool RepeatedLayers::leave_out_ends() {
  size_t from = 0, to = layers();
  for (Pick& pick : picks_) {
    std::vector<Stacked> of;
    for (const Value* v : pick.values) {
      const auto found = stacks_.find(v);
      of.push_back(found == stacks_.end() ? Stacked{} : found->second);
    }
    const auto [begin, end] = longest_walk(of);
    if (end - begin < fewest_) {
      continue;  // a stack of its own
    }
    from = std::max(from, begin);
    to = std::min(to, end);
    pick.stack = of[begin].stack;
    pick.step = of[begin + 1].layer - of[begin].layer;
    pick.start = of[begin].layer - pick.step * static_cast<int64_t>(begin);
  }
  if (from == 0 && to == layers()) {
    return false;
  }
  repeat_.first += from * repeat_.period;
  repeat_.count = to > from ? to - from : 0;
  return true;
}

void RepeatedLayers::find_reads(const Uses& uses) {
  reads_.clear();
  last_.clear();
  for (size_t i = 0; i < ops(); ++i) {
    for (size_t r = 0; r < op(0, i)->results.size(); ++r) {
      size_t read = 0;
      for (size_t t = 0; t < layers(); ++t) {
        read += read_behind(op(t, i)->result(r), uses) ? 1 : 0;
      }
      if (read == 0) {
        continue;
      }
      const bool last_only = read == 1 && read_behind(op(layers() - 1, i)->result(r), uses);
      const auto carried = std::ranges::find_if(
          carried_, [&](const Carried& c) { return c.op == i && c.result == r; });
      if (last_only && carried != carried_.end()) {
        last_.push_back(static_cast<size_t>(carried - carried_.begin()));
      } else {
        reads_.push_back({i, r, last_only});
      }
    }
  }
}

}  // namespace tpu::compiler
