// A buffer for each binding slot that has memory of its own, and one for all temporaries, with the
// times at which they are taken and given back.
#include "timeline/hlo_memory.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "format/proto_writer.hpp"

namespace tpu::model {
namespace {

using spec::ProtoWriter;

constexpr const char* kEntry = "main";
constexpr uint64_t kEntryId = 1;

namespace module_field {
enum : uint32_t {
  kName = 1,
  kEntryName = 2,
  kComputations = 3,
  kProgramShape = 4,
  kId = 5,
  kEntryId = 6
};
}
namespace computation_field {
enum : uint32_t { kName = 1, kInstructions = 2, kProgramShape = 4, kId = 5, kRootId = 6 };
}
namespace instruction_field {
enum : uint32_t { kName = 1, kOpcode = 2, kShape = 3, kMetadata = 7, kParameter = 9, kId = 35 };
}
namespace instruction_metadata_field {
enum : uint32_t { kType = 1, kName = 2, kFile = 3, kLine = 4 };
}
namespace shape_field {
enum : uint32_t { kElem = 2, kDims = 3, kLayout = 5 };
}
namespace assignment_field {
enum : uint32_t { kBuffers = 1, kAllocations = 3, kTraces = 4 };
}
namespace buffer_field {
enum : uint32_t { kId = 1, kSize = 2, kDefinedAt = 3 };
}
namespace location_field {
enum : uint32_t { kInstruction = 2, kInstructionId = 4 };
}
namespace allocation_field {
enum : uint32_t {
  kIndex = 1,
  kSize = 2,
  kIsParameter = 5,
  kParameter = 6,
  kLiveOut = 7,
  kAssigned = 9,
  kIsConstant = 12
};
}
namespace assigned_field {
enum : uint32_t { kBuffer = 1, kOffset = 2, kSize = 3 };
}
namespace trace_field {
enum : uint32_t { kEvents = 1, kAllocation = 3 };
}
namespace event_field {
enum : uint32_t { kKind = 1, kBuffer = 2, kComputation = 3, kInstruction = 4 };
}
enum : uint64_t { kAlloc = 0, kFree = 1 };

// PrimitiveType, by exe::Elem.
constexpr std::array<uint64_t, 13> kElems = {11, 16, 4, 8, 2, 6, 1, 3, 7, 5, 9, 15, 12};
static_assert(kElems.size() == static_cast<size_t>(exe::Elem::MAX) + 1);
constexpr uint64_t kTuple = 13;

struct Shape {
  bool known = false;
  exe::Elem elem = exe::Elem::f32;
  std::vector<int64_t> dims{};
};

struct Instruction {
  std::string name{};
  std::string opcode{};
  Shape shape{};
  const exe::OpInfoT* op = nullptr;
  std::string label{};  // where there is no op
  uint32_t parameter = 0;
};

struct Buffer {
  size_t instruction = 0;
  uint64_t bytes = 0;
};

struct Assigned {
  size_t buffer = 0;
  uint64_t offset = 0;
};

struct Allocation {
  uint64_t bytes = 0;
  exe::SlotKind kind = exe::SlotKind::scratch;
  uint32_t index = 0;  // of the argument
  bool live_out = false;
  std::vector<Assigned> assigned{};
};

// The program's memory, before it is written.
class HloMemory {
 public:
  explicit HloMemory(const exe::ExecutableT& exe) : exe_(exe) {
    add_ops();
    for (const auto& slot : exe.slots) {
      if (slot->kind != exe::SlotKind::scratch) {
        add_slot(*slot);
      }
    }
    add_temporaries();
  }

  std::string write(uint64_t program_id) {
    ProtoWriter out;
    out.message(1, [&] { write_module(out, program_id); });
    out.message(3, [&] { write_assignment(out); });
    return out.take();
  }

 private:
  void add_ops() {
    for (uint32_t i = 0; i < exe_.ops.size(); ++i) {
      std::string opcode = exe_.ops[i]->name;
      std::ranges::replace(opcode, '_', '-');
      instructions_.push_back(
          {.name = op_event_name(&exe_, i), .opcode = std::move(opcode), .op = exe_.ops[i].get()});
    }
  }

