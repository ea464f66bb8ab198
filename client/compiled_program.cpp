// The compiler's library behind a cache of executables.
#include "compiled_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "compile_lock.hpp"
#include "process_board.hpp"
#include "program_cache.hpp"
#include "program_difference.hpp"
#include "sync/mutex.hpp"
#include "tpu/error.hpp"

namespace tpu::client {
namespace {

// Bytecode begins with "ML", a byte that is no text, and "R"; an HLO module is a protocol buffer.
void refuse_text(std::span<const std::byte> artifact) {
  constexpr size_t kLooked = 8;
  const auto is_text = [](std::byte each) {
    const auto c = std::to_integer<unsigned char>(each);
    return (c >= ' ' && c <= '~') || c == '\t' || c == '\n' || c == '\r';
  };
  if (!artifact.empty() && !compiler::is_hlo(artifact) &&
      std::ranges::all_of(artifact.first(std::min(artifact.size(), kLooked)), is_text)) {
    throw driver::Error(driver::ErrorCode::kUnimplemented,
                        "the program is not MLIR bytecode: textual MLIR is not read; send a "
                        "StableHLO portable artifact (stablehlo.serialize_portable_artifact)");
  }
}

// Of what the key does not hold otherwise; empty where nothing is asked for.
std::string form_text(const ProgramForm& form) {
  const ProgramForm usual;
  const compiler::ImportOptions& import = form.import;
  const compiler::Style style = ProcessBoard::options().style;
  std::string text(style == compiler::Style::kBest ? "" : compiler::name_of(style));
  if (!ProcessBoard::options().fit) {
    text += " as it is ";
  }
  if (ProcessBoard::options().roll_layers != compiler::RollLayers::kAuto) {
    text +=
        ProcessBoard::options().roll_layers == compiler::RollLayers::kOn ? " rolled " : " flat ";
  }
  if (import != usual.import) {
    text += std::to_string(import.replicas) + "x" + std::to_string(import.partitions) +
            (import.layouts ? " layouts " : " ");
  }
  if (form.name != usual.name || form.update_sharding != usual.update_sharding) {
    text += std::to_string(static_cast<int>(form.update_sharding)) + " " + form.name;
  }
  return text;
}

// What makes a program smaller, for the programs of a framework.
constexpr const char* kLessMemory =
    "\nWhat needs less memory of a core: arrays that are sharded over the cores (JAX: shardings of "
    "the arguments, out_shardings), donated arguments (donate_argnums), a smaller batch, values "
    "that are computed again (jax.checkpoint)";

// "58166607872 bytes of HBM" as "58166607872 bytes of HBM (54.172 GiB)", since the text compares it
// with the GiB of a core.
std::string with_gib(std::string text) {
  constexpr std::string_view kUnit = " bytes of HBM";
  const size_t end = text.find(kUnit);
  const size_t begin = end == std::string::npos ? end : text.find_last_of(' ', end - 1) + 1;
  uint64_t bytes = 0;
  if (begin < end &&
      std::from_chars(text.data() + begin, text.data() + end, bytes).ptr == text.data() + end) {
    constexpr double kGib = 1 << 30;
    text.insert(end + kUnit.size(),
                fmt::format(" ({:.3f} GiB)", static_cast<double>(bytes) / kGib));
  }
  return text;
}

// `call` of the compiler, with its errors as those of the driver.
template <typename Call>
auto of_compiler(Call call) {
  try {
    return call();
  } catch (const compiler::HbmExhausted& error) {
    throw driver::Error(driver::ErrorCode::kResourceExhausted,
                        with_gib(error.what()) + kLessMemory);
  } catch (const compiler::Unsupported& error) {
    throw driver::Error(driver::ErrorCode::kUnimplemented, error.what());
  } catch (const compiler::Contradiction& error) {
    throw driver::Error(driver::ErrorCode::kInvalidArgument, error.what());
  } catch (const compiler::Error& error) {
    throw driver::Error(error.op().empty() ? driver::ErrorCode::kInvalidArgument
                                           : driver::ErrorCode::kUnimplemented,
                        error.what());
  }
}

// Names of custom calls stand in the artifact as they are.
bool has_own_partitioning(std::span<const std::byte> artifact) {
  constexpr std::string_view kTarget = "CustomSPMDPartitioning";
  const std::string_view text(reinterpret_cast<const char*>(artifact.data()), artifact.size());
  return text.find(kTarget) != std::string_view::npos;
}

// Asks each question once: who answers may be gone when the text of the program is wanted.
compiler::FrameworkPartitioner remembered(compiler::FrameworkPartitioner partitioner) {
  struct Answers {
    base::Mutex mutex;  // not held while somebody is asked: Python's lock may be waited for
    std::vector<std::pair<compiler::PartitionRequest, compiler::FrameworkPart>> all
        TPU_GUARDED_BY(mutex);
  };
  return [ask = std::move(partitioner),
          answers = std::make_shared<Answers>()](const compiler::PartitionRequest& request) {
    {
      const base::MutexLock lock(answers->mutex);
      const auto known =
          std::ranges::find(answers->all, request, [](const auto& entry) { return entry.first; });
      if (known != answers->all.end()) {
        return known->second;
      }
    }
    compiler::FrameworkPart part = ask(request);
    const base::MutexLock lock(answers->mutex);
    answers->all.emplace_back(request, part);
    return part;
  };
}

compiler::CompileOptions usual_options() {
  compiler::CompileOptions options;
  options.style = ProcessBoard::options().style;
  options.fit = ProcessBoard::options().fit;
  options.roll_layers = ProcessBoard::options().roll_layers;
  return options;
}

// All that it has to say goes into the notes, where the cache keeps it.
compiler::Compiled compiled(std::span<const std::byte> artifact, const ProgramForm& form) {
  compiler::CompileOptions options = usual_options();
  options.update_sharding = form.update_sharding;
  options.cores = form.cores;
  options.import = form.import;
  options.partitioner = form.partitioner;
  options.core_text = form.text;
  compiler::Compiled made = of_compiler(
      [&] { return compiler::compile(artifact, form.name, ProcessBoard::params(), options); });
  std::vector<std::string>& notes = made.executable.notes;
  if (form.update_sharding == compiler::UpdateSharding::kOn) {
    notes.insert(notes.end(), made.report.unsharded.begin(), made.report.unsharded.end());
  }
  for (std::string& line : compiler::describe_moved(made.report.moved)) {
    notes.push_back(std::move(line));
  }
  for (std::string& line : compiler::describe_rolled(made.report.rolled)) {
    notes.push_back(std::move(line));
  }
  return made;
}

}  // namespace

std::shared_ptr<const CompiledProgram> stored_program(std::span<const std::byte> container,
                                                      std::vector<std::byte> artifact,
                                                      const compiler::ImportOptions& import) {
  auto program = std::make_shared<CompiledProgram>();
  try {
    program->executable = std::make_shared<exe::ExecutableT>(exe::read_executable(container));
  } catch (const exe::ExecutableError& error) {
    throw driver::Error(driver::ErrorCode::kInvalidArgument, error.what());
  }
  const std::vector<uint16_t> cores = exe::cores_of(*program->executable);
  program->fingerprint = program_key(artifact, ProcessBoard::params(), {cores.begin(), cores.end()},
                                     form_text({.import = import}));
  program->artifact = std::move(artifact);
  program->import = import;
  return program;
}

namespace {

// The cores that an executable must know: those of one partition, or in order, it does not.
std::vector<int> named_cores(const std::vector<int>& cores) {
  for (size_t p = 0; p < cores.size() && cores.size() > 1; ++p) {
    if (cores[p] != static_cast<int>(p)) {
      return cores;
    }
  }
  return {};
}

// Programs that somebody has, by fingerprint: one core or another, they are compiled once, also
// when several threads want one at the same time.
class LivePrograms {
 public:
  using Program = std::shared_ptr<const CompiledProgram>;

