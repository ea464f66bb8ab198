// Links of one program to the workers of a pod, which end together.
#pragma once

#include <vector>

#include "sync/mutex.hpp"

namespace tpu::driver::worker {

class WorkerLink;

class LinkGroup {
 public:
  /// A link is in the group as long as this lives; null: in none.
  class Member {
   public:
    Member(LinkGroup* group, WorkerLink& link);
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;
    ~Member();

   private:
    LinkGroup* const group_;
    WorkerLink& link_;
  };

  /// Any thread: WorkerLink::give_up() of all.
  void give_up();

 private:
  base::Mutex mutex_;
  std::vector<WorkerLink*> links_ TPU_GUARDED_BY(mutex_);
};

}  // namespace tpu::driver::worker
