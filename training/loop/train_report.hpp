// run.json: the metrics of a training run. Keys: docs/checkpoints.md, "run.json".
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "loop/trainer.hpp"

namespace tpu::training {

/// `stopped_by`: name of the signal that stopped the run; empty: it was not.
nlohmann::ordered_json train_report(const Trainer& trainer, const std::string& transport,
                                    const std::optional<std::string>& digest, double wall_seconds,
                                    const std::string& stopped_by);

}  // namespace tpu::training
