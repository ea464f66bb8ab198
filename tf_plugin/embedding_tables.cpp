#include "embedding_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "errors.hpp"
#include "system.hpp"

namespace tpu::tensorflow {
namespace {

template <typename Element>
pjrt::DeviceArrayPtr put_list(int device, const exe::TensorT& wanted,
                              const std::vector<Element>& values, Element rest) {
  std::vector<Element> all = values;
  const auto count = static_cast<size_t>(driver::element_count(wanted.local_dims));
  all.resize(count, rest);
  return System::get().runtime().put(
      device, driver::HostView(static_cast<driver::DType>(wanted.elem), wanted.local_dims,
                               std::as_bytes(std::span(all))));
}

// The numbers of `whole` that a core has.
struct ArrayPart {
  size_t core = 0;
  size_t size = 0;  // of the core's array, which has rows behind the end of the last ones
  std::span<float> own;
};

// Calls fn(part, its array) for all of `parts`, by core.
template <typename Parts, typename Fn>
void for_each_part(const Embeddings& all, const EmbeddingTables::Arrays& arrays, Parts& parts,
                   const Fn& fn) {
  size_t array = 0;
  for (size_t t = 0; t < all.tables.size(); ++t) {
    const EmbeddingTable& table = all.tables[t];
    const auto size = static_cast<size_t>(all.rows_by_core(t) * table.width);
    for (size_t i = 0; i < table.arrays; ++i, ++array) {
      const std::span<float> whole = arrays.at(i).at(t);
      for (size_t core = 0; core < parts.size(); ++core) {
        const size_t begin = std::min(core * size, whole.size());
        const auto own = whole.subspan(begin, std::min(size, whole.size() - begin));
        fn(ArrayPart{core, size, own}, parts[core][array]);
      }
    }
  }
}

void check_sizes(const Embeddings& all, const EmbeddingTables::Arrays& arrays) {
  for (size_t t = 0; t < all.tables.size(); ++t) {
    const EmbeddingTable& table = all.tables[t];
    for (size_t i = 0; i < table.arrays; ++i) {
      const size_t found = arrays.at(i).at(t).size();
      if (found != static_cast<size_t>(table.rows * table.width)) {
        pjrt::throw_invalid(fmt::format("table {} of TPUEmbedding: found {} numbers, expected {}",
                                        table.name, found, table.rows * table.width));
      }
    }
  }
}

bool fails(const driver::Event& event) { return event.wait_for_error() != nullptr; }
// Lets no simulated time pass.
bool has_failed(const driver::Event& event) { return event.ready() && fails(event); }

}  // namespace

EmbeddingTables::EmbeddingTables(std::shared_ptr<const Embeddings> embeddings)
    : embeddings_(std::move(embeddings)),
      programs_(embeddings_),
      parts_(static_cast<size_t>(embeddings_->cores)) {
  for (size_t core = 0; core < parts_.size(); ++core) {
    for (size_t t = 0; t < embeddings_->tables.size(); ++t) {
      const EmbeddingTable& table = embeddings_->tables[t];
      driver::Shape dims{embeddings_->rows_by_core(t), table.width};
      if (parts_.size() > 1) {
        dims.insert(dims.begin(), 1);  // as arrays of replicated programs have it
      }
      for (size_t i = 0; i < table.arrays; ++i) {
        parts_[core].push_back(
            System::get().runtime().zeros(static_cast<int>(core), driver::DType::kF32, dims));
      }
    }
  }
}

void EmbeddingTables::write(const Arrays& arrays) {
  check_sizes(*embeddings_, arrays);
  updates_.clear();
  for_each_part(
      *embeddings_, arrays, parts_, [](const ArrayPart& part, pjrt::DeviceArrayPtr& array) {
        std::vector<float> own(part.size);
        std::ranges::copy(part.own, own.begin());
        array = System::get().runtime().put(
            static_cast<int>(part.core),
            driver::HostView(driver::DType::kF32, array->shape(), std::as_bytes(std::span(own))));
      });
}

std::vector<driver::Event> EmbeddingTables::start_reads(const Arrays& arrays,
                                                        std::exception_ptr& refused) {
  std::vector<driver::Event> reads;
  try {
    take_back_failed();
    for_each_part(*embeddings_, arrays, parts_, [&](const ArrayPart& part, const auto& array) {
      if (!part.own.empty()) {
        reads.emplace_back();  // so that none is lost that was started
        reads.back() = array->read(0, std::as_writable_bytes(part.own));
      }
    });
  } catch (...) {
    refused = std::current_exception();
  }
  return reads;
}

// An update whose gradients have failed never starts, and the driver gives its arguments back
// (docs/host_driver.md). What was launched behind it has failed with it. TensorFlow hears of an
// error on the host, and may begin the next step, before the core's step is over.
void EmbeddingTables::take_back_failed() {
  const auto known = [](const Update& update) {
    return update.calls_host || update.done.ready() ||
           std::ranges::any_of(update.gradients, has_failed);
  };
  bool taken_back = false;
  // One behind an update that runs may have failed already.
  for (auto update = updates_.begin(); update != updates_.end();) {
    if (!known(*update)) {
      ++update;
      continue;
    }
    if (update->done.wait_for_error() == nullptr) {  // so those in front of it have ended well
      update = updates_.erase(updates_.begin(), std::next(update));
      continue;
    }
    parts_ = std::move(update->before);
    updates_.erase(update, updates_.end());
    update = updates_.begin();  // one of them may have failed during the wait
    taken_back = true;
  }
  if (taken_back && updates_.empty()) {
    check_there();
  }
}

// They are not after an error of the board in the update itself.
void EmbeddingTables::check_there() const {
  for (const std::vector<pjrt::DeviceArrayPtr>& arrays : parts_) {
    for (const pjrt::DeviceArrayPtr& array : arrays) {
      try {
        array->address();
      } catch (const driver::Error& error) {
        throw driver::Error(
            driver::ErrorCode::kFailedPrecondition,
            fmt::format("an update of TPUEmbedding's tables failed while it ran, and the tables "
                        "are lost ({})",
                        error.message()));
      }
    }
  }
}

// `first`: the argument of the program that the first list is.
void EmbeddingTables::put_ids(EmbeddingUse& use, const EmbeddingProgram& lookup,
                              size_t first) const {
  const auto& wanted = lookup.compiled->executable->args;
  const EmbeddingForms& forms = use.programs->forms;
  for (size_t core = 0; core < use.cores.size(); ++core) {
    EmbeddingUse::Core& own = use.cores[core];
    const auto device = static_cast<int>(core);
    size_t at = first;
    for (size_t f = 0; f < forms.size(); ++f) {
      const FeatureIds& ids = own.features[f];
      own.ids.push_back(put_list<int32_t>(device, *wanted.at(at++), ids.ids, -1));
      if (!forms[f].combined) {
        continue;
      }
      std::vector<int32_t> samples = ids.samples;
      std::vector<float> weights = ids.weights;
      if (!ids.combined) {  // another core has several ids for a sample
        samples.resize(ids.ids.size());
        std::iota(samples.begin(), samples.end(), 0);
        weights.assign(ids.ids.size(), 1.0F);
      }
      own.ids.push_back(put_list<int32_t>(device, *wanted.at(at++), samples, 0));
      own.ids.push_back(put_list<float>(device, *wanted.at(at++), weights, 0));
    }
  }
}

void EmbeddingTables::look_up(EmbeddingUse& use) {
  take_back_failed();
  const Embeddings& all = *embeddings_;
  EmbeddingForms forms(all.features.size());
  for (size_t f = 0; f < forms.size(); ++f) {
    for (const EmbeddingUse::Core& core : use.cores) {
      const FeatureIds& ids = core.features[f];
      forms[f].combined |= ids.combined;
      forms[f].count = std::max(forms[f].count, static_cast<int64_t>(ids.ids.size()));
    }
  }
  use.programs = programs_.pair_for(forms);
  const EmbeddingProgram& lookup = programs_.lookup(*use.programs);
  put_ids(use, lookup, all.tables.size());
  pjrt::LaunchRequest request;
  for (size_t core = 0; core < use.cores.size(); ++core) {
    pjrt::DeviceShare share{static_cast<int>(core), {}};
    size_t first = 0;
    for (const EmbeddingTable& table : all.tables) {
      share.arguments.push_back(parts_[core][first]);
      first += table.arrays;
    }
    share.arguments.insert(share.arguments.end(), use.cores[core].ids.begin(),
                           use.cores[core].ids.end());
    request.shares.push_back(std::move(share));
  }
  pjrt::LaunchResult result = lookup.loaded->launch(request);
  for (size_t core = 0; core < use.cores.size(); ++core) {
    use.cores[core].vectors = std::move(result.outputs[core]);
  }
}

void EmbeddingTables::prepare_update(EmbeddingUse& use) { programs_.update(*use.programs); }

void EmbeddingTables::update(const EmbeddingUse& use) {
  const Embeddings& all = *embeddings_;
  const EmbeddingProgram& update = programs_.update(*use.programs);
  pjrt::LaunchRequest request;
  Update made;
  made.calls_host = use.calls_host;
  for (size_t core = 0; core < use.cores.size(); ++core) {
    const EmbeddingUse::Core& own = use.cores[core];
    pjrt::DeviceShare share{static_cast<int>(core), parts_[core]};
    size_t next = 0;
    for (size_t f = 0; f < all.features.size(); ++f) {
      for (int i = 0; i < (use.programs->forms[f].combined ? 3 : 1); ++i) {
        share.arguments.push_back(own.ids[next++]);
      }
      share.arguments.push_back(own.gradients.at(f));
    }
    for (size_t i = all.features.size(); i < own.gradients.size(); ++i) {
      share.arguments.push_back(own.gradients[i]);  // learning rates
    }
    for (const pjrt::DeviceArrayPtr& gradient : own.gradients) {
      made.gradients.push_back(gradient->ready());
    }
    request.shares.push_back(std::move(share));
  }
  pjrt::LaunchResult result;
  try {
    result = update.loaded->launch(request);
  } catch (...) {
    if (std::ranges::any_of(made.gradients, fails)) {
      return;  // its step has failed before it began, which TensorFlow hears from the step
    }
    throw;
  }
  made.done = result.done.at(0);
  made.before = std::exchange(parts_, std::move(result.outputs));
  updates_.push_back(std::move(made));
}

}  // namespace tpu::tensorflow
