// Arrays from every kind of file, and what is refused of them.
#include "input/array_source.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "arrays.hpp"
#include "file/files.hpp"
#include "format/npy.hpp"
#include "format/safetensors.hpp"
#include "input/batch_pipeline.hpp"
#include "input/rewrite.hpp"

namespace tpu::input {
namespace {

Feature label_feature() { return {.name = "label", .type = DType::kI32}; }

std::vector<int32_t> labels_of(const std::shared_ptr<const Source>& source) {
  const auto reader = source->reader();
  std::vector<Value> values(1);
  std::vector<int32_t> labels;
  for (uint64_t i = 0; i < source->examples(); ++i) {
    reader->read(i, values);
    EXPECT_EQ(values[0].type, DType::kI32);
    labels.push_back(values_of<int32_t>(values[0].bytes).at(0));
  }
  return labels;
}

TEST(InputArrays, ReadNpy) {
  const ScratchFolder folder;
  driver::write_npy(folder.file("l.npy"),
                    array_of(DType::kI32, {3}, std::vector<int32_t>{4, 5, 6}));
  const auto source = array_source({open_column(folder.file("l.npy"), "", label_feature())});
  EXPECT_EQ(labels_of(source), (std::vector<int32_t>{4, 5, 6}));
  EXPECT_EQ(source->place(2), folder.file("l.npy") + ": example 2");
}

TEST(InputArrays, ReadSafetensors) {
  const ScratchFolder folder;
  spec::Safetensors file;
  file.tensors.push_back({"label", "I32", {2}, 0, 8});
  file.tensors.push_back({"weight", "F8_E4M3", {8}, 0, 8});
  const std::string header = spec::layout_safetensors(file, "made");
  std::ofstream out(folder.file("d.safetensors"), std::ios::binary);
  out << header;
  for (const spec::Tensor& tensor : file.tensors) {
    const std::vector<int32_t> values = {7, 8};
    out.write(reinterpret_cast<const char*>(values.data()),
              static_cast<std::streamsize>(tensor.bytes));
  }
  out.close();
  const std::string path = folder.file("d.safetensors");
  EXPECT_EQ(labels_of(array_source({open_column(path, "", label_feature())})),
            (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(error_of([&] { open_column(path, "weight", label_feature()); }),
            path + ", tensor 'weight': elements of type F8_E4M3 cannot be fed to a program");
  EXPECT_EQ(error_of([&] {
              open_column(path, "x", label_feature());
            }).find(path + ": has no tensor 'x'; it has "),
            0u);
}

// Another process cuts the file while it is converted: no shard comes out of it.
TEST(InputArrays, AFileThatIsCutMeanwhileIsNamed) {
  const ScratchFolder folder;
  constexpr size_t kExamples = 20000;
  driver::write_npy(folder.file("l.npy"),
                    array_of(DType::kI32, {kExamples}, std::vector<int32_t>(kExamples, 7)));
  const std::vector<Column> columns = {open_column(folder.file("l.npy"), "", label_feature())};
  const RecordFiles files{.prefix = folder.file("o"), .threads = 1};
  const std::string said = error_of([&] {
    write_records({"label"}, columns, files, [&](uint64_t /*done*/, uint64_t /*all*/) {
      std::filesystem::resize_file(folder.file("l.npy"), 100);
    });
  });
  EXPECT_EQ(said.find(folder.file("l.npy") + ": changed while it was read"), 0u) << said;
  EXPECT_FALSE(std::filesystem::exists(files.paths()[0]));
}

TEST(InputArrays, ABatchOfAFileThatIsCutIsNotGiven) {
  const ScratchFolder folder;
  driver::write_npy(folder.file("l.npy"),
                    array_of(DType::kI32, {8192}, std::vector<int32_t>(8192, 7)));
  const auto source = array_source({open_column(folder.file("l.npy"), "", label_feature())});
  BatchPipeline pipeline(source, {label_feature()}, {.batch = 4096, .prefetch = 1});
  Batch batch;
  EXPECT_TRUE(pipeline.next(batch));
  std::filesystem::resize_file(folder.file("l.npy"), 4096);
  const std::string said = error_of([&] {
    while (pipeline.next(batch)) {  // one may have been read before
    }
  });
  EXPECT_EQ(said.find(folder.file("l.npy") + ": changed while it was read"), 0u) << said;
}

TEST(InputArrays, ReadRawBytes) {
  const ScratchFolder folder;
  std::ofstream(folder.file("images.bin"), std::ios::binary) << "abcdef";
  const Feature feature{.name = "image", .type = DType::kU8, .shape = {1, 3, 1}};
  EXPECT_EQ(array_source({open_column(folder.file("images.bin"), "", feature)})->examples(), 2u);
  const Feature odd{.name = "image", .type = DType::kU8, .shape = {4}};
  EXPECT_EQ(error_of([&] { open_column(folder.file("images.bin"), "", odd); }),
            folder.file("images.bin") +
                ": 6 bytes are not a multiple of 4 bytes, the size of an example");
}

TEST(InputArrays, RefuseWhatIsNoSetOfExamples) {
  const auto column = [](const std::string& name, const Shape& shape) {
    return memory_column(
        name, array_of(DType::kU8, shape, std::vector<uint8_t>(driver::element_count(shape))));
  };
  EXPECT_EQ(error_of([&] {
              array_source({column("a", {3, 2}), column("b", {4})});
            }),
            "a holds 3 examples, b holds 4; each needs one for each example");
  EXPECT_EQ(error_of([&] {
              array_source({column("a", {0, 2})});
            }),
            "a: ui8[0,2] holds no examples");
  EXPECT_EQ(error_of([&] { array_source({column("a", {})}); }),
            "a: expected an array of examples, found a scalar");
  EXPECT_EQ(error_of([&] { array_source({}); }), "no arrays are named for the input");
}

TEST(InputArrays, RefuseFilesThatCannotBeRead) {
  const ScratchFolder folder;
  for (const std::string suffix : {".npy", ".npz", ".safetensors", ".bin"}) {
    const std::string path = folder.file("d" + suffix);
    EXPECT_EQ(error_of([&] { open_column(path, "", label_feature()); }),
              path + ": cannot be opened: No such file or directory");
    std::filesystem::create_directory(path);
    EXPECT_EQ(error_of([&] { open_column(path, "", label_feature()); }),
              path + ": is a folder; name a file");
  }
}

}  // namespace
}  // namespace tpu::input
