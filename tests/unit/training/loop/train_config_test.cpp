// Training configurations: what is accepted, and that each mistake is named with file and line.
#include "loop/train_config.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "check/checked.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

using training::InitKind;
using training::kMaxEpochs;
using training::load_train_config;
using training::parse_train_config;
using training::TrainConfig;

constexpr const char* kGood = R"([program]
train = "train.tpuexe"
eval = "sub/eval.mlirbc"

[state]
seed = 3
init = ["zeros", "he_normal*2", "ones", "file:w.npy", "glorot_uniform"]

[data]
images = "images.npy"
labels = "/abs/labels.u8"
split_seed = 7
eval_count = 10

[run]
batch = 200
epochs = 2
checkpoint = "ck"
)";

std::string changed(const std::string& from, const std::string& to) {
  std::string text = kGood;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string refusal(const std::string& text) {
  try {
    parse_train_config(text, "c.toml", "dir");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.message();
  }
  return "accepted";
}

TEST(TrainConfig, OneFileServesAnyNumberOfCores) {
  const std::string text =
      changed("\"train.tpuexe\"", "\"step_{batch}_on_{cores}_{batch}.mlirbc\"");
  const auto with = [&](const std::vector<std::string>& changes) {
    return parse_train_config(text, "c.toml", "dir", changes);
  };
  const TrainConfig one = with({"run.cores=1", "run.scale_batch=true"});
  EXPECT_EQ(one.train, "dir/step_200_on_1_200.mlirbc");
  EXPECT_EQ(one.batch, 200);
  const TrainConfig kept = with({"run.cores=8"});
  EXPECT_EQ(kept.train, "dir/step_200_on_8_200.mlirbc");
  EXPECT_EQ(kept.eval, "dir/sub/eval.mlirbc");
  EXPECT_EQ(kept.batch, 200);
  const TrainConfig scaled = with({"run.cores=8", "run.scale_batch=true"});
  EXPECT_EQ(scaled.train, "dir/step_1600_on_8_1600.mlirbc");
  EXPECT_EQ(scaled.batch, 1600);
  EXPECT_EQ(scaled.cores, 8);
  EXPECT_EQ(parse_train_config(kGood, "c.toml", "dir").cores, 0);

  EXPECT_EQ(refusal(text),
            "c.toml: dir/step_200_on_{cores}_200.mlirbc: {cores} in the name of a program needs "
            "run.cores");
  EXPECT_EQ(refusal(changed("batch = 200", "batch = 200\nscale_batch = true")),
            "c.toml:17: run.scale_batch needs run.cores, the factor of run.batch");
  EXPECT_EQ(refusal(changed("batch = 200",
                            "cores = 8\nscale_batch = true\nbatch = "
                            "4611686018427387904")),
            "run.batch times run.cores: the value does not fit into 64 bits; use smaller values");
  for (const char* cores : {"0", "-8", "1025", "\"all\""}) {
    EXPECT_NE(refusal(changed("batch = 200", std::string("batch = 200\ncores = ") + cores))
                  .find("c.toml:17: run.cores must be"),
              std::string::npos)
        << cores;
  }
}

TEST(TrainConfig, TheWholeStateFromOnePlaceNeedsNoInit) {
  const std::string init =
      "init = [\"zeros\", \"he_normal*2\", \"ones\", \"file:w.npy\", \"glorot_uniform\"]\n";
  const TrainConfig config =
      parse_train_config(changed(init, "from = \"old/checkpoint\"\n"), "c.toml", "dir");
  EXPECT_EQ(config.state_from, "dir/old/checkpoint");
  EXPECT_TRUE(config.init.empty());
  EXPECT_EQ(refusal(changed(init, init + "from = \"s.npz\"\n")),
            "c.toml:7: state.from gives the whole state; leave state.init out");
  EXPECT_EQ(refusal(changed(init, "from = \"s.npz\"\nweights = \"w.safetensors\"\n")),
            "c.toml:8: state.from gives the whole state; leave state.weights out");
}

TEST(TrainConfig, ReadsEveryKey) {
  const TrainConfig config = parse_train_config(kGood, "c.toml", "dir");
  EXPECT_EQ(config.train, "dir/train.tpuexe");
  EXPECT_EQ(config.eval, "dir/sub/eval.mlirbc");
  EXPECT_EQ(config.seed, 3u);
  ASSERT_EQ(config.init.size(), 6u);
  EXPECT_EQ(config.init[2].kind, InitKind::kHeNormal);
  EXPECT_EQ(config.init[4].kind, InitKind::kFile);
  EXPECT_EQ(config.init[4].path, "dir/w.npy");
  EXPECT_EQ(config.init[5].kind, InitKind::kGlorotUniform);
  ASSERT_EQ(config.inputs.size(), 2u);
  EXPECT_EQ(config.inputs[0].name, "images");
  EXPECT_EQ(config.inputs[0].file, "dir/images.npy");
  EXPECT_EQ(config.inputs[1].name, "labels");
  EXPECT_EQ(config.inputs[1].file, "/abs/labels.u8");
  EXPECT_TRUE(config.stop_on_nan);
  EXPECT_FALSE(config.learning_rate);
  EXPECT_FALSE(config.early_stop);
  EXPECT_EQ(config.split_seed, 7u);
  EXPECT_EQ(config.eval_count, 10u);
  EXPECT_EQ(config.batch, 200);
  EXPECT_EQ(config.epochs, 2);
  EXPECT_EQ(config.eval_every, 0);
  EXPECT_EQ(config.checkpoint, "ck");
}

constexpr const char* kAny = R"([program]
train = "train.tpuexe"
eval = "eval.tpuexe"
arguments = ["state*4", "tokens", "weights", "learning_rate"]
results = ["state*4", "loss"]
eval_results = ["loss"]
[state]
seed = 3
init = ["constant:1e-3", "normal:0.02*3"]
[data]
split_seed = 7
eval_count = 10
[[data.input]]
name = "tokens"
file = "tokens.npy"
classes = 256
[[data.input]]
name = "weights"
file = "weights.npy"
divide = 1
[run]
batch = 200
epochs = 2
eval_every = 1
stop_on_nan = false
[learning_rate]
schedule = "one_cycle"
value = 0.5
[early_stop]
metric = "accuracy"
patience = 3
)";

