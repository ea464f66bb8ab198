// TPUEmbedding without TensorFlow: its functions as TensorFlow's operations call them, and steps on
// two cores. The programs of lookups and updates are those of fake_embeddings.cpp.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <thread>

#include "fake_embeddings.hpp"
#include "hlo_bytes.hpp"
#include "loaded_library.hpp"
#include "lowering/lowered.hpp"

namespace tpu::test {
namespace {

using compiler::hlo_bytes::Ints;
using tensorflow::HostTensor;

constexpr int kCores = 2, kResourceExhausted = 8;
constexpr int64_t kRows = 7, kWidth = 4, kSamples = 4;  // rows do not divide by cores
constexpr size_t kNumbers = kSamples * kWidth;
constexpr float kRate = 0.5F;
constexpr char kChannel = 3;
constexpr int kInference = 1, kTraining = 2;  // Mode of TPUEmbeddingConfiguration

using Numbers = std::vector<float>;
using Ids = std::vector<int32_t>;

/// Rows, of the whole table.
struct Table {
  std::vector<Numbers> arrays;

  float& at(size_t array, int64_t row, int64_t column) {
    return arrays[array][static_cast<size_t>(row * kWidth + column)];
  }
};

/// The ids of the feature for the samples of a core. Without `samples` there is one for each.
struct Given {
  Ids ids, samples;
};

// HloModuleProtos of steps. The arguments are x of the host and the vectors of the feature. The
// result is a sum of both; for the tables there are gradients, and the learning rate.
enum class Gradients { kNone, kArgument, kOfHost };
std::string step_module(Gradients gradients) {
  using namespace compiler::hlo_bytes;  // NOLINT: the words of the program
  const std::string all = shape(kF32, {kSamples, kWidth}), one = shape(kF32, {});
  const std::string token = shape(kToken, {}), unsigned_number = shape(kU32, {});
  std::string rate(sizeof kRate, '\0');
  std::memcpy(rate.data(), &kRate, sizeof kRate);
  std::vector<Instruction> step{parameter(0, all),
                                parameter(1, all),
                                {"constant", one, {}, bytes(8, bytes(1, one) + bytes(8, rate))},
                                {"add", all, {1, 2}}};
  if (gradients == Gradients::kNone) {
    return module({computation("main", 1, step)});
  }
  int64_t gradient = 1;
  if (gradients == Gradients::kOfHost) {
    const std::string host = number(26, kChannel) + number(47, 1);
    step.push_back({"after-all", token});
    step.push_back({"recv", tuple_shape({all, unsigned_number, token}), {5}, host});
    step.push_back({"recv-done", tuple_shape({all, token}), {6}, host});
    step.push_back({"get-tuple-element", all, {7}, number(13, 0)});
    gradient = 8;
  }
  step.push_back({"tuple", tuple_shape({all, all, one}), {4, gradient, 3}});
  return module({computation("main", 1, step)});
}

/// x + the sum of x over all cores.
std::string sum_module() {
  using namespace compiler::hlo_bytes;  // NOLINT: the words of the program
  const std::string all = shape(kF32, {kSamples, kWidth}), one = shape(kF32, {});
  return module(
      {computation("sum", 1, {parameter(0, one), parameter(1, one), {"add", one, {1, 2}}}),
       computation("main", 2,
                   {parameter(0, all),
                    {"all-reduce", all, {1}, calls({1}) + bytes(49, packed(1, {0, 1}))},
                    {"add", all, {1, 2}}})});
}

/// `header`: fake_lowering.cpp.
XLA_TpuProgram* compile(const std::array<char, 4>& header, const std::string& module) {
  const std::string request = std::string(header.begin(), header.end()) + module;
  XLA_TpuProgram** programs = nullptr;
  size_t count = 0;
  const Status status;
  TPU_TF(TpuCompile_CompileAndBuild)
  ({request.data(), request.size()}, nullptr, &programs, &count, status);
  EXPECT_EQ(status.code(), kOk) << status.text();
  XLA_TpuProgram* const program = programs[0];
  TPU_TF(TpuProgram_FreeArray)(programs);
  return program;
}

class TfEmbedding : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::dlopen(TPU_TF_FAKE, RTLD_NOW | RTLD_GLOBAL), nullptr) << ::dlerror();
    void* const lowering = ::dlopen(TPU_TF_FAKE_LOWERING, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(lowering, nullptr) << ::dlerror();
    fake_ = reinterpret_cast<FakeEmbeddingsFunction*>(::dlsym(lowering, kFakeEmbeddingsFunction))();
    fake_->programs = 0;
    for (int core = 0; core < kCores; ++core) {
      cores_[at(core)] = std::make_unique<Core>(core);
    }
    step_ = compile({kCores, 1, 2, 0}, step_module(Gradients::kArgument));
    evaluation_ = compile({kCores, 1, 0, 0}, step_module(Gradients::kNone));
    by_host_ = compile({kCores, 1, 2, kChannel}, step_module(Gradients::kOfHost));
    sum_ = compile({kCores, 0, 0, 0}, sum_module());
    configure(1);
  }

