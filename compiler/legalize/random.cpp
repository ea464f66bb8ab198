// rng_bit_generator: counter-based generators (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011) on ui32 arrays, with counters, order of the numbers and new state as XLA
// defines them. The state is ui64: key, then the counter of one word (Threefry) or up to two
// (Philox; one that is missing is the key).
#include <array>

#include "legalize/builder.hpp"
#include "legalize/legalize.hpp"

namespace tpu::compiler::legalization {

namespace {

using Words = std::vector<Value*>;  // ui32 arrays of one shape, least significant first

class Generator {
 public:
  Generator(Op& op, Rewriter& rw) : op_(op), b_(rw) {}

  std::vector<Value*> run() {
    const Type& state = op_.operand_type(0);
    const std::string& algorithm = op_.as<RngAttrs>().algorithm;
    const bool threefry = algorithm == "three_fry";
    const int64_t words = state.rank() == 1 ? state.dims[0] : 0;
    if (state.elem != Elem::kU64 || words < 2 || words > (threefry ? 2 : 3)) {
      fail("the state must be ui64[2]" + std::string(threefry ? "" : " or ui64[3]"));
    }
    for (int64_t i = 0; i < words; ++i) {
      state_.push_back(b_.reshape(b_.slice_dim(op_.operands[0], 0, i, i + 1), {}));
    }
    const Type& out = op_.type(1);
    if (out.elem == Elem::kI1 || out.elem == Elem::kBf16) {
      fail("random bits of type " + std::string(elem_name(out.elem)) + " are not supported");
    }
    return threefry ? threefry_bits(out) : philox_bits(out);
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(why, "stablehlo.rng_bit_generator", op_.loc);
  }

  Value* like(Value* x, int64_t value) { return b_.splat_int(x->type, value); }
  Value* scalar64(int64_t value) { return b_.splat_int({Elem::kU64, {}}, value); }
  Words split(Value* x) {
    Value* high = b_.binary(Kind::kShiftRightLogical, x, like(x, 32));
    return {b_.convert(x, Elem::kU32), b_.convert(high, Elem::kU32)};
  }
  Value* join(Value* lo, Value* hi) {
    Value* high = b_.convert(hi, Elem::kU64);
    Value* upper = b_.binary(Kind::kShiftLeft, high, like(high, 32));
    return b_.logical_or(b_.convert(lo, Elem::kU64), upper);
  }
  Value* spread(Value* scalar, const Dims& dims) { return b_.broadcast_scalar(scalar, dims); }
  Value* exclusive(Value* a, Value* b) { return b_.binary(Kind::kXor, a, b); }

  Value* new_state(const Words& counters) {
    Words parts;
    for (Value* v : counters) {
      parts.push_back(b_.reshape(v, {1}));
    }
    return b_.concatenate(parts, 0);
  }

  // ---- Threefry-2x32, 20 rounds
  std::vector<Value*> threefry_bits(const Type& out) {
    const bool wide = elem_bytes(out.elem) == 8;
    // 32-bit numbers come in pairs along the first dimension of even size, else along the longest.
    size_t dim = 0;
    Dims dims = out.dims;
    if (!wide) {
      for (size_t d = dims.size(); d-- > 0;) {
        dim = dims[d] >= dims[dim] ? d : dim;
      }
      for (size_t d = dims.size(); d-- > 0;) {
        dim = dims[d] % 2 == 0 ? d : dim;
      }
      if (!dims.empty()) {
        dims[dim] = (dims[dim] + 1) / 2;
      }
    }
    const int64_t count = Type{Elem::kU64, dims}.count();
    Value* place = b_.reshape(b_.iota({Elem::kU64, {count}}, 0), dims);
    Value* counter = b_.add(spread(state_[1], dims), place);
    const Words key = split(state_[0]), number = split(counter);
    const Words x = threefry(number, key, dims);
    Value* state = new_state({state_[0], b_.add(state_[1], scalar64(count))});
    if (wide) {
      return {state, b_.convert(join(x[0], x[1]), out.elem)};
    }
    Words drawn{finish(x[0], out.elem), finish(x[1], out.elem)};
    if (dims.empty()) {
      return {state, drawn[0]};
    }
    Dims one = dims, whole = dims;
    one.insert(one.begin() + static_cast<ptrdiff_t>(dim) + 1, 1);
    whole[dim] *= 2;
    Value* bits = b_.concatenate({b_.reshape(drawn[0], one), b_.reshape(drawn[1], one)},
                                 static_cast<int64_t>(dim) + 1);
    bits = b_.reshape(bits, whole);
    if (whole != out.dims) {
      bits = b_.slice_dim(bits, static_cast<int64_t>(dim), 0, out.dims[dim]);
    }
    return {state, bits};
  }