TEST(TrainConfig, ReadsInputsListsRatesAndEarlyStop) {
  const TrainConfig config = parse_train_config(kAny, "c.toml", "dir");
  EXPECT_EQ(config.train_signature.arguments.size(), 4u);
  EXPECT_EQ(config.train_signature.results.size(), 2u);
  EXPECT_TRUE(config.eval_signature.arguments.empty());
  ASSERT_EQ(config.init.size(), 4u);
  EXPECT_EQ(config.init[0].kind, InitKind::kConstant);
  EXPECT_EQ(config.init[0].value, 1e-3);
  EXPECT_EQ(config.init[3].kind, InitKind::kNormal);
  EXPECT_EQ(config.init[3].value, 0.02);
  ASSERT_EQ(config.inputs.size(), 2u);
  EXPECT_EQ(config.inputs[0].classes, 256);
  EXPECT_EQ(config.inputs[0].classes_from, "c.toml:16");
  EXPECT_EQ(config.inputs[1].file, "dir/weights.npy");
  EXPECT_EQ(config.inputs[1].divide, 1.0);
  EXPECT_FALSE(config.stop_on_nan);
  EXPECT_EQ(config.learning_rate->schedule, training::Schedule::kOneCycle);
  EXPECT_DOUBLE_EQ(config.learning_rate->start, 0.02);
  EXPECT_TRUE(config.early_stop->rises);
  EXPECT_EQ(config.early_stop->patience, 3);
}

