// Figures of a training run.
#include "loop/train_report.hpp"

#include <optional>
#include <vector>

namespace tpu::training {

using driver::Window;
namespace {

nlohmann::ordered_json number_or_null(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

std::optional<double> test_metric(const EpochResult& epoch, std::string_view name) {
  return epoch.eval ? epoch.eval->find(name) : std::nullopt;
}

nlohmann::ordered_json epoch_figures(const EpochResult& epoch, bool has_data) {
  nlohmann::ordered_json json = {
      {"epoch", epoch.epoch},
      {"train_loss", number_or_null(has_data ? std::optional(epoch.train_loss) : std::nullopt)},
      {"test_accuracy", number_or_null(test_metric(epoch, "accuracy"))}};
  for (const auto& [name, value] : epoch.eval.value_or(EvalResult()).metrics) {
    json["test_" + name] = value;
  }
  return json;
}

}  // namespace

nlohmann::ordered_json train_report(const Trainer& trainer, const std::string& transport,
                                    const std::optional<std::string>& digest, double wall_seconds,
                                    const std::string& stopped_by) {
  const Window& window = trainer.window();
  const bool has_data = trainer.has_data();
  const bool ran = trainer.steps_run() > 0;
  const auto steps = static_cast<double>(trainer.steps_run());
  const EpochResult last = trainer.epochs().empty() ? EpochResult() : trainer.epochs().back();
  const bool has_loss = has_data && !trainer.epochs().empty();
  nlohmann::ordered_json json;
  json["test_accuracy"] = number_or_null(test_metric(last, "accuracy"));
  json["test_loss"] = number_or_null(test_metric(last, "loss"));
  json["train_loss"] = number_or_null(has_loss ? std::optional(last.train_loss) : std::nullopt);
  json["steps"] = trainer.losses().size();
  json["first_step"] = trainer.first_step();
  json["stopped_by"] =
      stopped_by.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(stopped_by);
  const std::string early = trainer.stopped_early();
  json["stopped_early"] =
      early.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(early);
  json["sim_seconds_per_step"] =
      number_or_null(ran ? std::optional(window.seconds() / steps) : std::nullopt);
  json["sim_cycles_per_step"] = number_or_null(
      ran ? std::optional(static_cast<double>(window.cycles()) / steps) : std::nullopt);
  json["sim_cycles"] = window.cycles();
  json["sim_cycles_per_core"] = window.run_cycles();
  json["mxu_utilization"] = window.mxu_utilization();
  json["idle"] = window.idle();
  json["wall_seconds"] = wall_seconds;
  const input::Rates rates = trainer.input_rates();
  json["input"] = {{"examples", rates.examples},
                   {"bytes", rates.bytes},
                   {"waited_seconds", rates.waited_seconds}};
  json["digest"] = digest ? nlohmann::ordered_json(*digest) : nullptr;
  json["lockstep"] = driver::lockstep_figures(window.last());
  json["instructions_per_hart"] = window.hart_instructions();
  json["engine_commands"] = window.commands();
  for (const driver::NamedCounter& counter : window.counters()) {
    json["counters"][std::string(counter.name)] = counter.cores;
  }
  json["late_calls"] = window.last().late_calls;
  json["recoveries"] = trainer.board().peek().recoveries;
  json["board"] = trainer.board().name();
  json["cores"] = trainer.program().devices().size();
  json["transport"] = transport;
  json["epochs"] = nlohmann::ordered_json::array();
  for (const EpochResult& epoch : trainer.epochs()) {
    json["epochs"].push_back(epoch_figures(epoch, has_data));
  }
  json["step_seconds"] = trainer.step_seconds();
  json["losses"] = has_data ? trainer.losses() : std::vector<float>();
  return json;
}

}  // namespace tpu::training
