// A fault that comes back at the same place is not a fault of the hardware.
#include "loop/replays.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <regex>

namespace tpu::training {

using driver::Error;
using driver::ErrorCode;

namespace {

// The name of a fault and where it was raised, of the first line of its text: times are others in
// each replay.
std::string fault_of(const Error& why) {
  static const std::regex time("(cycle|step) [0-9]+");
  const std::string& text = why.message();
  return std::regex_replace(text.substr(0, text.find('\n')), time, "$1");
}

}  // namespace

Replays::Replays(const FaultRules& rules, const Checkpoint* from) : rules_(rules) {
  if (from != nullptr) {
    keep(*from);
  }
}

void Replays::keep(const Checkpoint& checkpoint) {
  if (rules_.replay) {
    kept_ = checkpoint;
    digest_ = state_digest(kept_->leaves);
    seen_.clear();
  }
}

const Checkpoint* Replays::undamaged() const {
  if (kept_ && state_digest(kept_->leaves) != digest_) {
    throw Error(ErrorCode::kDataLoss,
                fmt::format("run.on_fault: the checkpoint of step {} is damaged in the memory of "
                            "the host: its state no longer has the digest {}; continue from a "
                            "checkpoint in a file with --resume",
                            kept_->step, digest_));
  }
  return kept();
}

bool Replays::recovers(const Error& why) const {
  return rules_.replay &&
         (why.code() == ErrorCode::kDeviceFault || why.code() == ErrorCode::kDataLoss);
}

void Replays::count(const Error& why, int64_t step) {
  const auto end = [&](const std::string& reason) {
    throw Error(why.code(), fmt::format("{}\nrun.on_fault: {}", why.message(), reason),
                why.place());
  };
  const std::string place =
      fmt::format("step {}, device {}, op '{}'", step, why.place().device, why.place().op);
  const std::string fault = place + ": " + fault_of(why);
  if (std::ranges::find(seen_, fault) != seen_.end()) {
    end("the replay failed at the same place again (" + place + ")");
  }
  if (replays_ == rules_.max_replays) {
    end(fmt::format("the run has gone back {} times, as often as run.max_replays allows",
                    replays_));
  }
  seen_.push_back(fault);
  ++replays_;
}

}  // namespace tpu::training
