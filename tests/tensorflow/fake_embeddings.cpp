// Tables of embeddings without TensorFlow. A configuration is a text of lines: "cores N",
// "table NAME ROWS WIDTH ARRAYS", "feature NAME TABLE SAMPLES". The optimizer has as many arrays as
// the table: 1, p -= rate g; 2, s += g^2, p -= rate g / sqrt(s); 3, m = m / 2 + g, c += g^2,
// p -= rate m; it changes all rows. The step gives the learning rate. Tensors of the host are
// HostTensors.
#include "fake_embeddings.hpp"

#include <chrono>
#include <cstring>
#include <sstream>
#include <thread>

#include "hlo_bytes.hpp"
#include "lowering/lowered.hpp"

namespace tpu::tensorflow {
namespace {

using namespace compiler::hlo_bytes;  // NOLINT: the words of the programs below
using compiler::hlo_bytes::bytes;

test::FakeEmbeddings& fake() {
  static test::FakeEmbeddings one;
  return one;
}

/// A computation, instruction by instruction.
class Program {
 public:
  explicit Program(int cores) {
    Ints all;
    for (int core = 0; core < cores; ++core) {
      all.push_back(core);
    }
    groups_ = bytes(49, packed(1, all));
  }

  int64_t add(Instruction instruction) {
    all_.push_back(std::move(instruction));
    return static_cast<int64_t>(all_.size());
  }
  int64_t op(const char* opcode, int64_t type, const Ints& dims, const Ints& operands,
             const std::string& fields = {}) {
    return add({opcode, shape(type, dims), operands, fields});
  }
  int64_t math(const char* opcode, const Ints& dims, const Ints& operands) {
    return op(opcode, kF32, dims, operands);
  }
  int64_t parameter(int64_t type, const Ints& dims) {
    return add(compiler::hlo_bytes::parameter(parameters_++, shape(type, dims)));
  }
  int64_t number(float value) {
    std::string raw(sizeof value, '\0');
    std::memcpy(raw.data(), &value, sizeof value);
    return op("constant", kF32, {}, {}, bytes(8, bytes(1, shape(kF32, {})) + bytes(8, raw)));
  }
  int64_t integer(int64_t value) {
    return op("constant", kS32, {}, {}, bytes(8, bytes(1, shape(kS32, {})) + packed(4, {value})));
  }
  /// Dimension i of the operand is dimension at[i] of the result.
  int64_t broadcast(int64_t operand, const Ints& dims, const Ints& at = {}, int64_t type = kF32) {
    return op("broadcast", type, dims, {operand}, packed(14, at));
  }
  /// The numbers, less `times` the number of the core.
  int64_t of_core(int64_t numbers, int64_t count, int64_t times) {
    const int64_t core = op("convert", kS32, {}, {op("replica-id", kU32, {}, {})});
    const int64_t offset = op("multiply", kS32, {}, {core, integer(times)});
    return op("subtract", kS32, {count}, {numbers, broadcast(offset, {count}, {}, kS32)});
  }
  /// `dims`: of the result.
  int64_t gathered(int64_t own, const Ints& dims, int64_t type) {
    return op("all-gather", type, dims, {own}, packed(14, {0}) + groups_);
  }
  int64_t scattered_sum(int64_t values, const Ints& dims) {
    return op("reduce-scatter", kF32, dims, {values}, packed(14, {0}) + groups_ + calls({1}));
  }
  /// Zeros at places that are not there.
  int64_t rows_at(int64_t array, int64_t places, int64_t count, int64_t rows, int64_t width) {
    const auto bound = [&](const char* direction, int64_t value) {
      return op("compare", kPred, {count}, {places, broadcast(integer(value), {count}, {}, kS32)},
                bytes(63, direction));
    };
    const int64_t there = op("and", kPred, {count}, {bound("GE", 0), bound("LT", rows)});
    const int64_t found = op("gather", kF32, {count, width}, {array, places},
                             bytes(33, index_dims()) + packed(34, {1, width}));
    return op("select", kF32, {count, width},
              {broadcast(there, {count, width}, {0}, kPred), found,
               broadcast(number(0), {count, width})});
  }
  /// Sums by place.
  int64_t added(int64_t places, int64_t values, int64_t rows, int64_t width) {
    const int64_t zeros = broadcast(number(0), {rows, width});
    return op("scatter", kF32, {rows, width}, {zeros, places, values},
              bytes(48, index_dims()) + calls({1}));
  }
  /// `shapes`: of the results. Result i is in the memory of argument i, if `in_place`.
  std::string finish(const Ints& results, const std::vector<std::string>& shapes, bool in_place) {
    add({"tuple", tuple_shape(shapes), results});
    const std::string scalar = shape(kF32, {});
    const std::string sum = computation("sum", 1,
                                        {compiler::hlo_bytes::parameter(0, scalar),
                                         compiler::hlo_bytes::parameter(1, scalar),
                                         {"add", scalar, {1, 2}}});
    std::string aliases;
    for (size_t i = 0; in_place && i < results.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      aliases += bytes(1, packed(1, {at}) + compiler::hlo_bytes::number(2, at) +
                              compiler::hlo_bytes::number(4, 1));
    }
    return module({sum, computation("main", 2, all_)}, in_place ? bytes(8, aliases) : "");
  }

