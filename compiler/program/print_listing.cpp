// Text of a listing, for dumps.
#include <array>
#include <string>

#include "program/listing.hpp"

namespace tpu::compiler {

namespace {

const char* control_name(Control::Kind kind) {
  static constexpr std::array kNames = {"drain", "wait for", "await", "label", "branch",
                                        "loop",  "choice",   "arm",   "end",   "no fence"};
  return kNames[static_cast<size_t>(kind)];
}

std::string text_of(const spec::ScalarInsn& insn) {
  std::string out(spec::kScalarInsns[static_cast<size_t>(insn.op) - 32].name);
  out += " rd=" + std::to_string(insn.rd) + " rs1=" + std::to_string(insn.rs1) +
         " rs2=" + std::to_string(insn.rs2) + " imm=" + std::to_string(insn.imm);
  return out;
}

std::string text_of(const Control& c) {
  std::string out = control_name(c.kind);
  switch (c.kind) {
    case Control::Kind::kLabel:
      return out + " L" + std::to_string(c.label);
    case Control::Kind::kBranch:
      return text_of(c.insn) + " -> L" + std::to_string(c.label);
    case Control::Kind::kAwait:
      return out + (c.range.write ? " users of [" : " writers of [") + std::to_string(c.range.lo) +
             ", " + std::to_string(c.range.hi) + ") in slot " + std::to_string(c.range.slot);
    case Control::Kind::kDrain:
      return c.flows ? "flows on" : out;
    case Control::Kind::kLoop:
      return out + (c.trips < 0 ? "" : " " + std::to_string(c.trips) + " times");
    default:
      return out;
  }
}

}  // namespace

std::string print(const Listing& listing) {
  std::string out;
  int depth = 0;
  for (size_t i = 0; i < listing.items.size(); ++i) {
    const auto* control = std::get_if<Control>(&listing.items[i]);
    using ControlKind = Control::Kind;
    const bool outdents = control != nullptr && (control->kind == ControlKind::kEnd ||
                                                 control->kind == ControlKind::kArm);
    out += std::to_string(i) + ": " +
           std::string(2 * static_cast<size_t>(depth - (outdents ? 1 : 0)), ' ');
    if (const auto* insn = std::get_if<spec::ScalarInsn>(&listing.items[i])) {
      out += text_of(*insn) + '\n';
      continue;
    }
    if (control != nullptr) {
      depth += control->kind == ControlKind::kLoop || control->kind == ControlKind::kChoice ? 1 : 0;
      depth -= control->kind == ControlKind::kEnd ? 1 : 0;
      out += text_of(*control) + '\n';
      continue;
    }
    const auto& c = std::get<Command>(listing.items[i]);
    out += std::string(spec::kQueueNames[c.head().queue]) + ' ' +
           std::string(spec::kCommands[c.body.index()].name) + " op " +
           std::to_string(c.head().op_id);
    for (const spec::Wait& w : c.head().wait) {
      out += w.valid() ? " wait " + std::to_string(w.sem) : "";
    }
    for (const spec::Signal& s : c.head().signal) {
      out += s.valid() ? " signal " + std::to_string(s.sem) + (s.remote() ? "@" : "") : "";
    }
    for (const MemRange& r : memory_ranges(listing, c)) {
      out += (r.write ? " W" : " R") +
             std::string(spec::kSpaceNames[static_cast<size_t>(r.space)]) +
             (r.space == spec::Space::kHbm ? std::to_string(r.slot) : "") + "[" +
             std::to_string(r.lo) + "," + std::to_string(r.hi) + ")";
    }
    out += '\n';
  }
  return out;
}

}  // namespace tpu::compiler
