// tpuc: compiles a StableHLO portable artifact to an executable; assembles and disassembles.
// Exit codes: 0 done, 1 the program cannot be compiled, 2 wrong usage.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <climits>
#include <csignal>
#include <iostream>
#include <map>
#include <new>
#include <span>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "asm/assembler.hpp"
#include "asm/disassembler.hpp"
#include "board/board_loader.hpp"
#include "cli/output.hpp"
#include "entry/compile.hpp"
#include "file/whole_file.hpp"
#include "import/file.hpp"
#include "import/import.hpp"
#include "sim/option_names.hpp"
#include "terminal/counted.hpp"
#include "terminal/printable_text.hpp"
#include "terminal/text_bar.hpp"

namespace {

using tpu::compiler::Error;
using tpu::compiler::RollLayers;
using tpu::compiler::UpdateSharding;

struct Arguments {
  std::string input, output, board = "v3_8";
  std::vector<std::string> overrides, dumps;
  std::vector<int> cores;
  std::vector<size_t> data_parallel;
  UpdateSharding update_sharding = UpdateSharding::kAuto;
  RollLayers roll_layers = RollLayers::kAuto;
  std::string style{tpu::compiler::name_of(tpu::compiler::Style::kBest)};
  uint64_t rng_seed = 0;
  int64_t hbm_mib = 0;
  bool fit = true;
  bool verbose = false, assemble = false, disassemble = false, keep_values = false, stats = false;
};

std::string read_text(const std::string& path) {
  const std::vector<std::byte> bytes = tpu::compiler::read_file(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Before any work: an output of the same file as an input would replace it.
void keep_inputs(const Arguments& a) {
  const bool prints = a.output.empty() && (a.disassemble || !a.dumps.empty());
  if (!prints) {
    tpu::spec::refuse_overwrite(
        a.output.empty() ? tpu::compiler::default_output(a.input) : a.output,
        std::vector{a.input, a.board});
  }
}

// A listing as it is for files and pipes, and printable on a terminal.
std::string shown(const std::string& text) {
  return isatty(STDOUT_FILENO) != 0 ? tpu::spec::printable_lines(text) : text;
}

// Says where the executable went unless the user has chosen it.
void write_executable(const Arguments& a, const std::vector<std::byte>& bytes) {
  const std::string path = a.output.empty() ? tpu::compiler::default_output(a.input) : a.output;
  tpu::compiler::write_file(path, bytes);
  if (a.output.empty()) {
    tpu::spec::print(std::cout, "wrote {}\n", path);
  }
}

void assemble_file(const Arguments& a) {
  const tpu::spec::BoardParams board = tpu::spec::load_board(a.board, a.overrides);
  const tpu::exe::ExecutableT e = tpu::compiler::assemble(read_text(a.input), a.input, board);
  const std::vector<std::byte> bytes = tpu::exe::write_executable(e);
  try {
    tpu::exe::read_executable(bytes);
  } catch (const std::runtime_error& error) {
    throw Error(a.input + ": no driver would load what the text describes: " + error.what());
  }
  write_executable(a, bytes);
}

void disassemble_file(const Arguments& a) {
  const std::vector<std::byte> bytes = tpu::compiler::read_file(a.input);
  std::string text;
  try {
    text = tpu::compiler::disassemble(tpu::exe::read_executable(bytes));
  } catch (const std::runtime_error& e) {
    throw Error(a.input + ": " + e.what());
  }
  if (a.output.empty()) {
    std::cout << shown(text);
    return;
  }
  tpu::compiler::write_file(a.output, std::as_bytes(std::span(text)));
}

// What is sharded, or why nothing is; the notes that follow may be the reasons.
std::string sharding_text(const tpu::compiler::Compiled& made) {
  const tpu::exe::ExecutableT& e = made.executable;
  if (e.sharded_update_bytes > 0) {
    return fmt::format("of {} gradient bytes", e.sharded_update_bytes);
  }
  const std::vector<std::string>& reasons = made.report.unsharded;
  return reasons == e.notes ? "off (reasons below)"
                            : fmt::format("off ({})", fmt::join(reasons, "; "));
}

void print_sizes(const std::string& input, const tpu::compiler::Compiled& made) {
  const tpu::exe::ExecutableT& e = made.executable;
  tpu::spec::print(std::cout,
                   "{}: {}, {}, code {} bytes, HBM {} bytes, VMEM peak {} bytes, "
                   "about {} cycles, update sharding {}\n",
                   input, tpu::spec::counted(e.partitions, "core"),
                   tpu::spec::counted(e.ops.size(), "kernel"), e.image.size(), e.hbm_bytes,
                   e.vmem_peak_bytes, e.estimated_cycles, sharding_text(made));
  for (const std::string& note : e.notes) {
    tpu::spec::print(std::cout, "  {}\n", note);
  }
}

// With a bar where that takes long, unless stages are printed.
tpu::compiler::Compiled compiled(const Arguments& a, const tpu::spec::BoardParams& board,
                                 tpu::compiler::CompileOptions& options) {
  tpu::spec::TextBar bar("compile", tpu::spec::kLongSeconds);
  if (a.dumps.empty()) {
    options.progress = [&](const std::string& stage, double done) { bar.share(done, stage); };
  }
  const std::vector<std::byte> bytes = tpu::compiler::read_file(a.input);
  return tpu::compiler::compile([&] { return tpu::compiler::import_program_file(a.input, bytes); },
                                board, options);
}

tpu::compiler::CompileOptions options_of(const Arguments& a) {
  tpu::compiler::CompileOptions options;
  options.style = tpu::compiler::style_names().at(a.style);
  options.update_sharding = a.update_sharding;
  options.roll_layers = a.roll_layers;
  options.cores = a.cores;
  options.data_parallel = a.data_parallel;
  options.keep_values = a.keep_values;
  options.stats = a.stats;
  options.rng_seed = a.rng_seed;
  options.hbm_bytes = a.hbm_mib << 20;
  options.fit = a.fit;
  options.dump_after = a.dumps;
  options.dump = [](const std::string& stage, const std::string& text) {
    std::cout << "// after " << stage << "\n" << shown(text) << "\n";
  };
  return options;
}

void compile_file(const Arguments& a) {
  const tpu::spec::BoardParams board = tpu::spec::load_board(a.board, a.overrides);
  tpu::compiler::CompileOptions options = options_of(a);
  const tpu::compiler::Compiled out = compiled(a, board, options);
  const std::vector<std::byte> bytes = tpu::exe::write_executable(out.executable);
  if (!a.output.empty() || a.dumps.empty()) {
    write_executable(a, bytes);
  }
  if (a.update_sharding == UpdateSharding::kOn) {
    for (const std::string& reason : out.report.unsharded) {
      tpu::spec::print(std::cerr, "tpuc: note: --update-sharding=on changes nothing: {}\n", reason);
    }
  }
  if (a.roll_layers == RollLayers::kOn && out.report.rolled.empty()) {
    tpu::spec::print(
        std::cerr,
        "tpuc: note: --roll-layers=on changes nothing: the program has no equal layers "
        "with products one after the other, or --keep-values keeps them apart\n");
  }
  if (a.stats) {
    std::cout << tpu::compiler::to_text(out.report.passes);
  }
  if (a.verbose) {
    print_sizes(a.input, out);
    for (const std::string& line : tpu::compiler::describe_moved(out.report.moved)) {
      tpu::spec::print(std::cout, "  {}\n", line);
    }
    for (const std::string& line : tpu::compiler::describe_rolled(out.report.rolled)) {
      tpu::spec::print(std::cout, "  {}\n", line);
    }
  }
}

// What the program becomes.
void add_modes(CLI::App& app, Arguments& a) {
  const std::map<std::string, UpdateSharding> modes = {
      {"auto", UpdateSharding::kAuto}, {"on", UpdateSharding::kOn}, {"off", UpdateSharding::kOff}};
  app.add_option("--update-sharding", a.update_sharding,
                 "cut the update of replicated state over the cores: auto (when faster), on "
                 "(wherever legal) or off")
      ->transform(CLI::Transformer(modes))
      ->option_text("auto|on|off [auto]");
  const std::map<std::string, RollLayers> rolls = {
      {"auto", RollLayers::kAuto}, {"on", RollLayers::kOn}, {"off", RollLayers::kOff}};
  app.add_option("--roll-layers", a.roll_layers,
                 "make loops of equal layers that the program writes out: auto (if it is too long "
                 "otherwise), on or off")
      ->transform(CLI::Transformer(rolls))
      ->option_text("auto|on|off [auto]");
  app.add_option(
         "--style", a.style,
         "best; xla2019: as the production compiler of 2018 to 2019 did it, for times that are "
         "compared with boards of that time (docs/timing_truth.md); xla2023: products with a "
         "vector in full f32 (docs/numerics.md)")
      ->check(CLI::IsMember(&tpu::compiler::style_names()))
      ->option_text("best|xla2019|xla2023 [best]");
}

// What a program does that is too large.
void add_memory(CLI::App& app, Arguments& a) {
  const std::map<std::string, bool> fits = {{"auto", true}, {"off", false}};
  app.add_option("--fit", a.fit,
                 "a program that needs more memory than there is: compile it so that it computes "
                 "values again in place of keeping them (auto), or reject it (off)")
      ->transform(CLI::Transformer(fits))
      ->option_text("auto|off [auto]");
  constexpr int64_t kMostMib = int64_t{1} << 20;
  app.add_option("--hbm-mib", a.hbm_mib,
                 "HBM of a core that the program may use, its instructions included (default: all)")
      ->check(CLI::Range(int64_t{1}, kMostMib));
}

void add_options(CLI::App& app, Arguments& a) {
  app.set_version_flag("--version", "tpuc " TPU_VERSION);
  app.add_option("program", a.input, "PROGRAM.mlirbc (StableHLO) or .hlo.pb (HLO)")->required();
  app.add_option("-o,--output", a.output,
                 "OUT.tpuexe (else PROGRAM.tpuexe in the current folder, or nothing with "
                 "--dump-after; with --disasm standard output)");
  app.add_option("--board", a.board, "board preset or file")->capture_default_str();
  app.add_option("--set", a.overrides, "board override section.key=value")->allow_extra_args(false);
  auto* cores =
      app.add_option("--cores", a.cores,
                     "cores of the board that run the program, by partition: 4,5,6,7 (else 0,1,..)")
          ->delimiter(',')
          ->allow_extra_args(false);
  auto* data_parallel =
      app.add_option("--data-parallel", a.data_parallel,
                     "of a program that was exported without a mesh: cut dimension 0 of these "
                     "arguments (the batch: 14,15) over the cores of --cores, else over all cores "
                     "of the board")
          ->delimiter(',')
          ->allow_extra_args(false)
          ->type_name("ARGUMENTS");
  auto* dump = app.add_option("--dump-after", a.dumps, "print the program after a stage")
                   ->check(CLI::IsMember(tpu::compiler::stages()))
                   ->allow_extra_args(false);
  add_modes(app, a);
  add_memory(app, a);
  app.add_option("--rng-seed", a.rng_seed,
                 "of the numbers that `stablehlo.rng` draws: the same in each run of the program")
      ->capture_default_str();
  auto* assemble = app.add_flag("--asm", a.assemble, "the input is assembly text, not an artifact")
                       ->excludes(dump)
                       ->excludes(cores)
                       ->excludes(data_parallel);
  auto* disassemble =
      app.add_flag("--disasm", a.disassemble, "prints the executable PROGRAM as assembly text")
          ->excludes(assemble)
          ->excludes(dump)
          ->excludes(cores)
          ->excludes(data_parallel);
  app.add_flag("--keep-values", a.keep_values,
               "what each operation makes becomes a result of the program, for `tpuboard debug "
               "--executable`; nothing is cut by --update-sharding")
      ->excludes(assemble)
      ->excludes(disassemble);
  app.add_flag("--stats", a.stats,
               "print of each pass how often and how long it ran, what it changed, and why it gave "
               "up")
      ->excludes(assemble)
      ->excludes(disassemble);
  app.add_flag("-v,--verbose", a.verbose,
               "print sizes, the estimated time, and what cores exchange for arrays that are cut");
}

void run(const Arguments& a) {
  keep_inputs(a);
  if (a.assemble) {
    assemble_file(a);
  } else if (a.disassemble) {
    disassemble_file(a);
  } else {
    compile_file(a);
  }
  std::cout.flush();
  if (!std::cout) {
    throw Error("cannot write to standard output");
  }
}

// Memory that is given back is taken again by the next pass: the process keeps it, since each page
// that comes anew from the system costs a fault.
void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, 16 << 20);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  // A file that outgrows the user's limit is an error of its writer, like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  keep_freed_memory();
  CLI::App app{"Compiles a StableHLO portable artifact (jax.export) to a tpuboard executable."};
  Arguments a;
  add_options(app, a);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  try {
    run(a);
    return 0;
  } catch (const std::bad_alloc&) {
    tpu::spec::print(std::cerr,
                     "tpuc: error: the memory of this machine does not suffice to compile {}; make "
                     "its arrays smaller, or fewer of them constants\n",
                     a.input);
    return 1;
  } catch (const std::exception& e) {
    tpu::spec::print(std::cerr, "tpuc: error: {}\n",
                     tpu::spec::name_options(e.what(), tpu::spec::OptionDoor::kCommandLine));
    return 1;
  }
}
