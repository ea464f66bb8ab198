// Legality of sharding the update behind each summed value, and the change of the kernel list.
#include "kernel/shard_update.hpp"

#include <algorithm>
#include <climits>
#include <map>
#include <set>

#include "kernel/kernels.hpp"
#include "program/estimate.hpp"

namespace tpu::compiler {

namespace {

constexpr int64_t kScalarBytes = 64 * 1024;  // arrays up to this may be read at one place

struct Refused {
  std::string why;
};

std::string place(const Op& op) {
  return std::string(kind_name(op.kind)) + " at " + to_string(*op.loc);
}

class Sharder {
 public:
  Sharder(KernelProgram& program, const Module& module, const spec::BoardParams& board,
          bool only_faster)
      : program_(program), module_(module), board_(board), only_faster_(only_faster) {}

  ShardReport run() {
    std::vector<Kernel*> exchanges;
    for (Kernel& k : program_.kernels) {
      if (k.kind == KernelClass::kAllReduce && k.exchange().streamed) {
        exchanges.push_back(&k);
      }
    }
    for (Kernel* exchange : exchanges) {
      const std::vector<Span> spans = exchange->exchange().spans;
      for (const Span& span : spans) {
        const Value* sum = exchange->writes[span.value];
        const std::string what = to_string(sum->type) + " of " + place(*sum->def);
        try {
          shard(*exchange, span);
          report_.bytes += span.bytes;
          note("", what, span.bytes);
        } catch (const Refused& r) {
          note(r.why, what, span.bytes);
        }
      }
    }
    for (const Noted& n : noted_) {
      report_.notes.push_back(text(n));
    }
    return std::move(report_);
  }

 private:
  // Sums that are sharded, or are not for one reason.
  struct Noted {
    std::string why;   // empty: they are
    std::string what;  // the first of them
    int64_t count = 0, bytes = 0;
  };

  void note(const std::string& why, const std::string& what, int64_t bytes) {
    auto n = std::ranges::find(noted_, why, &Noted::why);
    if (n == noted_.end()) {
      n = noted_.insert(n, {why, what});
    }
    ++n->count;
    n->bytes += bytes;
  }

  static std::string text(const Noted& n) {
    return std::string("update ") + (n.why.empty() ? "sharded: " : "not sharded: ") + n.what +
           (n.count > 1 ? " and " + std::to_string(n.count - 1) + " more, " +
                              std::to_string(n.bytes) + " bytes"
                        : "") +
           (n.why.empty() ? "" : ": " + n.why);
  }

  // The kernels that form the update of one sum, in order.
  struct Candidate {
    const Value* sum = nullptr;
    std::vector<Kernel*> kernels;
    Update update;
    int move_to = -1;  // the exchange must stand behind the kernel of this order

    bool has(const Kernel* k) const {
      return std::find(kernels.begin(), kernels.end(), k) != kernels.end();
    }
  };

  // The same on all cores: made of replicated arguments and sums over all cores alone.
  bool uniform(const Value* of) {
    std::vector<const Value*> work{of};
    while (!work.empty()) {
      const Value* v = work.back();
      const size_t before = work.size();
      bool same = true;
      if (!uniform_.contains(v)) {
        for (const Value* in : asks(v)) {
          const auto known = uniform_.find(in);
          same = same && (known == uniform_.end() || known->second);
          if (known == uniform_.end()) {
            work.push_back(in);
          }
        }
      }
      if (work.size() == before) {
        uniform_.emplace(v, same && may_be_uniform(v));
        work.pop_back();
      }
    }
    return uniform_.at(of);
  }

  // What has to be the same on all cores for `v` to be so.
  std::vector<Value*> asks(const Value* v) const {
    const bool sums = v->def != nullptr && v->def->kind == Kind::kAllReduce;
    return v->def == nullptr || sums || !may_be_uniform(v) ? std::vector<Value*>{}
                                                           : v->def->operands;
  }

  bool may_be_uniform(const Value* v) const {
    const Op* op = v->def;
    if (op == nullptr) {
      return v->owner == &module_.main->body &&
             module_.main->args[static_cast<size_t>(v->index)].sharding.is_replicated();
    }
    if (op->kind == Kind::kAllReduce) {
      return int64_t{1} << exchange_of(*op, module_.num_cores).stages() == module_.num_cores;
    }
    return op->kind != Kind::kPartitionId && op->kind != Kind::kWhile && op->kind != Kind::kIf &&
           op->kind != Kind::kCase && !is_collective(op->kind);
  }