TEST(TrainConfig, NamesMistakesInInputsAndRates) {
  const auto has = [](const std::string& from, const std::string& to, const std::string& part) {
    std::string text = kAny;
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    const std::string message = refusal(text.replace(at, from.size(), to));
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  has("name = \"tokens\"", "name = \"mask\"", "c.toml:14: the name \"mask\" is taken");
  has("name = \"weights\"", "name = \"tokens\"", "c.toml:18: the name \"tokens\" is taken");
  has("name = \"weights\"", "name = \"state2\"", "is taken");
  has("split_seed = 7", "split_seed = 7\nrecords = [\"*.tfrecord\"]",
      "c.toml:16: unknown key data.input.file");
  has("divide = 1", "divide = 0", "c.toml:20: data.input.divide must be a number in");
  has("divide = 1", "scale = 1", "c.toml:20: unknown key data.input.scale");
  has("eval_count = 10", "eval_count = 10\nimages = \"i.npy\"", "c.toml:13: data.images and");
  has("constant:1e-3", "constant:nan", "expected a number after \"constant:\"");
  has("normal:0.02", "normal:-1", "expected a number after \"normal:\"");
  has("one_cycle", "triangle", "learning_rate.schedule = \"triangle\" is unknown");
  has("value = 0.5", "value = -0.5", "learning_rate.value must be a number in");
  has("value = 0.5", "value = 0.5\nwarmup_steps = 9\nsteps = 5", "warmup_steps is more than");
  has("patience = 3", "patience = 0", "early_stop.patience must be an integer of at least 1");
  has("patience = 3", "better = \"up\"", "must be \"more\" or \"less\"");
  has("eval_every = 1\n", "", "[early_stop] looks at evaluations");
  has("stop_on_nan = false", "stop_on_nan = 0", "run.stop_on_nan must be true or false");
}

TEST(TrainConfig, NamesFileLineAndKeyOfMistakes) {
  const auto has = [](const std::string& text, const std::string& part) {
    const std::string message = refusal(text);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  has(changed("batch = 200", "bach = 200"), "run.batch is missing");
  has(changed("images = \"images.npy\"", "records = [\"*.tfrecord\"]"),
      "data.records needs [[data.input]]");
  has(changed("images = \"images.npy\"", "records = []"),
      "data.records names no files; write record files into the list");
  has(changed("eval_count = 10", "input = 3"), "must be written as [[data.input]]");
  has(changed("epochs = 2", "epochs = 2\nspeed = 9"), "c.toml:18: unknown key run.speed");
  has(changed("epochs = 2", "epochs = 0"),
      "c.toml:17: run.epochs must be an integer of at least 1");
  has(changed("epochs = 2", "epochs = 2.5"), "run.epochs must be an integer");
  has(changed("epochs = 2", "epochs = 9223372036854775807"),
      "c.toml:17: run.epochs must be at most 1073741824");
  has(changed("epochs = 2", "epochs = 9223372036854775808"), "c.toml:17");
  has(changed("eval_count = 10", "eval_count = 10\nclasses = 0"),
      "data.classes must be an integer of at least 1");
  has(changed("eval_count = 10", "eval_count = 10\nclasses = 2147483649"),
      "data.classes must be at most 2147483648");
  has(changed("\"ones\"", "\"ones*65536\", \"ones*65536\""), "more than 65536 state leaves");
  has(changed("batch = 200", "batch = \"200\""), "run.batch must be an integer");
  has(changed("seed = 3", "seed = -1"), "state.seed must be an integer of at least 0");
  has(changed("[data]", "[dta]"), "unknown section [dta]");
  has(changed("[program]", "[[program]]"), "must be a section");
  has(changed("\"ones\"", "\"twos\""), "c.toml:7: init \"twos\" is unknown");
  has(changed("*2", "*0"), "a count in 1..65536");
  has(changed("*2", "*2x"), "a count in 1..65536");
  has(changed("file:w.npy", "file:"), "names no file");
  has(changed("\"zeros\"", "5"), "must be a list of texts");
  has(changed("images = \"images.npy\"", "images = 3"), "data.images must be a text");
  has(changed("eval_count = 10", "eval_count = 0"), "eval_count must be at least 1");
  has(changed("seed = 3", "seed = "), "c.toml:6");
  has("", "section [program] is missing");
  EXPECT_THROW(load_train_config("/nowhere/c.toml"), Error);
}

// Damaged files end in a configuration or in an Error, whatever is in them.
TEST(TrainConfig, KeysAreChangedFromOutside) {
  const TrainConfig config = parse_train_config(
      kGood, "c.toml", "dir",
      {"run.batch=64", "program.train=b 64.mlirbc", "run.checkpoint = \"other\"",
       "state.init=[\"ones\"]", "learning_rate.value=0.5", "learning_rate.start=0.25"});
  EXPECT_EQ(config.batch, 64);
  EXPECT_EQ(config.train, "dir/b 64.mlirbc");
  EXPECT_EQ(config.eval, "dir/sub/eval.mlirbc");
  EXPECT_EQ(config.checkpoint, "other");
  EXPECT_EQ(config.init.size(), 1u);
  ASSERT_TRUE(config.learning_rate);  // a section that the file does not have
  EXPECT_EQ(config.learning_rate->start, 0.25);
}

TEST(TrainConfig, NamesMistakesInChanges) {
  const auto refused = [](const std::string& change) {
    try {
      parse_train_config(kGood, "c.toml", "dir", {change});
    } catch (const Error& error) {
      return error.message();
    }
    return std::string("accepted");
  };
  for (const char* text : {"batch=3", "run.batch", "run.batch\nx=1", "run..batch=1", "[run]=1.0"}) {
    EXPECT_EQ(refused(text), std::string("--with ") + text +
                                 ": expected SECTION.KEY=VALUE, for example run.batch=64");
  }
  EXPECT_EQ(refused("run.batch=0"),
            "--with run.batch=0: run.batch must be an integer of at least 1");
  EXPECT_EQ(refused("program.train=3"), "--with program.train=3: program.train must be a text");
  EXPECT_TRUE(refused("run.bach=3").starts_with("--with run.bach=3: unknown key run.bach; known:"));
  EXPECT_TRUE(refused("fun.batch=3").starts_with("--with fun.batch=3: unknown section [fun]"));
  EXPECT_EQ(
      refused("run.batch.x=3"),
      "--with run.batch.x=3: 'batch' is not a section; its parts cannot be changed one by one");
}

TEST(TrainConfig, SurvivesMutations) {
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  const std::vector<std::string> words = {"9223372036854775807",
                                          "-9223372036854775808",
                                          "1e400",
                                          "\"zeros*99999999999999999999\"",
                                          "[",
                                          "]",
                                          "\"",
                                          "\n",
                                          "=",
                                          "[[run]]",
                                          "nan",
                                          "{",
                                          "*",
                                          "\xff",
                                          "0x"};
  for (int i = 0; i < 3000; ++i) {
    std::string text = kGood;
    for (auto n = random() % 3 + 1; n > 0; --n) {
      const size_t at = random() % text.size();
      if (random() % 2 == 0) {
        text.replace(at, random() % 8, words[random() % words.size()]);
      } else {
        text[at] = static_cast<char>(random());
      }
    }
    try {
      const TrainConfig config = parse_train_config(text, "c.toml", "dir");
      EXPECT_GE(config.batch, 1);
      EXPECT_GE(config.epochs, 1);
      EXPECT_LE(config.epochs, kMaxEpochs);
    } catch (const Error&) {
    }
  }
}

TEST(Checked, NothingWrapsAround) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(checked_product<int64_t>(kMost, 1), kMost);
  EXPECT_EQ(checked_product<int64_t>(kMost, 2), std::nullopt);
  EXPECT_EQ(checked_product<int64_t>(1 << 20, -4), -(4 << 20));
  EXPECT_EQ(checked_sum<uint64_t>(~uint64_t{0}, 1), std::nullopt);
  EXPECT_EQ(checked_sum<int64_t>(kMost - 1, 1), kMost);
  EXPECT_THROW(need_fit(checked_sum(kMost, int64_t{1}), "sum"), Error);
  EXPECT_EQ(array_bytes(DType::kI64, {3, 5}, "x"), 120u);
  EXPECT_THROW(array_bytes(DType::kI64, {int64_t{1} << 61}, "x"), Error);
  EXPECT_THROW(array_bytes(DType::kI8, {-1}, "x"), Error);
  EXPECT_EQ(whole_number("18446744073709551615"), ~uint64_t{0});
  EXPECT_EQ(whole_number("18446744073709551616"), std::nullopt);
  EXPECT_EQ(whole_number(""), std::nullopt);
  EXPECT_EQ(whole_number("1x"), std::nullopt);
}

}  // namespace
}  // namespace tpu::driver
