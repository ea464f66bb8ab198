// What form.cpp knows of the values of a region while it places their ops: which kernel makes a
// value, and which ops wait for a consumer.
#pragma once

#include <map>
#include <unordered_map>
#include <unordered_set>

#include "kernel/kernels.hpp"

namespace tpu::compiler {

class Producers {
 public:
  // `made`: ops that the fusion adds to those of `region`. All three must outlive this.
  Producers(const Region& region, const Region& made, const NestContext& views);

  void note(const Value* v, const Kernel* k) { made_by_[v] = k; }
  // The value is there before any kernel of the region runs, as what comes from outside.
  void give(const Value* v) { given_.insert(v); }
  bool made(const Value* v) const { return made_by_.contains(v); }
  // Place of the kernel that makes the value; -1: it comes from outside.
  int position(const Value* v) const;

  // True if the value of the op is made in this region.
  bool is_local(const Op* op) const;
  // True if the value behind all views is of an op that waits for a consumer.
  bool waits(const Value* root) const;

  // Latest kernel that the value, seen through views and waiting ops, comes from; of an op: any of
  // its operands. Of what is behind a barrier: also of all operands of that.
  int latest(const Value* v) const;
  int latest_of(const Op& op) const;
  // Kernels have got other places, or a value a kernel.
  void forget_latest() {
    latest_.clear();
    awaited_.clear();
  }

 private:
  // Of a value: latest kernel that the barriers of the region wait for which it is seen through.
  int behind_barriers(const Value* v) const;

  const Region& made_ops_;
  const NestContext& views_;
  std::unordered_set<const Op*> local_;
  std::map<const Value*, const Kernel*> made_by_;
  std::unordered_set<const Value*> given_;
  bool has_barriers_ = false;
  mutable std::unordered_map<const Op*, int> latest_;   // of latest_of
  mutable std::unordered_map<const Op*, int> awaited_;  // by barriers
};

}  // namespace tpu::compiler
