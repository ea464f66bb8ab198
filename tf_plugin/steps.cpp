#include "steps.hpp"

#include <algorithm>

namespace tpu::tensorflow {

Steps& Steps::get() {
  static Steps* const steps = new Steps;  // never destroyed: threads may outlive statics
  return *steps;
}

std::string Steps::share(const Key& key, int device, size_t devices) {
  const base::MutexLock lock(mutex_);
  Open& open = open_[key];
  if (open.number == 0 || open.came.contains(device)) {
    open = {.number = ++number_, .came = {}, .failed = false};
  }
  open.came.insert(device);
  std::string name = std::to_string(open.number);
  if (open.came.size() == devices) {
    open_.erase(key);
  }
  return name;
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
  if (operations_ == 0) {
    std::erase_if(open_, [](const auto& entry) { return entry.second.failed; });
  }
}

void Steps::fail_all() {
  const base::MutexLock lock(mutex_);
  for (auto& [key, open] : open_) {
    open.failed = true;
    keep_refused(std::to_string(open.number));
  }
}

void Steps::count(int change) {
  const base::MutexLock lock(mutex_);
  operations_ += change;
}

}  // namespace tpu::tensorflow
