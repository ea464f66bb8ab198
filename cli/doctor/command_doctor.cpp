// tpuboard doctor: what of this host, environment and Python matters to the board, and what to do.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>

#include "cli/commands.hpp"
#include "cli/doctor/finding.hpp"
#include "cli/exit_code.hpp"
#include "cli/options.hpp"
#include "format/json_output.hpp"
#include "terminal/counted.hpp"
#include "terminal/printable_text.hpp"

namespace tpu::driver {
namespace {

struct DoctorArguments {
  std::string python;
  std::string json;
};

const char* level_name(Level level) {
  switch (level) {
    case Level::kOk:
      return "ok";
    case Level::kNote:
      return "note";
    case Level::kWarning:
      return "warning";
    case Level::kProblem:
      return "problem";
  }
  return "";
}

int64_t count_of(const Findings& found, Level level) {
  return std::ranges::count(found, level, &Finding::level);
}

void print_text(const Findings& found) {
  for (const Finding& finding : found) {
    spec::print("{:<8} {:<17} {}\n", level_name(finding.level), finding.topic, finding.text);
    if (!finding.advice.empty()) {
      spec::print("{:<26} -> {}\n", "", finding.advice);
    }
  }
  spec::print("{}, {}\n", spec::counted(count_of(found, Level::kProblem), "problem"),
              spec::counted(count_of(found, Level::kWarning), "warning"));
}

nlohmann::ordered_json as_json(const Findings& found) {
  nlohmann::ordered_json json;
  json["problems"] = count_of(found, Level::kProblem);
  json["warnings"] = count_of(found, Level::kWarning);
  json["findings"] = nlohmann::ordered_json::array();
  for (const Finding& finding : found) {
    json["findings"].push_back({{"level", level_name(finding.level)},
                                {"topic", finding.topic},
                                {"text", finding.text},
                                {"advice", finding.advice}});
  }
  return json;
}

void doctor(const DoctorArguments& arguments) {
  const JsonOutput json(arguments.json);
  Findings found;
  look_at_program(found);
  look_at_host(found);
  look_at_folders(found);
  look_at_variables(found);
  look_at_python(arguments.python, found);
  look_at_board(found);
  if (json.wanted()) {
    json.write(as_json(found));
  } else {
    print_text(found);
  }
  if (count_of(found, Level::kProblem) > 0) {
    throw EndedWithCode(1);
  }
}

}  // namespace

void add_doctor_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("doctor", "Check this host and its Python for the board");
  auto arguments = std::make_shared<DoctorArguments>();
  command
      ->add_option(
          "--python", arguments->python,
          "Python to look at (default: that of the package, of $VIRTUAL_ENV, else python3)")
      ->type_name("PROGRAM");
  add_list_json_option(*command, arguments->json, [arguments] { doctor(*arguments); });
}

}  // namespace tpu::driver