  static size_t at(int core) { return static_cast<size_t>(core); }
  const Core& core(int number) const { return *cores_[at(number)]; }

  /// Tables of zeros.
  void make_tables(size_t arrays) {
    const std::string config = "cores 2 table t 7 4 " + std::to_string(arrays) + " feature f 0 4";
    size_t size = 0;
    char* text = nullptr;
    const Status status;
    TpuEmbeddingEngine_ConfigureHost_Params params{};
    params.tpu_embedding_config = {config.data(), config.size()};
    params.network_config_size = &size;
    params.network_config = &text;
    params.status = status;
    TPU_TF(TpuEmbeddingEngine_ConfigureHost)(&params);
    EXPECT_EQ(status.code(), kOk) << status.text();
    std::free(text);
    table_.arrays.assign(arrays, Numbers(kRows * kWidth));
  }
  void configure(size_t arrays) {
    make_tables(arrays);
    for (size_t i = 0; i < arrays; ++i) {
      Numbers& numbers = table_.arrays[i];
      std::iota(numbers.begin(), numbers.end(), static_cast<float>(10 * (i + 1)));
    }
    write();
  }

  template <typename Function>
  void transfer(Function* call, std::vector<Numbers>& arrays, const Status& status) const {
    std::vector<FloatListRef> lists(arrays.size());
    std::vector<FloatListRef*> tables(arrays.size());
    TpuEmbeddingEngineParameters params{};
    params.num_tables = 1;
    for (size_t i = 0; i < arrays.size(); ++i) {
      lists[i].ptr = arrays[i].data();
      lists[i].size = static_cast<int64_t>(arrays[i].size());
      tables[i] = &lists[i];
      params.parameters[i] = &tables[i];
    }
    call(&params, status);
  }
  void write() {
    const Status status;
    transfer(TPU_TF(TpuEmbeddingEngine_WriteParameters), table_.arrays, status);
    EXPECT_EQ(status.code(), kOk) << status.text();
  }
  std::vector<Numbers> read() const {
    std::vector<Numbers> arrays(table_.arrays.size(), Numbers(kRows * kWidth));
    const Status status;
    transfer(TPU_TF(TpuEmbeddingEngine_ReadParameters), arrays, status);
    EXPECT_EQ(status.code(), kOk) << status.text();
    return arrays;
  }

