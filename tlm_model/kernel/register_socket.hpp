// A block of registers as a TLM-2.0 target: takes aligned whole words, bursts too. No time is
// added: the bus does that. Registers that do not exist for a direction read all ones and ignore
// writes.
#pragma once

#include <tlm_utils/simple_target_socket.h>

#include <cstdint>
#include <cstring>
#include <systemc>
#include <tlm>

#include "kernel/register_block.hpp"

namespace tpu::model {

class RegisterSocket : public tlm_utils::simple_target_socket<RegisterSocket> {
 public:
  RegisterSocket(const char* name, RegisterBlock& block)
      : simple_target_socket(name), block_(block) {
    register_b_transport(this, &RegisterSocket::access);
    register_transport_dbg(this, &RegisterSocket::debug_read);
  }

 private:
  static bool covered(const tlm::tlm_generic_payload& txn) {
    return txn.get_address() % 4 == 0 && txn.get_data_length() % 4 == 0 &&
           txn.get_address() + txn.get_data_length() <= spec::kRegisterBlockBytes &&
           txn.get_byte_enable_ptr() == nullptr;
  }

  template <class Word>
  static void each_word(tlm::tlm_generic_payload& txn, const Word& word) {
    for (unsigned at = 0; at < txn.get_data_length(); at += 4) {
      uint32_t value = RegisterBlock::kUndefined;
      if (txn.is_write()) {
        std::memcpy(&value, txn.get_data_ptr() + at, sizeof value);
      }
      word(static_cast<uint32_t>(txn.get_address()) + at, value);
      if (!txn.is_write()) {
        std::memcpy(txn.get_data_ptr() + at, &value, sizeof value);
      }
    }
  }

  void access(tlm::tlm_generic_payload& txn, sc_core::sc_time& /*delay*/) {
    if (!covered(txn)) {
      txn.set_response_status(tlm::TLM_BURST_ERROR_RESPONSE);
      return;
    }
    each_word(txn, [&](uint32_t offset, uint32_t& value) {
      txn.is_write() ? block_.write(offset, value) : block_.read(offset, value);
    });
    txn.set_response_status(tlm::TLM_OK_RESPONSE);
  }

  unsigned debug_read(tlm::tlm_generic_payload& txn) {
    if (!covered(txn) || !txn.is_read()) {
      return 0;
    }
    each_word(txn, [&](uint32_t offset, uint32_t& value) { block_.peek(offset, value); });
    return txn.get_data_length();
  }

  RegisterBlock& block_;
};

}  // namespace tpu::model
