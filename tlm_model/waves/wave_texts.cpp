// Words and numbers.
#include "waves/wave_texts.hpp"

#include <utility>

#include "exe/executable.hpp"
#include "waves/fst_writer.hpp"

namespace tpu::model {
namespace {

// Of a file's path the name: a row of a viewer is short.
std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string awaited(const WaitEvent& event) {
  switch (event.what) {
    case WaitEvent::For::kSemaphore:
      return "sem" + std::to_string(event.index) + ">=" + std::to_string(event.wanted);
    case WaitEvent::For::kQueue:
      return event.index < spec::kQueueCount ? std::string(spec::kQueueNames[event.index])
                                             : "a queue";
    case WaitEvent::For::kEngines:
      return "engines";
    case WaitEvent::For::kHost:
      break;
  }
  return "host";
}

}  // namespace

void WaveTexts::begin(uint32_t core, uint32_t launch) {
  Program program = programs_ == nullptr ? nullptr : programs_->of(launch);
  Texts& texts = texts_[program.get()];
  texts.program = std::move(program);  // so its address names no other one
  cores_[core] = &texts;
}

WaveTexts::Texts& WaveTexts::of(uint32_t core) {
  return cores_[core] == nullptr ? texts_[nullptr] : *cores_[core];
}

uint32_t WaveTexts::runs(FstProcess& fst, const ProbeSource& source) {
  Texts& texts = of(source.core);
  const auto [known, fresh] = texts.runs.try_emplace(source.op_id, kNothing);
  if (fresh) {
    known->second = number(fst, operation(texts.program, source.op_id), WaveTone::kRuns);
  }
  return known->second;
}

uint32_t WaveTexts::waits(FstProcess& fst, const WaitEvent& event) {
  Texts& texts = of(event.source.core);
  const std::array<uint32_t, 4> key = {static_cast<uint32_t>(event.what), event.index, event.wanted,
                                       event.source.op_id};
  const auto [known, fresh] = texts.waits.try_emplace(key, kNothing);
  if (fresh) {
    known->second =
        number(fst, "waits " + awaited(event) + " " + operation(texts.program, event.source.op_id),
               WaveTone::kWaits);
  }
  return known->second;
}

uint32_t WaveTexts::upset(FstProcess& fst, const UpsetEvent& event) {
  std::string text(event.fires ? "" : "damage ");
  text.append(event.kind).append(" ").append(event.place).append(": ").append(event.text);
  return number(fst, text, WaveTone::kWaits);
}

uint32_t WaveTexts::queued(FstProcess& fst) {
  if (queued_ == kNothing) {
    queued_ = number(fst, "queued", WaveTone::kQueued);
  }
  return queued_;
}

std::string WaveTexts::operation(const Program& program, uint32_t op_id) {
  if (program == nullptr || op_id >= program->ops.size()) {
    return "op" + std::to_string(op_id);
  }
  const exe::OpInfoT& op = *program->ops[op_id];
  const std::string place =
      op.file.empty() ? "" : " " + file_name(op.file) + ":" + std::to_string(op.line);
  return op.name + place;
}

uint32_t WaveTexts::number(FstProcess& fst, const std::string& text, WaveTone tone) {
  // Behind the last number that a signal can have, a text says less.
  constexpr uint32_t kMost = (1U << kWaveTextBits) - 16;
  const bool full = numbers_.size() >= kMost;
  constexpr std::array<const char*, 4> kStates = {"", "queued", "waits", "runs"};
  const std::string shown = full ? kStates[static_cast<size_t>(tone)] : text;
  const auto [known, fresh] = numbers_.try_emplace({shown, tone}, kNothing);
  if (fresh) {
    known->second = fst.add_text(shown, tone);
  }
  return known->second;
}

}  // namespace tpu::model