  /// With the combiner "mean".
  void enqueue(int number, const Given& given, int mode, const Status& status) const {
    HostTensor indices{3, {}, nullptr}, ids{3, {}, given.ids.data()}, weights{1, {0}, nullptr};
    ids.dims = {static_cast<int64_t>(given.ids.size())};
    Ids coordinates;
    for (const int32_t sample : given.samples) {
      coordinates.insert(coordinates.end(), {sample, 0});
    }
    indices.dims = given.samples.empty() ? Ints{0} : Ints{ids.dims[0], 2};
    indices.bytes = coordinates.data();
    char mean[] = "mean";
    char* combiner = mean;
    TpuEmbedding_TensorBatchFixedState_Create_Params fixed{};
    fixed.combiners_size = 1;
    fixed.combiners = &combiner;
    fixed.status = status;
    std::array<TF_Tensor*, 3> tensors{};
    std::ranges::transform(std::array{&indices, &ids, &weights}, tensors.begin(),
                           [](HostTensor* one) { return reinterpret_cast<TF_Tensor*>(one); });
    TpuEmbeddingEngine_EnqueueTensorBatch_Params params{};
    params.mode = mode;
    params.local_device_ordinal = number;
    params.fixed_state = TPU_TF(TpuEmbeddingTensorBatchFixedState_Create)(&fixed);
    params.sample_indices_tensors = &tensors[0];
    params.embedding_indices_tensors = &tensors[1];
    params.aggregation_weights_tensors = &tensors[2];
    params.sample_indices_tensors_size = params.embedding_indices_tensors_size =
        params.aggregation_weights_tensors_size = 1;
    params.status = status;
    TPU_TF(TpuEmbeddingEngine_EnqueueTensorBatch)(&params);
    TPU_TF(TpuEmbeddingTensorBatchFixedState_Destroy)(params.fixed_state);
  }
  void enqueue(const std::array<Given, kCores>& given, int mode = kTraining) const {
    for (int number = 0; number < kCores; ++number) {
      const Status status;
      enqueue(number, given[at(number)], mode, status);
      EXPECT_EQ(status.code(), kOk) << status.text();
    }
  }

  /// A launch on one core, whose argument and result are numbers.
  void launch(int number, XLA_TpuProgram* program, SE_DeviceMemoryBase argument,
              SE_DeviceMemoryBase result, TF_Status* status) const {
    SE_OutsideCompilationParams host{};
    host.device_name = const_cast<char*>(name_);
    TpuExecutable_LoadProgramAndEnqueueToStream_Params params{};
    params.outside_compilation_params = &host;
    params.program = program;
    params.arguments = &argument;
    params.arguments_len = 1;
    params.result = &result;
    params.stream = core(number).stream;
    params.status = status;
    TPU_TF(TpuExecutable_LoadProgramAndEnqueueToStream)(&params);
  }
  SE_DeviceMemoryBase memory(int number) const {
    return core(number).allocate(kNumbers * sizeof(float));
  }

  using Arrays = std::array<SE_DeviceMemoryBase, kCores>;
  Arrays launch(XLA_TpuProgram* program, const Arrays& arguments) const {
    Arrays results{};
    for (int number = 0; number < kCores; ++number) {
      const Status status;
      results[at(number)] = memory(number);
      launch(number, program, arguments[at(number)], results[at(number)], status);
      EXPECT_EQ(status.code(), kOk) << status.text();
    }
    return results;
  }
  using Found = std::array<std::pair<Numbers, std::string>, kCores>;
  /// The results, or the errors of their reads.
  Found found(const Arrays& results) const {
    Found all;
    for (int number = 0; number < kCores; ++number) {
      all[at(number)] = from_device(core(number), kNumbers, results[at(number)]);
    }
    return all;
  }

  static float gradient_of(int number, int64_t sample, int64_t column) {
    return 0.125F * static_cast<float>(number + 2 * sample - column);
  }
  SE_DeviceMemoryBase written(int number, const Numbers& numbers) const {
    const SE_DeviceMemoryBase there = memory(number);
    to_device(core(number), numbers, there);
    return there;
  }
  Arrays zeros() const { return {written(0, Numbers(kNumbers)), written(1, Numbers(kNumbers))}; }
  Arrays gradients() const {
    Arrays arrays{};
    for (int number = 0; number < kCores; ++number) {
      Numbers numbers;
      for (int64_t sample = 0; sample < kSamples; ++sample) {
        for (int64_t column = 0; column < kWidth; ++column) {
          numbers.push_back(gradient_of(number, sample, column));
        }
      }
      arrays[at(number)] = written(number, numbers);
    }
    return arrays;
  }

  /// By sample: how often it has each row.
  static std::vector<std::map<int32_t, int>> rows_of(const Given& given) {
    std::vector<std::map<int32_t, int>> rows(kSamples);
    for (size_t i = 0; i < given.ids.size(); ++i) {
      ++rows[given.samples.empty() ? i : at(given.samples[i])][given.ids[i]];
    }
    return rows;
  }
  static float share(const std::map<int32_t, int>& rows, int times) {
    int all = 0;
    for (const auto& [row, count] : rows) {
      all += count;
    }
    return static_cast<float>(times) / static_cast<float>(all);
  }

