#include "steps.hpp"

#include <algorithm>

namespace tpu::tensorflow {

Steps& Steps::get() {
  static Steps* const steps = new Steps;  // never destroyed: threads may outlive statics
  return *steps;
}

std::string Steps::share(const Key& key, int device, size_t devices, const Hold& hold) {
  Dropped dropped;
  const base::MutexLock lock(mutex_);
  Open& open = open_[key];
  if (open.number == 0 || open.came.contains(device)) {
    dropped.push_back(std::move(open.rendezvous));
    open = {.number = ++number_, .rendezvous = hold ? hold() : nullptr};
  }
  open.came.insert(device);
  std::string name = std::to_string(open.number);
  if (open.came.size() == devices) {
    dropped.push_back(std::move(open.rendezvous));
    open_.erase(key);
  }
  drop_failed(dropped);
  return name;
}

// Cores that have not come may never do so.
void Steps::drop_failed(Dropped& dropped) {
  constexpr size_t kKept = 64;
  std::vector<uint64_t> failed;
  for (const auto& [key, open] : open_) {
    if (open.failed) {
      failed.push_back(open.number);
    }
  }
  if (failed.size() <= kKept) {
    return;
  }
  std::ranges::sort(failed);
  const uint64_t first = failed[failed.size() - kKept];
  for (auto at = open_.begin(); at != open_.end();) {
    Open& open = at->second;
    if (open.failed && open.number < first) {
      dropped.push_back(std::move(open.rendezvous));
      at = open_.erase(at);
    } else {
      ++at;
    }
  }
}

void Steps::failed(const std::string& name) {
  const base::MutexLock lock(mutex_);
  for (auto& [key, open] : open_) {
    open.failed = open.failed || std::to_string(open.number) == name;
  }
}

void Steps::refused(const std::string& name) {
  failed(name);
  const base::MutexLock lock(mutex_);
  keep_refused(name);
}

void Steps::keep_refused(const std::string& name) {
  constexpr size_t kKept = 64;
  refused_.push_back(name);
  if (refused_.size() > kKept) {
    refused_.pop_front();
  }
}

bool Steps::was_refused(const std::string& name) {
  const base::MutexLock lock(mutex_);
  return std::ranges::find(refused_, name) != refused_.end();
}

void Steps::begin() {
  const base::MutexLock lock(mutex_);
  if (operations_ > 0) {
    return;
  }
  for (auto& [key, open] : open_) {
    open.over = open.failed;
  }
  // A core may be on its way all the same. What holds its rendezvous has no other step's address.
  std::erase_if(open_, [](const auto& entry) {
    return entry.second.over && entry.second.rendezvous == nullptr;
  });
}

void Steps::fail_all() {
  const base::MutexLock lock(mutex_);
  std::set<const void*> steps;
  for (const auto& [key, open] : open_) {
    if (!open.over) {
      steps.insert(key.rendezvous);
    }
  }
  for (auto& [key, open] : open_) {
    if (!open.failed && steps.size() == 1) {
      keep_refused(std::to_string(open.number));
    }
    open.failed = true;
  }
}

void Steps::count(int change) {
  const base::MutexLock lock(mutex_);
  operations_ += change;
}

}  // namespace tpu::tensorflow
