// tpuboard report: why does a step wait? One step of a program, run here without data or recorded
// by another command, as an HTML page and as JSON.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include "analysis/step_report.hpp"
#include "cli/attempts.hpp"
#include "cli/commands.hpp"
#include "cli/folded.hpp"
#include "cli/options.hpp"
#include "cli/program_file.hpp"
#include "cli/record_file.hpp"
#include "cli/unwritten.hpp"
#include "file/files.hpp"
#include "format/json_output.hpp"
#include "terminal/printable_text.hpp"
#include "terminal/text_bar.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

struct ReportArguments {
  BoardArguments board;
  std::string what;
  std::string page;
  std::string json;
  size_t changes = 10;
  bool folded = false;
};

// One launch on zeros that nobody computes.
std::string record_program(const std::string& path, OpenOptions options, bool folded,
                           Attempts& attempts) {
  std::vector<std::byte> image = program_bytes(path, options);
  if (folded) {
    std::tie(options, image) = fold(options, image, path);
  }
  options.sim.no_data = true;
  options.sim.record = true;
  options.sim.record_step = 0;
  const Board board = Board::open(options);
  const TellUnwritten unwritten(board);
  const Executable program = load_program(board, path, image);
  std::vector<Array> placed;
  for (size_t i = 0; i < program.arguments().size(); ++i) {
    placed.push_back(program.zeros(i));
  }
  try {
    program.run(placed).done.wait();
  } catch (const Error& error) {
    if (std::string_view(error.what()).find("NO_DATA") == std::string_view::npos) {
      throw;
    }
    throw Error(error.code(),
                fmt::format("{}; run it with its data: tpuboard run {} --in ... --record "
                            "STEP.tpurec, and report that",
                            error.what(), path));
  }
  std::string record = board.take_record();
  attempts.attempt([&] { board.close(); });
  return record;
}

void write_page(const std::string& path, const nlohmann::ordered_json& figures) {
  const std::string page = report_page(figures);
  write_file(path, std::as_bytes(std::span(page)));
}

// There is a page to look at while changes are worked out; not where it could be read only once.
void write_early_page(const std::string& path, const nlohmann::ordered_json& figures) {
  std::error_code none;
  if (!std::filesystem::is_other(std::filesystem::status(path, none))) {
    write_page(path, figures);
  }
}

void report(const ReportArguments& arguments) {
  if (arguments.page.empty() && arguments.json.empty()) {
    throw UsageError("report: give -o PAGE.html, --json FILE, or both");
  }
  const OpenOptions options = arguments.board.open;
  const std::vector<std::string> inputs = {arguments.what};
  keep_inputs(arguments.board, {arguments.json, arguments.page}, inputs);
  const JsonOutput json(arguments.json);
  const bool recorded = is_record_file(arguments.what);
  if (recorded && arguments.folded) {
    throw UsageError("--folded: a recorded step is what it is; name a program");
  }
  Attempts attempts;
  std::string bytes = recorded
                          ? std::string()
                          : record_program(arguments.what, options, arguments.folded, attempts);
  const spec::StepRecord record = recorded ? read_record_file(arguments.what)
                                           : spec::read_record(std::as_bytes(std::span(bytes)));
  if (!recorded && !arguments.board.record.empty()) {
    attempts.attempt([&] { write_file(arguments.board.record, std::as_bytes(std::span(bytes))); });
  }
  bytes.clear();  // as much as the record again
  bytes.shrink_to_fit();
  const unsigned threads = options.sim.threads > 0 ? static_cast<unsigned>(options.sim.threads)
                                                   : std::thread::hardware_concurrency();
  bool page = !arguments.page.empty();
  const nlohmann::ordered_json figures = [&] {
    spec::TextBar bar("report", spec::kLongSeconds);
    return step_report(
        record, arguments.folded ? 0 : arguments.changes, threads,
        {.early =
             [&](const nlohmann::ordered_json& early) {
               page = page && attempts.attempt([&] { write_early_page(arguments.page, early); });
             },
         .done = [&](double part) { bar.share(part, "what would shorten the step"); }});
  }();
  if (page) {
    attempts.attempt([&] { write_page(arguments.page, figures); });
  }
  if (json.wanted()) {
    attempts.attempt([&] { json.write(figures); });
  }
  // The re-timing model takes the ways between boards for ways inside of one.
  const std::string retimed = arguments.folded
                                  ? "folded: what would shorten the step is not looked for"
                                  : fmt::format("the re-timing model says {} ({:+.2f} %)",
                                                figures["retimed"]["cycles"].get<uint64_t>(),
                                                figures["retimed"]["error"].get<double>() * 100);
  spec::print("{}: step {}, {} cycles, {:.3f} us; {}\n", record.program, record.step,
              figures["cycles"].get<uint64_t>(), figures["seconds"].get<double>() * 1e6, retimed);
  if (const auto& host = figures["host_transfers"]; !host.is_null()) {
    const auto share = [&](const char* part) {
      return 100 * host[part].get<double>() / host["cycles"].get<double>();
    };
    spec::print(
        "  transfers with the host: {:.0f} cycles of a core, {:.1f} % beside compute, {:.1f} % "
        "beside other transfers\n",
        host["cycles"].get<double>(), share("hidden"), share("beside_transfers"));
  }
  for (const auto& change : figures["changes"]) {
    const auto cycles = change["cycles_without"].get<double>();
    spec::print("  {:>6.2f} % shorter without: {}{}{}\n",
                100 * (1 - cycles / figures["retimed"]["cycles"].get<double>()),
                change["name"].get<std::string>(), change["source"].empty() ? "" : "  ",
                change["source"].get<std::string>());
  }
  attempts.finish();
}

}  // namespace

void add_report_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "report", "Why a step waits: where its time goes, and what would shorten it");
  auto arguments = std::make_shared<ReportArguments>();
  command
      ->add_option("what", arguments->what,
                   "Program made by tpuc, or its artifact, which is run without data; or a step "
                   "that --record has kept")
      ->required()
      ->type_name("PROGRAM|FILE.tpurec");
  command->add_option("-o,--output", arguments->page, "The report as a page that needs no network")
      ->type_name("PAGE.html");
  command->add_option("--json", arguments->json, "The report as JSON; -: standard output")
      ->type_name("FILE");
  command
      ->add_option("--changes", arguments->changes,
                   "How many changes that would shorten the step are looked for, which takes most "
                   "of the time; 0: none")
      ->check(CLI::Range(0, 100))
      ->capture_default_str()
      ->type_name("N");
  add_folded_option(*command, arguments->folded);
  add_board_options(*command, arguments->board);
  command->callback([arguments] { report(*arguments); });
}

}  // namespace tpu::driver
