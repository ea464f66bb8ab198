// The trace of registers and rings (--trace-mmio): what firmware and host say to the devices and to
// each other, a text line each. docs/firmware.md, "Registers and rings", has the lines.
#pragma once

#include <functional>
#include <string>

#include "probe/probe_set.hpp"
#include "probe/text_file.hpp"

namespace tpu::model {

class MmioSink final : public ProbeSink {
 public:
  // Function and source line of an address in the firmware, "ring_fetch (ring.c:40)"; may be empty.
  using Place = std::function<std::string(uint32_t address)>;

  // Throws std::runtime_error when the file cannot be created, or another run writes it.
  MmioSink(const std::string& path, Place place)
      : file_(path, "trace of registers"), place_(std::move(place)) {}

  void listen(ProbeSet& probes) {
    probes.add(*this, {ProbeEvent::kHart, ProbeEvent::kRegister, ProbeEvent::kRing});
  }
  void hart(const HartEvent& event) override;
  void device_register(const RegisterEvent& event) override;
  void ring(const RingEvent& event) override;

  // Closes the file. Empty, or what went wrong (also during the writes before).
  std::string finish() { return file_.finish(); }

 private:
  void command(const RingEvent& event, const std::byte* entry);
  void completion(const RingEvent& event);

  TextFile file_;
  const Place place_;
};

}  // namespace tpu::model
