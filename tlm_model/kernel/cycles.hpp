// Simulated time: one unit of sc_time (its raw value) is one core cycle, so every time is an exact
// integer and no clock period in picoseconds exists. Seconds = cycles / core.clock_mhz. Never
// convert sc_time by a unit such as SC_NS.
#pragma once

#include <cstdint>
#include <systemc>

namespace tpu::model {

inline constexpr uint64_t kNever = UINT64_MAX;

inline sc_core::sc_time from_cycles(uint64_t cycles) {
  return sc_core::sc_time::from_value(cycles);
}
inline uint64_t to_cycles(const sc_core::sc_time& time) { return time.value(); }
inline uint64_t now_cycles() {
  // The variable of the kernel, of which a process has one.
  static const sc_core::sc_time& now = sc_core::sc_time_stamp();
  return now.value();
}

// Times of a snapshot: what was saved happens within some minutes of simulated time, and the time
// itself leaves room for those that are added to it.
inline constexpr uint64_t kLatestSaved = uint64_t{1} << 62;
inline bool is_near(uint64_t cycle) {
  constexpr uint64_t kAhead = uint64_t{1} << 40;
  return cycle <= now_cycles() || cycle - now_cycles() <= kAhead;
}
inline bool is_ahead(uint64_t cycle) { return cycle >= now_cycles() && is_near(cycle); }

}  // namespace tpu::model
