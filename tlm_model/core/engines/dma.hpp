// One DMA queue of a core (in, out or remote): strided copies and fills between HBM, VMEM, SMEM and
// the memories of other cores. A transfer = its bytes, rounded up to granules, at the fluid share
// of what it passes, then a fixed time. dma.in_flight transfers overlap. Specification:
// docs/timing_model.md. The granules may be those of rtl/dma/dma_queue.sv, or be compared with
// them; indexed transfers, whose addresses come from a list, stay with the model.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/engine.hpp"
#include "core/indexed_box.hpp"
#include "core/slots.hpp"
#include "core/strided_box.hpp"
#include "core/unknown_words.hpp"
#include "core/verilog/dma_verilog.hpp"
#include "core/verilog/verilog_use.hpp"
#include "kernel/fluid_share.hpp"
#include "kernel/hbm_if.hpp"
#include "kernel/host_profile.hpp"

namespace tpu::model {

// Memories and bandwidths that the DMA queues of a core share.
struct DmaResources {
  uint8_t* vmem;
  uint64_t vmem_bytes;
  uint8_t* smem;
  uint64_t smem_bytes;
  DataOrder* smem_order;
  UnknownWords* smem_unknown;  // runs without data, else null
  const Slots* slots;
  FluidShare* fluid;
  ResourceId local;  // on-chip copies of this core
};

class Dma : public Engine, private FlowListener {
 public:
  sc_core::sc_port<HbmIf> hbm_port{"hbm_port"};

  // Throws std::runtime_error when Verilog is wanted that does not exist for this board or host.
  Dma(sc_core::sc_module_name name, spec::Queue queue, const EngineContext& context,
      const DmaResources& resources, const VerilogUse& verilog = {});

 protected:
  bool start_command(Flight& flight) override;
  void settle(Flight& flight) override;
  void finish_command(Flight& flight) override;
  void settle_data() override;
  void leave(const Flight& flight, CutDelivery& delivery) override;

 private:
  void flow_changed(const Flow& flow, bool ended) override;
  class Work : public LateWork {
   public:
    static constexpr uint64_t kQuickBytes = 16 << 10;

    // For the host's profile. Of a job that is prepared.
    void count_as(HostWork kind, uint64_t bytes) {
      kind_ = kind;
      bytes_ = bytes;
      set_quick(bytes <= kQuickBytes);
    }
    void prepare(const DmaPlan& plan, const MemoryView& src, const MemoryView& dst) {
      plan_ = &plan;
      is_indexed_ = false;
      granules_ = nullptr;
      src_ = src;
      dst_ = dst;
      set_parts(split(1));
    }
    // Of `indexed`.
    void prepare(const MemoryView& src, const MemoryView& dst) {
      is_indexed_ = true;
      granules_ = nullptr;
      src_ = src;
      dst_ = dst;
      set_parts(split(1));
    }
    // By granules of the Verilog, in one part. `from`, `to`: what their addresses count from.
    void prepare(const DmaPlan& plan, const DmaGranules& granules, const MemoryView& src,
                 uint64_t from, const MemoryView& dst, uint64_t to) {
      prepare(plan, src, dst);
      granules_ = &granules;
      from_ = from;
      to_ = to;
    }
    void run_part(int part) override {
      const HostTimer timer(kind_, bytes_ / static_cast<uint64_t>(parts_count_));
      if (granules_ != nullptr) {
        move_granules();
      } else if (is_indexed_) {
        copy_records(indexed, src_, dst_, part, parts_count_);
      } else if (plan_->is_fill) {
        fill_box(plan_->box, plan_->pattern, dst_, part, parts_count_);
      } else if (equal.follows()) {
        move_pages(part);
      } else {
        copy_box(plan_->box, src_, dst_, part, parts_count_);
      }
      if (dst_hbm != nullptr && parts_left_.fetch_sub(1) == 1) {
        dst_pages.look_for_zeros();
      }
    }
    void give_back() {
      equal.settle();
      for (const auto& [hbm, pages] : {std::pair(&src_hbm, &src_pages), {&dst_hbm, &dst_pages}}) {
        if (*hbm != nullptr) {
          (*hbm)->unpin(*pages);
          *hbm = nullptr;
        }
      }
    }

    IndexedBox indexed;  // dma_indexed
    PageSet src_pages, dst_pages;
    HbmIf* src_hbm = nullptr;  // of these pages
    HbmIf* dst_hbm = nullptr;
    EqualWrites::Write equal;  // of one run from VMEM to HBM that follows another core's

   protected:
    int split(int parts) override {
      parts_left_ = parts;
      return parts_count_ = parts;
    }

   private:
    void move_granules();
    void move_pages(int part);

    const DmaPlan* plan_ = nullptr;
    HostWork kind_ = HostWork::kDmaIn;
    uint64_t bytes_ = 0;
    bool is_indexed_ = false;                // in place of plan_
    const DmaGranules* granules_ = nullptr;  // in place of plan_'s box
    uint64_t from_ = 0, to_ = 0;
    MemoryView src_, dst_;
    int parts_count_ = 1;
    std::atomic<int> parts_left_ = 1;
  };

