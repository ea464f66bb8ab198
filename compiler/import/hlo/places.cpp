// See places.hpp.
#include "import/hlo/places.hpp"

#include <string>

#include "import/codes.hpp"

namespace tpu::compiler::hlo {
namespace {

using bytecode::kNone;
using bytecode::RawAttr;
namespace ba = bytecode::builtin_attr;

RawAttr builtin(uint32_t code) {
  RawAttr a;
  a.dialect = bytecode::Dialect::kBuiltin;
  a.code = code;
  return a;
}

// The entry of a table whose ids begin with 1.
template <typename T>
const T* entry(const std::vector<T>& table, int64_t id) {
  return id < 1 || id > std::ssize(table) ? nullptr : &table[static_cast<size_t>(id) - 1];
}

}  // namespace

uint32_t Places::unknown() {
  if (unknown_ == kNone) {
    unknown_ = build_.add(builtin(ba::kUnknownLoc));
  }
  return unknown_;
}

uint32_t Places::file_loc(std::string_view file, int64_t line, int64_t column) {
  RawAttr a = builtin(ba::kFileLoc);
  a.attrs = {build_.text(file)};
  a.ints = {line, column};
  return build_.add(std::move(a));
}

uint32_t Places::name_loc(uint32_t text, uint32_t inner) {
  RawAttr a = builtin(ba::kNameLoc);
  a.attrs = {text, inner};
  return build_.add(std::move(a));
}

// A frame and those that called it, each made once. Ids that name nothing, and chains that come
// back to themselves, end the chain.
uint32_t Places::frame(int64_t id) {
  std::vector<int64_t> chain;
  for (const Frame* f = entry(stack_.frames, id);
       f != nullptr && frames_[static_cast<size_t>(id)] == kNone;
       id = f->parent, f = entry(stack_.frames, id)) {
    frames_[static_cast<size_t>(id)] = unknown();  // while it is on the chain
    chain.push_back(id);
  }
  const bool ends = entry(stack_.frames, id) == nullptr;
  uint32_t callers = ends ? kNone : frames_[static_cast<size_t>(id)];
  for (size_t i = chain.size(); i-- > 0;) {
    const Frame& f = *entry(stack_.frames, chain[i]);
    uint32_t own = unknown();
    if (const FileLocation* at = entry(stack_.locations, f.location)) {
      const std::string_view* file = entry(stack_.files, at->file);
      const std::string_view* function = entry(stack_.functions, at->function);
      own = file_loc(file == nullptr ? "?" : *file, at->line, at->column);
      own = function == nullptr ? own : name_loc(build_.text(*function), own);
    }
    if (callers != kNone) {
      RawAttr call = builtin(ba::kCallSiteLoc);
      call.attrs = {own, callers};
      own = build_.add(std::move(call));
    }
    callers = frames_[static_cast<size_t>(chain[i])] = own;
  }
  return callers == kNone ? unknown() : callers;
}

uint32_t Places::loc(const Instruction& at, const Computation& of) {
  const Metadata& data = at.metadata;
  uint32_t inner = unknown();
  if (entry(stack_.frames, data.frame) != nullptr) {
    inner = frame(data.frame);
  } else if (!data.file.empty()) {
    inner = file_loc(data.file, data.line, data.column);
  }
  const uint32_t name = data.op_name.empty()
                            ? build_.kept_text(std::string(of.name) + "/" + std::string(at.name))
                            : build_.text(data.op_name);
  return name_loc(name, inner);
}

uint32_t Places::name_of(const Instruction& parameter, size_t member) {
  std::string name(parameter.metadata.op_name.empty() ? parameter.name
                                                      : parameter.metadata.op_name);
  if (parameter.shape.is_tuple()) {
    name += "." + std::to_string(member);
  }
  const uint32_t nowhere = unknown();
  return name_loc(build_.kept_text(std::move(name)), nowhere);
}

}  // namespace tpu::compiler::hlo
