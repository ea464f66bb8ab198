// See verify_kernels.hpp.
#include "kernel/verify_kernels.hpp"

#include <algorithm>
#include <unordered_map>

namespace tpu::compiler {

namespace {

bool holds(const std::vector<const Value*>& values, const Value* v) {
  return std::find(values.begin(), values.end(), v) != values.end();
}

// Exchanges of a value's pieces; what is left behind the last piece of an update.
bool writes_part(const Kernel& k) {
  return k.kind == KernelClass::kAllReduce || (k.kind == KernelClass::kLoop && k.loop().first > 0);
}

class KernelVerifier {
 public:
  void run(const KernelProgram& program) {
    find_makers(program);
    check_program(program, nullptr);
  }

 private:
  [[noreturn]] static void fail(const Kernel& k, const std::string& message) {
    const Op* op = k.ops.empty() ? nullptr : k.ops.front();
    throw Error("kernel " + std::to_string(k.order) + ": " + message,
                op == nullptr ? "" : source_name(op->kind), op == nullptr ? nullptr : op->loc);
  }
  static void check(bool ok, const Kernel& k, const char* message) {
    if (!ok) {
      fail(k, message);
    }
  }

  void find_makers(const KernelProgram& program) {
    for_each_kernel(program, [&](const Kernel& k) {
      for (const Value* v : k.writes) {
        check(v != nullptr, k, "writes nothing");
        const auto [at, first] = makers_.emplace(v, &k);
        check(first || (writes_part(k) && writes_part(*at->second)), k,
              "writes what another kernel writes");
        at->second = &k;  // of pieces: the last
      }
    });
  }

  void check_program(const KernelProgram& program, const Kernel* owner) {
    bool copied = false;  // a result of main, perhaps over an argument, in an iteration of `owner`
    for (const Kernel& k : program.kernels) {
      copied = copied || (owner != nullptr && k.kind == KernelClass::kCopyOut);
      check(!copied || k.kind == KernelClass::kCopyOut || k.kind == KernelClass::kYield, k,
            "is behind a copy to a result, which may lie over an argument that it reads");
      check(k.order == next_++, k, "has an order that does not count up");
      check_class(k);
      check((k.kind == KernelClass::kYield) == (owner != nullptr && &k == &program.kernels.back()),
            k, "is a yield inside of a program, or ends a region without one");
      check_reads(k);
      for (const auto& region : k.control().regions) {
        if (region) {
          check(!region->kernels.empty(), k, "has an empty region");
          check_program(*region, &k);
        }
      }
      check(k.end == (k.control().regions.empty() ? k.order : next_++), k,
            "does not end behind its regions");
    }
  }

  // Orders count up through regions, so that a maker in front has the lower one; a kernel around
  // this one writes its results at its end only.
  void check_reads(const Kernel& k) const {
    for (const Value* v : k.reads) {
      check(v != nullptr, k, "reads nothing");
      const auto maker = makers_.find(v);
      if (maker != makers_.end()) {
        check(maker->second->end < k.order, k,
              "reads a value in front of the kernel that makes it");
      } else {
        check(v->def == nullptr || is_cheap(v->def->kind), k, "reads a value that no kernel makes");
      }
    }
  }

  static void check_class(const Kernel& k) {
    check(Kernel(k.kind).part.index() == k.part.index(), k, "has the part of another class");
    check(k.ops.empty() == (k.kind == KernelClass::kCopyOut), k, "has no op");
    switch (k.kind) {
      case KernelClass::kLoop:
        check_loop(k);
        return;
      case KernelClass::kContract:
        check(k.out != nullptr && holds(k.reads, k.contract().dot.lhs) &&
                  holds(k.reads, k.contract().dot.rhs),
              k, "contracts what it does not read");
        check(!k.contract().after.empty() || k.writes == std::vector<const Value*>{k.out}, k,
              "does not write its result");
        for (const auto& loop : k.contract().after) {
          check(loop->kind == KernelClass::kLoop, k, "has an epilogue that is not a loop");
        }
        return;
      case KernelClass::kAllReduce:
        check_spans(k);
        return;
      case KernelClass::kCopyOut:
        check(k.out != nullptr && k.reads.size() == 1, k, "copies no value");
        return;
      case KernelClass::kWhile:
        check(k.control().regions.size() == 2 &&
                  (k.control().regions[0] == nullptr) == k.control().counted.has_value(),
              k, "has a condition although it counts, or none although it does not");
        check(k.control().regions[1] != nullptr, k, "has no body");
        return;
      case KernelClass::kBranch:
        check(!k.control().regions.empty(), k, "has no region");
        return;
      default:
        return;
    }
  }

  static void check_loop(const Kernel& k) {
    for (const NestAccess& a : k.loop().nest.accesses) {
      check(holds(k.reads, a.value), k, "has a nest that reads another buffer");
      check(a.view.stride.size() == k.loop().nest.loops.size(), k,
            "has an access without a stride per loop");
    }
    for (const Op* op : k.loop().recomputed) {
      check(std::find(k.ops.begin(), k.ops.end(), op) != k.ops.end(), k,
            "recomputes an op that it does not have");
      check(!holds(k.writes, op->result()), k, "writes what it recomputes");
    }
    for (const Value* v : k.writes) {
      check(v->def != nullptr && std::find(k.ops.begin(), k.ops.end(), v->def) != k.ops.end(), k,
            "writes what it does not compute");
    }
  }

  static void check_spans(const Kernel& k) {
    for (const Span& s : k.exchange().spans) {
      check(s.value < k.reads.size() && s.value < k.writes.size(), k,
            "exchanges a value that it does not read and write");
      check(k.exchange().summed || (s.from >= 0 && s.bytes >= 0 &&
                                    s.from + s.bytes <= k.writes[s.value]->type.bytes()),
            k, "exchanges bytes outside of a value");
    }
  }

  std::unordered_map<const Value*, const Kernel*> makers_;  // of pieces: the last
  int next_ = 0;
};

}  // namespace

void verify(const KernelProgram& program) { KernelVerifier().run(program); }

}  // namespace tpu::compiler
