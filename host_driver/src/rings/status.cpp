// Meanings: spec/formats/rings.toml.
#include "src/rings/status.hpp"

#include <fmt/format.h>

#include <array>

#include "src/rings/command.hpp"

namespace tpu::driver {
namespace {

constexpr std::array<const char*, 23> kStatusNames = {
    "OK",           "BAD_OPCODE", "BAD_CRC",       "BAD_SEQ",     "BAD_FIELD", "HOST_ADDR",
    "HBM_RANGE",    "ALIGN",      "NO_PROGRAM",    "BAD_PROGRAM", "NO_SLOT",   "BUSY",
    "ISA_MISMATCH", "POISON",     "HBM_ECC",       "PCIE",        "FAULT",     "ABORTED",
    "FLUSHED",      "TIMEOUT",    "GANG_MISMATCH", "PEER_LOST",   "LINK_DOWN"};

}  // namespace

bool status_holds(uint16_t status, uint16_t opcode) {
  // An entry that is wrong holds its core, whatever its opcode was.
  if (status == TPU_STATUS_FLUSHED || status == TPU_STATUS_BAD_CRC ||
      status == TPU_STATUS_BAD_SEQ) {
    return true;
  }
  return status != TPU_STATUS_OK && opcode != TPU_OP_LOAD_PROGRAM &&
         opcode != TPU_OP_UNLOAD_PROGRAM && opcode != TPU_OP_NOP && opcode != TPU_OP_READ_COUNTERS;
}

bool status_known(uint16_t status) {
  return status <= TPU_STATUS_PCIE ||
         (status >= TPU_STATUS_FAULT && status <= TPU_STATUS_FLUSHED) ||
         status == TPU_STATUS_LINK_DOWN;
}

bool status_of_link(uint16_t status) {
  return status == TPU_STATUS_POISON || status == TPU_STATUS_PCIE;
}

bool status_refused(uint16_t status) {
  return status >= TPU_STATUS_BAD_OPCODE && status <= TPU_STATUS_ISA_MISMATCH;
}

const char* status_name(uint16_t status) {
  if (status == kStatusLost) {
    return "LOST";
  }
  return status < kStatusNames.size() ? kStatusNames[status] : "unknown status";
}

namespace {

// What the caller gave is wrong, or the ids of the core are not in the state that it wants; all
// else was made by the driver itself.
ErrorCode status_code(uint16_t status) {
  switch (status) {
    case TPU_STATUS_BAD_PROGRAM:
    case TPU_STATUS_NO_SLOT:
    case TPU_STATUS_ISA_MISMATCH:
      return ErrorCode::kInvalidArgument;
    case TPU_STATUS_NO_PROGRAM:
    case TPU_STATUS_BUSY:
      return ErrorCode::kFailedPrecondition;
    case TPU_STATUS_HBM_ECC:
      return ErrorCode::kDataLoss;
    case TPU_STATUS_LINK_DOWN:
      return ErrorCode::kDeviceFault;
    case TPU_STATUS_POISON:
    case TPU_STATUS_PCIE:
      return ErrorCode::kUnavailable;
    default:
      return ErrorCode::kInternal;
  }
}

}  // namespace

std::shared_ptr<const Error> status_error(uint16_t status, const std::string& what, int device) {
  const char* why = "";
  if (status == TPU_STATUS_HBM_ECC) {
    why = ": its memory holds bits that ECC cannot correct; the contents are lost";
  } else if (status == TPU_STATUS_LINK_DOWN) {
    why = ": links are down, and no way leads to the chip of the other device";
  } else if (status_of_link(status)) {
    why = ": data of the host do not reach it, also when they are sent again";
  }
  return std::make_shared<Error>(
      status_code(status),
      fmt::format("{}: the device answers {}{}", what, status_name(status), why),
      ErrorPlace{.device = device, .op = {}, .source = {}});
}

}  // namespace tpu::driver
