// The order of exchanges among the kernels beside which they may run. Costs are rough: they say how
// far a kernel goes, not what is right.
#include "kernel/early_exchanges.hpp"

#include <algorithm>
#include <iterator>
#include <set>

#include "board/board_loader.hpp"
#include "ir/control.hpp"
#include "kernel/movable.hpp"
#include "kernel/pieced_exchanges.hpp"
#include "kernel/rough_cost.hpp"
#include "program/estimate.hpp"

namespace tpu::compiler {
namespace {

using Kernels = std::list<Kernel>::iterator;

// Of an exchange: its path through links takes about twice what it takes through the core's port.
constexpr double kLinksToPort = 2;
constexpr double kFixedCycles = 2500;  // credits, latencies of transfer and links
constexpr int64_t kLargeShare = 16;    // of HBM: a sixteenth
constexpr int kMostReaders = 1;        // of other exchanges, that an exchange passes

bool reads_one_of(const Kernel& reader, const std::vector<const Value*>& values) {
  return std::ranges::any_of(values, [&](const Value* v) {
    return std::ranges::find(reader.reads, v) != reader.reads.end();
  });
}

class ExchangeOrder {
 public:
  ExchangeOrder(KernelProgram& program, const spec::BoardParams& board, bool in_pieces)
      : program_(program), board_(board), in_pieces_(in_pieces) {
    for (const Kernel& k : program.kernels) {
      if (k.kind == KernelClass::kExchange) {
        exchanged_.insert(k.writes.begin(), k.writes.end());
      }
    }
  }

  // True if a kernel has another place.
  bool run() {
    if (exchanged_.empty()) {
      return false;
    }
    std::vector<Kernels> exchanges;
    for (auto k = program_.kernels.begin(); k != program_.kernels.end(); ++k) {
      if (k->kind == KernelClass::kExchange) {
        exchanges.push_back(k);
      }
    }
    const auto gathers =
        std::ranges::stable_partition(exchanges, [](const Kernels& e) { return !is_gather(*e); });
    bool moved = false;
    for (auto e = exchanges.begin(); e != gathers.begin(); ++e) {
      moved = hide(*e) || moved;
    }
    for (auto e = gathers.begin(); !gathers.empty() && e != exchanges.begin();) {
      moved = lower_again(*--e) || moved;
    }
    for (const Kernels& e : gathers) {  // beside what the additions of the others have left
      moved = hide(e) || moved;
    }
    return moved;
  }

 private:
  static bool is_gather(const Kernel& e) { return e.ops[0]->kind == Kind::kAllGather; }

  // Large results would take their memory for longer. Of short exchanges the latencies count: the
  // order of others is as good.
  bool stays(const Kernel& e) const {
    return bytes_of_all(e.writes) > (board_.hbm.gib_per_core << 30) / kLargeShare ||
           transfer_cycles(e) < kFixedCycles;
  }

  bool hide(const Kernels& e) {
    if (stays(*e)) {
      return false;
    }
    const double taken = transfer_cycles(*e);
    const Kernels reader = first_reader(e);
    double left = kFixedCycles + taken;
    bool beside = false;
    for (auto k = std::next(e); k != reader; ++k) {
      const bool exchange = k->kind == KernelClass::kExchange;
      left += exchange ? transfer_cycles(*k) : -cycles(*k);  // exchanges share the links
      beside = beside || !exchange;
    }
    const double before = left;
    const bool raised = left > 0 && raise(e, left);
    const bool lowered = left > 0 && reader != program_.kernels.end() && lower(e, reader, left);
    if (beside || left < before) {
      e->as<ExchangePart>().overlaps = true;
    }
    const bool first = in_pieces_ && left > 0 && exchange_beside_product(e, left);
    return raised || lowered || first;
  }

  // Additions that others kept from going down, which have gone down themselves since: the last one
  // goes first. It makes room for gathers; without them the order is as good before.
  bool lower_again(const Kernels& e) {
    const Kernels reader = first_reader(e);
    if (stays(*e) || reader == program_.kernels.end()) {
      return false;
    }
    double left = kFixedCycles + transfer_cycles(*e);
    for (auto k = std::next(e); k != reader; ++k) {
      left += k->kind == KernelClass::kExchange ? transfer_cycles(*k) : -cycles(*k);
    }
    if (left <= 0 || !lower(e, reader, left)) {
      return false;
    }
    e->as<ExchangePart>().overlaps = true;
    return true;
  }

  // What is left is hidden by the product that reads the result or makes the operand. True if a
  // kernel has another place.
  bool exchange_beside_product(const Kernels& e, double left) {
    const Kernels reader = first_reader(e);
    Kernels product = reader;
    double hidden = 0;
    for (; product != program_.kernels.end() && hidden == 0; ++product) {
      if (!reads_one_of(*product, e->writes)) {
        if (!has_commands_only(*product) && product->kind != KernelClass::kExchange) {
          break;
        }
        continue;
      }
      if (!may_come_first(reader, product)) {
        break;
      }
      hidden = exchange_in_pieces(*e, *product, left, cycles(*product));
      if (hidden > 0) {
        break;
      }
    }
    const bool moved = hidden > 0 && product != reader;
    if (moved) {
      program_.kernels.splice(reader, program_.kernels, product);
    }
    leave_beside_product(e, left - hidden);
    return moved;
  }