  std::vector<Kernel*> readers(const Value* v) {
    std::vector<Kernel*> out;
    for (Kernel& k : program_.kernels) {
      if (std::find(k.reads.begin(), k.reads.end(), v) != k.reads.end()) {
        out.push_back(&k);
      }
    }
    return out;
  }

  static bool writes(const Kernel& k, const Value* v) {
    return std::find(k.writes.begin(), k.writes.end(), v) != k.writes.end();
  }

  static bool part_type(const Type& type) {
    return elem_bytes(type.elem) == 4 || elem_bytes(type.elem) == 2;
  }

  static bool whole_read(const NestAccess& a, int64_t count) {
    return a.view.stride.size() == 1 && a.view.stride[0] == 1 && a.view.offset == 0 &&
           a.value->type.count() == count;
  }

  // Empty if the kernel computes element i from elements i and scalars; else why not.
  std::string not_elementwise(const Kernel& k, const Value* sum) const {
    const int64_t count = sum->type.count();
    if (k.kind != KernelClass::kLoop || k.loop().nest.has_reduce ||
        k.loop().nest.loops.size() != 1 || k.loop().nest.loops[0].n != count ||
        !k.loop().nest.indexes.empty() || k.loop().first != 0) {
      return "not elementwise over the gradient";
    }
    for (const Node& n : k.loop().nest.nodes) {
      for (const Operand& o : n.in) {
        if (o.kind == Operand::Kind::kPartition) {
          return "depends on the core";
        }
      }
    }
    for (const NestAccess& a : k.loop().nest.accesses) {
      const bool scalar = a.view.stride[0] == 0 && a.value->type.bytes() <= kScalarBytes;
      if (!scalar && (!whole_read(a, count) || !part_type(a.value->type))) {
        return "reads an operand other than element by element";
      }
    }
    const bool fits = std::all_of(k.writes.begin(), k.writes.end(),
                                  [](const Value* v) { return part_type(v->type); });
    return fits ? "" : "writes elements that are not of 4 or 2 bytes";
  }

  // The results that a value is, and the argument whose memory each takes over, or -1.
  std::vector<std::pair<size_t, int>> results_of(const Value* v) const {
    std::vector<std::pair<size_t, int>> out;
    for (const Kernel& k : program_.kernels) {
      if (k.kind == KernelClass::kCopyOut && k.reads[0] == v) {
        int argument = -1;
        for (size_t i = 0; i < module_.main->args.size(); ++i) {
          if (module_.main->args[i].alias_result == static_cast<int>(k.move().result)) {
            argument = static_cast<int>(i);
          }
        }
        out.emplace_back(k.move().result, argument);
      }
    }
    return out;
  }

  const Value* argument(int i) const {
    return module_.main->body.args[static_cast<size_t>(i)].get();
  }

  // One of the two words of a 64-bit array, of which all cores keep all: runs that a core owns are
  // of whole elements.
  bool is_word(int i) const {
    return module_.main->args[static_cast<size_t>(i)].part != WordPart::kWhole;
  }

  void close(Candidate& c) {
    std::vector<const Value*> work{c.sum};
    while (!work.empty()) {
      const Value* v = work.back();
      work.pop_back();
      for (Kernel* k : readers(v)) {
        if (c.has(k)) {
          continue;
        }
        const std::string why = not_elementwise(*k, c.sum);
        if (why.empty()) {
          c.kernels.push_back(k);
          work.insert(work.end(), k->writes.begin(), k->writes.end());
        } else if (v == c.sum) {
          throw Refused{k->kind == KernelClass::kCopyOut || k->ops.empty()
                            ? "the sum itself is a result"
                            : place(*k->ops.back()) + ": " + why};
        }
      }
    }
    std::sort(c.kernels.begin(), c.kernels.end(),
              [](const Kernel* a, const Kernel* b) { return a->order < b->order; });
  }

  // Kernels outside that read the value, copies to results not counted.
  std::vector<Kernel*> outside(const Candidate& c, const Value* v) {
    std::vector<Kernel*> out = readers(v);
    std::erase_if(out,
                  [&](const Kernel* k) { return k->kind == KernelClass::kCopyOut || c.has(k); });
    return out;
  }

