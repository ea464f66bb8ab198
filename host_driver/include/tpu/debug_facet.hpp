// Debug port of the control harts of a board.
#pragma once

#include <cstdint>
#include <string>

#include "tpu/board_facet.hpp"

namespace tpu::driver {

/// Registers and memory of control harts.
class DebugFacet : public virtual BoardFacet {
 public:
  /// Debug port of a control hart: a register by its name in docs/registers.md, "seq.STATE" or
  /// "hostdma.STATUS[2]", or a word of its memories by address, "0x20000000"; without the side
  /// effects of reading. No simulated time. Throws InvalidArgument for a device or place that is
  /// none or cannot be read, Unimplemented (the transport).
  uint32_t peek_word(int device, const std::string& place) const;
  /// The same, written as the hart writes it, with all effects: whoever does that should know what
  /// the firmware thinks of it.
  void poke_word(int device, const std::string& place, uint32_t value) const;
};

}  // namespace tpu::driver
