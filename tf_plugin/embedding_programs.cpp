#include "embedding_programs.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include "lowering_library.hpp"
#include "system.hpp"

namespace tpu::tensorflow {
namespace {

constexpr size_t kMostPairs = 16;
constexpr uint64_t kFewest = 8;  // ids of a list

EmbeddingForms rounded_up(EmbeddingForms forms) {
  for (EmbeddingIds& form : forms) {
    if (form.combined) {
      const auto count = std::max(static_cast<uint64_t>(form.count), kFewest);
      form.count = static_cast<int64_t>(std::bit_ceil(count));
    }
  }
  return forms;
}

int64_t total(const EmbeddingForms& forms) {
  int64_t ids = 0;
  for (const EmbeddingIds& form : forms) {
    ids += form.count;
  }
  return ids;
}

// A list that is not combined has an id for each sample.
bool has_room(const EmbeddingIds& form, const EmbeddingIds& wanted) {
  return form.combined == wanted.combined &&
         (form.combined ? form.count >= wanted.count : form.count == wanted.count);
}

}  // namespace

std::shared_ptr<EmbeddingPair> EmbeddingPrograms::pair_for(const EmbeddingForms& ids) {
  const EmbeddingForms wanted = rounded_up(ids);
  const int64_t most = 2 * total(wanted);
  auto best = recent_.end();
  for (auto at = recent_.begin(); at != recent_.end(); ++at) {
    const EmbeddingForms& forms = (*at)->forms;
    if (std::ranges::equal(forms, wanted, has_room) && total(forms) <= most &&
        (best == recent_.end() || total(forms) < total((*best)->forms))) {
      best = at;
    }
  }
  if (best != recent_.end()) {
    recent_.splice(recent_.begin(), recent_, best);
  } else {
    recent_.push_front(std::make_shared<EmbeddingPair>(EmbeddingPair{wanted, {}, {}}));
  }
  const std::shared_ptr<EmbeddingPair> pair = recent_.front();
  if (recent_.size() > kMostPairs) {
    recent_.pop_back();
  }
  return pair;
}

const EmbeddingProgram& EmbeddingPrograms::lookup(EmbeddingPair& pair) const {
  make(false, pair.forms, pair.lookup);
  return pair.lookup;
}

const EmbeddingProgram& EmbeddingPrograms::update(EmbeddingPair& pair) const {
  make(true, pair.forms, pair.update);
  return pair.update;
}

void EmbeddingPrograms::make(bool update, const EmbeddingForms& forms,
                             EmbeddingProgram& program) const {
  if (program.loaded) {
    return;
  }
  const auto working = System::get().runtime().host_work();
  const std::string hlo = embedding_program(*embeddings_, update, forms);
  std::vector<int> devices(static_cast<size_t>(embeddings_->cores));
  std::iota(devices.begin(), devices.end(), 0);
  program.compiled = client::compile_program(
      std::as_bytes(std::span(hlo)), {.cores = devices.size() > 1 ? devices : std::vector<int>{},
                                      .import = {.replicas = embeddings_->cores, .partitions = 1}});
  program.loaded = System::get().runtime().load(program.compiled, devices);
}

}  // namespace tpu::tensorflow
