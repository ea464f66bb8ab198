// Fault record of a core: keeps the first fault of a launch with everything the driver needs to
// name the op, and tells the sequencer to stop. Record layout: fault_record in
// spec/formats/rings.toml.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <systemc>

#include "core/ports.hpp"
#include "kernel/register_socket.hpp"
#include "probe/core_probe.hpp"
#include "tpu/spec/rings.h"

namespace tpu::model {

class FaultUnit : public sc_core::sc_module, public RegisterBlock, public FaultIf {
 public:
  RegisterSocket csr_tsock{"csr_tsock", *this};

  // Queues in order of spec::Queue, null where the core lacks the engine; for the record's heads.
  using Heads = std::array<CommandQueueIf*, spec::kQueueCount>;

  // `on_fault` is called for every fault, after the record is filled.
  FaultUnit(sc_core::sc_module_name name, uint32_t core_id, const LaunchState& launch, Heads heads,
            CoreProbe& probe, std::function<void()> on_fault);

  void raise(const FaultInfo& info, std::string text) override;
  void clear() override;

  bool valid() const { return valid_; }
  const tpu_fault_record_t& record() const { return record_; }
  // Of the fault that was kept last, for people; stays when the record is cleared.
  const std::string& text() const { return text_; }
  uint64_t text_cycle() const { return text_cycle_; }  // as in its record
  void visit_state(spec::Archive& archive) {
    archive.bytes(std::as_writable_bytes(std::span(&record_, 1)));
    archive(valid_, text_, text_cycle_);
    visit_registers(archive);
  }

 private:
  static RegisterMap registers();
  uint32_t record_word(uint32_t index) const;
  uint32_t valid_register() const { return valid_ ? 1 : 0; }
  void valid_written(uint32_t value);
  void raise_written(uint32_t value);
  void fill(const FaultInfo& info);

  const uint32_t core_id_;
  const LaunchState& launch_;
  const Heads heads_;
  CoreProbe& probe_;
  const std::function<void()> on_fault_;
  tpu_fault_record_t record_{};
  bool valid_ = false;
  std::string text_;
  uint64_t text_cycle_ = 0;
};

}  // namespace tpu::model
