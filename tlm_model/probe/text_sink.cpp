// Text form of the trace.
#include "probe/text_sink.hpp"

#include <fmt/format.h>

#include "tpu/spec/console_regs.hpp"
#include "tpu/spec/hart_map.h"
#include "tpu/spec/isa.hpp"

namespace tpu::model {
namespace {

const char* opcode_name(uint8_t opcode) {
  for (const spec::CommandInfo& info : spec::kCommands) {
    if (static_cast<uint8_t>(info.opcode) == opcode) {
      return info.name.data();
    }
  }
  return "?";
}

}  // namespace

void TextSink::done(const DoneEvent& event) {
  const ProbeSource& s = event.source;
  file_.write(fmt::format("{} {} {} {} {} op={} pc={} step={} free={}\n", event.start, event.cycle,
                          s.core, spec::kQueueNames[s.unit], opcode_name(s.opcode), s.op_id, s.pc,
                          s.step, event.free_at));
}

void TextSink::mark(const MarkEvent& event) {
  file_.write(fmt::format("{} {} mark {} op={}\n", event.cycle, event.source.core,
                          event.begin ? "begin" : "end", event.source.op_id));
}

void TextSink::hart(const HartEvent& event) {
  constexpr uint32_t kTraceRegister = TPU_HART_CONSOLE_BASE + spec::console::kTrace;
  if (event.kind == HartEvent::Kind::kMmio && event.write && event.address == kTraceRegister) {
    file_.write(fmt::format("{} {} hart word=0x{:08x}\n", event.cycle, event.core, event.data));
  }
}

void TextSink::upset(const UpsetEvent& event) {
  file_.write(fmt::format("{} {} {} {} {}: {}\n", event.cycle, event.core,
                          event.fires ? "fault" : "damage", event.kind, event.place, event.text));
}

}  // namespace tpu::model
