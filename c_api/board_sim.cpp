// How the open board is simulated, and where its time goes.
#include "handles.hpp"
#include "process_board.hpp"

using namespace tpu::c_api;  // NOLINT: the calls are its only users

tpu_status tpu_board_change(const char* const* variables, const char* const* values, size_t count) {
  return guarded([&] {
    constexpr size_t kMostVariables = 1024;
    need_most(count, kMostVariables, "count",
              "at most " + std::to_string(kMostVariables) + " variables are changed at a time");
    tpu::client::Environment changes;
    for (size_t i = 0; i < count; ++i) {
      const char* variable = (&need(variables, "variables"))[i];
      const char* value = (&need(values, "values"))[i];
      changes[&need(variable, "a name in variables")] = &need(value, "a text in values");
    }
    tpu::client::ProcessBoard::get().change(changes);
  });
}

tpu_status tpu_board_op_times(tpu_op_times** out) {
  return guarded([&] {
    need(out, "out");
    *out = new tpu_op_times{tpu::client::ProcessBoard::get().board().op_times()};
  });
}

uint32_t tpu_op_times_count(const tpu_op_times* times) {
  return times == nullptr ? 0 : static_cast<uint32_t>(times->times.size());
}

tpu_status tpu_op_times_get(const tpu_op_times* times, uint32_t index, tpu_op_time* time) {
  return guarded([&] {
    const auto& all = need(times, "times").times;
    if (index >= all.size()) {
      refuse("there is no operation " + std::to_string(index) + "; there are " +
             std::to_string(all.size()));
    }
    const tpu::driver::OpTime& from = all[index];
    tpu_op_time found{};
    found.program = from.program.c_str();
    found.op = from.op.c_str();
    found.source = from.source.c_str();
    found.cycles = from.cycles;
    found.busy_cycles = from.busy_cycles;
    found.commands = from.commands;
    give(time, found, "time");
  });
}

void tpu_op_times_destroy(tpu_op_times* times) { delete times; }
