// Text form of the trace.
#include "kernel/trace.hpp"

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <stdexcept>

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

TextTraceSink::TextTraceSink(const std::string& path)
    : path_(path), lock_(path), file_(std::fopen(path.c_str(), "w")) {
  if (file_ == nullptr) {
    throw std::runtime_error("cannot write trace file " + path + ": " + std::strerror(errno));
  }
}

TextTraceSink::~TextTraceSink() { finish(); }

std::string TextTraceSink::finish() {
  if (file_ != nullptr) {
    const bool failed = std::ferror(file_) != 0;
    if (std::fclose(file_) != 0 || failed) {
      error_ = "trace: writing " + path_ + " failed (is the disk full?); the file is incomplete";
    }
    file_ = nullptr;
  }
  return error_;
}

void TextTraceSink::command(const CommandTrace& c) {
  std::fprintf(file_,
               "%" PRIu64 " %" PRIu64 " %u %s %s op=%u pc=%u step=%" PRIu64 " free=%" PRIu64 "\n",
               c.start, c.done, c.core, spec::kQueueNames[c.queue].data(), opcode_name(c.opcode),
               c.op_id, c.pc, c.step, c.free_at);
}

void TextTraceSink::mark(uint64_t cycle, uint32_t core, uint32_t op_id, bool begin) {
  std::fprintf(file_, "%" PRIu64 " %u mark %s op=%u\n", cycle, core, begin ? "begin" : "end",
               op_id);
}

}  // namespace tpu::model