  bool only_here(const Candidate& c, const Value* v) {
    const std::vector<Kernel*> all = readers(v);
    return std::all_of(all.begin(), all.end(), [&](const Kernel* k) {
      return c.has(k) && std::all_of(k->loop().nest.accesses.begin(), k->loop().nest.accesses.end(),
                                     [&](const NestAccess& a) {
                                       return a.value != v || whole_read(a, v->type.count());
                                     });
    });
  }

  void sort_results(Candidate& c) {
    bool has_state = false;
    for (const Kernel* k : c.kernels) {
      for (const Value* w : k->writes) {
        const auto results = results_of(w);
        const bool read = !outside(c, w).empty();
        if (results.empty() && !read) {
          continue;  // temporary
        }
        const int a = results.size() == 1 ? results[0].second : -1;
        const bool state =
            a >= 0 && argument(a)->type == w->type && !is_word(a) && uniform(argument(a));
        has_state = has_state || state;
        if (state && !read && only_here(c, argument(a))) {
          c.update.sharded.push_back(w);
          continue;
        }
        if (elem_bytes(w->type.elem) > elem_bytes(c.sum->type.elem)) {
          throw Refused{to_string(w->type) +
                        " would have to be gathered in pieces that are too large"};
        }
        c.update.gathered.push_back(w);
        if (a >= 0) {  // written in place: readers of the old value come first
          for (const Kernel* r : outside(c, argument(a))) {
            c.move_to = std::max(c.move_to, r->order);
          }
        }
      }
    }
    if (!has_state) {
      throw Refused{"no donated argument is updated by it"};
    }
  }

  // Everything that the update reads stands in front, what reads its results behind.
  void find_place(Candidate& c, const Kernel& exchange) {
    for (const Kernel* k : c.kernels) {
      for (const NestAccess& a : k->loop().nest.accesses) {
        if (a.value == c.sum) {
          continue;
        }
        if (!uniform(a.value)) {
          throw Refused{"an operand of the update is not the same on all cores"};
        }
        for (const Kernel& p : program_.kernels) {
          if (writes(p, a.value) && !c.has(&p)) {
            c.move_to = std::max(c.move_to, p.order);
          }
        }
      }
    }
    int first_reader = INT_MAX;
    const auto reads = [&](const Value* v) {
      for (const Kernel* r : outside(c, v)) {
        if (r->order > exchange.order) {
          first_reader = std::min(first_reader, r->order);
        }
      }
    };
    for (size_t i = 0; i < exchange.writes.size(); ++i) {
      if (exchange.writes[i] != c.sum) {
        reads(exchange.writes[i]);
      }
    }
    for (const Kernel* k : c.kernels) {
      for (const Value* w : k->writes) {
        reads(w);
      }
    }
    for (const Kernel& k : program_.kernels) {  // the rests of the same values come behind
      if (k.kind == KernelClass::kAllReduce && !k.exchange().streamed && writes(k, c.sum)) {
        first_reader = std::min(first_reader, k.order);
      }
    }
    if (c.move_to >= first_reader) {
      throw Refused{"an operand of the update is made from results of the exchange"};
    }
  }

  void shard(Kernel& exchange, const Span& span) {
    const Op& op = *exchange.writes[span.value]->def;
    const Exchange e = exchange_of(op, module_.num_cores, row_cores(board_));
    if (e.stages() == 0 || int64_t{1} << e.stages() != module_.num_cores) {
      throw Refused{"the sum is not over all cores"};
    }
    Candidate c;
    c.sum = exchange.writes[span.value];
    c.update.value = span.value;
    c.update.sum = c.sum;
    if (!part_type(c.sum->type)) {
      throw Refused{"its elements are not of 4 or 2 bytes"};
    }
    close(c);
    sort_results(c);
    find_place(c, exchange);
    if (only_faster_ && !faster(c, span.bytes, e)) {
      throw Refused{"gathering its results would take longer"};
    }
    move_behind(exchange, c.move_to);
    attach(exchange, c, span, e);
    remove(c, span);
    renumber(program_);
  }

