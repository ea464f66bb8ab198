// Text form of register accesses and ring entries.
#include "probe/mmio_sink.hpp"

#include <fmt/format.h>

#include <cstring>

#include "registers/register_name.hpp"
#include "tpu/spec/hart_map.h"
#include "tpu/spec/ring_names.hpp"
#include "tpu/spec/rings.h"

namespace tpu::model {
namespace {

template <class Entry>
Entry entry_at(const std::byte* bytes) {
  Entry entry;
  std::memcpy(&entry, bytes, sizeof entry);
  return entry;
}

// What is in a command behind its head, where that is worth a look.
std::string payload_text(uint32_t opcode, const std::byte* bytes) {
  switch (opcode) {
    case TPU_OP_LOAD_PROGRAM: {
      const auto load = entry_at<tpu_command_load_t>(bytes);
      return fmt::format(" program={} image={:#x} hbm={:#x} bytes={}", load.program_id,
                         load.image_iova, load.hbm_dst, load.bytes);
    }
    case TPU_OP_LAUNCH: {
      const auto launch = entry_at<tpu_command_launch_t>(bytes);
      return fmt::format(" launch={} program={} steps={} slots={} cores={:#x}", launch.launch_id,
                         launch.program_id, launch.steps, launch.slots, launch.core_mask);
    }
    case TPU_OP_COPY: {
      const auto copy = entry_at<tpu_command_copy_t>(bytes);
      return fmt::format(" kind={} src={:#x} dst={:#x} bytes={}", copy.kind, copy.src, copy.dst,
                         copy.bytes);
    }
    case TPU_OP_FILL: {
      const auto fill = entry_at<tpu_command_fill_t>(bytes);
      return fmt::format(" dst={:#x} bytes={} pattern={:#x}", fill.dst, fill.bytes, fill.pattern);
    }
    default:
      return {};
  }
}

bool host_writes(uint32_t offset) {
  for (const spec::RegisterInfo& info : spec::kCorePageRegisters) {
    if (info.address == offset) {
      return info.writable;
    }
  }
  return false;
}

}  // namespace

void MmioSink::hart(const HartEvent& event) {
  if (event.kind != HartEvent::Kind::kMmio) {
    return;
  }
  const std::string place = place_(event.pc);
  file_.write(fmt::format("{} {} hart {} {} {:#010x} pc={:#010x}{}{}\n", event.cycle, event.core,
                          event.write ? "write" : "read",
                          spec::register_name(spec::kHartRegisters, event.address), event.data,
                          event.pc, place.empty() ? "" : " ", place));
}

void MmioSink::device_register(const RegisterEvent& event) {
  const auto line = [&](const char* who, const std::string& name) {
    file_.write(
        fmt::format("{} {} {} {} {:#010x}\n", event.cycle, event.index, who, name, event.value));
  };
  switch (event.block) {
    case RegisterEvent::Block::kCorePage:
      if (host_writes(event.offset)) {  // what the device writes is an access of the hart
        line("host write", spec::register_name(spec::kCorePageRegisters, event.offset));
      }
      break;
    case RegisterEvent::Block::kIrq:
      line("device", spec::register_name(spec::kHartRegisters, TPU_HART_IRQ_BASE + event.offset));
      break;
    case RegisterEvent::Block::kChipPage:
      line("chip", spec::register_name(spec::kChipPageRegisters, event.offset));
      break;
  }
}

void MmioSink::ring(const RingEvent& event) {
  if (event.completion) {
    completion(event);
    return;
  }
  for (size_t at = 0; at + TPU_CMD_ENTRY_BYTES <= event.entries.size(); at += TPU_CMD_ENTRY_BYTES) {
    command(event, event.entries.data() + at);
  }
}

void MmioSink::command(const RingEvent& event, const std::byte* entry) {
  const auto head = entry_at<tpu_command_head_t>(entry);
  file_.write(fmt::format("{} {} command {} {} flags={:#x} wait={}/{}/{} epoch={}{}\n", event.cycle,
                          event.core, head.seq, spec::ring_opcode_name(head.opcode), head.flags,
                          head.wait_launch, head.wait_up, head.wait_down, head.epoch,
                          payload_text(head.opcode, entry)));
}

void MmioSink::completion(const RingEvent& event) {
  if (event.entries.size() < sizeof(tpu_completion_t)) {
    return;
  }
  const auto entry = entry_at<tpu_completion_t>(event.entries.data());
  file_.write(fmt::format("{} {} completion {} {} flags={:#x} step={} epoch={}\n", event.cycle,
                          event.core, entry.seq, spec::ring_status_name(entry.status), entry.flags,
                          entry.step, entry.epoch));
}

}  // namespace tpu::model
