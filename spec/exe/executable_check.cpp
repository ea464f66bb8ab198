// The tables refer to each other: slots to parameters, parameters to slots, results to the
// arguments whose memory they take. Each entry is checked by itself first, in all tables, and only
// then followed to another one, so that the order of the entries does not matter.
#include "exe/executable_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "command/scalar_ops.hpp"
#include "tpu/spec/program_image.h"
#include "tpu/spec/rings.h"

namespace tpu::exe {
namespace {

constexpr uint64_t kMaxSlotBytes = kMaxElements * 8;

template <typename... Args>
void check(bool condition, fmt::format_string<Args...> text, Args&&... args) {
  if (!condition) {
    throw ExecutableError("corrupt executable: " + fmt::format(text, std::forward<Args>(args)...));
  }
}

void check_counts(const ExecutableT& exe) {
  check(exe.partitions >= 1 && exe.partitions <= kMaxPartitions, "invalid partition count");
  check(exe.cores.empty() || exe.wide_cores.empty(), "two lists of cores");
  const std::vector<uint16_t> cores = cores_of(exe);
  check(cores.empty() || cores.size() == exe.partitions, "{} cores for {} partitions", cores.size(),
        exe.partitions);
  check(std::set<uint16_t>(cores.begin(), cores.end()).size() == cores.size(),
        "two partitions have the same core");
  check(exe.slots.size() <= TPU_MAX_SLOTS, "{} slots; a launch has at most {}", exe.slots.size(),
        TPU_MAX_SLOTS);
  const auto donated = std::ranges::count_if(
      exe.args, [](const auto& argument) { return argument->donated_to >= 0; });
  check(exe.args.size() + exe.results.size() <= exe.slots.size() + static_cast<size_t>(donated),
        "more arguments and results than slots");
}

void check_image(const ExecutableT& exe) {
  check(exe.image.size() >= sizeof(tpu_program_image_header_t), "the image has no complete header");
  tpu_program_image_header_t head;
  std::memcpy(&head, exe.image.data(), sizeof(head));
  check(head.magic == TPU_PROGRAM_MAGIC, "invalid image magic");
  check(head.header_bytes == sizeof(head) && head.code_bytes % 8 == 0 &&
            exe.image.size() == uint64_t{head.header_bytes} + head.code_bytes,
        "invalid image size");
  check(head.slots == exe.slots.size(), "invalid slot count of the image");
  check(head.isa_version == exe.isa_version && head.cores == exe.partitions &&
            head.board_hash == exe.board_hash && head.flags == 0,
        "image header and executable disagree");
  check(uint64_t{head.entry_word} * 8 < head.code_bytes, "the entry is outside of the code");
}

// Kinds, sizes and the entries that slots name.
void check_slots(const ExecutableT& exe) {
  std::set<std::pair<SlotKind, uint32_t>> bound;
  for (size_t i = 0; i < exe.slots.size(); ++i) {
    const SlotT& slot = *exe.slots[i];
    check(slot.kind <= SlotKind::MAX, "invalid kind of slot {}", i);
    check(slot.bytes <= kMaxSlotBytes, "invalid size of slot {}", i);
    const size_t entries = slot.kind == SlotKind::argument   ? exe.args.size()
                           : slot.kind == SlotKind::result   ? exe.results.size()
                           : slot.kind == SlotKind::constant ? exe.constants.size()
                                                             : SIZE_MAX;
    check(slot.index < entries, "invalid index of slot {}", i);
    if (slot.kind == SlotKind::constant) {
      check(exe.constants[slot.index]->data.size() <= slot.bytes, "invalid constant of slot {}", i);
    } else if (slot.kind != SlotKind::scratch) {
      check(bound.emplace(slot.kind, slot.index).second, "slot {} binds what another slot binds",
            i);
    }
  }
}

void check_shape(const TensorT& tensor, const std::string& what) {
  check(tensor.elem <= Elem::MAX, "{} has an unknown element type", what);
  check(tensor.global_dims.size() == tensor.local_dims.size(),
        "{} has different ranks in the global and the local shape", what);
  check(tensor.global_dims.size() <= kMaxRank, "{} has {} dimensions; at most {} are possible",
        what, tensor.global_dims.size(), kMaxRank);
  static_cast<void>(element_count(tensor.local_dims));
  static_cast<void>(element_count(tensor.global_dims));
}

// The boxes of the partitions are equal or disjoint, and together they are the array.
void check_boxes(const TensorT& tensor, uint32_t partitions, const std::string& what) {
  const size_t rank = tensor.local_dims.size();
  check(tensor.offsets.size() == rank * partitions, "{} has a wrong number of offsets", what);
  for (size_t i = 0; i < tensor.offsets.size(); ++i) {
    const int64_t offset = tensor.offsets[i];
    const int64_t local = tensor.local_dims[i % rank];
    check(offset >= 0 && offset <= tensor.global_dims[i % rank] - local,
          "{} has an offset outside the global shape", what);
    check(local == 0 || offset % local == 0, "{} has boxes that overlap in part", what);
  }
  std::set<std::vector<int64_t>> boxes;
  for (size_t p = 0; p < partitions; ++p) {
    const auto first = tensor.offsets.begin() + static_cast<ptrdiff_t>(p * rank);
    boxes.emplace(first, first + static_cast<ptrdiff_t>(rank));
  }
  check(boxes.size() * element_count(tensor.local_dims) == element_count(tensor.global_dims),
        "{} has elements that no core holds", what);
  check(!tensor.replicated || tensor.local_dims == tensor.global_dims,
        "{} is replicated, but no core holds all of it", what);
}

// Readers and writers of HBM agree on the places of 64-bit integers.
void check_wide_layout(const ExecutableT& exe) {
  check(exe.wide_layout <= WideLayout::MAX, "invalid layout of 64-bit integers");
  const auto wide = [](const auto& entry) {
    return entry->elem == Elem::i64 || entry->elem == Elem::ui64 || entry->elem == Elem::f64;
  };
  const auto has_wide = [&](const auto& list) {
    return std::any_of(list.begin(), list.end(), wide);
  };
  if (exe.wide_layout != WideLayout::planes &&
      (has_wide(exe.args) || has_wide(exe.results) || has_wide(exe.host_calls))) {
    throw ExecutableError(
        "the executable has 64-bit integers as pairs of words: expected words in two planes; "
        "compile the program again");
  }
}

void check_owners(const TensorT& tensor, uint32_t partitions, const std::string& what) {
  check(tensor.owned_by.empty() || tensor.wide_owned_by.empty(), "{} has two lists of owners",
        what);
  const std::vector<uint16_t> owners = owners_of(tensor);
  check(tensor.owned_elements.size() == owners.size(), "{} has unequal lists of owners", what);
  if (tensor.owned_elements.empty()) {
    return;
  }
  uint64_t left = element_count(tensor.local_dims);
  for (size_t i = 0; i < tensor.owned_elements.size(); ++i) {
    check(tensor.owned_elements[i] <= left && owners[i] < partitions,
          "{} has an owner outside of the array or the program", what);
    left -= tensor.owned_elements[i];
  }
  check(left == 0 && tensor.replicated, "{} has elements without an owner", what);
  check(tensor.elem != Elem::i64 && tensor.elem != Elem::ui64 && tensor.elem != Elem::f64,
        "{} of 64-bit integers has two planes and cannot have owners", what);
}

void check_terms(const TensorT& tensor, uint32_t partitions, const std::string& what) {
  check(tensor.terms.empty() || tensor.wide_terms.empty(), "{} has two lists of terms", what);
  const std::vector<uint16_t> terms = terms_of(tensor);
  if (terms.empty()) {
    return;
  }
  check(terms.size() == partitions && !tensor.replicated,
        "{} is an unreduced value, but does not have one term a core", what);
  for (const uint16_t term : terms) {
    check(term < partitions, "{} is an unreduced value with a term of a core that does not exist",
          what);
  }
}

void check_layout(const TensorT& tensor, const std::string& what) {
  const std::set<uint8_t> dims(tensor.layout.begin(), tensor.layout.end());
  check(tensor.layout.empty() ||
            (tensor.layout.size() == tensor.global_dims.size() &&
             dims.size() == tensor.layout.size() && *dims.rbegin() < tensor.layout.size()),
        "{} has a layout that does not name each dimension once", what);
}

void check_tensor(const TensorT& tensor, const ExecutableT& exe, SlotKind kind, size_t index) {
  const std::string what = fmt::format("{} {}", EnumNameSlotKind(kind), index);
  check_shape(tensor, what);
  check_boxes(tensor, exe.partitions, what);
  check_owners(tensor, exe.partitions, what);
  check_terms(tensor, exe.partitions, what);
  check_layout(tensor, what);
  check(tensor.memory <= MemoryKind::MAX, "{} is in an unknown memory", what);
  check(tensor.slot < exe.slots.size(), "{} names a slot that does not exist", what);
  const SlotT& slot = *exe.slots[tensor.slot];
  // A result may lie in the slot of the argument that is donated to it.
  const bool donated = kind == SlotKind::result && slot.kind == SlotKind::argument &&
                       exe.args[slot.index]->donated_to == static_cast<int64_t>(index);
  check(donated || (slot.kind == kind && slot.index == index), "{} names a slot of another kind",
        what);
  check(slot.bytes >= element_count(tensor.local_dims) * elem_bytes(tensor.elem),
        "{} is larger than its slot", what);
}

// A result takes the memory of the argument that is donated to it, and nothing else is shared.
void check_donations(const ExecutableT& exe) {
  for (size_t i = 0; i < exe.slots.size(); ++i) {
    const SlotT& slot = *exe.slots[i];
    check(slot.kind != SlotKind::result || exe.results[slot.index]->slot == i,
          "slot {} is of a result that is in another one", i);
  }
  for (size_t i = 0; i < exe.args.size(); ++i) {
    const TensorT& argument = *exe.args[i];
    check(
        argument.donated_to >= -1 && argument.donated_to < static_cast<int64_t>(exe.results.size()),
        "invalid donation of argument {}", i);
    if (argument.donated_to >= 0) {
      const TensorT& result = *exe.results[static_cast<size_t>(argument.donated_to)];
      check(result.slot == argument.slot,
            "argument {} is donated to a result that does not take its memory", i);
    }
  }
  for (size_t i = 0; i < exe.results.size(); ++i) {
    check(exe.results[i]->donated_to == -1, "result {} is donated", i);
  }
}

// Fn(word, instruction) for each scalar instruction that the program can reach. Follows the control
// flow as the sequencer does: VPU programs stand behind the code and may look like instructions.
template <typename Fn>
void each_reachable(const ExecutableT& exe, Fn fn) {
  tpu_program_image_header_t head;
  std::memcpy(&head, exe.image.data(), sizeof(head));
  const uint8_t* code = exe.image.data() + head.header_bytes;
  std::vector<bool> seen(head.code_bytes / 8);
  std::vector<uint64_t> open = {head.entry_word};
  while (!open.empty()) {
    uint64_t word = open.back();
    open.pop_back();
    while (word < seen.size() && !seen[word]) {
      seen[word] = true;
      spec::ScalarInsn insn;
      std::memcpy(&insn, code + word * 8, sizeof(insn));
      const auto op = static_cast<spec::ScalarOp>(insn.op);
      if (op < spec::ScalarOp::kHalt) {  // the head of a command: its length lies where rs1 does
        word += insn.rs1;
        continue;
      }
      fn(word, insn);
      if (spec::scalar_class(op) == spec::ScalarClass::kBranch) {
        open.push_back(static_cast<uint32_t>(insn.imm));
      }
      if (op == spec::ScalarOp::kHalt || op == spec::ScalarOp::kJmp) {
        break;
      }
      ++word;
    }
  }
}

// The numbers of calls are places in the table.
void check_call_numbers(const ExecutableT& exe) {
  each_reachable(exe, [&](uint64_t word, const spec::ScalarInsn& insn) {
    check(static_cast<spec::ScalarOp>(insn.op) != spec::ScalarOp::kHcall ||
              (insn.imm >= 0 && static_cast<uint64_t>(insn.imm) < exe.host_calls.size()),
          "the instruction at word {} makes host call {}, the table of host calls has {}", word,
          insn.imm, exe.host_calls.size());
  });
}

// The bytes of a call lie in memory of their slot.
void check_host_calls(const ExecutableT& exe) {
  for (size_t i = 0; i < exe.host_calls.size(); ++i) {
    const HostCallT& call = *exe.host_calls[i];
    check(call.elem <= Elem::MAX && call.dims.size() <= kMaxRank, "invalid array of host call {}",
          i);
    check(call.partition >= -1 && call.partition < static_cast<int64_t>(exe.partitions),
          "invalid partition of host call {}", i);
    check(call.slot < exe.slots.size() && call.op < exe.ops.size(),
          "invalid slot or op of host call {}", i);
    const uint64_t bytes = element_count(call.dims) * elem_bytes(call.elem);
    const uint64_t room = exe.slots[call.slot]->bytes;
    check(bytes <= UINT32_MAX && call.offset <= room && bytes <= room - call.offset,
          "invalid bytes of host call {}", i);
    check(!call.memory || call.partition == -1, "host call {} keeps bytes of one partition for all",
          i);
    check(!call.index || (call.memory && call.to_host && element_count(call.dims) == 1 &&
                          bytes >= sizeof(int32_t)),
          "host call {} must send one integer of 4 or more bytes to the host's memory", i);
    check(call.stage <= HostStage::MAX &&
              (call.stage == HostStage::whole || (call.memory && !call.index)),
          "invalid stage of host call {}", i);
  }
}

// A temporary lies in the scratch slot and lives some time.
void check_temporaries(const ExecutableT& exe) {
  uint64_t room = 0;
  for (const auto& slot : exe.slots) {
    room = slot->kind == SlotKind::scratch ? std::max(room, slot->bytes) : room;
  }
  for (size_t i = 0; i < exe.temporaries.size(); ++i) {
    const TemporaryT& t = *exe.temporaries[i];
    check(t.elem <= Elem::MAX && t.dims.size() <= kMaxRank, "invalid array of temporary {}", i);
    check(t.op < exe.ops.size(), "invalid op of temporary {}", i);
    check(t.from < t.to && (i == 0 || exe.temporaries[i - 1]->from < t.from),
          "invalid times of temporary {}", i);
    check(t.offset <= room && t.bytes <= room - t.offset, "invalid bytes of temporary {}", i);
    static_cast<void>(element_count(t.dims));
  }
}

}  // namespace

void check_tables(const ExecutableT& exe) {
  check_counts(exe);
  check_image(exe);
  check_slots(exe);
  check_wide_layout(exe);
  for (size_t i = 0; i < exe.args.size(); ++i) {
    check_tensor(*exe.args[i], exe, SlotKind::argument, i);
  }
  for (size_t i = 0; i < exe.results.size(); ++i) {
    check_tensor(*exe.results[i], exe, SlotKind::result, i);
  }
  check_donations(exe);
  check_host_calls(exe);
  check_call_numbers(exe);
  check_temporaries(exe);
}

}  // namespace tpu::exe