  size_t add_buffer(Instruction instruction, uint64_t bytes) {
    instructions_.push_back(std::move(instruction));
    buffers_.push_back({instructions_.size() - 1, bytes});
    return buffers_.size() - 1;
  }

  static Shape shape_of(const exe::TensorT& tensor) {
    return {true, tensor.elem, tensor.local_dims};
  }

  // What holds a result at the end: its own slot, or the one of an argument donated to it.
  bool live_out(const exe::SlotT& slot) const {
    return slot.kind == exe::SlotKind::result ||
           (slot.kind == exe::SlotKind::argument && exe_.args.at(slot.index)->donated_to >= 0);
  }

  void add_slot(const exe::SlotT& slot) {
    const std::string number = "." + std::to_string(slot.index);
    Instruction from;
    if (slot.kind == exe::SlotKind::argument) {
      const exe::TensorT& arg = *exe_.args.at(slot.index);
      from = {.name = "parameter" + number, .opcode = "parameter", .shape = shape_of(arg)};
      from.label = arg.name;
      from.parameter = slot.index;
    } else if (slot.kind == exe::SlotKind::result) {
      const exe::TensorT& result = *exe_.results.at(slot.index);
      from = {.name = "result" + number, .opcode = "copy", .shape = shape_of(result)};
      from.label = result.name;
    } else {
      const auto bytes = static_cast<int64_t>(slot.bytes);
      from = {.name = "constant" + number,
              .opcode = "constant",
              .shape = {true, exe::Elem::ui8, {bytes}}};
    }
    const size_t buffer = add_buffer(std::move(from), slot.bytes);
    allocations_.push_back({.bytes = slot.bytes,
                            .kind = slot.kind,
                            .index = slot.index,
                            .live_out = live_out(slot),
                            .assigned = {{buffer, 0}}});
  }

  // The first one of an operation is what its instruction makes.
  void add_temporaries() {
    temporaries_ = buffers_.size();
    if (exe_.temporaries.empty()) {
      return;
    }
    Allocation all;
    std::map<uint32_t, size_t> of_op;
    for (const auto& t : exe_.temporaries) {
      const Shape shape{true, t->elem, t->dims};
      const size_t before = of_op[t->op]++;
      if (before == 0) {
        instructions_[t->op].shape = shape;
        buffers_.push_back({t->op, t->bytes});
      } else {
        Instruction more = instructions_[t->op];
        more.name += "." + std::to_string(before);
        more.shape = shape;
        add_buffer(std::move(more), t->bytes);
      }
      all.assigned.push_back({buffers_.size() - 1, t->offset});
      all.bytes = std::max(all.bytes, t->offset + t->bytes);
    }
    allocations_.push_back(std::move(all));
  }

  static void write_shape(ProtoWriter& out, uint32_t field, const Shape& shape) {
    out.message(field, [&] {
      if (!shape.known) {
        out.number(shape_field::kElem, kTuple);
        return;
      }
      out.number(shape_field::kElem, kElems.at(static_cast<size_t>(shape.elem)));
      for (const int64_t d : shape.dims) {
        out.number(shape_field::kDims, static_cast<uint64_t>(d));
      }
      out.message(shape_field::kLayout, [&] {  // row-major
        for (size_t i = shape.dims.size(); i > 0; --i) {
          out.number(1, i - 1);
        }
      });
    });
  }

  void write_module(ProtoWriter& out, uint64_t program_id) const {
    out.text(module_field::kName, exe_.name);
    out.text(module_field::kEntryName, kEntry);
    out.message(module_field::kComputations, [&] {
      out.text(computation_field::kName, kEntry);
      for (size_t i = 0; i < instructions_.size(); ++i) {
        write_instruction(out, i);
      }
      out.number(computation_field::kId, kEntryId);
      out.number(computation_field::kRootId, instructions_.size());
    });
    out.number(module_field::kId, program_id);
    out.number(module_field::kEntryId, kEntryId);
  }

