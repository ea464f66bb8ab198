// Ops whose results differ from core to core: collectives, and what reads the number of the core.
// Private to the import.
#pragma once

#include <set>
#include <string_view>

#include "import/attr_reader.hpp"
#include "import/bytecode.hpp"

namespace tpu::compiler::frontend {

class CoreOps {
 public:
  CoreOps(const Tables& tables, const bytecode::RawOp& module);

  // The op itself, or one of its regions or of a function that it calls. Not where these have
  // manual parts of their own: they give arrays of all devices.
  bool contains(const bytecode::RawOp& op) const;

 private:
  bool is_one(const bytecode::RawOp& op) const;
  bool is_border(const bytecode::RawOp& op) const;

  const Tables& tables_;
  std::set<std::string_view> functions_;
};

}  // namespace tpu::compiler::frontend
