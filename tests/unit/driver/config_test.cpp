// Training configurations: what is accepted, and that each mistake is named with file and line.
#include <gtest/gtest.h>

#include "cli/train_config.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

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
  EXPECT_EQ(config.labels, "/abs/labels.u8");
  EXPECT_EQ(config.split_seed, 7u);
  EXPECT_EQ(config.eval_count, 10u);
  EXPECT_EQ(config.batch, 200);
  EXPECT_EQ(config.epochs, 2);
  EXPECT_EQ(config.eval_every, 0);
  EXPECT_EQ(config.checkpoint, "ck");
}

TEST(TrainConfig, NamesFileLineAndKeyOfMistakes) {
  const auto has = [](const std::string& text, const std::string& part) {
    const std::string message = refusal(text);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  has(changed("batch = 200", "bach = 200"), "run.batch is missing");
  has(changed("epochs = 2", "epochs = 2\nspeed = 9"), "c.toml:18: unknown key run.speed");
  has(changed("epochs = 2", "epochs = 0"),
      "c.toml:17: run.epochs must be an integer of at least 1");
  has(changed("epochs = 2", "epochs = 2.5"), "run.epochs must be an integer");
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

}  // namespace
}  // namespace tpu::driver
