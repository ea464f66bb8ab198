// Copies in pieces of about equal length.
#include "core/copy_work.hpp"

#include <algorithm>
#include <cstring>

namespace tpu::model {

void CopyWork::add(uint8_t* to, const uint8_t* from, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes; at += kPieceBytes) {
    pieces_.push_back({to + at, from + at, std::min(kPieceBytes, bytes - at)});
  }
}

void CopyWork::run_with(JobPool& pool) {
  DataUses uses;  // the caller has waited for others
  launch(pool, uses);
  pool.join(*this);
}

void CopyWork::launch(JobPool& pool, DataUses& uses) {
  pool.cut(*this, pieces_.size());
  split(1);
  set_parts(1);
  uses.launch(pool, *this);
}

int CopyWork::split(int parts) {
  parts_count_ = static_cast<size_t>(parts);
  return parts;
}

void CopyWork::run_part(int part) {
  for (auto i = static_cast<size_t>(part); i < pieces_.size(); i += parts_count_) {
    const HostTimer timer(kind_, pieces_[i].bytes);
    std::memcpy(pieces_[i].to, pieces_[i].from, pieces_[i].bytes);
  }
}

}  // namespace tpu::model
