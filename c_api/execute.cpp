// Programs on cores, and their launches.
#include "host_view.hpp"
#include "process_board.hpp"

namespace tpu::c_api {
namespace {

using client::ProcessBoard;

std::vector<driver::Array> arguments_of(tpu_array* const* arguments, size_t count) {
  std::vector<driver::Array> arrays;
  for (size_t i = 0; i < count; ++i) {
    const tpu_array* argument = (&need(arguments, "arguments"))[i];
    arrays.push_back(need(argument, ("arguments[" + std::to_string(i) + "]").c_str()).array);
  }
  return arrays;
}

driver::RunOptions options_of(const tpu_run_options& from, size_t argument_count) {
  constexpr size_t kMostEvents = 65536;
  need_most(from.keep_count, argument_count, "options->keep_count",
            "the program has " + std::to_string(argument_count) + " arguments");
  need_most(from.after_count, kMostEvents, "options->after_count",
            "a launch waits for at most " + std::to_string(kMostEvents) + " events");
  driver::RunOptions options;
  options.steps = std::max(from.steps, 1U);
  for (size_t i = 0; i < from.keep_count; ++i) {
    options.keep.push_back((&need(from.keep, "options->keep"))[i]);
  }
  for (size_t i = 0; i < from.after_count; ++i) {
    options.after.push_back(
        need((&need(from.after, "options->after"))[i], "an event of options->after").event);
  }
  return options;
}

void run(const driver::Executable& executable, const std::vector<driver::Array>& arguments,
         const driver::RunOptions& options, tpu_array** results, tpu_event** done) {
  // Made before the launch: what comes behind it cannot fail.
  std::vector<std::unique_ptr<tpu_array>> given;
  for (size_t i = 0; i < executable.results().size(); ++i) {
    given.push_back(std::make_unique<tpu_array>());
  }
  auto event = std::make_unique<tpu_event>();
  driver::RunResult result = executable.run(arguments, options);
  for (size_t i = 0; i < given.size(); ++i) {
    given[i]->array = std::move(result.outputs[i]);
    results[i] = given[i].release();
  }
  if (done != nullptr) {
    event->event = std::move(result.done);
    *done = event.release();
  }
}

}  // namespace
}  // namespace tpu::c_api

using namespace tpu::c_api;  // NOLINT: the calls are its only users

tpu_status tpu_load(const tpu_program* program, const int32_t* devices, size_t count,
                    tpu_executable** out) {
  return guarded([&] {
    need(out, "out");
    const tpu_program& from = need(program, "program");
    std::vector<int> on;
    if (count > 0) {
      const uint32_t partitions = from.executable->partitions;
      need_most(count, partitions, "count",
                "the program runs on " + std::to_string(partitions) + " cores");
      on.assign(&need(devices, "devices"), devices + count);
    }
    const tpu::driver::Board& board = ProcessBoard::get().board();
    *out = new tpu_executable{board.load(from.executable, on)};
  });
}

tpu_status tpu_executable_put(const tpu_executable* executable, uint32_t index,
                              const tpu_host_array* host, tpu_array** out) {
  return guarded([&] {
    need(out, "out");
    const tpu::driver::HostView view = view_of(need(host, "host"));
    *out = new tpu_array{need(executable, "executable").executable.put(index, view)};
  });
}

tpu_status tpu_run(const tpu_executable* executable, tpu_array* const* arguments,
                   size_t argument_count, const tpu_run_options* options, tpu_array** results,
                   size_t result_count, tpu_event** done) {
  return guarded([&] {
    const tpu::driver::Executable& program = need(executable, "executable").executable;
    if (result_count != program.results().size()) {
      refuse("`results` has " + std::to_string(result_count) +
             " elements, but the number of results is " + std::to_string(program.results().size()));
    }
    if (result_count > 0) {
      need(results, "results");
    }
    const size_t wanted = program.arguments().size();
    if (argument_count != wanted) {
      refuse(std::to_string(argument_count) + " arguments, the program takes " +
             std::to_string(wanted));
    }
    run(program, arguments_of(arguments, argument_count),
        options_of(taken(options, "options"), argument_count), results, done);
  });
}

tpu_status tpu_executable_unload(const tpu_executable* executable) {
  return guarded([&] { need(executable, "executable").executable.unload(); });
}

void tpu_executable_destroy(tpu_executable* executable) { delete executable; }
