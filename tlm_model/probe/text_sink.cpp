// Text form of the trace.
#include "probe/text_sink.hpp"

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <stdexcept>

#include "kernel/write_failure.hpp"
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

TextSink::TextSink(const std::string& path)
    : path_(path), lock_(path), file_(std::fopen(path.c_str(), "w")) {
  if (file_ == nullptr) {
    throw std::runtime_error("cannot write trace file " + path + ": " + std::strerror(errno));
  }
}

TextSink::~TextSink() { finish(); }

std::string TextSink::finish() {
  if (file_ != nullptr) {
    const bool failed = std::ferror(file_) != 0;
    if (std::fclose(file_) != 0 || failed) {
      error_ = write_failure("trace", path_, failed ? write_error_ : errno);
    }
    file_ = nullptr;
  }
  return error_;
}

// Of what was printed: the reason of the first failure.
void TextSink::note(int printed) {
  if (printed < 0 && write_error_ == 0) {
    write_error_ = errno;
  }
}

void TextSink::done(const DoneEvent& event) {
  const ProbeSource& s = event.source;
  note(std::fprintf(
      file_, "%" PRIu64 " %" PRIu64 " %u %s %s op=%u pc=%u step=%" PRIu64 " free=%" PRIu64 "\n",
      event.start, event.cycle, s.core, spec::kQueueNames[s.unit].data(), opcode_name(s.opcode),
      s.op_id, s.pc, s.step, event.free_at));
}

void TextSink::mark(const MarkEvent& event) {
  note(std::fprintf(file_, "%" PRIu64 " %u mark %s op=%u\n", event.cycle, event.source.core,
                    event.begin ? "begin" : "end", event.source.op_id));
}

void TextSink::hart(const HartEvent& event) {
  constexpr uint32_t kTraceRegister = TPU_HART_CONSOLE_BASE + spec::console::kTrace;
  if (event.kind == HartEvent::Kind::kMmio && event.write && event.address == kTraceRegister) {
    note(std::fprintf(file_, "%" PRIu64 " %u hart word=0x%08x\n", event.cycle, event.core,
                      event.data));
  }
}

}  // namespace tpu::model