  // Calls `make` if nobody has the program or makes it. What that throws, all who wait throw.
  template <typename Make>
  Program get(const std::string& fingerprint, Make make) {
    std::shared_ptr<Making> making;
    {
      const base::MutexLock lock(mutex_);
      Entry& entry = programs_[fingerprint];
      if (Program program = entry.program.lock()) {
        return program;
      }
      if (entry.making) {
        return made(*std::shared_ptr<Making>(entry.making));
      }
      entry.making = making = std::make_shared<Making>();
    }
    try {
      making->program = make();
    } catch (...) {
      making->error = std::current_exception();
    }
    const base::MutexLock lock(mutex_);
    making->over = true;
    changed_.notify_all();
    programs_[fingerprint] = {making->program, nullptr};
    std::erase_if(programs_, [](const auto& entry) {
      return entry.second.program.expired() && !entry.second.making;
    });
    if (making->error) {
      std::rethrow_exception(making->error);
    }
    return making->program;
  }

 private:
  struct Making {
    bool over = false;
    Program program;
    std::exception_ptr error;
  };
  struct Entry {
    std::weak_ptr<const CompiledProgram> program;
    std::shared_ptr<Making> making;
  };

  Program made(const Making& making) TPU_REQUIRES(mutex_) {
    while (!making.over) {
      changed_.wait(mutex_);
    }
    if (making.error) {
      std::rethrow_exception(making.error);
    }
    return making.program;
  }

