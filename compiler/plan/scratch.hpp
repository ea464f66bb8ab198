// Temporaries in HBM. While commands are emitted, each has a range of addresses that no other one
// ever gets; when all lifetimes are known, place() packs the temporaries into the scratch slot
// (largest first, each at the lowest address that is free all its life) and relocate() puts the
// final addresses into the listing.
#pragma once

#include <climits>
#include <string>
#include <vector>

#include "ir/graph.hpp"
#include "program/listing.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::compiler {

class Scratch {
 public:
  struct Temporary {
    int64_t address = 0, bytes = 0;  // address: before place()
    int from = 0, to = INT_MAX;      // lifetime, in calls of take() and give()
    int64_t offset = -1;             // in the slot
    const Value* value = nullptr;    // that it was taken for; null: values changing places
    uint32_t op_id = 0;              // of the kernel that ran then
  };

  int64_t take(int64_t bytes, const Value* value, uint32_t op_id);
  void give(int64_t address);

  // Undoes what has been taken and given since.
  struct Mark {
    size_t temporaries, given;
    int time;
    int64_t next;
  };
  Mark mark() const { return {all_.size(), given_.size(), time_, next_}; }
  void undo(const Mark& mark);

  void place();
  int64_t bytes() const { return bytes_; }                    // of the slot, after place()
  const std::vector<Temporary>& all() const { return all_; }  // in the order of take()
  void relocate(Listing& listing, int slot) const;

  // Those that are alive when most bytes are, largest first; and these bytes.
  std::vector<Temporary> peak() const;
  int64_t peak_bytes() const;

 private:
  const Temporary& at(int64_t address) const;
  int busiest() const;  // the time when most bytes are alive

  std::vector<Temporary> all_;  // by address
  std::vector<size_t> given_;   // of all_, in order
  int time_ = 0;
  int64_t next_ = 0, bytes_ = 0;
};

// Bytes of HBM of a core that a program may use: `asked`, 0 for all. Throws Error if a core has
// less.
int64_t usable_hbm(const spec::BoardParams& board, int64_t asked);

// What there is for a program that does not fit: "a core has 16 GiB".
std::string has_text(int64_t hbm_bytes);

// What HBM holds: bytes of the slots, and the temporaries of the peak by the op and source line
// that made them. `ops`: the op table of the listing.
std::string memory_report(const std::vector<SlotInfo>& slots, const Scratch& scratch,
                          const std::vector<exe::OpInfoT>& ops);
// The same of values that are alive together in kernel `op`.
std::string memory_report(const std::vector<SlotInfo>& slots,
                          const std::vector<const Value*>& alive, const exe::OpInfoT& op);

}  // namespace tpu::compiler
