// tpuboard objdump: what is in an executable.
#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "cli/program_file.hpp"
#include "format/json_output.hpp"
#include "terminal/printable_text.hpp"

namespace tpu::driver {

void add_objdump_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("objdump", "Print an executable as text");
  auto path = std::make_shared<std::string>();
  auto json = std::make_shared<std::string>();
  command->add_option("program", *path, "Executable")->required()->type_name("OUT.tpuexe");
  command
      ->add_option("--json", *json,
                   "Arguments, results and cost of a core and step, without the code; -: standard "
                   "output")
      ->type_name("FILE");
  command->callback([path, json] {
    refuse_overwrite(*json, {*path});
    const JsonOutput output(*json);
    if (output.wanted()) {
      output.write(program_figures(*path));
    } else {
      spec::print("{}", program_listing(*path));
    }
  });
}

}  // namespace tpu::driver
