// The subcommands of tpuboard: each adds itself to the application and runs when it was chosen.
#pragma once

namespace CLI {
class App;
}

namespace tpu::driver {

void add_demo_command(CLI::App& app);
void add_examples_command(CLI::App& app);
void add_doctor_command(CLI::App& app);
void add_devices_command(CLI::App& app);
void add_run_command(CLI::App& app);
void add_debug_command(CLI::App& app);
void add_train_command(CLI::App& app);
void add_sweep_command(CLI::App& app);
void add_convert_command(CLI::App& app);
void add_monitor_command(CLI::App& app);
void add_tpu_worker_command(CLI::App& app);
void add_pod_command(CLI::App& app);
void add_objdump_command(CLI::App& app);
void add_serve_command(CLI::App& app);
void add_serve_maker_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_replay_command(CLI::App& app);
void add_report_command(CLI::App& app);

/// The whole program; returns the exit code: 0 done, 1 failed, 2 wrong usage.
int tpuboard_main(int argc, const char* const* argv);

}  // namespace tpu::driver
