// The whole state from a .npz file or a folder of checkpoints, and what is refused.
#include "checkpoint/whole_state.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zip.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "checkpoint/checkpoint_folder.hpp"
#include "file/files.hpp"
#include "format/npy.hpp"
#include "tpu/error.hpp"

namespace tpu::training {
namespace {

namespace fs = std::filesystem;
using driver::DType;
using driver::Error;
using driver::HostArray;
using driver::ParameterInfo;
using ::testing::HasSubstr;

HostArray numbers(std::vector<float> values) {
  HostArray array{DType::kF32, {static_cast<int64_t>(values.size())}, {}};
  array.bytes.resize(values.size() * sizeof(float));
  std::memcpy(array.bytes.data(), values.data(), array.bytes.size());
  return array;
}

class WholeState : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() /
              (std::string("tpu_whole_state_") +
               ::testing::UnitTest::GetInstance()->current_test_info()->name() +
               std::to_string(getpid()));
    fs::create_directories(folder_);
    leaves_.resize(2);
    for (ParameterInfo& leaf : leaves_) {
      leaf.dtype = DType::kF32;
      leaf.shape = {2};
    }
    leaves_[1].name = "params['bias']";
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string npz(const std::vector<std::pair<std::string, HostArray>>& arrays) const {
    std::string path = (folder_ / "s.npz").string();
    zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
    std::vector<std::vector<std::byte>> members;
    members.reserve(arrays.size());
    for (const auto& [name, array] : arrays) {
      const std::string file = (folder_ / "member.npy").string();
      driver::write_npy(file, array);
      members.push_back(driver::read_file(file));
      zip_file_add(archive, (name + ".npy").c_str(),
                   zip_source_buffer(archive, members.back().data(), members.back().size(), 0), 0);
    }
    zip_close(archive);
    return path;
  }

  void save(int64_t step, const std::vector<HostArray>& leaves) {
    Checkpoint checkpoint;
    checkpoint.step = step;
    checkpoint.losses.resize(static_cast<size_t>(step));
    checkpoint.leaves = leaves;
    write_checkpoint(checkpoint_file(step), checkpoint);
  }
  std::string checkpoint_file(int64_t step) const {
    return (folder_ / CheckpointName{.run = 1, .step = step}.text()).string();
  }

  // Of all leaves one after the other, or what is refused.
  std::string load(const std::string& path) {
    try {
      std::string text;
      for (const HostArray& leaf :
           load_state(path, leaves_, [this](const std::string& said) { said_.push_back(said); })) {
        for (size_t i = 0; i < leaf.bytes.size(); i += sizeof(float)) {
          float value = 0;
          std::memcpy(&value, leaf.bytes.data() + i, sizeof(value));
          text += std::to_string(static_cast<int>(value)) + " ";
        }
      }
      return text;
    } catch (const Error& error) {
      return error.message();
    }
  }

  fs::path folder_;
  std::vector<ParameterInfo> leaves_;
  std::vector<std::string> said_;
};

TEST_F(WholeState, ArraysGoToTheLeavesOfTheirNames) {
  const HostArray a = numbers({1, 2});
  const HostArray b = numbers({3, 4});
  EXPECT_EQ(load(npz({{"arr_0", a}, {"arr_1", b}})), "1 2 3 4 ");
  EXPECT_EQ(load(npz({{"params['bias']", b}, {"state.0", a}})), "1 2 3 4 ");
}

TEST_F(WholeState, EveryLeafThatIsMissingOrTooManyIsNamed) {
  const std::string text =
      load(npz({{"arr_1", numbers({1, 2})}, {"arr_2", numbers({1})}, {"state.1", numbers({1})}}));
  EXPECT_THAT(text, HasSubstr("s.npz: expected the whole state of the program"));
  EXPECT_THAT(text, HasSubstr("array \"arr_2\" matches no leaf; arrays \"arr_1\" and \"state.1\" "
                              "both match leaf 1; no array matches leaf 0 f32[2]"));
  EXPECT_THAT(load(npz({{"arr_0", numbers({1, 2})}})),
              HasSubstr("no array matches leaf 1 (params['bias']) f32[2]"));
}

TEST_F(WholeState, ALeafOfAnotherShapeIsNamed) {
  EXPECT_THAT(load(npz({{"arr_0", numbers({1, 2})}, {"arr_1", numbers({1, 2, 3})}})),
              HasSubstr("s.npz: state leaf 1 (params['bias']) f32[2] is f32[3] there"));
}

TEST_F(WholeState, TheNewestCompleteCheckpointOfAFolderIsTaken) {
  save(9, {numbers({1, 2}), numbers({3, 4})});
  save(20, {numbers({5, 6}), numbers({7, 8})});
  EXPECT_EQ(load(folder_.string()), "5 6 7 8 ");
  EXPECT_TRUE(said_.empty());
  std::ofstream(checkpoint_file(20), std::ios::app) << "more";
  EXPECT_EQ(load(folder_.string()), "1 2 3 4 ");
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_THAT(said_[0], HasSubstr("step20.safetensors"));
  EXPECT_THAT(said_[0], HasSubstr("; this checkpoint is skipped"));
  EXPECT_TRUE(fs::exists(checkpoint_file(20)));  // the folder may be another run's
  // One that cannot be opened just now is not known to be worse.
  fs::create_symlink(fs::path(checkpoint_file(30)).filename(), checkpoint_file(30));
  EXPECT_THAT(load(folder_.string()),
              HasSubstr("step30.safetensors: cannot be opened: Too many levels"));
}

TEST_F(WholeState, AFolderWithoutAStateThatFitsIsRefused) {
  EXPECT_THAT(load(folder_.string()), HasSubstr("no complete checkpoint in this folder"));
  save(9, {numbers({1, 2})});
  EXPECT_THAT(load(folder_.string()),
              HasSubstr("step9.safetensors: 1 state leaves, the program has 2"));
  save(10, {numbers({1, 2}), numbers({3})});
  EXPECT_THAT(
      load(folder_.string()),
      HasSubstr("step10.safetensors: state leaf 1 (params['bias']) f32[2] is f32[1] there"));
}

TEST_F(WholeState, AFileThatIsNotThereIsRefused) {
  EXPECT_THAT(load((folder_ / "none.npz").string()), HasSubstr("none.npz"));
}

}  // namespace
}  // namespace tpu::training
