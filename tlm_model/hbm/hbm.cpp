// TLM side of the HBM.
#include "hbm/hbm.hpp"

#include <string>

namespace tpu::model {

HbmBank::HbmBank(sc_core::sc_module_name name, PagePool& pool, uint64_t bytes, ResourceId bandwidth)
    : sc_module(name), store_(pool, bytes), bandwidth_(bandwidth) {
  mem_tsock.register_b_transport(this, &HbmBank::b_transport_mem);
  mem_tsock.register_transport_dbg(this, &HbmBank::transport_dbg_mem);
}

void HbmBank::copy_from(const HbmIf& source, uint64_t source_address, uint64_t address,
                        uint64_t bytes) {
  wrote(address, bytes);
  store_.copy_from(dynamic_cast<const HbmBank&>(source).store_, source_address, address, bytes);
}

void HbmBank::b_transport_mem(tlm::tlm_generic_payload& txn, sc_core::sc_time& /*delay*/) {
  if (txn.get_byte_enable_ptr() != nullptr) {
    txn.set_response_status(tlm::TLM_BYTE_ENABLE_ERROR_RESPONSE);
  } else if (txn.get_streaming_width() < txn.get_data_length()) {
    txn.set_response_status(tlm::TLM_BURST_ERROR_RESPONSE);
  } else if (transport_dbg_mem(txn) != txn.get_data_length()) {
    txn.set_response_status(tlm::TLM_ADDRESS_ERROR_RESPONSE);
  } else {
    txn.set_response_status(tlm::TLM_OK_RESPONSE);
  }
}

unsigned HbmBank::transport_dbg_mem(tlm::tlm_generic_payload& txn) {
  const uint64_t address = txn.get_address();
  const uint64_t length = txn.get_data_length();
  if (address > store_.bytes() || length > store_.bytes() - address) {
    return 0;
  }
  if (txn.is_read()) {
    store_.read(address, {txn.get_data_ptr(), length});
  } else if (txn.is_write()) {
    store_.write(address, {txn.get_data_ptr(), length});
  }
  return txn.get_data_length();
}

Hbm::Hbm(sc_core::sc_module_name name, const spec::BoardParams& params, PagePool& pool,
         FluidShare& fluid)
    : sc_module(name),
      bandwidth_(fluid.add_resource_gbps(params.hbm.gbps_per_chip, params.hbm.efficiency_percent,
                                         params.core.clock_mhz)) {
  const auto bytes = static_cast<uint64_t>(params.hbm.gib_per_core) << 30;
  banks_.init(
      static_cast<size_t>(params.board.cores_per_chip), [&](const char* /*name*/, size_t index) {
        return new HbmBank(("core" + std::to_string(index)).c_str(), pool, bytes, bandwidth_);
      });
}

}  // namespace tpu::model
