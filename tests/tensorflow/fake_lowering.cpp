// In the place of libtpuboard_tf.so: a request is the number of replicas, a byte, and an HLO module
// behind it; or a text behind a zero, the error of the lowering.
#include <string>

#include "abi/ops.h"
#include "lowering/lowered.hpp"

namespace {

// Graphs of the library compute nothing on the host.
class FakeHostSide : public tpu::tensorflow::HostSide {
 public:
  tpu::tensorflow::Outcome send(const tpu::tensorflow::HostTransfer&, const void*,
                                size_t) override {
    return {};
  }
  tpu::tensorflow::Outcome receive(const tpu::tensorflow::HostTransfer&, void*, size_t) override {
    return {};
  }
  void abort(int, const std::string&) override {}
  bool keeps_rendezvous() const override { return true; }
};

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

void tpuboard_tf_lower(const char* request, size_t size, tpu::tensorflow::Lowered& lowered) {
  const std::string bytes(request, size);
  if (bytes.empty() || bytes[0] == 0) {
    constexpr int kOutOfRange = 11;  // of absl::StatusCode, and none of the driver's
    lowered.error_code = kOutOfRange;
    lowered.error = bytes.empty() ? "an empty request" : bytes.substr(1);
    return;
  }
  lowered.replicas = bytes[0];
  lowered.hlo = bytes.substr(1);
}

void tpuboard_tf_seed(const char* module, size_t size, tpu::tensorflow::Lowered& lowered) {
  lowered.hlo.assign(module, size);
}

// The rendezvous of a step whose parameters name a device can be kept.
void tpuboard_tf_host_side(const SE_OutsideCompilationParams& params,
                           std::shared_ptr<tpu::tensorflow::HostSide>& made) {
  made = params.device_name != nullptr ? std::make_shared<FakeHostSide>() : nullptr;
}

// Its graphs have no embeddings.
void tpuboard_tf_embeddings(const char* /*config*/, size_t /*size*/,
                            tpu::tensorflow::Embeddings& /*read*/,
                            tpu::tensorflow::Outcome& outcome) {
  constexpr int kUnimplemented = 12;
  outcome = {kUnimplemented, "no embeddings"};
}
void tpuboard_tf_embedding_program(const tpu::tensorflow::Embeddings& /*embeddings*/,
                                   bool /*update*/,
                                   const std::vector<tpu::tensorflow::EmbeddingIds>& /*ids*/,
                                   tpu::tensorflow::Lowered& /*lowered*/) {}
void tpuboard_tf_embedding_call(const tpu::tensorflow::Embeddings& /*embeddings*/,
                                tpu::tensorflow::EmbeddingCall /*call*/,
                                tpu::tensorflow::Lowered& /*lowered*/) {}
void tpuboard_tf_host_tensor(const void* /*tensor*/, tpu::tensorflow::HostTensor& /*read*/) {}

const char* tpuboard_tf_version() { return "2.20.0"; }

const char* tpuboard_tf_interface() { return TPU_LOWERING_INTERFACE; }

}  // extern "C"
#pragma GCC visibility pop
