// Whether a program is what its signature says: types, shapes and places of arguments and results.
#pragma once

#include "loop/signature.hpp"
#include "loop/train_config.hpp"
#include "tpu/executable.hpp"

namespace tpu::training {

/// The learning rate goes to an argument of the program, not to a state leaf.
bool takes_rate(const TrainConfig& config);

/// Throws InvalidArgument that names program and argument or result.
void check_train_signature(const TrainConfig& config, const driver::Executable& program,
                           const Signature& signature);
void check_eval_signature(const TrainConfig& config, const driver::Executable& program,
                          const Signature& signature, const driver::Executable& train,
                          const Signature& train_signature);

}  // namespace tpu::training
