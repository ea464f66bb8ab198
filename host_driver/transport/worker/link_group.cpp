#include "transport/worker/link_group.hpp"

#include "transport/worker/worker_link.hpp"

namespace tpu::driver::worker {

LinkGroup::Member::Member(LinkGroup* group, WorkerLink& link) : group_(group), link_(link) {
  if (group_ != nullptr) {
    const base::MutexLock lock(group_->mutex_);
    group_->links_.push_back(&link_);
  }
}

LinkGroup::Member::~Member() {
  if (group_ != nullptr) {
    const base::MutexLock lock(group_->mutex_);
    std::erase(group_->links_, &link_);
  }
}

void LinkGroup::give_up() {
  const base::MutexLock lock(mutex_);
  for (WorkerLink* const link : links_) {
    link->give_up();
  }
}

}  // namespace tpu::driver::worker
