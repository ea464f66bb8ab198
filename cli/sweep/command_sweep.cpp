// tpuboard sweep: a command again and again with other options, beside each other; one table.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "cli/stop_signals.hpp"
#include "cli/sweep/campaign.hpp"
#include "cli/sweep/child_processes.hpp"
#include "cli/sweep/slurm_script.hpp"
#include "cli/sweep/sweep_file.hpp"
#include "cli/sweep/sweep_folder.hpp"
#include "cli/sweep/sweep_table.hpp"
#include "file/files.hpp"
#include "format/json_output.hpp"
#include "terminal/counted.hpp"
#include "terminal/printable_text.hpp"
#include "terminal/text_bar.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

namespace fs = std::filesystem;

struct SweepArguments {
  std::string file;
  std::string out;
  std::string json;
  unsigned jobs = 0;
  std::optional<size_t> task;
  bool again = false;
  bool dry_run = false;
  bool collect = false;
  bool slurm = false;
};

fs::path this_program() { return fs::read_symlink("/proc/self/exe"); }

unsigned host_cores() { return std::max(1U, std::thread::hardware_concurrency()); }

std::string how_it_ended(int status) {
  return WIFSIGNALED(status)
             ? fmt::format("ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)))
             : fmt::format("exit code {}", WEXITSTATUS(status));
}

// The rows that are to be run, in processes.
class SweepRun {
 public:
  SweepRun(const Sweep& sweep, const SweepFolder& folder, std::vector<size_t> rows, unsigned jobs)
      : sweep_(sweep),
        folder_(folder),
        waiting_(rows.begin(), rows.end()),
        all_(rows.size()),
        jobs_(std::min<size_t>(jobs, rows.size())),
        bar_("sweep") {}

  // The signal that ended it; 0: none did.
  int run() {
    const StopSignals signals;
    ChildProcesses children;
    int told = 0;
    bar_.count(0, all_, "rows");
    while (children.running() > 0 || (!waiting_.empty() && told == 0)) {
      if (told == 0 && !waiting_.empty() && children.running() < jobs_) {
        start_next(children);
        continue;
      }
      // A second one ends this process at once.
      if (const int signal = StopSignals::received(); signal != told) {
        told = signal;
        children.signal_all(signal);
      }
      constexpr std::chrono::milliseconds kLook(200);  // for a signal between look and wait
      if (const auto ended = children.wait(kLook)) {
        end(*ended, told != 0);
      }
    }
    return told;
  }

 private:
  struct Running {
    explicit Running(const fs::path& folder) : lock(folder) {}
    FolderLock lock;
    std::string stamp;
  };

  void start_next(ChildProcesses& children) {
    const size_t row = waiting_.front();
    waiting_.pop_front();
    try {
      make_folder(folder_.row(row));
      running_.try_emplace(row, folder_.row(row));
      folder_.begin(row);
      running_.at(row).stamp = folder_.stamp(row);
      std::vector<std::string> words = folder_.words(row);
      words.insert(words.begin(), this_program().string());
      if (std::find(words.begin(), words.end(), "--threads") == words.end()) {
        const size_t threads = std::max<size_t>(1, host_cores() / jobs_);
        words.insert(words.end(), {"--threads", std::to_string(threads)});
      }
      children.start({row, words, sweep_.folder, folder_.log(row)});
    } catch (const std::exception& error) {
      running_.erase(row);
      bar_.print(fmt::format("tpuboard: row {} ({}) was not run: {}", row, sweep_.rows[row].name,
                             error.what()));
    }
  }

  void end(const ChildProcesses::Ended& ended, bool stopping) {
    RowRecord record{.state = RowState::kDone,
                     .error = {},
                     .host_seconds = ended.host_seconds,
                     .cpu_seconds = ended.cpu_seconds};
    if (ended.status != 0) {
      if (stopping) {
        say(ended.id, "stopped");
        running_.erase(ended.id);
        return;
      }
      record.error = error_in(SweepFolder::text(folder_.log(ended.id)));
      const bool died = host_died(ended);
      if (died) {
        record.error = "host_dies: the process that has the board was killed, as its faults say";
      }
      const bool named = died || (!record.error.empty() && !WIFSIGNALED(ended.status));
      // An error behind a fault on purpose is a result.
      record.state = named && sweep_.rows[ended.id].clean && fired(ended.id) ? RowState::kDone
                                                                             : RowState::kFailed;
      if (!named) {
        record.error = fmt::format("{}; its output: {}", how_it_ended(ended.status),
                                   folder_.log(ended.id).string());
      }
    }
    folder_.end(ended.id, record, running_.at(ended.id).stamp);
    running_.erase(ended.id);
    say(ended.id, record.error.empty() ? fmt::format("done in {:.2f} s", ended.host_seconds)
                  : record.state == RowState::kDone ? "ended by its faults: " + record.error
                                                    : "failed: " + record.error);
  }
  FaultLog log_of(size_t row) const {
    return parse_fault_log(SweepFolder::text(folder_.fault_log(row)));
  }
  bool fired(size_t row) const { return !log_of(row).fired.empty(); }
  // A fault of this kind cannot be told by the process that it ends.
  bool host_died(const ChildProcesses::Ended& ended) const {
    return WIFSIGNALED(ended.status) && WTERMSIG(ended.status) == SIGKILL &&
           std::ranges::any_of(log_of(ended.id).fired,
                               [](const FaultUnit& unit) { return unit.first == "host_dies"; });
  }

  void say(size_t row, const std::string& what) {
    ++ended_;
    if (bar_.terminal()) {
      bar_.count(ended_, all_, "rows");
      return;
    }
    spec::print("{}/{}  row {} ({}): {}\n", ended_, all_, row, sweep_.rows[row].name, what);
    std::fflush(stdout);
  }

  const Sweep& sweep_;
  const SweepFolder& folder_;
  std::deque<size_t> waiting_;
  const size_t all_;
  const size_t jobs_;
  size_t ended_ = 0;
  std::map<size_t, Running> running_;
  spec::TextBar bar_;
};

std::vector<size_t> rows_to_run(const Sweep& sweep, const SweepFolder& folder,
                                const SweepArguments& arguments) {
  std::vector<size_t> rows;
  for (size_t row = 0; row < sweep.rows.size(); ++row) {
    if (arguments.again || folder.read(row).state != RowState::kDone) {
      rows.push_back(row);
    }
  }
  return rows;
}

void print_plan(const Sweep& sweep, const SweepFolder& folder, const SweepArguments& arguments) {
  const std::vector<size_t> to_run = rows_to_run(sweep, folder, arguments);
  spec::print("{} rows, {} of them to run, in {}\ncd {}\n", sweep.rows.size(), to_run.size(),
              folder.root().string(), shell_word(sweep.folder));
  for (size_t row = 0; row < sweep.rows.size(); ++row) {
    const bool runs = std::binary_search(to_run.begin(), to_run.end(), row);
    spec::print("# row {}{}: {}\n", row, runs ? "" : ", complete", sweep.rows[row].name);
    spec::print("tpuboard {}\n", shell_line(folder.words(row)));
  }
}

// The table in its forms; throws when there are rows without a result.
void conclude(const Sweep& sweep, const SweepFolder& folder, const JsonOutput& json, int signal) {
  const SweepTable table(sweep, folder);
  spec::print("{}", table.text());
  table.write();
  if (json.wanted()) {
    json.write(table.json());
  }
  spec::print("table: {}\n", (folder.root() / "sweep.csv").string());
  if (const Campaign* campaign = table.campaign()) {
    spec::print("{}faults by kind and place: {}\n", campaign->text(),
                (folder.root() / kCampaignPage).string());
    for (const std::string& idle : campaign->idle_files()) {
      spec::print(stderr, "tpuboard: {}\n", idle);
    }
  }
  const auto done = std::find_if(table.records().begin(), table.records().end(),
                                 [](const RowRecord& row) { return row.state == RowState::kDone; });
  if (done != table.records().end() && !table.unknown_figures().empty()) {
    const auto row = static_cast<size_t>(done - table.records().begin());
    spec::print(stderr, "tpuboard: no row has a number {}; what there is: {}\n",
                fmt::join(table.unknown_figures(), ", "),
                (folder.row(row) / "figures.json").string());
  }
  size_t failed = 0;
  size_t missing = 0;
  std::string first;
  for (size_t row = 0; row < table.records().size(); ++row) {
    const RowRecord& record = table.records()[row];
    if (record.state == RowState::kFailed && failed++ == 0) {
      first = fmt::format("; the first, row {} ({}): {}", row, sweep.rows[row].name, record.error);
    }
    missing += record.state == RowState::kNotRun ? 1 : 0;
  }
  const std::string of = fmt::format("{} of {} rows", failed + missing, sweep.rows.size());
  if (signal != 0) {
    spec::print(stderr, "tpuboard: {}: {} have no result; the same command continues\n",
                signal_name(signal), of);
    throw StoppedBySignal(signal);
  }
  if (failed + missing > 0) {
    throw std::runtime_error(
        fmt::format("{} have no result: {} failed, {} not run{}", of, failed, missing, first));
  }
  if (table.campaign() != nullptr && !table.campaign()->unexplained().empty()) {
    const std::vector<size_t> rows = table.campaign()->unexplained();
    throw std::runtime_error(fmt::format(
        "{} {} another result than the clean row, and no fault happened: the board or this "
        "program is wrong; row {} ({}) is in {}",
        spec::counted(rows.size(), "row"), rows.size() == 1 ? "has" : "have", rows[0],
        sweep.rows[rows[0]].name, folder.row(rows[0]).string()));
  }
}

// One task of a job array; the table is made when all are over.
void run_task(const Sweep& sweep, const SweepFolder& folder, const SweepArguments& arguments) {
  const size_t row = *arguments.task;
  if (row >= sweep.rows.size()) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("--task {}: expected a row of {}: 0 to {}",
                                                         row, sweep.file, sweep.rows.size() - 1));
  }
  if (!arguments.again && folder.read(row).state == RowState::kDone) {
    spec::print("row {} ({}) is complete\n", row, sweep.rows[row].name);
    return;
  }
  if (const int signal = SweepRun(sweep, folder, {row}, 1).run(); signal != 0) {
    throw StoppedBySignal(signal);
  }
  const RowRecord record = folder.read(row);
  if (record.state != RowState::kDone) {
    throw std::runtime_error(fmt::format("row {} ({}) has no result; see {}", row,
                                         sweep.rows[row].name, folder.log(row).string()));
  }
}

