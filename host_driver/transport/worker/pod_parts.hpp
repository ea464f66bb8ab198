// The parts of a pod that several processes have, as transports, and the calls that go to all of
// them: at the same time, so that the end of one is found whatever the others do.
//
// A process that is slow or stopped is waited for, as long as no other one has ended or failed.
// Then the pod is lost: the others have a few seconds to end their calls, and are given up.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tpu/transport.hpp"
#include "transport/worker/crew.hpp"
#include "transport/worker/link_group.hpp"

namespace tpu::driver::worker {

class PodParts {
 public:
  using Call = std::function<void(size_t rank)>;

  /// `boards_text`: "boards 2 to 3", those of a rank. `give_up_wires`: ends waits for other ranks
  /// beside those of links; or null.
  PodParts(size_t ranks, std::function<std::string(uint32_t rank)> boards_text,
           std::function<void()> give_up_wires);

  /// Makes the parts: what `make` returns for each rank. Throws Error.
  void open(const std::function<std::unique_ptr<Transport>(size_t rank)>& make);
  /// Closes those that are still there, also those of a pod that is lost; what each says, by rank.
  std::vector<std::string> close();

  size_t size() const { return parts_.size(); }
  Transport& operator[](size_t rank) { return *parts_[rank]; }
  /// In which the links of the parts have to be.
  LinkGroup& links() { return links_; }

  /// Calls each part and returns when all calls have ended. An error of one part is that of all,
  /// and of all calls that follow: Error, with the boards that it has.
  void together(const Call& call);
  /// The same, of a call that lets no simulated time pass: what a part rejects is thrown when all
  /// have answered, and the pod can be used as before.
  void ask(const Call& call);
  /// The same; false, and no error, when the pod is lost: whoever lets time pass says why.
  bool look(const Call& call);
  /// Within a call to all: as Crew::meet().
  bool meet(size_t rank, const std::function<void()>& come, const std::function<bool()>& last) {
    return crew_.meet(rank, come, last);
  }

 private:
  void call_all(const Call& call, std::chrono::milliseconds patience);
  Rescue rescue(std::chrono::milliseconds patience);
  void lose(const std::vector<std::exception_ptr>& errors);
  std::string end_part(size_t rank);

  const std::function<std::string(uint32_t)> boards_text_;
  const std::function<void()> give_up_wires_;
  std::string lost_;  // why there is no pod any more
  LinkGroup links_;   // outlives the parts, whose links are in it
  std::vector<std::unique_ptr<Transport>> parts_;
  Crew crew_;
};

}  // namespace tpu::driver::worker