  // Where an operand lies on this board.
  struct Place {
    uint8_t* flat = nullptr;
    HbmIf* hbm = nullptr;
    DataOrder* order = nullptr;  // of jobs there, by addresses such as `base`; null: no other job's
    uint64_t base = 0;           // address of offset 0 of the box
    ResourceId bandwidth = -1;   // of HBM
    bool vmem = false;           // this core's
    bool message = false;        // of a receiver in another process: its bytes are packed
  };
  // What a flight holds beside its work.
  struct Transfer {
    Flow flow;
    RemoteWrite write;            // what the receiver was told
    DmaPlan packing;              // to its bytes, if the receiver is in another process
    std::vector<uint8_t> packed;  // these bytes
    ProbeSource source;           // while somebody watches flows
    uint32_t to_core = 0;         // where it goes
    uint64_t fixed_cycles = 0;
    bool dropped = false;   // the receiver's gang is over: time passes, nothing is written
    bool inbound = false;   // the receiver counts on being told when it has landed
    bool same = false;      // source and destination are one: nothing changes
    bool deferred = false;  // nobody moves the bytes yet
    bool cut = false;       // to another board, as flow `cut_flow`
    uint64_t cut_flow = 0;
    std::array<spec::ByteExtent, 2> vmem{};  // that its work reads and writes
    DmaGranules granules;                    // of the Verilog, where it decides
  };

  // dma_indexed.cpp
  bool start_indexed(Flight& flight, const IndexedPlan& plan);
  bool read_list(const Flight& flight, const IndexedPlan& plan, uint64_t at, uint64_t indexed_base,
                 IndexedBox& box);
  bool tell_indexed(const Flight& flight, const IndexedPlan& plan, const IndexedBox& box,
                    uint64_t list, const Place& src, const Place& dst);
  MemoryView indexed_view(const Place& place, const IndexedBox& box, BoxSide side, PageSet& pages);
  void start_indexed_work(const IndexedPlan& plan, const Place& src, const Place& dst, Work& work);

  // `index`: of the operand in the command.
  bool place_local(const Flight& flight, size_t index, const Operand& operand, Place* place);
  bool place_remote(const Flight& flight, size_t index, const DmaPlan& plan, Transfer& transfer,
                    Place* place);
  bool overlap_fault(const Flight& flight, const Operand& dst, uint64_t base);
  // The slot that the operand's register leads to is not in the launch's table.
  bool unbound_slot_fault(const Flight& flight, size_t index, const Operand& operand);
  bool apart(const Flight& flight, const DmaPlan& plan, const Place& src, const Place& dst,
             Transfer& transfer);
  bool indexed_apart(const Flight& flight, const DmaPlan& plan, const Place& src, const Place& dst);
  // A fault file has damaged bits of HBM there.
  static bool damaged(const Place& src, const Place& dst);
  bool pass_ecc(const Flight& flight, const DmaPlan& plan, const Place& src, const Place& dst);
  bool pass_ecc(const Flight& flight, const IndexedPlan& plan, const IndexedBox& box,
                const Place& src, const Place& dst);
  static void visit_box(const StridedBox& box, BoxSide side, uint64_t base,
                        const RangeVisitor& visit);
  static void read_hbm(const Place& place, const AccessRange& run, std::optional<uint64_t>& bad);
  bool ecc_fault(const Flight& flight, const Operand& operand, uint64_t address);
  bool range_fault(const Flight& flight, uint16_t code, size_t index, const Operand& operand,
                   uint64_t size);
  void start_flow(const Flight& flight, const DmaPlan& plan, uint64_t bytes, const Place& src,
                  const Place& dst, Transfer& transfer);
  void start_work(Flight& flight, const DmaPlan& plan, Place src, const Place& dst,
                  Transfer& transfer);
  bool moves_one_run(const DmaPlan& plan) const;
  bool defer(const DmaPlan& plan, const Place& src, const Place& dst);
  bool may_share(const DmaPlan& plan, const Place& src, const Place& dst) const;
  MemoryView open_shared(const DmaPlan& plan, const Place& dst, Work& work);
  static void touch(const DmaPlan& plan, const Place& src, const Place& dst, DataUses& touches);
  static spec::ByteExtent vmem_extent(const Operand& operand, const Place& place);
  bool works_on_vmem(uint64_t low, uint64_t high) const;
  uint64_t carried(const Flight& flight, const DmaPlan& plan, const Place& src, const Place& dst,
                   Transfer& transfer);
  bool tell_accesses(const Flight& flight, const DmaPlan& plan, const Place& src, const Place& dst,
                     bool dropped);
  void tell_flow(const Flight& flight, const DmaPlan& plan, const Place& src, const Place& dst,
                 Transfer& transfer);
  MemoryView packed_view(const DmaPlan& plan, Transfer& transfer);
  MemoryView view(const Place& place, const DmaPlan& plan, BoxSide side, PageSet& pages);

  const DmaResources resources_;
  const HostWork kind_;
  std::vector<Transfer> transfers_;  // by flight
  LateWorks<Work> works_;
  const VerilogUse use_;
  std::unique_ptr<DmaVerilog> verilog_;
  uint64_t vmem_end_ = 0;  // of all that this queue has brought to VMEM
};

}  // namespace tpu::model