  Words threefry(Words x, const Words& key, const Dims& dims) {
    constexpr std::array<std::array<int64_t, 4>, 2> kRotations = {
        {{13, 15, 26, 6}, {17, 29, 16, 24}}};
    constexpr int64_t kParity = 0x1bd11bda;
    Words keys = key;
    Value* parity = like(key[0], kParity);
    keys.push_back(exclusive(exclusive(key[0], key[1]), parity));
    const auto inject = [&](Value* v, size_t k, int64_t round) {
      Value* added = keys[k % 3];
      added = round == 0 ? added : b_.add(added, like(added, round));
      return b_.add(v, spread(added, dims));
    };
    x = {inject(x[0], 0, 0), inject(x[1], 1, 0)};
    for (size_t group = 0; group < 5; ++group) {
      for (const int64_t r : kRotations[group % 2]) {
        x[0] = b_.add(x[0], x[1]);
        Value* low = b_.binary(Kind::kShiftRightLogical, x[1], like(x[1], 32 - r));
        Value* rotated = b_.logical_or(b_.binary(Kind::kShiftLeft, x[1], like(x[1], r)), low);
        x[1] = exclusive(x[0], rotated);
      }
      x = {inject(x[0], group + 1, 0), inject(x[1], group + 2, static_cast<int64_t>(group) + 1)};
    }
    return x;
  }

  // ---- Philox-4x32, 10 rounds
  std::vector<Value*> philox_bits(const Type& out) {
    const bool wide = elem_bytes(out.elem) == 8;
    const int64_t each = wide ? 2 : 4;
    const int64_t count = (out.count() + each - 1) / each;
    const Dims dims{count};
    Value* low = state_[1];
    Value* high = state_.size() == 3 ? state_[2] : state_[0];
    // A place is one word, so what passes from each word of the counter to the next is 0 or 1.
    Words x = split(low);
    const Words upper = split(high);
    x.insert(x.end(), upper.begin(), upper.end());
    Value* added = b_.iota({Elem::kU32, dims}, 0);
    for (Value*& word : x) {
      word = b_.add(spread(word, dims), added);
      added = b_.convert(b_.compare(CompareDirection::kLt, word, added), Elem::kU32);
    }
    x = philox(std::move(x), split(state_[0]), dims);

    Value* next = b_.add(low, scalar64(count));
    Words state{state_[0], next};
    if (state_.size() == 3) {
      Value* carried = b_.compare(CompareDirection::kLt, next, low);
      state.push_back(b_.select(carried, b_.add(high, like(high, 1)), high));
    }
    if (wide) {
      x = {join(x[0], x[1]), join(x[2], x[3])};
    }
    for (Value*& v : x) {
      v = b_.reshape(finish(v, out.elem), {count, 1});
    }
    Value* bits = b_.reshape(b_.concatenate(x, 1), {count * each});
    if (count * each != out.count()) {
      bits = b_.slice_dim(bits, 0, 0, out.count());
    }
    return {new_state(state), b_.reshape(bits, out.dims)};
  }

  // The keys of the rounds are made where they are used: twenty words would not be arguments of one
  // kernel, and it makes them once for all its numbers.
  Words philox(Words x, const Words& key, const Dims& dims) {
    constexpr std::array<int64_t, 2> kMultiplier = {0xd2511f53, 0xcd9e8d57};
    constexpr std::array<int64_t, 2> kWeyl = {0x9e3779b9, 0xbb67ae85};
    const Words first{spread(key[0], dims), spread(key[1], dims)};
    for (int64_t round = 0; round < 10; ++round) {
      std::array<Value*, 2> low{}, high{};
      for (const size_t i : {0u, 1u}) {
        Value* factor = like(x[2 * i], kMultiplier[i]);
        low[i] = b_.mul(x[2 * i], factor);
        high[i] = b_.binary(Kind::kMultiplyHigh, x[2 * i], factor);
      }
      const auto round_key = [&](size_t i) {
        const auto sum = static_cast<uint32_t>(round * kWeyl[i]);
        return round == 0 ? first[i] : b_.add(first[i], like(first[i], sum));
      };
      Value* first_key = round_key(0);
      Value* of_second = exclusive(exclusive(high[1], x[1]), first_key);
      Value* second_key = round_key(1);
      x = {of_second, low[1], exclusive(exclusive(high[0], x[3]), second_key), low[0]};
    }
    return x;
  }

  // Narrow types keep the low bits; signed ones and f32 their bit pattern.
  Value* finish(Value* bits, Elem elem) {
    if (elem == Elem::kF32) {
      return b_.bitcast(bits, {elem, bits->type.dims});
    }
    return b_.convert(bits, elem);
  }

  Op& op_;
  Builder b_;
  Words state_;
};

}  // namespace

std::vector<Value*> random(Op& op, Rewriter& rw) {
  return op.kind == Kind::kRngBitGenerator ? Generator(op, rw).run() : std::vector<Value*>{};
}

}  // namespace tpu::compiler::legalization
