// What a launch of a step on one core has to do with the tables.
#include "answer.hpp"
#include "embedding.hpp"
#include "system.hpp"

namespace tpu::tensorflow {

EmbeddingStep::EmbeddingStep(int core, size_t arguments, size_t results) : core_(core) {
  batch_ = EmbeddingEngine::get().take(core, results > 0);
  Memory& memory = System::get().memory();
  try {
    const auto& vectors = EmbeddingEngine::vectors_of(*batch_, core);
    for (size_t i = 0; i < arguments; ++i) {
      const pjrt::DeviceArrayPtr& vector = vectors.at(i);
      arguments_.push_back(address_of(memory.allocate(core, vector->bytes())));
      memory.set(arguments_.back(), vector);
    }
    for (size_t i = 0; i < results; ++i) {
      constexpr uint64_t kRate = sizeof(float);
      results_.push_back(
          address_of(memory.allocate(core, i < vectors.size() ? vectors[i]->bytes() : kRate)));
    }
  } catch (...) {
    free_all();
    EmbeddingEngine::get().give_up(batch_, StatusError(status_of_exception()));
    throw;
  }
}

void EmbeddingStep::launched(bool calls_host) {
  std::vector<pjrt::DeviceArrayPtr> gradients;
  for (const uint64_t result : results_) {
    gradients.push_back(std::get<pjrt::DeviceArrayPtr>(System::get().memory().contents(result)));
  }
  EmbeddingEngine::get().launched(batch_, core_, std::move(gradients), calls_host);
  launched_ = true;
}

void EmbeddingStep::free_all() {
  for (const std::vector<uint64_t>* addresses : {&arguments_, &results_}) {
    for (const uint64_t address : *addresses) {
      System::get().memory().free(address);
    }
  }
}

EmbeddingStep::~EmbeddingStep() {
  try {
    free_all();
    if (!launched_) {
      EmbeddingEngine::get().give_up(
          batch_, {driver::ErrorCode::kCancelled, "a core could not launch its step"});
    }
  } catch (const std::exception&) {
    // The addresses were forgotten: the system was initialized again.
  }
}

}  // namespace tpu::tensorflow
