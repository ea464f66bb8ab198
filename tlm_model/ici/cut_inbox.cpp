// Messages by key, questions by number.
#include "ici/cut_inbox.hpp"

#include <tuple>
#include <utility>

namespace tpu::model {

bool CutInbox::is_later(const Entry& one, const Entry& other) {
  return std::tie(one.at, one.board, one.core, one.number, one.kind) >
         std::tie(other.at, other.board, other.core, other.number, other.kind);
}

void CutInbox::put(const CutKey& key, CutBody&& body) {
  if (free_.empty()) {
    free_.push_back(static_cast<Slot>(bodies_.size()));
    bodies_.push_back(std::make_unique<CutBody>());
  }
  const Slot slot = free_.back();
  free_.pop_back();
  *bodies_[slot] = std::move(body);
  heap_.push_back({.at = key.at,
                   .number = key.number,
                   .board = key.board,
                   .core = key.core,
                   .kind = static_cast<uint32_t>(key.kind),
                   .slot = slot});
  std::ranges::push_heap(heap_, is_later);
}

CutInbox::Message CutInbox::take() {
  std::ranges::pop_heap(heap_, is_later);
  const Entry first = heap_.back();
  heap_.pop_back();
  return {.key = {.at = first.at,
                  .board = first.board,
                  .core = first.core,
                  .number = first.number,
                  .kind = first.kind},
          .slot = first.slot,
          .twice = !heap_.empty() && !is_later(heap_.front(), first)};
}

void CutInbox::drop(Slot slot) {
  *bodies_[slot] = CutPassed();  // what a delivery had is released
  free_.push_back(slot);
}

CutQuestions::Core& CutQuestions::of(uint32_t core) {
  const auto found = std::ranges::find(cores_, core, &Core::core);
  return found != cores_.end() ? *found : cores_.emplace_back(Core{.core = core, .questions = {}});
}

void CutQuestions::ask(uint32_t core, uint64_t number, Question question) {
  Core& asks = of(core);
  if (asks.questions.empty()) {
    asks.first = number;
  }
  asks.questions.resize(number - asks.first);
  asks.questions.push_back(std::move(question));
}

const CutQuestions::Question* CutQuestions::find(uint32_t core, uint64_t number) const {
  const auto asks = std::ranges::find(cores_, core, &Core::core);
  if (asks == cores_.end() || number - asks->first >= asks->questions.size()) {
    return nullptr;
  }
  const Question& found = asks->questions[number - asks->first];
  return found.open() ? &found : nullptr;
}

std::optional<CutQuestions::Question> CutQuestions::take(uint32_t core, uint64_t number) {
  if (find(core, number) == nullptr) {
    return std::nullopt;
  }
  Core& asks = of(core);
  std::optional<Question> taken = std::exchange(asks.questions[number - asks.first], {});
  while (!asks.questions.empty() && !asks.questions.front().open()) {
    asks.questions.pop_front();
    ++asks.first;
  }
  return taken;
}

}  // namespace tpu::model
