// Copies between memories of the host, cut over the threads of the pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernel/data_order.hpp"
#include "kernel/host_profile.hpp"
#include "kernel/job_pool.hpp"

namespace tpu::model {

class CopyWork : public Job {
 public:
  // `kind`: that the host's profile counts it as.
  explicit CopyWork(HostWork kind) : kind_(kind) {}

  void clear() { pieces_.clear(); }
  void add(uint8_t* to, const uint8_t* from, uint64_t bytes);
  // Does what was added, and returns when it is done.
  void run_with(JobPool& pool);
  // Begins with what was added, behind others.
  void launch(JobPool& pool, DataUses& uses);

  void run_part(int part) override;

 protected:
  int split(int parts) override;

 private:
  static constexpr uint64_t kPieceBytes = 256 << 10;
  struct Piece {
    uint8_t* to;
    const uint8_t* from;
    uint64_t bytes;
  };
  const HostWork kind_;
  std::vector<Piece> pieces_;
  size_t parts_count_ = 1;
};

}  // namespace tpu::model