 private:
  // Of rows, for gather and scatter.
  static std::string index_dims() {
    return packed(1, {1}) + packed(2, {0}) + packed(3, {0}) + compiler::hlo_bytes::number(4, 1);
  }

  std::vector<Instruction> all_;
  std::string groups_;
  int64_t parameters_ = 0;
};

/// Of a feature: what this core wants, and the places of what all want in the rows of this core.
struct Lists {
  int64_t count = 0, places = 0, samples = 0, weights = 0;
};

Lists lists_of(Program& to, const Embeddings& all, size_t feature, const EmbeddingIds& form) {
  Lists lists{all.cores * form.count};
  const int64_t ids = to.gathered(to.parameter(kS32, {form.count}), {lists.count}, kS32);
  lists.places = to.of_core(ids, lists.count, all.rows_by_core(all.features[feature].table));
  if (form.combined) {
    lists.samples = to.parameter(kS32, {form.count});
    lists.weights = to.parameter(kF32, {form.count});
  }
  return lists;
}

std::string lookup(const Embeddings& all, const std::vector<EmbeddingIds>& forms) {
  Program to(all.cores);
  Ints tables, results;
  std::vector<std::string> shapes;
  for (size_t t = 0; t < all.tables.size(); ++t) {
    tables.push_back(to.parameter(kF32, {all.rows_by_core(t), all.tables[t].width}));
  }
  for (size_t f = 0; f < forms.size(); ++f) {
    const EmbeddingFeature& feature = all.features[f];
    const int64_t width = all.tables[feature.table].width, samples = feature.samples();
    const Lists lists = lists_of(to, all, f, forms[f]);
    int64_t vectors = to.rows_at(tables[feature.table], lists.places, lists.count,
                                 all.rows_by_core(feature.table), width);
    if (forms[f].combined) {
      const int64_t weights = to.gathered(lists.weights, {lists.count}, kF32);
      const int64_t own = to.of_core(lists.samples, forms[f].count, -samples);
      vectors = to.math("multiply", {lists.count, width},
                        {vectors, to.broadcast(weights, {lists.count, width}, {0})});
      vectors =
          to.added(to.gathered(own, {lists.count}, kS32), vectors, all.cores * samples, width);
    }
    results.push_back(to.scattered_sum(vectors, {samples, width}));
    shapes.push_back(shape(kF32, {samples, width}));
  }
  return to.finish(results, shapes, false);
}

Ints updated(Program& to, const Ints& dims, const Ints& old, int64_t gradient, int64_t rate) {
  const int64_t rates = to.broadcast(rate, dims);
  const int64_t squares = to.math("multiply", dims, {gradient, gradient});
  int64_t step = to.math("multiply", dims, {rates, gradient});
  Ints slots;
  if (old.size() == 2) {
    slots = {to.math("add", dims, {old[1], squares})};
    step = to.math("divide", dims, {step, to.math("sqrt", dims, {slots[0]})});
  } else if (old.size() == 3) {
    const int64_t half = to.broadcast(to.number(0.5F), dims);
    slots = {to.math("add", dims, {to.math("multiply", dims, {half, old[1]}), gradient}),
             to.math("add", dims, {old[2], squares})};
    step = to.math("multiply", dims, {rates, slots[0]});
  }
  slots.insert(slots.begin(), to.math("subtract", dims, {old[0], step}));
  return slots;
}

std::string update(const Embeddings& all, const std::vector<EmbeddingIds>& forms) {
  Program to(all.cores);
  std::vector<Ints> tables(all.tables.size());
  for (size_t t = 0; t < tables.size(); ++t) {
    for (size_t i = 0; i < all.tables[t].arrays; ++i) {
      tables[t].push_back(to.parameter(kF32, {all.rows_by_core(t), all.tables[t].width}));
    }
  }
  Ints gradients(tables.size());
  for (size_t f = 0; f < forms.size(); ++f) {
    const EmbeddingFeature& feature = all.features[f];
    const int64_t rows = all.rows_by_core(feature.table), width = all.tables[feature.table].width;
    const Lists lists = lists_of(to, all, f, forms[f]);
    int64_t values = to.parameter(kF32, {feature.samples(), width});
    if (forms[f].combined) {
      const int64_t count = forms[f].count;
      values = to.math("multiply", {count, width},
                       {to.rows_at(values, lists.samples, count, feature.samples(), width),
                        to.broadcast(lists.weights, {count, width}, {0})});
    }
    values = to.gathered(values, {lists.count, width}, kF32);
    int64_t& sum = gradients[feature.table];
    const int64_t own = to.added(lists.places, values, rows, width);
    sum = sum == 0 ? own : to.math("add", {rows, width}, {sum, own});
  }
  const int64_t rate = to.parameter(kF32, {});
  Ints results;
  std::vector<std::string> shapes;
  for (size_t t = 0; t < tables.size(); ++t) {
    const Ints dims{all.rows_by_core(t), all.tables[t].width};
    for (const int64_t result : updated(to, dims, tables[t], gradients[t], rate)) {
      results.push_back(result);
      shapes.push_back(shape(kF32, dims));
    }
  }
  return to.finish(results, shapes, true);
}

}  // namespace
}  // namespace tpu::tensorflow