  base::Mutex mutex_;
  base::CondVar changed_;
  std::unordered_map<std::string, Entry> programs_ TPU_GUARDED_BY(mutex_);
};

// Never destroyed: threads may compile while the process exits.
LivePrograms& live_programs() {
  static auto* programs = new LivePrograms;
  return *programs;
}

ProgramCache& program_cache() {
  const ClientOptions& options = ProcessBoard::options();
  static auto* cache = new ProgramCache(
      options.cache ? options.cache_folder : std::string(), options.cache_mib << 20,
      [](const std::string& text) { std::fprintf(stderr, "tpuboard: %s\n", text.c_str()); });
  return *cache;
}

}  // namespace

std::shared_ptr<const CompiledProgram> compile_program(std::span<const std::byte> artifact,
                                                       const ProgramForm& form) {
  ProgramForm named = form;
  named.cores = named_cores(form.cores);
  const bool asks = form.partitioner && has_own_partitioning(artifact);
  named.partitioner = asks ? remembered(form.partitioner) : compiler::FrameworkPartitioner();
  refuse_text(artifact);
  const std::string fingerprint =
      program_key(artifact, ProcessBoard::params(), named.cores, form_text(form));
  const auto make = [&] {
    auto program = std::make_shared<CompiledProgram>();
    program->artifact.assign(artifact.begin(), artifact.end());
    program->fingerprint = fingerprint;
    program->import = named.import;
    program->partitioner = named.partitioner;
    const auto is_kept = [&] {
      auto kept = asks ? std::nullopt : program_cache().find(fingerprint);
      if (kept) {
        program->executable = std::make_shared<exe::ExecutableT>(std::move(*kept));
      }
      return kept.has_value();
    };
    if (is_kept()) {
      return program;
    }
    std::optional<CompileLock> turn(std::in_place, asks ? "" : program_cache().folder(),
                                    fingerprint);
    if ((turn->holds() || turn->has_waited()) && is_kept()) {
      return program;  // another process has compiled it
    }
    if (turn->has_waited()) {
      turn.reset();  // its program fails or cannot be kept: the others need not wait for this one
    }
    compiler::Compiled made = compiled(artifact, named);
    program->executable = std::make_shared<exe::ExecutableT>(std::move(made.executable));
    {
      const base::MutexLock lock(program->text_mutex);
      program->text = std::move(made.report.core_text);
    }
    if (!asks) {
      program_cache().keep(fingerprint, *program->executable);
    }
    return program;
  };
  return asks ? make() : live_programs().get(fingerprint, make);
}

namespace {

using Programs = std::vector<std::shared_ptr<const CompiledProgram>>;

// The first lines that differ, for whoever has launched the programs; empty: what is compared is
// not in the text, or there is no text without the callbacks of the process that compiled.
std::string lines_that_differ(const CompiledProgram& one, const CompiledProgram& other) {
  try {
    const auto lines = first_difference(program_text(one), program_text(other));
    return lines ? fmt::format(", first {} and {}", lines->first, lines->second) : "";
  } catch (const std::exception&) {
    return "";
  }
}

// How they differ; nothing: all run the same, and the first does for all.
std::optional<std::string> difference(const Programs& programs,
                                      const std::function<std::string(size_t partition)>& who) {
  std::optional<ProgramParts> first;
  for (size_t p = 1; p < programs.size(); ++p) {
    if (programs[p]->executable == programs[0]->executable) {
      continue;
    }
    if (!first) {
      first.emplace(*programs[0]->executable);
    }
    if (const auto what = first->difference(ProgramParts(*programs[p]->executable))) {
      const auto name = [&](size_t partition) {
        return who ? who(partition) : fmt::format("partition {}", partition);
      };
      return fmt::format(
          "those of {} ({}) and of {} ({}) have different {}{}", name(0),
          programs[0]->executable->name, name(p), programs[p]->executable->name, *what,
          programs[0]->import.partitions > 1 ? lines_that_differ(*programs[0], *programs[p]) : "");
    }
  }
  return std::nullopt;
}

JoinedPrograms first_for_all(const Programs& programs) {
  JoinedPrograms joined;
  joined.executable = programs[0]->executable;
  std::vector<JoinedPrograms::Argument> own(joined.executable->args.size());
  for (size_t i = 0; i < own.size(); ++i) {
    own[i].own = i;
  }
  joined.arguments.assign(programs.size(), own);
  return joined;
}

// Of what the programs were made from, which their own fingerprints hold.
std::string joined_key(const Programs& programs, const std::vector<int>& cores) {
  std::string sources;
  for (const auto& program : programs) {
    sources += program->fingerprint + "\n";
  }
  return program_key(std::as_bytes(std::span(sources)), ProcessBoard::params(), cores, "joined");
}

// Compiled, or from the folder of the cache. To read and to join the programs, which the arguments
// need in either case, takes little of a compilation.
std::shared_ptr<const exe::ExecutableT> joined_executable(
    const std::string& key, const std::function<compiler::Module()>& join,
    const compiler::CompileOptions& options) {
  if (auto kept = program_cache().find(key)) {
    return std::make_shared<exe::ExecutableT>(std::move(*kept));
  }
  compiler::Compiled made =
      of_compiler([&] { return compiler::compile(join, ProcessBoard::params(), options); });
  auto executable = std::make_shared<exe::ExecutableT>(std::move(made.executable));
  program_cache().keep(key, *executable);
  return executable;
}

}  // namespace

JoinedPrograms join_programs(const Programs& programs, const std::vector<int>& cores,
                             const std::function<std::string(size_t partition)>& who) {
  const auto what = difference(programs, who);
  if (!what) {
    return first_for_all(programs);
  }
  if (programs[0]->import.partitions > 1) {
    throw driver::Error(
        driver::ErrorCode::kInvalidArgument,
        fmt::format("the devices launch different programs: {}; each process must launch the same "
                    "programs in the same order",
                    *what));
  }
  std::vector<std::span<const std::byte>> artifacts;
  for (const auto& program : programs) {
    artifacts.emplace_back(program->artifact);
  }
  compiler::CompileOptions options = usual_options();
  options.cores = named_cores(cores);
  options.import = programs.at(0)->import;
  compiler::JoinedReplicas made =
      of_compiler([&] { return compiler::joined_program(artifacts, options.import); });
  JoinedPrograms joined;
  bool first = true;
  const auto join = [&] {  // once more for a program that is too long
    return std::exchange(first, false) ? std::move(made.module)
                                       : compiler::joined_program(artifacts, options.import).module;
  };
  joined.executable = joined_executable(joined_key(programs, options.cores), join, options);
  for (const auto& passed : made.arguments) {
    auto& arguments = joined.arguments.emplace_back();
    for (size_t slot = 0; slot < passed.size(); ++slot) {
      JoinedPrograms::Argument& argument = arguments.emplace_back();
      argument.own = passed[slot].own;
      if (passed[slot].constant) {
        const exe::TensorT& tensor = *joined.executable->args.at(slot);
        argument.constant = driver::HostArray{static_cast<driver::DType>(tensor.elem),
                                              tensor.local_dims, passed[slot].constant->expanded()};
      }
    }
  }
  return joined;
}

std::string program_text(const CompiledProgram& program) {
  const base::MutexLock lock(program.text_mutex);
  if (program.text.empty()) {
    program.text = of_compiler([&] {
      return compiler::core_program_text(program.artifact, ProcessBoard::params(), program.import,
                                         program.partitioner);
    });
  }
  return program.text;
}

std::vector<std::vector<std::vector<int64_t>>> argument_parts(const CompiledProgram& program) {
  return of_compiler([&] { return compiler::argument_parts(program.artifact, program.import); });
}

}  // namespace tpu::client