void sweep(const SweepArguments& arguments) {
  const JsonOutput json(arguments.json);
  const Sweep sweep = load_sweep(arguments.file);
  refuse_overwrite(arguments.json, {arguments.file});
  if (json.wanted() && arguments.json != "-") {
    need_writable(arguments.json);
  }
  const fs::path out = arguments.out.empty() ? fs::path("out") / fs::path(arguments.file).stem()
                                             : fs::path(arguments.out);
  const SweepFolder folder(out, sweep);
  if (arguments.dry_run) {
    return print_plan(sweep, folder, arguments);
  }
  make_folder(folder.root());
  if (arguments.slurm) {
    spec::print("{}", slurm_script(sweep, this_program(), folder.root()));
    return;
  }
  if (arguments.task) {
    return run_task(sweep, folder, arguments);
  }
  const FolderLock lock(folder.root());
  int signal = 0;
  if (!arguments.collect) {
    const std::vector<size_t> rows = rows_to_run(sweep, folder, arguments);
    const unsigned jobs = arguments.jobs > 0 ? arguments.jobs : host_cores();
    if (rows.size() < sweep.rows.size()) {
      spec::print("{} of {} rows are complete\n", sweep.rows.size() - rows.size(),
                  sweep.rows.size());
    }
    signal = SweepRun(sweep, folder, rows, jobs).run();
  }
  conclude(sweep, folder, json, signal);
}

}  // namespace