#pragma GCC visibility push(default)
extern "C" {

void tpuboard_tf_embeddings(const char* config, size_t size, tpu::tensorflow::Embeddings& read,
                            tpu::tensorflow::Outcome& outcome) {
  read.config.assign(config, size);
  read.rates = 1;
  std::istringstream text(read.config);
  for (std::string word; text >> word;) {
    if (word == "cores") {
      text >> read.cores;
    } else if (word == "table") {
      auto& table = read.tables.emplace_back();
      text >> table.name >> table.rows >> table.width >> table.arrays;
    } else if (word == "feature") {
      auto& feature = read.features.emplace_back();
      text >> feature.name >> feature.table >> feature.dims.emplace_back();
    } else {
      constexpr int kUnimplemented = 12;
      outcome = {kUnimplemented, "no " + word + " in embeddings"};
      return;
    }
  }
}

void tpuboard_tf_embedding_program(const tpu::tensorflow::Embeddings& embeddings, bool update,
                                   const std::vector<tpu::tensorflow::EmbeddingIds>& ids,
                                   tpu::tensorflow::Lowered& lowered) {
  auto& fake = tpu::tensorflow::fake();
  ++fake.programs;
  ++fake.waiting;
  while (fake.held) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  --fake.waiting;
  if (fake.refused) {
    constexpr int kResourceExhausted = 8;
    lowered.error_code = kResourceExhausted;
    lowered.error = "no room for embeddings";
    return;
  }
  lowered.hlo =
      update ? tpu::tensorflow::update(embeddings, ids) : tpu::tensorflow::lookup(embeddings, ids);
}

void tpuboard_tf_embedding_call(const tpu::tensorflow::Embeddings& /*embeddings*/,
                                tpu::tensorflow::EmbeddingCall /*call*/,
                                tpu::tensorflow::Lowered& /*lowered*/) {}

void tpuboard_tf_host_tensor(const void* tensor, tpu::tensorflow::HostTensor& read) {
  read = *static_cast<const tpu::tensorflow::HostTensor*>(tensor);
}

tpu::test::FakeEmbeddings* tpuboard_fake_embeddings() { return &tpu::tensorflow::fake(); }

}  // extern "C"
#pragma GCC visibility pop
