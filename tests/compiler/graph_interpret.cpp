// graph-interpret: runs a StableHLO artifact through import, passes and the graph interpreter. Test
// tool, for comparing the compiler's front half with JAX. Arrays are raw little-endian row-major
// files (i1 a byte). Usage: graph-interpret PROGRAM.mlirbc OUT_DIR [--no-passes | --lowered]
// [--unrounded] [--collectives] ARG0.bin ARG1.bin ... Writes OUT_DIR/0.bin, ... and prints the type
// of each result, one a line. --lowered: after all passes, which leave no op that the interpreter
// lacks; --collectives: their names to standard error.
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>

#include "entry/pipeline.hpp"
#include "import/import.hpp"
#include "ir/interpreter.hpp"
#include "partition/partition.hpp"
#include "passes/host_memory.hpp"
#include "passes/inline.hpp"
#include "passes/static_sizes.hpp"

namespace {

using namespace tpu::compiler;

Tensor read_tensor(const std::string& path, const Type& type) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  if (!file || static_cast<int64_t>(bytes.size()) != type.bytes()) {
    throw Error("'" + path + "' does not hold " + to_string(type));
  }
  Tensor t = make_tensor(type);
  if (!bytes.empty()) {
    std::memcpy(t.data.data(), bytes.data(), bytes.size());
  }
  return t;
}

void run(const std::vector<std::string>& args) {
  bool passes = true, lowered = false, collectives = false;
  EvalOptions options;
  std::vector<std::string> files;
  for (const std::string& a : args) {
    if (a == "--no-passes") {
      passes = false;
    } else if (a == "--lowered") {
      lowered = true;
    } else if (a == "--collectives") {
      collectives = true;
    } else if (a == "--unrounded") {
      options.dots = DotMode::kUnrounded;
    } else {
      files.push_back(a);
    }
  }
  Module module = import_program_file(files.at(0));
  if (passes) {
    run_passes(module, lowered ? compile_passes() : canonical_passes());
  } else {
    inline_calls(module);
    keep_in_host_memory(module);
    make_sizes_static(module);
    splice(module);
    partition(module);
  }
  if (collectives) {
    walk(module.main->body, [](const Op& op) {
      if (is_collective(op.kind)) {
        std::cerr << kind_name(op.kind) << " ";
      }
    });
  }
  std::vector<Tensor> inputs;
  for (const ArgInfo& argument : module.main->args) {
    if (argument.part != WordPart::kHigh) {
      inputs.push_back(read_tensor(files.at(2 + inputs.size()), argument.global));
    }
  }
  const auto results =
      join_results(module, interpret(module, split_arguments(module, inputs), options));
  for (size_t i = 0; i < results.size(); ++i) {
    std::ofstream out(files.at(1) + "/" + std::to_string(i) + ".bin", std::ios::binary);
    out.write(reinterpret_cast<const char*>(results[i].data.data()),
              static_cast<std::streamsize>(results[i].data.size()));
    std::cout << to_string(results[i].type) << "\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: graph-interpret PROGRAM.mlirbc OUT_DIR [--no-passes | --lowered] "
                 "[--unrounded] [--collectives] ARG.bin ...\n";
    return 2;
  }
  try {
    run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& e) {
    std::cerr << "graph-interpret: " << e.what() << "\n";
    return 1;
  }
  return 0;
}
