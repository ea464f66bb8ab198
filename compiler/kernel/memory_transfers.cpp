// Sends in the order of the program, then receives from the last one on. Times are those of rough
// costs: they say where a transfer may begin and where it is over, not what is right.
#include "kernel/memory_transfers.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <iterator>
#include <limits>
#include <unordered_map>
#include <vector>

#include "kernel/movable.hpp"
#include "kernel/rough_cost.hpp"
#include "program/estimate.hpp"

namespace tpu::compiler {
namespace {

using Kernels = std::list<Kernel>::iterator;

constexpr double kCallCycles = 4500;  // of a call of the host: interrupts and passes over PCIe
constexpr size_t kMostUnderWay = 4;   // of one direction

bool is_transfer(const Kernel& k) { return k.kind == KernelClass::kHost; }
bool is_send(const Kernel& k) { return is_transfer(k) && !k.reads.empty(); }

const HostAttrs& attrs_of(const Kernel& k) { return k.ops[0]->as<HostAttrs>(); }

// Results of the program and of regions: no kernel comes between them.
bool ends_program(const Kernel& k) {
  return k.kind == KernelClass::kCopyOut || k.kind == KernelClass::kYield;
}

bool uses(const Kernel& k, const Value* v) {
  return std::ranges::find(k.reads, v) != k.reads.end() ||
         std::ranges::find(k.control().captures, v) != k.control().captures.end();
}

class TransferOrder {
 public:
  TransferOrder(KernelProgram& program, const spec::BoardParams& board, int64_t cores)
      : kernels_(program.kernels),
        board_(board),
        share_(static_cast<double>(std::min(cores, board.board.cores_per_chip))) {}

  // True if there is a transfer beside kernels.
  bool run() {
    if (std::ranges::none_of(kernels_, [&](const Kernel& k) { return is_long(k); })) {
      return false;
    }
    double now = 0;
    for (const Kernel& k : kernels_) {
      begin_[&k] = now;
      now += cycles(k);
    }
    split_receives();
    start_sends();
    start_receives();
    return true;
  }

 private:
  double transfer_cycles(const Kernel& k) const {
    return static_cast<double>(attrs_of(k).array.bytes()) / pcie_bytes_per_cycle(board_) * share_;
  }

  bool is_long(const Kernel& k) const {
    return is_transfer(k) && attrs_of(k).memory && !attrs_of(k).index &&
           k.host().stage == HostStage::kWhole && transfer_cycles(k) > kCallCycles;
  }

  // With all iterations of a loop.
  double cycles(const Kernel& k) const {
    double all = is_transfer(k) ? 0 : rough_cycles(k, board_);
    for (const auto& region : k.control().regions) {
      double once = 0;
      for (const Kernel& inner : region ? region->kernels : std::list<Kernel>{}) {
        once += cycles(inner);
      }
      const auto& counted = k.control().counted;
      all += once * (counted ? static_cast<double>(counted->trips) : 1);
    }
    return all;
  }

  Kernels add_finish(const Kernels& at, const Kernel& start, const Value* travels) {
    Kernel finish(KernelClass::kHost);
    finish.ops = start.ops;
    finish.reads = {travels};
    finish.as<HostPart>().stage = HostStage::kFinish;
    const Kernels made = kernels_.insert(at, std::move(finish));
    begin_[&*made] = at == kernels_.end() ? std::numeric_limits<double>::max() : begin_.at(&*at);
    return made;
  }

  struct Sent {
    Kernels start;
    double over = 0;
  };

  void finish_first(const Kernels& at) {
    add_finish(at, *sent_.front().start, sent_.front().start->reads[0]);
    sent_.pop_front();
  }

  // Those that wait, in front of `at`.
  void start_waiting(const Kernels& at, double now) {
    while (!waiting_.empty()) {
      if (sent_.size() == kMostUnderWay) {
        finish_first(at);
      }
      const Kernels start = waiting_.begin();
      start->as<HostPart>().stage = HostStage::kStart;
      begin_[&*start] = now;
      free_ = std::max(free_, now) + transfer_cycles(*start);
      kernels_.splice(at, waiting_, start);
      sent_.push_back({start, free_ + kCallCycles});
    }
  }

  // The last place for transfers of the channel to the host: it comes from there.
  bool returns(const Kernel& k) const {
    const auto of_channel = [&](const Kernel& start) { return same_channel(start, k); };
    return is_transfer(k) &&
           (std::ranges::any_of(waiting_, of_channel) ||
            std::ranges::any_of(sent_, [&](const Sent& s) { return of_channel(*s.start); }));
  }

