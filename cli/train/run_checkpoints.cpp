// The trainer's state is copied between two steps; hashing and writing go on beside the next ones.
#include "cli/train/run_checkpoints.hpp"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "terminal/printable_text.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {

using training::Checkpoint;
using training::CheckpointWriter;
using training::RunParts;
using training::Trainer;

namespace {

using Clock = std::chrono::steady_clock;

void say(const std::string& text) { spec::print(stderr, "tpuboard: {}\n", text); }

double host_seconds_from(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

RunCheckpoints::RunCheckpoints(std::filesystem::path folder, const training::CheckpointRules& rules)
    : rules_(rules),
      folder_(std::move(folder), static_cast<size_t>(rules.keep), say),
      writer_([this](const Checkpoint& made) { folder_.save(made); }) {}

Checkpoint RunCheckpoints::resume() {
  Checkpoint from = folder_.resume(say);
  saved_step_ = from.step;
  return from;
}

RunParts RunCheckpoints::parts(const Trainer& trainer) const {
  if (data_.empty()) {
    data_ = trainer.data().digest();
  }
  return {.program = program_,
          .data = data_,
          .board = trainer.board().name(),
          .cores = static_cast<int64_t>(trainer.program().devices().size())};
}

void RunCheckpoints::check_parts(const RunParts& checkpoint, const RunParts& run,
                                 bool accept) const {
  for (const std::string& change : training::changed_parts(checkpoint, run)) {
    if (!accept) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("the run cannot continue from the checkpoint in {}: {}; with "
                              "--accept-changes it continues anyway",
                              path().string(), change));
    }
    say("the run continues with a change: " + change);
  }
  for (const std::string& note : training::notes_on_parts(checkpoint, run)) {
    say(note);
  }
}

void RunCheckpoints::save_on_the_way(Trainer& trainer) {
  const auto start = Clock::now();
  if (const auto before = writer_.wait()) {
    take(*before);
  }
  const RunParts made_of = parts(trainer);
  const auto copy_start = Clock::now();
  Checkpoint made = trainer.checkpoint(training::Replicas::kOne);
  made.parts = made_of;
  wait_seconds_ += std::chrono::duration<double>(copy_start - start).count();
  copy_seconds_ += host_seconds_from(copy_start);
  writer_.start(std::move(made));
}

void RunCheckpoints::poll() {
  if (const auto outcome = writer_.take()) {
    take(*outcome);
  }
}

void RunCheckpoints::take(const CheckpointWriter::Outcome& outcome) {
  write_seconds_ += outcome.seconds;
  if (outcome.error == nullptr) {
    saved_step_ = outcome.step;
    ++written_;
    return;
  }
  try {
    std::rethrow_exception(outcome.error);
  } catch (const std::exception& error) {
    if (rules_.stop_on_error) {
      throw std::runtime_error(
          fmt::format("the checkpoint of step {} was not written: {}", outcome.step, error.what()));
    }
    // Training goes on without it: room may come back, and the checkpoint before is as it was.
    say(fmt::format("the checkpoint of step {} was not written; the run continues: {}",
                    outcome.step, error.what()));
  }
}

void RunCheckpoints::save(Checkpoint checkpoint, const Trainer& trainer) {
  finish();
  const auto start = Clock::now();
  checkpoint.parts = parts(trainer);
  folder_.save(checkpoint);
  write_seconds_ += host_seconds_from(start);
  saved_step_ = checkpoint.step;
  ++written_;
}

void RunCheckpoints::finish() {
  try {
    if (const auto before = writer_.wait()) {
      take(*before);
    }
  } catch (const std::exception& error) {
    say(error.what());
  }
}

std::string RunCheckpoints::stands() const {
  return saved_step_ ? fmt::format("\nthe state after step {} is in {}; continue with --resume",
                                   *saved_step_, path().string())
                     : "";
}

std::string RunCheckpoints::stands_finite() const {
  const std::vector<training::CheckpointName> names = training::checkpoint_names(path());
  std::vector<std::string> bad;
  size_t bad_leaf = 0;
  std::optional<int64_t> good;
  for (auto name = names.rbegin(); saved_step_ && !good && name != names.rend(); ++name) {
    try {
      const Checkpoint saved = training::read_checkpoint(path() / name->text());
      if (const auto leaf = training::leaf_not_finite(saved.leaves)) {
        bad.push_back(name->text());
        bad_leaf = *leaf;
      } else {
        good = saved.step;
      }
    } catch (const Error&) {
      // --resume passes over it and says why.
    }
  }
  if (bad.empty()) {
    return stands();
  }
  return fmt::format("\n{} in {}: state leaf {} is not finite either; {}", fmt::join(bad, ", "),
                     path().string(), bad_leaf,
                     good ? fmt::format("without {} --resume continues after step {}",
                                        bad.size() == 1 ? "this file" : "these files", *good)
                          : "no earlier state is left to continue from; start again");
}

nlohmann::ordered_json RunCheckpoints::figures(const Trainer& trainer) const {
  nlohmann::ordered_json json = {{"folder", path().string()},       {"written", written_},
                                 {"copy_seconds", copy_seconds_},   {"wait_seconds", wait_seconds_},
                                 {"write_seconds", write_seconds_}, {"best", nullptr}};
  if (const auto& best = trainer.best()) {
    json["best"] = {{"step", best->step}, {"value", best->value}};
  }
  return json;
}

}  // namespace tpu::driver