  /// Also makes table_ what it is behind the step.
  void check_step(const std::array<Given, kCores>& given) {
    enqueue(given);
    const Found results = found(launch(step_, gradients()));
    Table sums{{Numbers(kRows * kWidth)}};
    for (int number = 0; number < kCores; ++number) {
      const auto& [numbers, error] = results[at(number)];
      EXPECT_EQ(error, "");
      const auto rows = rows_of(given[at(number)]);
      for (int64_t sample = 0; sample < kSamples; ++sample) {
        for (int64_t column = 0; column < kWidth; ++column) {
          const float gradient = gradient_of(number, sample, column);
          float expected = gradient;
          for (const auto& [row, times] : rows[static_cast<size_t>(sample)]) {
            const float factor = share(rows[static_cast<size_t>(sample)], times);
            expected += factor * table_.at(0, row, column);
            sums.at(0, row, column) += factor * gradient;
          }
          check_near(numbers[static_cast<size_t>(sample * kWidth + column)], expected);
        }
      }
    }
    update(sums);
    const std::vector<Numbers> now = read();
    for (size_t i = 0; i < now.size(); ++i) {
      for (size_t k = 0; k < now[i].size(); ++k) {
        check_near(now[i][k], table_.arrays[i][k]);
      }
    }
    table_.arrays = now;
  }
  static void check_near(float number, float expected) {
    EXPECT_NEAR(number, expected, 1e-5F * (1 + std::abs(expected)));
  }
  void update(Table& sums) {
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t column = 0; column < kWidth; ++column) {
        const float gradient = sums.at(0, row, column);
        const auto array = [&](size_t i) -> float& { return table_.at(i, row, column); };
        if (table_.arrays.size() == 1) {
          array(0) -= kRate * gradient;
        } else if (table_.arrays.size() == 2) {
          array(1) += gradient * gradient;
          array(0) -= kRate * gradient / std::sqrt(array(1));
        } else {
          array(1) = array(1) / 2 + gradient;
          array(2) += gradient * gradient;
          array(0) -= kRate * array(1);
        }
      }
    }
  }

  /// Both cores have an error that has all parts.
  void check_refused(int code, const std::vector<std::string>& parts) const {
    for (int number = 0; number < kCores; ++number) {
      const Status enqueued, launched;
      enqueue(number, {{0, 0, 0, 0}, {}}, kTraining, enqueued);
      launch(number, step_, memory(number), memory(number), launched);
      for (const Status* const status : {&enqueued, &launched}) {
        EXPECT_EQ(status->code(), code);
        for (const std::string& part : parts) {
          EXPECT_NE(status->text().find(part), std::string::npos) << status->text();
        }
      }
    }
  }

  const std::array<Given, kCores> dense_{{{{0, 6, 2, 6}, {}}, {{2, 3, 2, 2}, {}}}};
  /// Core 0 has an id three times in a sample, and a sample without ids.
  const std::array<Given, kCores> sparse_{
      {{{1, 1, 5, 1, 0, 2}, {0, 0, 0, 0, 1, 3}}, {{6, 1, 2, 0, 1}, {0, 1, 2, 3, 3}}}};

  std::array<std::unique_ptr<Core>, kCores> cores_;
  FakeEmbeddings* fake_ = nullptr;
  XLA_TpuProgram *step_ = nullptr, *evaluation_ = nullptr, *by_host_ = nullptr, *sum_ = nullptr;
  char name_[48] = "/job:worker/replica:0/task:0/device:TPU:0";
  Table table_;
};

TEST_F(TfEmbedding, LooksUpAndUpdatesTheRowsOfTheIds) {
  for (const size_t arrays : {1U, 2U, 3U}) {
    configure(arrays);
    const std::array<Given, kCores> mixed{dense_[0], sparse_[1]};
    for (const auto& given : {dense_, sparse_, mixed, dense_}) {
      SCOPED_TRACE(arrays);
      check_step(given);
    }
  }
}