  // A send starts behind the kernel that follows it, which keeps the engines busy while the
  // sequencer waits for the host's answer.
  void start_sends() {
    bool covered = false;
    for (auto k = kernels_.begin(); k != kernels_.end();) {
      const Kernels here = k++;
      const double now = begin_.at(&*here);
      const bool last = ends_program(*here) || returns(*here);
      if (covered || last || !may_cover(*here)) {
        start_waiting(here, now);
        covered = false;
      }
      while (!sent_.empty() &&
             (sent_.front().over <= now || ends_program(*here) || returns(*here))) {
        finish_first(here);
      }
      if (is_long(*here) && is_send(*here)) {
        waiting_.splice(waiting_.end(), kernels_, here);
      } else {
        covered = covered || (!waiting_.empty() && !is_transfer(*here));
      }
    }
    start_waiting(kernels_.end(), 0);
    while (!sent_.empty()) {
      finish_first(kernels_.end());
    }
  }

  // Right in front of the first reader, which is where it must be over.
  void split_receives() {
    for (auto k = kernels_.begin(); k != kernels_.end();) {
      const Kernels here = k++;
      if (!is_long(*here) || is_send(*here)) {
        continue;
      }
      const Value* made = here->out;
      const auto reader = std::find_if(k, kernels_.end(), [&](const Kernel& other) {
        return uses(other, made) || ends_program(other);
      });
      here->as<HostPart>().stage = HostStage::kStart;
      const Kernels finish = add_finish(reader, *here, made);
      starts_[&*finish] = here;
      finishes_.push_back(finish);
      if (std::none_of(k, finish,
                       [&](const Kernel& other) { return same_channel(other, *here); })) {
        begin_[&*here] = begin_.at(&*finish);
        kernels_.splice(finish, kernels_, here);
      }
    }
  }

  void start_receives() {
    double free = std::numeric_limits<double>::max();  // from when on the link is needed again
    std::ranges::stable_sort(finishes_, std::greater<>(),
                             [&](const Kernels& f) { return begin_.at(&*f); });
    for (const Kernels& finish : finishes_) {
      const Kernels start = starts_.at(&*finish);
      free = std::min(free, begin_.at(&*finish)) - transfer_cycles(*start) - kCallCycles;
      place_start(start, finish, free);
    }
  }

  // Up to where what is between the two takes long enough.
  void place_start(const Kernels& start, const Kernels& finish, double time) {
    Kernels at = start;
    auto others = static_cast<size_t>(
        std::count_if(start, finish, [&](const Kernel& k) { return starts_.contains(&k); }));
    while (at != kernels_.begin() && begin_.at(&*at) > time) {
      const Kernels before = std::prev(at);
      if (!may_pass(*start, *before)) {
        break;
      }
      if (starts_.contains(&*before) && ++others == kMostUnderWay) {
        break;
      }
      at = before;
    }
    if (at != start) {
      begin_[&*start] = begin_.at(&*at);
      kernels_.splice(at, kernels_, start);
    }
  }

  static bool same_channel(const Kernel& a, const Kernel& b) {
    return is_transfer(a) && attrs_of(a).channel == attrs_of(b).channel;
  }

  // Other transfers of its channel stay where they are, and so do loops and branches.
  static bool may_pass(const Kernel& start, const Kernel& before) {
    if (is_transfer(before)) {
      return attrs_of(before).memory && !same_channel(before, start);
    }
    return may_cover(before);
  }

  // Something that the engines do without the host.
  static bool may_cover(const Kernel& k) {
    return has_commands_only(k) || k.kind == KernelClass::kExchange ||
           k.kind == KernelClass::kAllReduce || is_transfer(k);
  }

  std::list<Kernel>& kernels_;
  const spec::BoardParams& board_;
  const double share_;                                 // cores of the program that share a link
  std::unordered_map<const Kernel*, double> begin_;    // cycles; for look-up only
  std::vector<Kernels> finishes_;                      // of receives
  std::list<Kernel> waiting_;                          // sends that are to be started
  std::deque<Sent> sent_;                              // those that were
  double free_ = 0;                                    // when the link is
  std::unordered_map<const Kernel*, Kernels> starts_;  // of receives, by what finishes them
};

}  // namespace

void transfer_beside_kernels(KernelProgram& program, const spec::BoardParams& board,
                             int64_t cores) {
  if (TransferOrder(program, board, cores).run()) {
    renumber(program);
  }
}

}  // namespace tpu::compiler