  // The plain update stores the sum, and moves every operand and result through HBM; the sharded
  // one moves a part of them, stores what is gathered as a whole, and sends it instead of the sum.
  bool faster(const Candidate& c, int64_t bytes, const Exchange& e) const {
    const int64_t count = bytes / elem_bytes(c.sum->type.elem);
    std::set<const Value*> read, written;
    int64_t parts = 0, gathered = 0, sum = 2 * bytes;
    for (const Kernel* k : c.kernels) {
      written.insert(k->writes.begin(), k->writes.end());
      for (const NestAccess& a : k->loop().nest.accesses) {
        if (a.value != c.sum && a.view.stride[0] != 0 && !written.contains(a.value) &&
            read.insert(a.value).second) {
          parts += count * elem_bytes(a.value->type.elem);
        }
      }
    }
    for (const Value* w : c.update.sharded) {
      parts += count * elem_bytes(w->type.elem);
    }
    for (const Value* w : c.update.gathered) {
      gathered += count * elem_bytes(w->type.elem);
    }
    const auto saved =
        static_cast<int64_t>(hbm_cycles(board_, sum + parts - (parts >> e.stages())));
    const auto less = [&](int64_t n) { return n - (n >> e.stages()); };  // without the own part
    const int64_t links = static_cast<int64_t>(port_cycles(board_, less(gathered))) -
                          static_cast<int64_t>(port_cycles(board_, less(bytes)));
    return links < saved;
  }

  void move_behind(Kernel& exchange, int order) {
    if (order < exchange.order) {
      return;
    }
    auto& list = program_.kernels;
    const auto at = [&](int o) {
      return std::find_if(list.begin(), list.end(), [&](const Kernel& k) { return k.order >= o; });
    };
    list.splice(at(order + 1), list, at(exchange.order));
    renumber(program_);
  }

  void attach(Kernel& exchange, Candidate& c, const Span& span, const Exchange& e) {
    for (const Kernel* k : c.kernels) {
      c.update.kernels.push_back({k->ops, k->loop().nest, k->writes});
      for (const NestAccess& a : k->loop().nest.accesses) {
        const bool made = std::any_of(c.kernels.begin(), c.kernels.end(),
                                      [&](const Kernel* w) { return writes(*w, a.value); });
        if (a.value != c.sum && !made &&
            std::find(exchange.reads.begin(), exchange.reads.end(), a.value) ==
                exchange.reads.end()) {
          inputs_.push_back(a.value);
        }
      }
    }
    // Behind the values of the exchange, which are numbered.
    exchange.reads.insert(exchange.reads.end(), inputs_.begin(), inputs_.end());
    inputs_.clear();
    for (const auto* list : {&c.update.gathered, &c.update.sharded}) {
      exchange.writes.insert(exchange.writes.end(), list->begin(), list->end());
    }
    const int64_t size = elem_bytes(c.sum->type.elem);
    for (const Value* w : c.update.sharded) {
      const auto [result, argument] = results_of(w).at(0);
      program_.sharded.push_back({static_cast<size_t>(argument), result, program_.piece / size,
                                  span.bytes / program_.piece, e});
    }
    exchange.as<ExchangePart>().updates.push_back(std::move(c.update));
  }

  // What lies behind the whole pieces stays a loop kernel of its own.
  void remove(const Candidate& c, const Span& span) {
    const int64_t first = span.bytes / elem_bytes(c.sum->type.elem);
    const int64_t rest = c.sum->type.count() - first;
    for (auto it = program_.kernels.begin(); it != program_.kernels.end();) {
      if (!c.has(&*it)) {
        ++it;
      } else if (rest == 0) {
        it = program_.kernels.erase(it);
      } else {
        start_at(*it, first);
        ++it;
      }
    }
  }

  KernelProgram& program_;
  const Module& module_;
  const spec::BoardParams& board_;
  const bool only_faster_;  // else sharded wherever it is legal
  ShardReport report_;
  std::vector<Noted> noted_;
  std::vector<const Value*> inputs_;
  std::map<const Value*, bool> uniform_;  // for look-up only
};

}  // namespace

ShardReport shard_updates(KernelProgram& program, const Module& module,
                          const spec::BoardParams& board, bool only_faster) {
  return Sharder(program, module, board, only_faster).run();
}

std::vector<OwnedRun> owned_runs(const ShardedState& state, int64_t elements, int64_t cores) {
  const int64_t parts = int64_t{1} << state.exchange.stages();
  std::vector<int64_t> owner(static_cast<size_t>(parts));
  for (int64_t core = 0; core < cores; ++core) {
    owner[static_cast<size_t>(owned_part(state.exchange, core))] = core;
  }
  std::vector<OwnedRun> runs;
  for (int64_t piece = 0; piece < state.pieces; ++piece) {
    for (const int64_t core : owner) {
      runs.push_back({state.piece_elements / parts, core});
    }
  }
  const int64_t rest = elements - state.pieces * state.piece_elements;
  if (rest > 0) {
    runs.push_back({rest, 0});
  }
  return runs;
}

}  // namespace tpu::compiler
