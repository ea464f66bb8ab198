#include "transport/worker/pod_parts.hpp"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "tpu/error.hpp"

namespace tpu::driver::worker {
namespace {

// When one rank has failed, the others see it by their wires, which a busy host delays. One that
// does not, since its wire leads to a host that is dark, or to a process that is stopped, is given
// up. Until the boards are there, one that waits for another one has nothing to lose. Those of a
// pod that is closed complete their files.
constexpr std::chrono::milliseconds kPatience{5000};
constexpr std::chrono::milliseconds kOpenPatience{500};
constexpr std::chrono::milliseconds kClosePatience{30'000};

bool is_witness(const std::string& message) {
  return message.starts_with("the other boards") || message.starts_with("another process");
}

// Those that are there tell of the one that is not, and those that wait of the one that refuses.
int weight_of(const Error& error) {
  if (error.code() != ErrorCode::kUnavailable) {
    return 2;
  }
  return is_witness(error.message()) ? 0 : 1;
}

}  // namespace

PodParts::PodParts(size_t ranks, std::function<std::string(uint32_t)> boards_text,
                   std::function<void()> give_up_wires)
    : boards_text_(std::move(boards_text)),
      give_up_wires_(std::move(give_up_wires)),
      parts_(ranks),
      crew_(ranks) {}

void PodParts::open(const std::function<std::unique_ptr<Transport>(size_t)>& make) {
  call_all([&](size_t rank) { parts_[rank] = make(rank); }, kOpenPatience);
}

void PodParts::together(const Call& call) { call_all(call, kPatience); }

void PodParts::ask(const Call& call) {
  std::vector<std::exception_ptr> rejects(parts_.size());
  together([&](size_t rank) {
    try {
      call(rank);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kUnavailable) {
        throw;
      }
      rejects[rank] = std::current_exception();
    }
  });
  for (const std::exception_ptr& reject : rejects) {
    if (reject) {
      std::rethrow_exception(reject);
    }
  }
}

bool PodParts::look(const Call& call) {
  try {
    ask(call);
  } catch (const Error&) {
    if (lost_.empty()) {
      throw;
    }
  }
  return lost_.empty();
}

std::vector<std::string> PodParts::close() {
  std::vector<std::string> texts(parts_.size());
  if (lost_.empty()) {
    call_all([&](size_t rank) { texts[rank] = parts_[rank]->close(); }, kClosePatience);
  } else {
    // The call to a part that is lost ends first, and the others have their time from there.
    Rescue others = rescue(kClosePatience);
    others.behind_any_end = true;
    crew_.all([&](size_t rank) { texts[rank] = end_part(rank); }, others);
  }
  return texts;
}

std::string PodParts::end_part(size_t rank) {
  try {
    return parts_[rank] != nullptr ? parts_[rank]->close() : std::string();
  } catch (const Error&) {
    return {};  // it has ended
  }
}

Rescue PodParts::rescue(std::chrono::milliseconds patience) {
  return {.patience = patience,
          .give_up =
              [this] {
                links_.give_up();
                if (give_up_wires_) {
                  give_up_wires_();
                }
              },
          .find_end = [this](size_t rank) { links_.find_end(rank); }};
}

// The other parts notice that the process of one that has failed ends, or are given up.
void PodParts::call_all(const Call& call, std::chrono::milliseconds patience) {
  if (!lost_.empty()) {
    throw Error(ErrorCode::kUnavailable, lost_);
  }
  const auto call_one = [&](size_t rank) {
    try {
      call(rank);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnavailable) {
        end_part(rank);
      }
      throw;
    }
  };
  lose(crew_.all(call_one, rescue(patience)));
}

void PodParts::lose(const std::vector<std::exception_ptr>& errors) {
  std::optional<Error> first;
  for (uint32_t rank = 0; rank < errors.size(); ++rank) {
    if (!errors[rank]) {
      continue;
    }
    try {
      std::rethrow_exception(errors[rank]);
    } catch (const Error& error) {
      if (!first || weight_of(error) > weight_of(*first)) {
        first.emplace(error.code(),
                      is_witness(error.message())
                          ? error.message()
                          : fmt::format("{} of the pod: {}", boards_text_(rank), error.message()));
      }
    }
  }
  if (first) {
    lost_ = first->message();
    throw Error(*first);
  }
}

}  // namespace tpu::driver::worker
