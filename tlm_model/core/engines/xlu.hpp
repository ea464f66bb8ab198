// Cross-lane unit of a core: transposes in VMEM. One block of rows x columns takes max(rows,
// columns) cycles.
#pragma once

#include <vector>

#include "core/engine.hpp"
#include "kernel/host_profile.hpp"

namespace tpu::model {

class Xlu : public Engine {
 public:
  Xlu(sc_core::sc_module_name name, const EngineContext& context, uint8_t* vmem,
      uint64_t vmem_bytes);

 protected:
  bool start_command(Flight& flight) override;
  void finish_command(Flight& flight) override;
  void settle_data() override;

 private:
  class Work : public LateWork {
   public:
    void prepare(const TransposeShape& shape, const uint8_t* src, uint8_t* dst) {
      shape_ = shape;
      src_ = src;
      dst_ = dst;
      set_parts(split(1));
      set_quick(shape.batch * shape.rows * shape.cols * shape.elem_bytes <= kQuickBytes);
    }
    void run_part(int part) override {
      const HostTimer timer(HostWork::kTranspose, shape_.batch * shape_.rows * shape_.cols *
                                                      shape_.elem_bytes /
                                                      static_cast<uint64_t>(parts_count_));
      transpose_box(shape_, src_, dst_, part, parts_count_);
    }
    void give_back() {}

   protected:
    int split(int parts) override { return parts_count_ = parts; }

   private:
    static constexpr uint64_t kQuickBytes = 8 << 10;

    TransposeShape shape_;
    const uint8_t* src_ = nullptr;
    uint8_t* dst_ = nullptr;
    int parts_count_ = 1;
  };

  bool tell_accesses(const Flight& flight, const TransposePlan& plan, uint64_t src, uint64_t dst);

  uint8_t* const vmem_;
  const uint64_t vmem_bytes_;
  LateWorks<Work> works_;
};

}  // namespace tpu::model