void add_sweep_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "sweep", "Train, run or bench with many settings beside each other, and compare");
  auto arguments = std::make_shared<SweepArguments>();
  command->add_option("file", arguments->file, "Which settings")
      ->required()
      ->type_name("FILE.toml");
  command
      ->add_option("--out", arguments->out,
                   "Folder for the rows, the table and the plots (default: out/ and FILE's name)")
      ->check(folder_named)
      ->type_name("DIR");
  command
      ->add_option("--jobs", arguments->jobs,
                   "Rows that run at the same time (default: one per host core)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  command->add_flag("--again", arguments->again, "Run rows that are complete again, too");
  CLI::Option* dry =
      command->add_flag("--dry-run", arguments->dry_run, "Print the rows; run nothing");
  CLI::Option* task = command->add_option("--task", arguments->task, "Run row N alone, no table");
  task->check(CLI::NonNegativeNumber)->type_name("N");
  CLI::Option* collect =
      command->add_flag("--collect", arguments->collect, "Run nothing: the table of what there is");
  CLI::Option* slurm = command->add_flag("--slurm", arguments->slurm,
                                         "Print a script for sbatch: one job array, a task a row");
  slurm->excludes(dry)->excludes(task)->excludes(collect);
  collect->excludes(dry)->excludes(task);
  task->excludes(dry);
  command->add_option("--json", arguments->json, "The table as JSON; -: standard output")
      ->type_name("FILE");
  command->callback([arguments] { sweep(*arguments); });
}

}  // namespace tpu::driver