  // The product that makes the operand.
  void leave_beside_product(const Kernels& e, double left) {
    for (Kernels k = e; left > 0 && k != program_.kernels.begin();) {
      --k;
      if (reads_one_of(*e, k->writes)) {
        exchange_in_pieces(*e, *k, left, cycles(*k));
        break;
      }
      if (k->kind != KernelClass::kExchange && !has_commands_only(*k)) {
        break;
      }
    }
  }

  // True if `product` needs nothing of the kernels from `reader` on, which may need what it would
  // overwrite.
  bool may_come_first(const Kernels& reader, const Kernels& product) const {
    return std::all_of(reader, product, [&](const Kernel& k) {
      return has_commands_only(k) && !reads_one_of(*product, k.writes) &&
             k.kind != KernelClass::kDynamicUpdate && k.kind != KernelClass::kIndexed &&
             !reads_replaced(k, *product);
    });
  }

  Kernels first_reader(const Kernels& e) {
    return std::find_if(std::next(e), program_.kernels.end(),
                        [&](const Kernel& k) { return reads_one_of(k, e->writes); });
  }

  // Towards what makes the operands, until `left` cycles are hidden. A gather passes additions of
  // what other exchanges bring: weights come while gradients are added.
  bool raise(const Kernels& e, double& left) {
    const bool gathers = is_gather(*e);
    Kernels at = e, top = e;  // behind other exchanges, unless there is work in front of them
    for (int readers = 0; left > 0 && top != program_.kernels.begin();) {
      const Kernels before = std::prev(top);
      const bool exchange = before->kind == KernelClass::kExchange;
      if ((!exchange && !has_commands_only(*before)) || reads_one_of(*e, before->writes) ||
          reads_replaced(*before, *e)) {
        break;
      }
      const bool reads_exchange = !exchange && !(gathers && before->kind == KernelClass::kLoop) &&
                                  std::ranges::any_of(before->reads, [&](const Value* v) {
                                    return exchanged_.contains(v);
                                  });
      if (reads_exchange && readers++ == kMostReaders) {
        break;
      }
      top = before;
      if (!exchange) {
        left -= cycles(*before);
        at = before;
      }
    }
    if (at == e) {
      return false;
    }
    program_.kernels.splice(at, program_.kernels, e);
    return true;
  }

  // True if `reader` may read what the loop carries where the result of the exchange belongs: in
  // front of it the result could not be made there, and would be copied.
  bool reads_replaced(const Kernel& reader, const Kernel& e) const {
    const Kernel& last = program_.kernels.back();
    return last.kind == KernelClass::kYield &&
           std::ranges::any_of(e.writes, [&](const Value* made) {
             const auto takes_its_place = [&](const Value* v) {
               return is_carried(*v) && v->type.bytes() == made->type.bytes();
             };
             return std::ranges::find(last.control().carried, made) !=
                        last.control().carried.end() &&
                    std::ranges::none_of(e.reads, takes_its_place) &&
                    std::ranges::any_of(reader.reads, takes_its_place);
           });
  }

  // The reader of the exchange goes down, if nothing but elementwise work is in it.
  bool lower(const Kernels& e, const Kernels& reader, double& left) {
    if (reader->kind != KernelClass::kLoop) {
      return false;
    }
    Kernels behind = std::next(reader);
    for (; left > 0 && behind != program_.kernels.end() && may_pass(*reader, *behind) &&
           !reads_one_of(*behind, e->writes);
         ++behind) {
      left -= behind->kind == KernelClass::kExchange ? 0 : cycles(*behind);
    }
    if (behind == std::next(reader)) {
      return false;
    }
    program_.kernels.splice(behind, program_.kernels, reader);
    return true;
  }

  // True if `reader` may run behind `k`, which may not be what replaces an array that it reads.
  static bool may_pass(const Kernel& reader, const Kernel& k) {
    if ((!has_commands_only(k) && k.kind != KernelClass::kExchange) ||
        reads_one_of(k, reader.writes) || k.kind == KernelClass::kDynamicUpdate ||
        k.kind == KernelClass::kIndexed) {
      return false;
    }
    return std::ranges::none_of(reader.reads, [&](const Value* v) {
      return v->def == nullptr && std::ranges::any_of(k.writes, [&](const Value* w) {
               return w->type.bytes() == v->type.bytes();
             });
    });
  }

  // What a core sends of an operand: to each other member of the group.
  double transfer_cycles(const Kernel& e) const {
    const Op& op = *e.ops[0];
    double bytes = 0;
    for (size_t i = 0; i < e.reads.size(); ++i) {
      const auto whole = static_cast<double>(op.operand_type(i).bytes());
      if (op.kind == Kind::kCollectivePermute) {
        bytes += whole;
        continue;
      }
      const auto members = static_cast<double>(op.as<CollectiveAttrs>().groups[0].size());
      bytes += whole * (members - 1) / (op.kind == Kind::kAllToAll ? members : 1);
    }
    return kLinksToPort * static_cast<double>(port_cycles(board_, static_cast<int64_t>(bytes)));
  }

  double cycles(const Kernel& k) const { return rough_cycles(k, board_); }

  KernelProgram& program_;
  const spec::BoardParams& board_;
  const bool in_pieces_;
  std::set<const Value*> exchanged_;  // results of exchanges; for look-up only
};

}  // namespace

void start_exchanges_early(KernelProgram& program, const spec::BoardParams& board, bool in_pieces) {
  if (ExchangeOrder(program, board, in_pieces).run()) {
    renumber(program);
  }
}

}  // namespace tpu::compiler
