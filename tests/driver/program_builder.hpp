// Executables for driver tests, made by hand: programs that halt at once, with arguments and
// results of the wanted types. A result that takes over a donated argument has its contents after
// the launch.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "board/board_loader.hpp"
#include "exe/executable.hpp"
#include "tpu/spec/isa.hpp"
#include "tpu/spec/program_image.h"
#include "tpu/types.hpp"

namespace tpu::driver::test {

class ProgramBuilder {
 public:
  explicit ProgramBuilder(uint32_t partitions, const std::string& preset = "v3_8",
                          const std::vector<std::string>& overrides = {}) {
    exe_.name = "halt_program";
    exe_.isa_version = spec::kIsaVersion;
    exe_.wide_layout = exe::WideLayout::planes;
    exe_.board_name = preset;
    exe_.board_hash = spec::board_hash(spec::load_board(preset, overrides));
    exe_.partitions = partitions;
    auto op = std::make_unique<exe::OpInfoT>();
    op->name = "dot_general";
    op->file = "model.py";
    op->line = 42;
    exe_.ops.push_back(std::move(op));
  }

  /// Cut along dimension 0 when `sharded`, else replicated. Returns the argument's number.
  uint32_t argument(DType dtype, const Shape& shape, bool sharded = false) {
    exe_.args.push_back(tensor(dtype, shape, sharded, exe::SlotKind::argument, exe_.args.size()));
    return static_cast<uint32_t>(exe_.args.size() - 1);
  }

  /// `alias`: the argument that is donated to this result, and whose slot it has; -1: own memory.
  void result(DType dtype, const Shape& shape, bool sharded = false, int alias = -1) {
    const size_t index = exe_.results.size();
    exe_.results.push_back(tensor(dtype, shape, sharded, exe::SlotKind::result, index));
    if (alias >= 0) {
      exe::TensorT& argument = *exe_.args[static_cast<size_t>(alias)];
      argument.donated_to = static_cast<int>(index);
      exe_.results.back()->slot = argument.slot;
      exe_.slots.pop_back();
    }
  }

  void constant(const std::vector<uint8_t>& data) {
    auto made = std::make_unique<exe::ConstantT>();
    made->data = data;
    exe_.constants.push_back(std::move(made));
    slot(exe::SlotKind::constant, data.size(), exe_.constants.size() - 1);
  }

  /// Instructions behind the halt, which nothing reaches.
  void pad_code(size_t instructions) { padding_ = instructions; }

  void scratch(uint64_t bytes) { slot(exe::SlotKind::scratch, bytes, 0); }

  exe::ExecutableT& exe() { return exe_; }

  std::vector<std::byte> bytes() {
    const std::vector<uint64_t> code(1 + padding_, static_cast<uint64_t>(spec::ScalarOp::kHalt));
    tpu_program_image_header_t header{};
    header.magic = TPU_PROGRAM_MAGIC;
    header.isa_version = exe_.isa_version;
    header.header_bytes = sizeof(header);
    header.code_bytes = static_cast<uint32_t>(code.size() * 8);
    header.slots = static_cast<uint32_t>(exe_.slots.size());
    header.cores = exe_.partitions;
    header.board_hash = exe_.board_hash;
    exe_.image.resize(sizeof(header) + code.size() * 8);
    std::memcpy(exe_.image.data(), &header, sizeof(header));
    std::memcpy(exe_.image.data() + sizeof(header), code.data(), code.size() * 8);
    return exe::write_executable(exe_);
  }

 private:
  void slot(exe::SlotKind kind, uint64_t bytes, size_t index) {
    auto made = std::make_unique<exe::SlotT>();
    made->kind = kind;
    made->bytes = bytes;
    made->index = static_cast<uint32_t>(index);
    exe_.slots.push_back(std::move(made));
  }

  std::unique_ptr<exe::TensorT> tensor(DType dtype, const Shape& shape, bool sharded,
                                       exe::SlotKind kind, size_t index) {
    auto made = std::make_unique<exe::TensorT>();
    made->elem = static_cast<exe::Elem>(dtype);
    made->global_dims = shape;
    made->local_dims = shape;
    made->replicated = !sharded;
    if (sharded) {
      made->local_dims[0] /= exe_.partitions;
    }
    for (uint32_t p = 0; p < exe_.partitions; ++p) {
      for (size_t d = 0; d < shape.size(); ++d) {
        made->offsets.push_back(sharded && d == 0 ? p * made->local_dims[0] : 0);
      }
    }
    made->slot = static_cast<uint32_t>(exe_.slots.size());
    slot(kind, element_count(made->local_dims) * dtype_bytes(dtype), index);
    return made;
  }

  exe::ExecutableT exe_;
  size_t padding_ = 0;
};

/// Its result takes over its argument, i32 of that shape.
inline ProgramBuilder passing(uint32_t partitions, const Shape& shape = {16}) {
  ProgramBuilder builder(partitions);
  builder.argument(DType::kI32, shape);
  builder.result(DType::kI32, shape, false, 0);
  return builder;
}

inline HostArray counting(DType dtype, const Shape& shape, uint8_t start = 1) {
  HostArray array{dtype, shape, {}};
  array.bytes.resize(element_count(shape) * dtype_bytes(dtype));
  uint8_t value = start;
  for (std::byte& byte : array.bytes) {
    byte = std::byte{value};
    value = static_cast<uint8_t>(value * 5 + 3);
  }
  return array;
}

}  // namespace tpu::driver::test
