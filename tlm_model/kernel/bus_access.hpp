// Register and memory accesses of one initiator, one after the other, in one payload: to make a
// payload costs more than what most accesses do. None may begin inside of another.
#pragma once

#include <cstdint>
#include <span>
#include <tlm>

namespace tpu::model {

class BusAccess {
 public:
  // False: the target has refused it. Targets take no time.
  template <class Socket>
  bool perform(Socket& socket, uint64_t address, std::span<uint8_t> data, bool write) {
    txn_.set_command(write ? tlm::TLM_WRITE_COMMAND : tlm::TLM_READ_COMMAND);
    txn_.set_address(address);
    txn_.set_data_ptr(data.data());
    txn_.set_data_length(static_cast<unsigned>(data.size()));
    txn_.set_streaming_width(static_cast<unsigned>(data.size()));
    txn_.set_response_status(tlm::TLM_INCOMPLETE_RESPONSE);
    sc_core::sc_time delay;
    socket->b_transport(txn_, delay);
    return txn_.is_response_ok();
  }

 private:
  tlm::tlm_generic_payload txn_;
};

}  // namespace tpu::model
