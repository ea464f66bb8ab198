// Base of every block of 32-bit registers: a TLM-2.0 target that takes aligned whole words (bursts
// too) and calls the block for each. No time is added: the bus does that. Undefined offsets read
// all ones and ignore writes.
#pragma once

#include <tlm_utils/simple_target_socket.h>

#include <cstdint>
#include <cstring>
#include <systemc>
#include <tlm>

namespace tpu::model {

class RegisterBlock : public sc_core::sc_module {
 public:
  tlm_utils::simple_target_socket<RegisterBlock> csr_tsock{"csr_tsock"};

  explicit RegisterBlock(sc_core::sc_module_name name) : sc_module(name) {
    csr_tsock.register_b_transport(this, &RegisterBlock::b_transport_csr);
    csr_tsock.register_transport_dbg(this, &RegisterBlock::transport_dbg_csr);
  }

 protected:
  static constexpr uint32_t kUndefined = 0xffffffffu;

  // Free of side effects.
  virtual uint32_t read_register(uint32_t offset) const = 0;
  virtual void write_register(uint32_t offset, uint32_t value) = 0;

 private:
  static constexpr uint64_t kBlockBytes = 4096;

  static bool covered(const tlm::tlm_generic_payload& txn) {
    return txn.get_address() % 4 == 0 && txn.get_data_length() % 4 == 0 &&
           txn.get_address() + txn.get_data_length() <= kBlockBytes &&
           txn.get_byte_enable_ptr() == nullptr;
  }

  void b_transport_csr(tlm::tlm_generic_payload& txn, sc_core::sc_time& /*delay*/) {
    if (!covered(txn)) {
      txn.set_response_status(tlm::TLM_BURST_ERROR_RESPONSE);
      return;
    }
    if (txn.is_read()) {
      transport_dbg_csr(txn);
    } else {
      for (unsigned at = 0; at < txn.get_data_length(); at += 4) {
        uint32_t word;
        std::memcpy(&word, txn.get_data_ptr() + at, sizeof word);
        write_register(static_cast<uint32_t>(txn.get_address()) + at, word);
      }
    }
    txn.set_response_status(tlm::TLM_OK_RESPONSE);
  }

  unsigned transport_dbg_csr(tlm::tlm_generic_payload& txn) {
    if (!covered(txn) || !txn.is_read()) {
      return 0;
    }
    for (unsigned at = 0; at < txn.get_data_length(); at += 4) {
      const uint32_t word = read_register(static_cast<uint32_t>(txn.get_address()) + at);
      std::memcpy(txn.get_data_ptr() + at, &word, sizeof word);
    }
    return txn.get_data_length();
  }
};

}  // namespace tpu::model
