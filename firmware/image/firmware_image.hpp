// The firmware as data, built into the program: what the driver uploads and the model's mask ROM
// holds. The arrays come from the firmware's own build; a build without the RISC-V cross compiler
// has empty ones.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tpu::firmware {

// Code from `address` on, up to the next entry. Names are indices into Image::names.
struct CodeLine {
  uint32_t address;
  uint16_t function;
  uint16_t file;
  uint32_t line;  // 0: none known
};

// How the frame of a function is undone between `address` and the next entry.
struct UnwindRow {
  static constexpr int16_t kNoFrame = -1;    // of `frame_bytes`: not known here
  static constexpr int16_t kInRegister = 0;  // of `return_at`: the register ra holds it

  uint32_t address;
  int16_t frame_bytes;  // from the stack pointer to that of the caller
  int16_t return_at;    // where the return address lies, from the caller's stack pointer
};

struct Image {
  std::span<const uint8_t>
      bytes;  // for ITCM from its first byte on; entry: first byte; empty: not built
  std::span<const uint8_t> rom;     // mask ROM of every hart
  std::span<const uint8_t> sha256;  // of `bytes`, 32 bytes
  uint32_t crc32c;                  // of `bytes`, for BOOT_CRC
  uint32_t build;                   // what the running firmware writes to FW_BUILD; 0: not known
  std::span<const CodeLine> lines;  // of image and mask ROM, by address
  std::span<const std::string_view> names;
  std::span<const UnwindRow> unwind;  // of image and mask ROM, by address
};

const Image& image();
// The same firmware with its log lines (dev/log.h) in it, and so with other addresses and cycles.
const Image& log_image();

// "fault_record_hart (abort.c:187)"; empty when there is no such code in image and mask ROM.
std::string code_place(const Image& image, uint32_t address);

// Addresses of a hart's calls: `pc`, then where each function goes on in its caller, from the
// innermost out. `stack`: words from the stack pointer up. Ends where the table or the words end.
std::vector<uint32_t> back_trace(const Image& image, uint32_t pc, uint32_t ra,
                                 std::span<const uint32_t> stack);

}  // namespace tpu::firmware
