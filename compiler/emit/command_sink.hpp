// What emission appends to: the listing, with the commands that all kernels share (copies and fills
// by DMA) and the instructions of the sequencer.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/copy_dim.hpp"
#include "plan/moving_address.hpp"
#include "plan/residency.hpp"
#include "program/listing.hpp"

namespace tpu::compiler {

class CommandSink {
 public:
  explicit CommandSink(const MovingAddresses& moving) : moving_(moving) {}

  Listing listing;

  // With registers of the sequencer in place of moving addresses.
  int append(Command command);

  // Copies: strides are merged, pieces cut so that they overlap with their consumers.
  void copy(const spec::Addr& src, const spec::Addr& dst, int64_t elem_bytes,
            std::vector<CopyDim> dims, uint32_t op_id);
  void copy_bytes(const spec::Addr& src, const spec::Addr& dst, int64_t bytes, int64_t elem_bytes,
                  uint32_t op_id);
  void run(const std::vector<Move>& moves);
  // A copy one of whose sides has its address in a register; `window`: what it may touch there.
  void copy_window(const spec::Addr& src, const spec::Addr& dst, int64_t elem_bytes,
                   std::vector<CopyDim> dims, const MemRange& window, uint32_t op_id);
  void fill(const spec::Addr& dst, int64_t elem_bytes, int64_t count, uint64_t pattern,
            uint32_t op_id);
  // `dims`: n and dst.
  void fill_box(const spec::Addr& dst, int64_t elem_bytes, std::vector<CopyDim> dims,
                uint64_t pattern, uint32_t op_id);

  // The sequencer.
  void insn(spec::ScalarOp op, int rd, int rs1, int rs2, int32_t imm);
  void write_tables();  // of slots, those that SMEM has not yet
  void load_immediate(int reg, int64_t value);
  void wrap(int reg, Elem elem);  // cuts a result to its element type
  void control(Control::Kind kind, int label = -1, int64_t trips = -1);
  void tight(Control::Kind kind, int label, spec::ScalarInsn insn = {});
  void branch(spec::ScalarOp op, int rs1, int rs2, int label);
  int new_label() { return listing.labels++; }

 private:
  // A moving address or, for `slot`, an entry of a table.
  struct Held {
    uint8_t number = 0;  // 0: none
    bool slot = false;
    bool operator==(const Held&) const = default;
  };

  void set_moving(Command& command);
  void add_windows(MemRange range, const Held& held, std::vector<MemRange>& out) const;
  int moving_register(const Held& held, int taken);

  const MovingAddresses& moving_;
  std::vector<Held> held_;  // in each of kMovingRegisters
  size_t next_held_ = 0;    // register that was set last
  size_t tables_written_ = 0;
};

}  // namespace tpu::compiler
