// What the root of gangs does, and how a core answers an abort (spec/regs/gsync.toml). The root is
// the lowest core of a gang. It counts arrivals at barriers, releases those that are
// complete, spreads the first abort of a tag, and remembers it for cores that arrive later.
// Not here: how messages travel between cores, and what that costs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "file/archive.hpp"
#include "gang/core_set.hpp"

namespace tpu::spec {

/// A core reached a barrier of its gang.
struct GangArrival {
  uint32_t tag;
  uint8_t kind;  // gsync KIND_*
  uint32_t step;
  CoreSet gang;
};

/// A gang ends.
struct GangAbort {
  uint32_t tag;
  uint16_t origin;  // core that began it
  uint8_t code;     // gsync CODE_*
  CoreSet gang;     // empty: those of its barriers
};

/// What the root sends to a core: its barrier is complete, or its gang ends.
struct GangMessage {
  uint32_t core;
  std::variant<GangArrival, GangAbort> what;
};

/// Tags are counted and wrap: how much younger `tag` is than `other`; negative: older.
inline int32_t gang_tag_age(uint32_t tag, uint32_t other) {
  return static_cast<int32_t>(tag - other);
}

class GangRoot {
 public:
  /// Messages are in the order in which they are sent. The root has changed before the first one.
  std::vector<GangMessage> arrive(uint32_t core, const GangArrival& arrival);
  /// The first abort of a tag wins. A later one is answered with the first: to the whole gang if
  /// the root has not told it because it did not know it, else to the core that asks, which may
  /// have
  /// joined since.
  std::vector<GangMessage> abort(const GangAbort& abort);
  /// As after a reset of the root's core: it forgets barriers, but not aborts.
  void reset() { barriers_.clear(); }

  /// `cores`: of the board.
  void visit_state(Archive& archive, uint32_t cores);

 private:
  struct Barrier {  // while arrivals are missing
    uint32_t tag;
    uint8_t kind;
    uint32_t step;
    CoreSet gang;
    CoreSet arrived;
    uint32_t missing;
    void visit_state(Archive& archive) { archive(tag, kind, step, gang, arrived, missing); }
  };
  struct Aborted {
    bool valid;
    uint32_t tag;
    uint16_t origin;
    uint8_t code;
    bool told;  // to its gang
    void visit_state(Archive& archive) { archive(valid, tag, origin, code, told); }
  };

  const Barrier* mismatch(uint32_t core, const GangArrival& arrival) const;
  Aborted* find_aborted(uint32_t tag);
  void forget_old(uint32_t youngest);

  static constexpr size_t kAbortedKept = 64;

  std::vector<Barrier> barriers_;
  std::array<Aborted, kAbortedKept> aborted_{};
  size_t next_aborted_ = 0;
};

/// How a core answers an abort.
enum class AbortAnswer : uint8_t {
  kIgnore,  // it is not in the gang yet: the root answers its arrival
  kDrain,   // it is past the gang, and arrives at the DRAIN barrier so that no core waits for it
  kStop     // it ends its part
};
/// `tag` and `aborted`: of the gang that the core is in, if it is `in_gang`.
AbortAnswer answer_to_abort(uint32_t abort_tag, uint32_t tag, bool in_gang, bool aborted);

}  // namespace tpu::spec