TEST_F(TfEmbedding, AnEvaluationChangesNothing) {
  enqueue(dense_, kInference);
  const Found results = found(launch(evaluation_, zeros()));
  for (int number = 0; number < kCores; ++number) {
    const auto& [numbers, error] = results[at(number)];
    EXPECT_EQ(error, "");
    EXPECT_EQ(numbers[0], table_.at(0, dense_[at(number)].ids[0], 0));
  }
  EXPECT_EQ(read(), table_.arrays);
  check_step(dense_);
}

TEST_F(TfEmbedding, FromACheckpointItContinuesBitByBit) {
  configure(3);
  check_step(dense_);
  check_step(sparse_);
  const std::vector<Numbers> saved = read();
  check_step(sparse_);
  const std::vector<Numbers> expected = read();
  configure(3);
  table_.arrays = saved;
  write();
  EXPECT_EQ(read(), saved);
  check_step(sparse_);
  EXPECT_EQ(read(), expected);
}

TEST_F(TfEmbedding, ATableOfAnotherSizeIsAnErrorThatChangesNothing) {
  std::vector<Numbers> wrong{Numbers(kRows * kWidth - 1)};
  const Status status;
  transfer(TPU_TF(TpuEmbeddingEngine_WriteParameters), wrong, status);
  EXPECT_EQ(status.code(), kInvalidArgument);
  EXPECT_EQ(status.text(), "table t of TPUEmbedding: found 27 numbers, expected 28");
  EXPECT_EQ(read(), table_.arrays);
}

TEST_F(TfEmbedding, AWrongIdOfOneCoreIsTheErrorOfAll) {
  const Status good, wrong;
  enqueue(0, dense_[0], kTraining, good);
  EXPECT_EQ(good.code(), kOk) << good.text();
  enqueue(1, {{0, 1, kRows, 1}, {}}, kTraining, wrong);
  EXPECT_EQ(wrong.code(), kInvalidArgument);
  EXPECT_NE(wrong.text().find("feature f of table t: found the id 7, expected 0 to 6"),
            std::string::npos)
      << wrong.text();
  check_refused(kInvalidArgument,
                {"a batch of TPUEmbedding is lost", "found the id 7", "restore()"});
  EXPECT_EQ(read(), table_.arrays);
  write();
  check_step(dense_);
}

// The host gives the gradients while the step runs.
TEST_F(TfEmbedding, TheTablesStayWhenTheHostFails) {
  configure(2);
  check_step(dense_);
  const Arrays without_gradients = zeros();
  fake_->host_fails = true;
  enqueue(dense_);
  const Arrays results = launch(by_host_, zeros());
  enqueue(sparse_);
  const Arrays behind = launch(step_, without_gradients);
  for (const auto& [numbers, error] : found(results)) {
    EXPECT_NE(error.find("the host has no ones"), std::string::npos) << error;
  }
  for (const auto& [numbers, error] : found(behind)) {
    EXPECT_EQ(error, "");
  }
  fake_->host_fails = false;
  EXPECT_EQ(read(), table_.arrays);
  check_step(sparse_);
  enqueue(dense_);
  for (const auto& [numbers, error] : found(launch(by_host_, zeros()))) {
    EXPECT_EQ(error, "");
  }
  EXPECT_NE(read(), table_.arrays);
  table_.arrays = read();
  check_step(dense_);
}

TEST_F(TfEmbedding, TheTablesStayWhenTheHostFailsBehindAStepThatRuns) {
  const Arrays own = gradients(), none = zeros(), behind = zeros();
  Arrays slow = zeros();
  for (int i = 0; i < 100; ++i) {
    slow = launch(sum_, slow);
  }
  enqueue(dense_);
  launch(step_, own);
  fake_->host_fails = true;
  enqueue(dense_);
  const Arrays failed = launch(by_host_, none);
  enqueue(sparse_);
  const Arrays results = launch(step_, behind);
  for (const auto& [numbers, error] : found(failed)) {
    EXPECT_NE(error.find("the host has no ones"), std::string::npos) << error;
  }
  for (const auto& [numbers, error] : found(results)) {
    EXPECT_EQ(error, "");
  }
  fake_->host_fails = false;
  table_.arrays = read();
  check_step(sparse_);
}

