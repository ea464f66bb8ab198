// Links of one program to the workers of a pod, which end together.
#pragma once

#include <cstddef>
#include <map>

#include "sync/mutex.hpp"

namespace tpu::driver::worker {

class WorkerLink;

class LinkGroup {
 public:
  /// The link to the worker of a rank is in the group as long as this lives; null: in none.
  class Member {
   public:
    Member(LinkGroup* group, size_t rank, WorkerLink& link);
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;
    ~Member();

   private:
    LinkGroup* const group_;
    const size_t rank_;
  };

  /// Any thread: WorkerLink::give_up() of all.
  void give_up();
  /// The thread that calls with this rank: WorkerLink::find_end(), if it has a link.
  void find_end(size_t rank);

 private:
  base::Mutex mutex_;
  std::map<size_t, WorkerLink*> links_ TPU_GUARDED_BY(mutex_);  // by rank
};

}  // namespace tpu::driver::worker
