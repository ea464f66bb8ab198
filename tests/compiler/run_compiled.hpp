// Compiles a graph, runs it on the untimed machine and compares with the graph interpreter.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "arith/bf16.hpp"
#include "arith/flush_mode.hpp"
#include "board/board_loader.hpp"
#include "command/cost.hpp"
#include "entry/codegen.hpp"
#include "entry/style.hpp"
#include "ir/interpreter.hpp"
#include "ir/verify.hpp"
#include "legalize/legalize.hpp"
#include "untimed_core.hpp"

namespace tpu::compiler::test {

struct RunOptions {
  std::vector<std::string> overrides;  // of the board
  std::string board = "v3_8";
  std::vector<int> cores;  // of the board, by partition
  Style style = Style::kBest;
  // Of a float, relative to the larger of 1 and the value: sums of the two may differ in order,
  // and transcendentals by a few units in the last place. 0: equal bits.
  double tolerance = 2e-5;
  uint32_t data_seed = 1;
  std::vector<uint32_t> order_seeds = {0, 7};  // of the untimed machine
  double low = -2, high = 2;                   // of random floats
  bool small_integers = false;                 // floats are integers: every sum is exact
  bool any_bits = false;  // floats of all bits, NaN payloads and subnormals among them
  bool words = false;     // 64-bit integers become pairs of words first
};

// Of a float: every fourth is a subnormal, every fourth a NaN or an infinity.
inline uint32_t random_bits(std::mt19937& random) {
  const auto bits = static_cast<uint32_t>(random());
  switch (random() % 4) {
    case 0:
      return bits & 0x807fffffu;
    case 1:
      return bits | 0x7f800000u;
    default:
      return bits;
  }
}

inline Tensor random_tensor(const Type& type, std::mt19937& random, const RunOptions& o) {
  Tensor t = make_tensor(type);
  std::uniform_real_distribution<float> real(static_cast<float>(o.low), static_cast<float>(o.high));
  for (int64_t i = 0; i < type.count(); ++i) {
    std::byte* p = t.data.data() + i * elem_bytes(type.elem);
    float f = real(random);
    if (o.small_integers) {
      f = std::round(f);
    }
    if (o.any_bits && is_float(type.elem)) {
      const uint32_t bits = random_bits(random);
      const size_t bytes = type.elem == Elem::kBf16 ? 2 : 4;
      std::memcpy(p, reinterpret_cast<const std::byte*>(&bits) + 4 - bytes, bytes);
      continue;
    }
    switch (type.elem) {
      case Elem::kF32:
        std::memcpy(p, &f, 4);
        break;
      case Elem::kBf16: {
        const uint16_t h = spec::bf16_from_f32(f);
        std::memcpy(p, &h, 2);
        break;
      }
      case Elem::kI1:
        *p = static_cast<std::byte>(random() & 1u);
        break;
      default: {
        const auto v = static_cast<int64_t>(random() % 10u);
        std::memcpy(p, &v, static_cast<size_t>(elem_bytes(type.elem)));
        break;
      }
    }
  }
  return t;
}

inline double element(const Tensor& t, int64_t i) {
  Dense d;
  d.type = t.type;
  d.data = std::make_shared<const std::vector<std::byte>>(t.data);
  return is_float(t.type.elem) ? d.as_double(i) : static_cast<double>(d.as_int(i));
}

inline void expect_near(const Tensor& want, const Tensor& got, double tolerance,
                        const std::string& what) {
  ASSERT_EQ(want.data.size(), got.data.size()) << what;
  if (want.data == got.data) {
    return;
  }
  Dense a = to_dense(want), b = to_dense(got);
  int shown = 0;
  const double slack = want.type.elem == Elem::kBf16 ? std::max(tolerance, 1e-2) : tolerance;
  for (int64_t i = 0; i < want.type.count() && shown < 3; ++i) {
    if (!is_float(want.type.elem)) {
      if (a.as_int(i) != b.as_int(i)) {
        ADD_FAILURE() << what << "[" << i << "]: want " << a.as_int(i) << " got " << b.as_int(i);
        ++shown;
      }
      continue;
    }
    const double x = a.as_double(i), y = b.as_double(i);
    const bool same = (std::isnan(x) && std::isnan(y)) || x == y ||
                      std::abs(x - y) <= slack * std::max(1.0, std::abs(x));
    if (!same ||
        (tolerance == 0 && std::memcmp(a.element(i), b.element(i),
                                       static_cast<size_t>(elem_bytes(want.type.elem))) != 0)) {
      ADD_FAILURE() << what << "[" << i << "]: want " << x << " got " << y;
      ++shown;
    }
  }
}

struct Outcome {
  exe::ExecutableT executable;
  std::vector<std::vector<Tensor>> results;  // [core][result]
  int64_t commands = 0;
};

// Result `i` as a driver reads it: elements that one core keeps for all come from it.
inline Tensor result_of(const Outcome& out, size_t core, size_t i) {
  const exe::TensorT& t = *out.executable.results[i];
  Tensor whole = out.results[core][i];
  size_t at = 0;
  for (size_t r = 0; r < t.owned_elements.size(); ++r) {
    const size_t n = t.owned_elements[r] * static_cast<size_t>(elem_bytes(whole.type.elem));
    std::memcpy(whole.data.data() + at, out.results[t.owned_by[r]][i].data.data() + at, n);
    at += n;
  }
  return whole;
}

inline Outcome run_executable(const Module& module, exe::ExecutableT executable,
                              const spec::BoardParams& board,
                              const std::vector<std::vector<Tensor>>& args, uint32_t order_seed) {
  tpu::test::UntimedOptions untimed;
  untimed.seed = order_seed;
  Outcome out;
  out.executable = std::move(executable);
  tpu::test::UntimedMachine machine(out.executable, board, untimed);
  for (size_t c = 0; c < args.size(); ++c) {
    std::vector<uint8_t> bytes;
    size_t number = 0;
    for (size_t i = 0; i < args[c].size(); ++i) {
      const auto* data = reinterpret_cast<const uint8_t*>(args[c][i].data.data());
      bytes.insert(bytes.end(), data, data + args[c][i].data.size());
      if (module.main->args[i].part != WordPart::kLow) {  // the high words come behind
        machine.set_argument(static_cast<int>(c), number++, std::exchange(bytes, {}));
      }
    }
  }
  machine.run();
  const Op* ret = module.main->body.terminator();
  for (size_t c = 0; c < args.size(); ++c) {
    out.results.emplace_back();
    for (size_t i = 0; i < ret->operands.size(); ++i) {
      Tensor t = make_tensor(ret->operands[i]->type);
      const auto& infos = module.main->results;
      const std::vector<uint8_t> bytes =
          machine.result(static_cast<int>(c), parameter_number(infos, i));
      const size_t words = infos[i].part == WordPart::kHigh ? t.data.size() : 0;  // low ones first
      std::memcpy(t.data.data(), bytes.data() + words, t.data.size());
      out.results[c].push_back(std::move(t));
    }
  }
  out.commands = machine.commands();
  return out;
}

inline std::vector<std::vector<Tensor>> random_arguments(const Module& module,
                                                         const RunOptions& o) {
  std::mt19937 random(o.data_seed);
  std::vector<Tensor> global;
  for (const ArgInfo& a : module.main->args) {
    if (a.part != WordPart::kHigh) {
      global.push_back(random_tensor(a.global, random, o));
    }
  }
  return split_arguments(module, global);
}

// 64-bit elements as the arrays of low and of high words that `legalize_wide` makes of them.
inline std::vector<std::vector<Tensor>> in_words(const std::vector<std::vector<Tensor>>& whole) {
  std::vector<std::vector<Tensor>> out(whole.size());
  for (size_t c = 0; c < whole.size(); ++c) {
    for (const Tensor& t : whole[c]) {
      const bool wide = elem_bytes(t.type.elem) == 8;
      for (size_t half = 0; half < (wide ? 2 : 1); ++half) {
        Tensor& part = out[c].emplace_back(wide ? make_tensor({Elem::kU32, t.type.dims}) : t);
        for (size_t at = 0; wide && at < part.data.size(); at += 4) {
          std::memcpy(part.data.data() + at, t.data.data() + 2 * at + 4 * half, 4);
        }
      }
    }
  }
  return out;
}

// Interprets, lowers, compiles once; runs with every order seed; compares every result of every
// core.
inline Outcome check_graph(Module& module, const RunOptions& o = {}) {
  const spec::BoardParams board = spec::load_board(o.board, o.overrides);
  auto args = random_arguments(module, o);
  std::vector<std::vector<Tensor>> want;
  {
    const spec::ScopedFlushMode flush;
    EvalOptions eval;
    eval.mxu = spec::mxu_shape(board);
    want = interpret(module, args, eval);
  }
  if (o.words) {
    legalize_wide(module);
    args = in_words(args);
    want = in_words(want);
  }
  legalize(module);
  module.number_ops();
  verify(module);
  CompileOptions options;
  options.cores = o.cores;
  options.style = o.style;
  // TPU_TEST_DUMP=1 prints kernels and commands.
  if (std::getenv("TPU_TEST_DUMP") != nullptr) {
    options.dump_after = {"kernels", "listing"};
    options.dump = [](const std::string& stage, const std::string& text) {
      std::printf("// %s\n%s\n", stage.c_str(), text.c_str());
    };
  }
  Outcome last;
  for (const uint32_t seed : o.order_seeds) {
    Outcome got = run_executable(module, generate(module, board, options), board, args, seed);
    for (size_t c = 0; c < want.size(); ++c) {
      for (size_t i = 0; i < want[c].size(); ++i) {
        expect_near(want[c][i], o.words ? got.results[c][i] : result_of(got, c, i), o.tolerance,
                    "core " + std::to_string(c) + " result " + std::to_string(i));
      }
    }
    last = std::move(got);
  }
  return last;
}

}  // namespace tpu::compiler::test
