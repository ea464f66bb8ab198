// CompiledProgram: a StableHLO artifact and its executable, as clients compile, keep and pass it
// on. Needs the numbers of the board, not the board.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "entry/compile.hpp"
#include "exe/executable.hpp"
#include "sync/mutex.hpp"
#include "tpu/types.hpp"

namespace tpu::client {

// How a program is compiled.
struct ProgramForm {
  std::string name = {};  // of the executable; empty: that of its module
  compiler::UpdateSharding update_sharding = compiler::UpdateSharding::kAuto;
  // Of the board, by partition; none or one: partition p on core p, one core anywhere.
  std::vector<int> cores = {};
  compiler::ImportOptions import = {};  // what the framework says beside the program
  // Of the custom calls that the framework partitions itself. What it gives is not in the program:
  // one with such calls is compiled anew each time.
  compiler::FrameworkPartitioner partitioner = {};
  bool text = false;  // program_text() is going to be called
};

struct CompiledProgram {
  std::shared_ptr<const exe::ExecutableT> executable;
  std::vector<std::byte> artifact;             // what it was made from
  compiler::ImportOptions import;              // and how that was read
  compiler::FrameworkPartitioner partitioner;  // and who partitioned some of it; empty: nobody
  std::string fingerprint;  // of artifact, board and compiler, in hexadecimal digits

  // Of program_text(), once it is known.
  mutable base::Mutex text_mutex;
  mutable std::string text TPU_GUARDED_BY(text_mutex);
};

// Compiles for the board of this process, or takes the executable from the folder of the cache; a
// program that somebody holds already is given again, and one that another thread compiles is
// waited for.
// Throws driver::Error: InvalidArgument (damaged artifact), Unimplemented (what the compiler does
// not support; the text names op and source line), ResourceExhausted (more memory than a core has;
// the text lists the largest buffers).
// The executable's notes say what the compiler remarks, also what sharding makes the cores
// exchange.
std::shared_ptr<const CompiledProgram> compile_program(std::span<const std::byte> artifact,
                                                       const ProgramForm& form = {});

// The program of one core as StableHLO in MLIR's text: what a framework can show of it. Made at the
// first call, if it is not known from the compilation. Throws driver::Error as compile_program().
std::string program_text(const CompiledProgram& program);

// Which part each core has of each argument, as the program says it (compiler::argument_parts):
// found anew at each call. Throws driver::Error as compile_program().
std::vector<std::vector<std::vector<int64_t>>> argument_parts(const CompiledProgram& program);

// The programs of the replicas or partitions of one launch, which differ, as one program: the first
// where all run the same, as those do that processes trace from different lines.
struct JoinedPrograms {
  // What a replica passes: its own argument of that number, or an array that is always the same.
  struct Argument {
    size_t own = 0;
    std::optional<driver::HostArray> constant;
  };
  std::shared_ptr<const exe::ExecutableT> executable;
  std::vector<std::vector<Argument>> arguments;  // by replica and argument of the executable
};
// `cores`: of the board, by replica. Throws driver::Error (InvalidArgument) with the first
// difference that one program cannot have; partitions must run the same. What is compiled for them
// is kept in the folder of the cache. `who`: names a partition in errors; empty: by its number.
JoinedPrograms join_programs(const std::vector<std::shared_ptr<const CompiledProgram>>& programs,
                             const std::vector<int>& cores,
                             const std::function<std::string(size_t partition)>& who = {});

// From the bytes of an executable file and what it was made from. Throws driver::Error
// (InvalidArgument).
std::shared_ptr<const CompiledProgram> stored_program(std::span<const std::byte> container,
                                                      std::vector<std::byte> artifact,
                                                      const compiler::ImportOptions& import = {});

}  // namespace tpu::client
