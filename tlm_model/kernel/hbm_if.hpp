// What the engines and the host DMA of a core see of its HBM: contents without time, and the id of
// the shared bandwidth that their flows pass.
#pragma once

#include <cstdint>
#include <span>
#include <systemc>

#include "kernel/bit_damage.hpp"
#include "kernel/data_order.hpp"
#include "kernel/fluid_share.hpp"
#include "kernel/page_set.hpp"

namespace tpu::model {

class HbmIf : public virtual sc_core::sc_interface {
 public:
  virtual uint64_t bytes() const = 0;
  virtual ResourceId bandwidth() const = 0;

  // See HbmStore. Ranges must lie inside bytes().
  virtual void read(uint64_t address, std::span<uint8_t> data) const = 0;
  virtual void write(uint64_t address, std::span<const uint8_t> data) = 0;
  virtual void fill(uint64_t address, uint64_t bytes, uint32_t pattern) = 0;
  // `source` may be another core's HBM of the same board.
  virtual void copy_from(const HbmIf& source, uint64_t source_address, uint64_t address,
                         uint64_t bytes) = 0;
  virtual void share(const PageSet& held, uint64_t address, bool zero) = 0;
  virtual void pin(PageSet& set, uint64_t address, uint64_t bytes, bool write, bool overwrite) = 0;
  virtual void unpin(PageSet& set) = 0;
  virtual const uint8_t* hold(PageSet& set, uint64_t address, uint64_t bytes, bool done) = 0;
  virtual void release(PageSet& set) = 0;
  virtual uint64_t version(uint64_t address) const = 0;
  virtual void expect(uint64_t address, PagesToCome& bytes) = 0;
  virtual void settled(uint64_t address, PagesToCome& bytes) = 0;
  // Of jobs that reach it through pinned or held pages.
  virtual DataOrder& order() = 0;
  // Null without a fault file. Reads and writes through pinned pages are told by who pins them, all
  // other writes tell themselves.
  virtual BitDamage* damage() { return nullptr; }
};

}  // namespace tpu::model
