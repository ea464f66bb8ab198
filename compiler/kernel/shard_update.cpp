// Legality of sharding the update behind each summed value, and the change of the kernel list.
#include "kernel/shard_update.hpp"

#include <algorithm>
#include <climits>
#include <map>
#include <set>
#include <unordered_map>

#include "kernel/kernels.hpp"
#include "program/estimate.hpp"

namespace tpu::compiler {

namespace {

constexpr int64_t kScalarBytes = 64 * 1024;  // arrays up to this may be read at one place
// Each further one makes a way with updates longer by 40 % of the time through the port (sums of
// 100 MB over 32 to 256 cores): partners are far, and messages to them small.
constexpr size_t kStagesOfABoard = 3;

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
      : program_(program), module_(module), board_(board), only_faster_(only_faster) {
    for (Kernel& k : program.kernels) {
      link(k, k.reads, readers_);
      link(k, k.writes, writers_);
    }
    const std::vector<ArgInfo>& args = module.main->args;
    for (size_t i = 0; i < args.size(); ++i) {
      if (args[i].alias_result >= 0) {
        taken_[static_cast<size_t>(args[i].alias_result)] = static_cast<int>(i);
      }
    }
  }

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
        attempt(exchange->writes[span.value], span.bytes, [&] { return shard(*exchange, span); });
      }
    }
    attach_late();
    for (const Noted& n : noted_) {
      report_.notes.push_back(text(n));
    }
    return std::move(report_);
  }

 private:
  template <typename Sharding>
  void attempt(const Value* sum, int64_t bytes, const Sharding& sharding) {
    const std::string what = to_string(sum->type) + " of " + place(*sum->def);
    try {
      if (sharding()) {
        report_.bytes += bytes;
        note("", what, bytes);
      }
    } catch (const Refused& r) {
      note(r.why, what, bytes);
    }
  }

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
    const Value* sum = nullptr;  // of a complete sum: the array that the update reads
    const Op* op = nullptr;      // the all_reduce
    std::vector<Kernel*> kernels;
    Update update;
    int move_to = -1;   // the exchange must stand behind the kernel of this order
    int64_t bytes = 0;  // of whole pieces of the sum
    // What is made of a complete sum beside something else, such as the mean beside its norm.
    std::set<const Value*> made_of_sum;

    int64_t unit() const { return elem_bytes(op->operand_type(0).elem); }

    bool makes(const Value* v) const {
      return std::ranges::any_of(kernels, [&](const Kernel* k) { return writes(*k, v); });
    }
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

  using Kernels = std::unordered_map<const Value*, std::vector<Kernel*>>;  // looked up only

  static void link(Kernel& k, const std::vector<const Value*>& values, Kernels& to) {
    for (const Value* v : values) {
      to[v].push_back(&k);
    }
  }

  static void unlink(const Kernel& k, const std::vector<const Value*>& values, Kernels& from) {
    for (const Value* v : values) {
      std::erase(from.at(v), &k);
    }
  }

  // In the order of the program.
  static std::vector<Kernel*> listed(const Kernels& kernels, const Value* v) {
    const auto it = kernels.find(v);
    std::vector<Kernel*> out = it == kernels.end() ? std::vector<Kernel*>{} : it->second;
    std::ranges::sort(out, {}, &Kernel::order);
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

  std::vector<Kernel*> readers(const Value* v) const { return listed(readers_, v); }
  std::vector<Kernel*> writers(const Value* v) const { return listed(writers_, v); }

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
    for (const Kernel* k : readers(v)) {
      if (k->kind == KernelClass::kCopyOut) {
        const auto taken = taken_.find(k->move().result);
        out.emplace_back(k->move().result, taken == taken_.end() ? -1 : taken->second);
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

  // Empty; or why the sum is needed as a whole.
  std::string close(Candidate& c) {
    std::string whole;
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
          if (whole.empty()) {
            whole = k->kind == KernelClass::kCopyOut || k->ops.empty()
                        ? "the sum itself is a result"
                        : place(*k->ops.back()) + ": " + why;
          }
          for (const Value* w : k->writes) {
            if (k->kind == KernelClass::kLoop && w->type.count() == c.sum->type.count() &&
                c.made_of_sum.insert(w).second) {
              work.push_back(w);
            }
          }
        }
      }
    }
    std::sort(c.kernels.begin(), c.kernels.end(),
              [](const Kernel* a, const Kernel* b) { return a->order < b->order; });
    return whole;
  }

  // Leaves out what makes operands of others: it is made before, on all cores.
  void keep_what_ends_here(Candidate& c) {
    const auto goes_on = [&](const Kernel* k) {
      return std::ranges::any_of(k->writes, [&](const Value* w) { return !outside(c, w).empty(); });
    };
    while (std::erase_if(c.kernels, goes_on) > 0) {
    }
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
        for (const Kernel* p : writers(a.value)) {
          c.move_to = c.has(p) ? c.move_to : std::max(c.move_to, p->order);
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
    for (const Kernel* k : writers(c.sum)) {  // the rests of the same values come behind
      if (k->kind == KernelClass::kAllReduce && !k->exchange().streamed) {
        first_reader = std::min(first_reader, k->order);
      }
    }
    if (c.move_to >= first_reader) {
      throw Refused{"an operand of the update is made from results of the exchange"};
    }
  }

  // Throws Refused if areas that rotate (HalvingPlan) do not fit, with one round from a send to its
  // arrival; those of operands are small. `sums`: the exchange sums pieces, too. `plain`: it has
  // pieces whose sums themselves travel back.
  void check_rings(const std::vector<const Update*>& updates, size_t stages, int64_t unit,
                   int64_t pieces, bool sums, bool plain) const {
    const auto way = static_cast<int64_t>(stages);
    const auto ring = [&](int64_t count, int64_t bytes) { return std::min(count, pieces) * bytes; };
    int64_t bytes = sums ? ring((plain ? 2 * way : way) + 2, program_.piece) : 0;
    for (int64_t s = 1; sums && s <= way; ++s) {
      bytes += ring(3, program_.piece >> s);
    }
    std::vector<int64_t> back;  // bytes of an element of each gathered value, the largest
    for (const Update* u : updates) {
      back.resize(std::max(back.size(), u->gathered.size()));
      for (size_t i = 0; i < u->gathered.size(); ++i) {
        back[i] = std::max(back[i], elem_bytes(u->gathered[i]->type.elem));
      }
    }
    for (const int64_t element : back) {
      bytes += ring(way + 2, program_.piece / unit * element);
    }
    if (const int64_t most = board_.core.vmem_kib * 1024; bytes > most) {
      throw Refused{"its exchange needs " + std::to_string(bytes) +
                    " bytes of VMEM, and a core has " + std::to_string(most)};
    }
  }

  // Of an exchange that sums, with the update `c` of a span.
  void check_rings(const Kernel& exchange, const Span& span, const Candidate& c,
                   const Exchange& e) const {
    const ExchangePart& part = exchange.exchange();
    std::vector<const Update*> updates{&c.update};
    for (const Update& u : part.updates) {
      updates.push_back(&u);
    }
    int64_t bytes = 0;
    bool plain = false, before = true;
    for (const Span& s : part.spans) {
      bytes += s.bytes;
      before = before && s.value != span.value;
      plain = plain || (before && std::ranges::none_of(part.updates, [&](const Update& u) {
                          return u.value == s.value;
                        }));
    }
    check_rings(updates, e.stages(), c.unit(), bytes / program_.piece, true, plain);
  }

  // False: later, with others.
  bool shard(Kernel& exchange, const Span& span) {
    const Op& op = *exchange.writes[span.value]->def;
    const Exchange e = exchange_of(op, module_.num_cores, row_cores(board_));
    if (e.stages() == 0 || int64_t{1} << e.stages() != module_.num_cores) {
      throw Refused{"the sum is not over all cores"};
    }
    Candidate c;
    c.sum = exchange.writes[span.value];
    c.op = &op;
    c.update.value = span.value;
    c.update.sum = c.sum;
    if (!part_type(c.sum->type)) {
      throw Refused{"its elements are not of 4 or 2 bytes"};
    }
    c.bytes = span.bytes;
    if (const std::string whole = close(c); !whole.empty()) {
      shard_late(std::move(c), whole);
      return false;
    }
    if (std::ranges::any_of(c.kernels,
                            [&](const Kernel* k) { return late_kernels_.contains(k); })) {
      throw Refused{"another sum is in the same update"};
    }
    sort_results(c);
    find_place(c, exchange);
    check_rings(exchange, span, c, e);
    if (only_faster_ && !faster(c, span.bytes, e)) {
      throw Refused{"gathering its results would take longer"};
    }
    move_behind(exchange, c.move_to);
    attach(exchange, c, span, e);
    remove(c, span);
    renumber(program_);
    return true;
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
    int64_t links = static_cast<int64_t>(port_cycles(board_, less(gathered))) -
                    static_cast<int64_t>(port_cycles(board_, less(bytes)));
    if (e.stages() > kStagesOfABoard) {  // the sum alone goes in phases (stream_plan.hpp)
      const int64_t more = static_cast<int64_t>(e.stages() - kStagesOfABoard);
      links += static_cast<int64_t>(port_cycles(board_, bytes + gathered)) * more * 2 / 5;
    }
    return links < saved;
  }

  // Updates of complete sums, and where their exchange may stand: behind one order, in front of the
  // other.
  struct Late {
    Candidate c;
    int behind = -1, front = INT_MAX;
  };

  // The sum, or what is made of it, that the update reads.
  static const Value* read_of_sum(const Candidate& c) {
    for (const Kernel* k : c.kernels) {
      for (const NestAccess& a : k->loop().nest.accesses) {
        if (whole_read(a, c.sum->type.count()) &&
            (a.value == c.sum || c.made_of_sum.contains(a.value))) {
          return a.value;
        }
      }
    }
    return nullptr;
  }

  void shard_late(Candidate c, const std::string& whole) {
    keep_what_ends_here(c);
    const Value* read = read_of_sum(c);
    if (read == nullptr) {
      throw Refused{whole};
    }
    c.sum = read;
    sort_results(c);
    for (const Kernel* k : c.kernels) {
      for (const NestAccess& a : k->loop().nest.accesses) {
        if (!c.makes(a.value) && !uniform(a.value)) {
          throw Refused{"an operand of the update is not the same on all cores"};
        }
      }
      if (late_kernels_.contains(k)) {
        throw Refused{"another sum is in the same update"};
      }
    }
    const Exchange e = exchange_of(*c.op, module_.num_cores, row_cores(board_));
    check_rings({&c.update}, e.stages(), c.unit(), c.bytes / program_.piece, false, false);
    if (only_faster_ && !faster_late(c, e)) {
      throw Refused{"gathering its results would take longer"};
    }
    late_kernels_.insert(c.kernels.begin(), c.kernels.end());
    late_.push_back({std::move(c)});
  }

  // The plain update moves all operands and results through HBM; the sharded one a part of them,
  // and what is gathered as a whole. A way of an exchange over a board takes half as long again as
  // its bytes through the port alone: transfers of one queue wait for each other.
  bool faster_late(const Candidate& c, const Exchange& e) const {
    const int64_t count = c.bytes / c.unit();
    std::set<const Value*> moved;
    int64_t bytes = 0, gathered = 0;
    for (const Kernel* k : c.kernels) {
      for (const NestAccess& a : k->loop().nest.accesses) {
        if (a.view.stride[0] != 0 && !c.makes(a.value) && moved.insert(a.value).second) {
          bytes += count * elem_bytes(a.value->type.elem);
        }
      }
    }
    for (const Value* w : c.update.sharded) {
      bytes += count * elem_bytes(w->type.elem);
    }
    for (const Value* w : c.update.gathered) {
      gathered += count * elem_bytes(w->type.elem);
    }
    const auto plain = hbm_cycles(board_, bytes + gathered);
    const auto memory = hbm_cycles(board_, (bytes >> e.stages()) + gathered);
    const uint64_t more = std::max(e.stages(), kStagesOfABoard) - kStagesOfABoard;
    const auto links =
        port_cycles(board_, gathered - (gathered >> e.stages())) * (15 + 4 * more) / 10;
    return std::max(memory, links) < plain;
  }

  void find_late_place(Late& late) {
    const Candidate& c = late.c;
    late.behind = c.kernels.back()->order;
    const auto follow = [&](const Kernel& k) { late.behind = std::max(late.behind, k.order); };
    for (const Kernel* k : c.kernels) {
      for (const NestAccess& a : k->loop().nest.accesses) {
        for (const Kernel* p : writers(a.value)) {
          if (!c.has(p)) {
            follow(*p);
          }
        }
      }
      for (const Value* w : k->writes) {
        for (const Kernel* r : readers(w)) {
          late.front = c.has(r) ? late.front : std::min(late.front, r->order);
        }
        for (const auto& [result, taken] : results_of(w)) {
          for (const Kernel* r : taken < 0 ? std::vector<Kernel*>{} : outside(c, argument(taken))) {
            follow(*r);  // written in place: readers of the old value come first
          }
        }
      }
    }
  }

  // Those that can stand at one place are one exchange.
  void attach_late() {
    std::vector<Late*> placed;
    for (Late& late : late_) {
      attempt(late.c.op->result(), late.c.bytes, [&] {
        find_late_place(late);
        if (late.behind >= late.front) {
          throw Refused{"an operand of the update is made from its results"};
        }
        placed.push_back(&late);
        return true;
      });
    }
    std::ranges::stable_sort(placed, {}, &Late::behind);
    std::vector<std::vector<Late*>> groups;
    int front = INT_MIN;
    for (Late* late : placed) {
      const bool joins =
          !groups.empty() && late->behind < front && groups.back()[0]->c.unit() == late->c.unit();
      if (!joins) {
        groups.emplace_back();
        front = INT_MAX;
      }
      groups.back().push_back(late);
      front = std::min(front, late->front);
    }
    for (auto group = groups.rbegin(); group != groups.rend(); ++group) {  // orders in front stay
      attach_group(*group);
    }
    renumber(program_);
  }

  void attach_group(const std::vector<Late*>& group) {
    Kernel exchange(KernelClass::kAllReduce);
    exchange.as<ExchangePart>().streamed = exchange.as<ExchangePart>().summed = true;
    for (Late* late : group) {
      exchange.ops.push_back(late->c.op);
      exchange.reads.push_back(late->c.sum);
    }
    auto& list = program_.kernels;
    const auto next =
        std::ranges::find_if(list, [&](const Kernel& k) { return k.order > group.back()->behind; });
    exchange.order = group.back()->behind;
    const auto at = list.insert(next, std::move(exchange));
    link(*at, at->reads, readers_);
    for (size_t i = 0; i < group.size(); ++i) {
      Candidate& c = group[i]->c;
      const Span span{i, 0, c.bytes};
      at->as<ExchangePart>().spans.push_back(span);
      c.update.value = i;
      c.update.sum = nullptr;
      attach(*at, c, span, exchange_of(*c.op, module_.num_cores, row_cores(board_)));
      for (const Kernel* rest : remove(c, span)) {  // behind what gives the results their homes
        list.splice(next, list,
                    std::ranges::find_if(list, [&](const Kernel& k) { return &k == rest; }));
      }
    }
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
        if (a.value != c.sum && !c.makes(a.value) &&
            std::find(exchange.reads.begin(), exchange.reads.end(), a.value) ==
                exchange.reads.end()) {
          inputs_.push_back(a.value);
        }
      }
    }
    // Behind the values of the exchange, which are numbered.
    exchange.reads.insert(exchange.reads.end(), inputs_.begin(), inputs_.end());
    link(exchange, inputs_, readers_);
    inputs_.clear();
    for (const auto* list : {&c.update.gathered, &c.update.sharded}) {
      exchange.writes.insert(exchange.writes.end(), list->begin(), list->end());
      link(exchange, *list, writers_);
    }
    const int64_t size = c.unit();
    for (const Value* w : c.update.sharded) {
      const auto [result, argument] = results_of(w).at(0);
      program_.sharded.push_back({static_cast<size_t>(argument), result, program_.piece / size,
                                  span.bytes / program_.piece, e});
    }
    exchange.as<ExchangePart>().updates.push_back(std::move(c.update));
  }

  // What lies behind the whole pieces stays a loop kernel of its own. Returns those kernels.
  std::vector<const Kernel*> remove(const Candidate& c, const Span& span) {
    std::vector<const Kernel*> rests;
    const int64_t first = span.bytes / c.unit();
    const int64_t rest = c.sum->type.count() - first;
    for (auto it = program_.kernels.begin(); it != program_.kernels.end();) {
      if (!c.has(&*it)) {
        ++it;
      } else if (rest == 0) {
        unlink(*it, it->reads, readers_);
        unlink(*it, it->writes, writers_);
        it = program_.kernels.erase(it);
      } else {
        start_at(*it, first);
        rests.push_back(&*it);
        ++it;
      }
    }
    return rests;
  }

  KernelProgram& program_;
  const Module& module_;
  const spec::BoardParams& board_;
  const bool only_faster_;  // else sharded wherever it is legal
  ShardReport report_;
  std::vector<Noted> noted_;
  std::vector<const Value*> inputs_;
  std::vector<Late> late_;
  std::set<const Kernel*> late_kernels_;
  std::map<const Value*, bool> uniform_;  // for look-up only
  Kernels readers_, writers_;
  std::unordered_map<size_t, int> taken_;  // the argument whose memory a result takes over
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
