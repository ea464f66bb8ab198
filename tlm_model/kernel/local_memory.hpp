// Plain memory of a block (VMEM, SMEM, slot banks) behind a TLM-2.0 target: zero at power-on, no
// time of its own. Engines of the same core use data(), in the order of order(); the socket serves
// the host DMA for slot banks, and is the debug port of VMEM and SMEM
// (docs/adr/0021-memory-through-typed-ports.md).
#pragma once

#include <tlm_utils/simple_target_socket.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <systemc>
#include <tlm>
#include <utility>

#include "file/archive.hpp"
#include "kernel/data_order.hpp"
#include "kernel/host_pages.hpp"

namespace tpu::model {

class LocalMemory : public sc_core::sc_module {
 public:
  tlm_utils::simple_target_socket_optional<LocalMemory> mem_tsock{"mem_tsock"};

  LocalMemory(sc_core::sc_module_name name, uint64_t bytes) : sc_module(name), bytes_(bytes) {
    data_ = map_host_pages(bytes_ + kGuardBytes);
    mem_tsock.register_b_transport(this, &LocalMemory::b_transport_mem);
    mem_tsock.register_transport_dbg(this, &LocalMemory::transport_dbg_mem);
  }
  ~LocalMemory() override { unmap_host_pages(data_, bytes_ + kGuardBytes); }

  uint8_t* data() { return data_; }
  const uint8_t* data() const { return data_; }
  // Of jobs that read or write it, by address.
  DataOrder& order() { return order_; }
  // Called with a range before the debug port or a snapshot reads or writes it.
  void set_look(std::function<void(uint64_t low, uint64_t high)> look) { look_ = std::move(look); }
  // `data` from `address` on, which lies inside.
  void read(uint64_t address, std::span<uint8_t> data) {
    look(address, data.size());
    std::memcpy(data.data(), data_ + address, data.size());
  }
  uint64_t bytes() const { return bytes_; }
  // Deferred transfers stay.
  void clear() {
    order_.wait(0, bytes_, true);
    std::memset(data_, 0, bytes_);
  }
  // Pieces of zeros are left out; what is loaded is memory that nothing has written.
  void visit_state(spec::Archive& archive) {
    look(0, bytes_);
    for (uint64_t at = 0; at < bytes_; at += kStatePiece) {
      uint8_t* const piece = data_ + at;
      const uint64_t count = std::min(kStatePiece, bytes_ - at);
      bool written =
          !archive.loading() && (piece[0] != 0 || std::memcmp(piece, piece + 1, count - 1) != 0);
      archive(written);
      if (written) {
        archive.bytes(piece, count);
      }
    }
  }

 private:
  static constexpr uint64_t kStatePiece = 4096;
  static constexpr uint64_t kGuardBytes = 4096;  // wide host loads at the end stay mapped

  void b_transport_mem(tlm::tlm_generic_payload& txn, sc_core::sc_time& /*delay*/) {
    const bool done =
        txn.get_byte_enable_ptr() == nullptr && transport_dbg_mem(txn) == txn.get_data_length();
    txn.set_response_status(done ? tlm::TLM_OK_RESPONSE : tlm::TLM_ADDRESS_ERROR_RESPONSE);
  }

  unsigned transport_dbg_mem(tlm::tlm_generic_payload& txn) {
    const uint64_t length = txn.get_data_length();
    if (txn.get_address() > bytes_ || length > bytes_ - txn.get_address()) {
      return 0;
    }
    look(txn.get_address(), length);
    uint8_t* at = data_ + txn.get_address();
    if (txn.is_read()) {
      std::memcpy(txn.get_data_ptr(), at, length);
    } else if (txn.is_write()) {
      std::memcpy(at, txn.get_data_ptr(), length);
    }
    return txn.get_data_length();
  }

  void look(uint64_t address, uint64_t count) {
    if (look_) {
      look_(address, address + count);
    }
    order_.wait(address, address + count, true);
  }

  const uint64_t bytes_;
  uint8_t* data_ = nullptr;
  DataOrder order_;
  std::function<void(uint64_t, uint64_t)> look_;
};

}  // namespace tpu::model