  void write_instruction(ProtoWriter& out, size_t i) const {
    const Instruction& from = instructions_[i];
    out.message(computation_field::kInstructions, [&] {
      out.text(instruction_field::kName, from.name);
      out.text(instruction_field::kOpcode, from.opcode);
      write_shape(out, instruction_field::kShape, from.shape);
      out.message(instruction_field::kMetadata, [&] {
        out.text(instruction_metadata_field::kType, from.opcode);
        out.text(instruction_metadata_field::kName,
                 from.op == nullptr ? from.label : exe_.name + "/" + from.op->name);
        if (from.op != nullptr && !from.op->file.empty()) {
          out.text(instruction_metadata_field::kFile, from.op->file);
          out.number(instruction_metadata_field::kLine, from.op->line);
        }
      });
      out.number(instruction_field::kParameter, from.parameter);
      out.number(instruction_field::kId, i + 1);
    });
  }

  void write_assignment(ProtoWriter& out) const {
    for (size_t i = 0; i < buffers_.size(); ++i) {
      out.message(assignment_field::kBuffers, [&] {
        out.number(buffer_field::kId, i);
        out.number(buffer_field::kSize, buffers_[i].bytes);
        out.message(buffer_field::kDefinedAt, [&] {
          out.text(location_field::kInstruction, instructions_[buffers_[i].instruction].name);
          out.number(location_field::kInstructionId, buffers_[i].instruction + 1);
        });
      });
    }
    for (size_t i = 0; i < allocations_.size(); ++i) {
      write_allocation(out, i);
    }
    write_trace(out);
  }

  // Numbered from 1: a trace of allocation 0 counts as one of none.
  void write_allocation(ProtoWriter& out, size_t i) const {
    const Allocation& a = allocations_[i];
    out.message(assignment_field::kAllocations, [&] {
      out.number(allocation_field::kIndex, i + 1);
      out.number(allocation_field::kSize, a.bytes);
      if (a.kind == exe::SlotKind::argument) {
        out.number(allocation_field::kIsParameter, 1);
        out.number(allocation_field::kParameter, a.index);
      }
      out.number(allocation_field::kLiveOut, a.live_out ? 1 : 0);
      out.number(allocation_field::kIsConstant, a.kind == exe::SlotKind::constant ? 1 : 0);
      for (const Assigned& part : a.assigned) {
        out.message(allocation_field::kAssigned, [&] {
          out.number(assigned_field::kBuffer, part.buffer);
          out.number(assigned_field::kOffset, part.offset);
          out.number(assigned_field::kSize, buffers_[part.buffer].bytes);
        });
      }
    });
  }

  void write_trace(ProtoWriter& out) const {
    std::map<uint32_t, std::pair<uint64_t, size_t>> events;  // by time: kind, buffer
    for (size_t i = 0; i < exe_.temporaries.size(); ++i) {
      events[exe_.temporaries[i]->from] = {kAlloc, temporaries_ + i};
    }
    for (size_t i = 0; i < exe_.temporaries.size(); ++i) {
      if (exe_.temporaries[i]->to != UINT32_MAX) {
        events[exe_.temporaries[i]->to] = {kFree, temporaries_ + i};
      }
    }
    if (events.empty()) {
      return;
    }
    out.message(assignment_field::kTraces, [&] {
      for (const auto& [time, event] : events) {
        out.message(trace_field::kEvents, [&, kind = event.first, buffer = event.second] {
          out.number(event_field::kKind, kind);
          out.number(event_field::kBuffer, buffer);
          out.text(event_field::kComputation, kEntry);
          out.text(event_field::kInstruction, instructions_[buffers_[buffer].instruction].name);
        });
      }
      out.number(trace_field::kAllocation, allocations_.size());
    });
  }

  const exe::ExecutableT& exe_;
  std::vector<Instruction> instructions_;  // those of the op table first; their ids are from 1
  std::vector<Buffer> buffers_;            // those of temporaries last
  std::vector<Allocation> allocations_;    // that of the temporaries last
  size_t temporaries_ = 0;                 // the first of them in buffers_
};

}  // namespace

std::string op_name(const exe::ExecutableT* executable, uint32_t op_id) {
  return executable != nullptr && op_id < executable->ops.size() ? executable->ops[op_id]->name
                                                                 : "op " + std::to_string(op_id);
}

std::string op_event_name(const exe::ExecutableT* executable, uint32_t op_id) {
  return op_name(executable, op_id) + "." + std::to_string(op_id);
}

std::string hlo_proto(const exe::ExecutableT& executable, uint64_t program_id) {
  return HloMemory(executable).write(program_id);
}

}  // namespace tpu::model
