// See kernel_index.hpp.
#include "kernel/kernel_index.hpp"

#include <algorithm>
#include <utility>

namespace tpu::compiler {

namespace {

std::vector<const Value*> made_by(const Kernel& k) {
  std::vector<const Value*> made;
  for (const Op* op : k.ops) {
    if (!k.loop().recomputed.contains(op)) {
      for (const auto& r : op->results) {
        made.push_back(r.get());
      }
    }
  }
  if (k.out != nullptr && std::find(made.begin(), made.end(), k.out) == made.end()) {
    made.push_back(k.out);
  }
  return made;
}

std::vector<const Value*> read_by(const Nest& nest) {
  std::vector<const Value*> read;
  for (const NestAccess& a : nest.accesses) {
    read.push_back(a.value);
  }
  return read;
}

}  // namespace

KernelIndex::KernelIndex(KernelProgram& program) : program_(program) {
  for (Kernel& k : program.kernels) {
    link(k);
  }
}

const std::vector<Kernel*>& KernelIndex::at(const Kernels& kernels, const Value* v) {
  static const std::vector<Kernel*> none;
  const auto it = kernels.find(v);
  return it == kernels.end() ? none : it->second;
}

bool KernelIndex::made_before(int order, const Value* v) const {
  const std::vector<Kernel*>& all = makers(v);
  return std::any_of(all.begin(), all.end(), [&](const Kernel* k) { return k->order < order; });
}

void KernelIndex::replace(Kernel& k, Kernel with) {
  std::vector<const Value*> touched = k.reads;
  unlink(k);
  k = std::move(with);
  k.reads = read_by(k.loop().nest);
  link(k);
  find_writes(k);
  touched.insert(touched.end(), k.reads.begin(), k.reads.end());
  find_writers(touched);
}

void KernelIndex::insert(Place at, Kernel kernel) {
  Kernel& k = *program_.kernels.insert(at, std::move(kernel));
  k.reads = read_by(k.loop().nest);
  link(k);
  find_writes(k);
  find_writers(k.reads);
}

KernelIndex::Place KernelIndex::erase(Place at) {
  const std::vector<const Value*> touched = at->reads;
  unlink(*at);
  changed_.erase(&*at);
  const Place next = program_.kernels.erase(at);
  find_writers(touched);
  return next;
}

void KernelIndex::link(Kernel& k) {
  for (const Value* v : made_by(k)) {
    makers_[v].push_back(&k);
  }
  for (const Value* v : k.reads) {
    readers_[v].push_back(&k);
  }
  if (k.kind == KernelClass::kLoop) {
    changed_.insert(&k);
  }
}

void KernelIndex::erase(Kernels& kernels, const Value* v, const Kernel* k) {
  std::vector<Kernel*>& all = kernels.at(v);
  all.erase(std::find(all.begin(), all.end(), k));
}

void KernelIndex::unlink(Kernel& k) {
  for (const Value* v : made_by(k)) {
    erase(makers_, v, &k);
  }
  for (const Value* v : k.reads) {
    erase(readers_, v, &k);
  }
}

// What crosses kernels needs a buffer.
void KernelIndex::find_writes(Kernel& k) {
  std::vector<const Value*> writes;
  for (const Op* op : k.ops) {
    if (!reads(op->result()).empty() && !k.loop().recomputed.contains(op)) {
      writes.push_back(op->result());
    }
  }
  if (writes != k.writes) {
    k.writes = std::move(writes);
    changed_.insert(&k);
  }
}

void KernelIndex::find_writers(const std::vector<const Value*>& values) {
  for (const Value* v : values) {
    for (Kernel* k : makers(v)) {
      if (k->kind == KernelClass::kLoop) {
        find_writes(*k);
      }
    }
  }
}

}  // namespace tpu::compiler