// The other core has taken the batch. The tables are still there.
TEST_F(TfEmbedding, AStepThatIsNotLaunchedLosesTheBatches) {
  configure(3);
  check_step(dense_);
  enqueue(sparse_);
  const Status good, refused;
  const SE_DeviceMemoryBase result = memory(0);
  launch(0, step_, written(0, Numbers(kNumbers)), result, good);
  EXPECT_EQ(good.code(), kOk) << good.text();
  launch(1, step_, {}, memory(1), refused);  // without an argument
  EXPECT_EQ(refused.code(), kInvalidArgument) << refused.text();
  EXPECT_EQ(from_device(core(0), kNumbers, result).second, "");  // it exchanges nothing
  check_refused(kInvalidArgument, {"is lost (device address 0x0", "restore()"});
  EXPECT_EQ(read(), table_.arrays);
  write();
  check_step(dense_);
  check_step(sparse_);
}

// Its core waits for the batch of the other one.
TEST_F(TfEmbedding, AStepOfTablesOfBeforeDoesNotLoseTheNewOnes) {
  const Status enqueued, launched;
  enqueue(0, dense_[0], kTraining, enqueued);
  EXPECT_EQ(enqueued.code(), kOk) << enqueued.text();
  const SE_DeviceMemoryBase argument = written(0, Numbers(kNumbers)), result = memory(0);
  std::thread waits([&] { launch(0, step_, argument, result, launched); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  make_tables(1);
  waits.join();
  EXPECT_NE(launched.text().find("TPUEmbedding was configured again"), std::string::npos)
      << launched.text();
  check_step(dense_);
}

TEST_F(TfEmbedding, RaggedBatchesHaveFewPrograms) {
  std::mt19937 random(1);
  std::uniform_int_distribution<size_t> counts(0, 200);
  std::uniform_int_distribution<int32_t> ids(0, kRows - 1), samples(0, kSamples - 1);
  for (int i = 0; i < 40; ++i) {
    std::array<Given, kCores> given;
    for (Given& each : given) {
      each.samples.resize(counts(random) + 1);
      each.ids.resize(each.samples.size());
      std::ranges::generate(each.ids, [&] { return ids(random); });
      std::ranges::generate(each.samples, [&] { return samples(random); });
    }
    SCOPED_TRACE(i);
    check_step(given);
  }
  EXPECT_LE(fake_->programs, 2 * 6);  // lookups and updates with 8, 16, ... 256 ids
}

TEST_F(TfEmbedding, AProgramThatDoesNotFitFailsBeforeTheStep) {
  fake_->refused = true;
  enqueue(dense_);
  const Status status;
  launch(0, step_, memory(0), memory(0), status);
  EXPECT_EQ(status.code(), kResourceExhausted) << status.text();
  EXPECT_NE(status.text().find("no room for embeddings"), std::string::npos) << status.text();
  check_refused(kResourceExhausted, {"is lost (no room for embeddings)"});
  fake_->refused = false;
  write();
  check_step(dense_);
}

// A program of the tables is compiled, which takes long.
TEST_F(TfEmbedding, EnqueueDoesNotWaitForTheTables) {
  enqueue(dense_);
  fake_->held = true;
  const Arrays arguments = zeros(), results{memory(0), memory(1)};
  std::thread first([&] {
    const Status status;
    launch(0, step_, arguments[0], results[0], status);
    EXPECT_EQ(status.code(), kOk) << status.text();
  });
  while (fake_->waiting == 0) {
    std::this_thread::yield();
  }
  enqueue(sparse_);
  EXPECT_EQ(fake_->waiting, 1);
  fake_->held = false;
  first.join();
  const Status status;
  launch(1, step_, arguments[1], results[1], status);
  EXPECT_EQ(status.code(), kOk) << status.text();
  for (const auto& [numbers, error] : found(results)) {
    EXPECT_EQ(error, "");
  }
  EXPECT_EQ(read(), table_.arrays);  // the gradients were zeros
}

}  // namespace
}  // namespace tpu::test
