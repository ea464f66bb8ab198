// Whether the cores of a launch stand still, for the watchdog of one of them: a core that waits for
// another is not stuck while that one works.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "file/archive.hpp"
#include "kernel/remote_if.hpp"

namespace tpu::model {

class GangWatch {
 public:
  using Work = std::function<GangWork()>;
  using Ask = std::function<bool(CutIf::Told told)>;

  // `work`: of the launch's cores on this board. `ask`: asks those on other boards, all together;
  // false when there are none.
  void connect(Work work, Ask ask) {
    work_ = std::move(work);
    ask_ = std::move(ask);
  }
  // A program starts.
  void begin() {
    seen_ = work_().done;
    told_.reset();
    ++programs_;
  }
  // Tells whether nothing was done since the look before: now, or when the other boards have
  // answered; not at all once another program has started. What those have done before the first
  // question is not known, so two answers have to be equal.
  void look(std::function<void(bool still)> then) {
    const GangWork work = work_();
    const uint64_t before = std::exchange(seen_, work.done);
    if (work.in_flight || before != work.done) {
      then(false);
      return;
    }
    const bool asks = ask_([this, program = programs_, then](const GangWork& others) {
      if (program == programs_) {
        then(still(others));
      }
    });
    if (!asks) {
      then(true);
    }
  }
  void visit_state(spec::Archive& archive) { archive(seen_); }

 private:
  bool still(const GangWork& others) {
    const GangWork work = work_();
    const uint64_t before = std::exchange(seen_, work.done);
    const std::optional<uint64_t> told_before = std::exchange(told_, others.done);
    return !work.in_flight && before == work.done && !others.in_flight &&
           told_before == others.done;
  }

  Work work_;
  Ask ask_;
  uint64_t seen_ = 0;             // work of this board
  std::optional<uint64_t> told_;  // of the others
  uint64_t programs_ = 0;
};

}  // namespace tpu::model
