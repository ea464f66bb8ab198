#include "transport/worker/link_group.hpp"

#include "transport/worker/worker_link.hpp"

namespace tpu::driver::worker {

LinkGroup::Member::Member(LinkGroup* group, size_t rank, WorkerLink& link)
    : group_(group), rank_(rank) {
  if (group_ != nullptr) {
    const base::MutexLock lock(group_->mutex_);
    group_->links_[rank_] = &link;
  }
}

LinkGroup::Member::~Member() {
  if (group_ != nullptr) {
    const base::MutexLock lock(group_->mutex_);
    group_->links_.erase(rank_);
  }
}

void LinkGroup::give_up() {
  const base::MutexLock lock(mutex_);
  for (const auto& [rank, link] : links_) {
    link->give_up();
  }
}

void LinkGroup::find_end(size_t rank) {
  WorkerLink* link = nullptr;
  {
    const base::MutexLock lock(mutex_);
    const auto found = links_.find(rank);
    link = found == links_.end() ? nullptr : found->second;
  }
  if (link != nullptr) {
    link->find_end();
  }
}

}  // namespace tpu::driver::worker
