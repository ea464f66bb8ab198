// LaunchJudge: what becomes of a launch of which all cores have reported, and not all that it went
// well: it is sent again, given back as it never ran, or has failed with the words of its core.
// Guarded by the board lock.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/events/outbox.hpp"
#include "src/harts/harts.hpp"
#include "src/launches/launch_records.hpp"
#include "src/lock/board_lock.hpp"
#include "src/operations/operations.hpp"

namespace tpu::driver {

/// What units wait for, in words; `launch`: null when it is not known. Also writes the report that
/// OpenOptions::hang_report asks for.
using TellHang =
    std::function<std::string(const char* kind, const Operation* launch,
                              const std::vector<UnitWait>& waits, const TransportStats& stats)>;

class LaunchJudge {
 public:
  /// `transport`: null when the board is closed.
  LaunchJudge(const std::unique_ptr<Transport>& transport, Devices& devices, Operations& operations,
              Harts& harts, LaunchRecords& records, const Health& health, Outbox& outbox,
              TellHang tell_hang)
      : transport_(transport),
        devices_(devices),
        operations_(operations),
        harts_(harts),
        records_(records),
        health_(health),
        outbox_(outbox),
        tell_hang_(std::move(tell_hang)) {}

  /// True: it is to be sent again. False: it is over. Its cores are HELD, or were started again.
  bool judge(const std::shared_ptr<Operation>& launch) TPU_REQUIRES(board_lock);

 private:
  /// Why a core of a launch did not end it: no reason of its own, one of hardware, or another.
  enum class Cause { kNone, kHardware, kOther };

  bool judge_refused(Operation& launch, size_t part) TPU_REQUIRES(board_lock);
  bool judge_flushed(Operation& launch, Command& command) TPU_REQUIRES(board_lock);
  bool repeats(Operation& launch, size_t part) TPU_REQUIRES(board_lock);
  Cause cause_of(const Operation& launch, size_t part) TPU_REQUIRES(board_lock);
  ErrorPtr fault_of(Operation& launch, size_t part) TPU_REQUIRES(board_lock);
  ErrorPtr engine_fault(const Operation& launch, const Device& device,
                        const tpu_fault_record_t& record) TPU_REQUIRES(board_lock);
  bool never_started(const Operation& launch) TPU_REQUIRES(board_lock);
  const tpu_fault_record_t& record_of(const Operation& launch, size_t part)
      TPU_REQUIRES(board_lock);

  const std::unique_ptr<Transport>& transport_;
  Devices& devices_;
  Operations& operations_;
  Harts& harts_;
  LaunchRecords& records_;
  const Health& health_;
  Outbox& outbox_;
  const TellHang tell_hang_;
  std::map<size_t, tpu_fault_record_t> fault_records_;  // by part, of the launch that is judged
};

}  // namespace tpu::driver
