// Who makes and who reads a value, of the kernels of one program (not of its regions). A pass that
// changes loop kernels one by one does so through the index, which keeps `reads` and `writes` of
// all of them as find_buffers would fill them, in the time of what has changed.
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "kernel/kernels.hpp"

namespace tpu::compiler {

class KernelIndex {
 public:
  using Place = std::list<Kernel>::iterator;

  // `reads` and `writes` are right, and orders count up; the index lives shorter than the program.
  explicit KernelIndex(KernelProgram& program);

  const KernelProgram& program() const { return program_; }
  // Kernels that compute the value and do not recompute it.
  const std::vector<Kernel*>& makers(const Value* v) const { return at(makers_, v); }
  // Kernels that read the value, one entry a read.
  const std::vector<Kernel*>& reads(const Value* v) const { return at(readers_, v); }
  // As made_before of the program.
  bool made_before(int order, const Value* v) const;

  // Puts `with` in the place of a loop kernel.
  void replace(Kernel& k, Kernel with);
  // Puts a loop kernel in front of `at`; the caller renumbers.
  void insert(Place at, Kernel kernel);
  Place erase(Place at);

  // Loop kernels whose ops or writes have changed since they were settled; at first all of them.
  bool is_changed(const Kernel& k) const { return changed_.contains(&k); }
  void settle(const Kernel& k) { changed_.erase(&k); }

 private:
  using Kernels = std::unordered_map<const Value*, std::vector<Kernel*>>;  // looked up only

  static const std::vector<Kernel*>& at(const Kernels& kernels, const Value* v);
  static void erase(Kernels& kernels, const Value* v, const Kernel* k);
  void link(Kernel& k);
  void unlink(Kernel& k);
  void find_writes(Kernel& k);
  void find_writers(const std::vector<const Value*>& values);

  KernelProgram& program_;
  Kernels makers_, readers_;
  std::unordered_set<const Kernel*> changed_;
};

// Cuts a loop kernel into two halves, the second behind the first; the caller renumbers. False if
// it cannot be cut.
bool split_loop(KernelIndex& index, KernelIndex::Place it);

}  // namespace tpu::compiler
