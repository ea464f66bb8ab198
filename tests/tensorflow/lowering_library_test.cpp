// Which library that lowers graphs the plugin takes: one for the TensorFlow of the process, and of
// the same build. Libraries with nothing but versions are in their place.
#include <filesystem>

#include "loaded_library.hpp"

namespace tpu::test {
namespace {

namespace fs = std::filesystem;

// What the launch of a program fails with whose compilation had no library.
std::string failure() {
  const Core core(0);
  const Status status;
  XLA_TpuProgram** programs = nullptr;
  size_t count = 0;
  TPU_TF(TpuCompile_CompileAndBuild)({"", 0}, nullptr, &programs, &count, status);
  EXPECT_EQ(count, 1U) << status.text();
  TpuExecutable_LoadProgramAndEnqueueToStream_Params params{};
  params.program = programs[0];
  params.stream = core.stream;
  params.status = status;
  TPU_TF(TpuExecutable_LoadProgramAndEnqueueToStream)(&params);
  EXPECT_EQ(status.code(), kFailedPrecondition);
  const Status destroyed;
  TPU_TF(TpuProgram_UnloadAndDestroy)(programs[0], destroyed);
  TPU_TF(TpuProgram_FreeArray)(programs);
  return status.text();
}

void expect_failure(std::initializer_list<const char*> parts) {
  const std::string text = failure();
  for (const char* part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << "expected '" << part << "' in: " << text;
  }
}

TEST(TfLoweringLibrary, IsOfTheTensorFlowAndOfTheBuild) {
  const fs::path place = fs::path(TPU_PJRT_LIBRARY).parent_path() / "libtpuboard_tf-2.20.so";
  const auto put = [&](const char* library) {
    fs::remove(place);  // a library that is loaded keeps its file
    fs::copy_file(library, place);
  };
  fs::remove(place);
  expect_failure({"without libtensorflow_cc.so.2", "expected tensorflow-tpu"});
  ASSERT_NE(::dlopen(FAKE_TENSORFLOW_2_20, RTLD_NOW | RTLD_GLOBAL), nullptr) << ::dlerror();
  expect_failure({"TensorFlow 2.20.0: cannot load", "No such file", "-DTPU_TENSORFLOW="});
  put(LIBRARY_FOR_OTHER_VERSION);
  expect_failure({"libtpuboard_tf-2.20.so is for TensorFlow 2.20.1, found TensorFlow 2.20.0",
                  "install tensorflow-tpu of that version"});
  put(LIBRARY_OF_OTHER_BUILD);
  expect_failure({"libtpuboard_tf-2.20.so is of another build", "install both from one build"});
  fs::remove(place);
}

// The structs of the interface differ by version: nothing of it is used.
TEST(TfLoweringLibrary, TheInterfaceIsOfTheTensorFlow) {
  ASSERT_NE(::dlopen(FAKE_TENSORFLOW_2_18, RTLD_NOW | RTLD_GLOBAL), nullptr) << ::dlerror();
  const Status status;
  TPU_TF(TpuPlatform_Initialize)(TPU_TF(TpuPlatform_New)(), status);
  EXPECT_EQ(status.code(), kFailedPrecondition);
  EXPECT_EQ(status.text().find("TensorFlow 2.18.1: expected 2.20 or 2.19, "), 0U) << status.text();
}

TEST(TfLoweringLibrary, IsOfTheMinorVersion) {
  ASSERT_NE(::dlopen(FAKE_TENSORFLOW_2_19, RTLD_NOW | RTLD_GLOBAL), nullptr) << ::dlerror();
  expect_failure({"TensorFlow 2.19.1: cannot load", "libtpuboard_tf-2.19.so", "-DTPU_TENSORFLOW="});
}

}  // namespace
}  // namespace tpu::test
