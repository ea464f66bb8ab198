// Writes the wire form: the structs of spec/isa are the layout, so every command is copied whole.
#include "program/encode.hpp"

#include <type_traits>

#include "ir/error.hpp"
#include "tpu/spec/program_image.h"

namespace tpu::compiler {

namespace {

template <typename T>
void put(std::vector<std::byte>& out, const T& value) {
  const auto* p = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), p, p + sizeof(T));
}

size_t command_bytes(const Command& c) {
  return std::visit([](const auto& b) { return sizeof(b); }, c.body) +
         c.accesses.size() * sizeof(spec::VpuAccess);
}

bool is_branch(const Item& item) {
  const auto* c = std::get_if<Control>(&item);
  return c != nullptr && c->kind == Control::Kind::kBranch;
}

size_t item_bytes(const Item& item) {
  if (const auto* c = std::get_if<Command>(&item)) {
    return command_bytes(*c);
  }
  return std::holds_alternative<spec::ScalarInsn>(item) || is_branch(item)
             ? sizeof(spec::ScalarInsn)
             : 0;
}

// Word index of every label.
std::vector<int64_t> label_words(const Listing& listing) {
  std::vector<int64_t> words(static_cast<size_t>(listing.labels), -1);
  size_t bytes = 0;
  for (const Item& item : listing.items) {
    if (const auto* c = std::get_if<Control>(&item); c && c->kind == Control::Kind::kLabel) {
      words.at(static_cast<size_t>(c->label)) = static_cast<int64_t>(bytes / 8);
    }
    bytes += item_bytes(item);
  }
  return words;
}

spec::ScalarInsn resolved(const Control& branch, const std::vector<int64_t>& labels) {
  const int64_t word = labels.at(static_cast<size_t>(branch.label));
  if (word < 0) {
    throw Error("internal: a branch goes to a label that is nowhere");
  }
  spec::ScalarInsn insn = branch.insn;
  insn.imm = static_cast<int32_t>(word);
  return insn;
}

void put_command(std::vector<std::byte>& out, const Command& c,
                 const std::vector<uint32_t>& program_offset) {
  const size_t words = command_bytes(c) / 8;
  if (words > 255 || command_bytes(c) % 8 != 0) {
    throw Error("an engine command has " + std::to_string(words) + " words; at most 255 fit");
  }
  std::visit(
      [&](auto body) {
        body.head.words = static_cast<uint8_t>(words);
        if constexpr (std::is_same_v<decltype(body), spec::VpuKernelCommand>) {
          body.program = program_offset[static_cast<size_t>(c.program)];
          body.accesses = static_cast<uint8_t>(c.accesses.size());
        }
        put(out, body);
      },
      c.body);
  for (const spec::VpuAccess& a : c.accesses) {
    put(out, a);
  }
}

}  // namespace

std::vector<std::byte> encode_image(const Listing& listing, const ImageInfo& info) {
  size_t bytes = 0;
  for (const Item& item : listing.items) {
    bytes += item_bytes(item);
  }
  const std::vector<int64_t> labels = label_words(listing);
  std::vector<uint32_t> program_offset;
  for (const VpuProgram& p : listing.programs) {
    program_offset.push_back(static_cast<uint32_t>(bytes));
    bytes += sizeof(p.header) + p.code.size() * sizeof(spec::VpuInsn);
  }
  tpu_program_image_header_t header{};
  header.magic = TPU_PROGRAM_MAGIC;
  header.isa_version = spec::kIsaVersion;
  header.header_bytes = sizeof(header);
  header.code_bytes = static_cast<uint32_t>(bytes);
  header.slots = info.slots;
  header.cores = info.cores;
  header.board_hash = info.board_hash;
  std::vector<std::byte> out;
  out.reserve(sizeof(header) + bytes);
  put(out, header);
  for (const Item& item : listing.items) {
    if (const auto* insn = std::get_if<spec::ScalarInsn>(&item)) {
      put(out, *insn);
      continue;
    }
    if (const auto* control = std::get_if<Control>(&item)) {
      if (control->kind == Control::Kind::kBranch) {
        put(out, resolved(*control, labels));
      }
      continue;
    }
    put_command(out, std::get<Command>(item), program_offset);
  }
  for (const VpuProgram& p : listing.programs) {
    put(out, p.header);
    for (const spec::VpuInsn& insn : p.code) {
      put(out, insn);
    }
  }
  return out;
}

}  // namespace tpu::compiler
