// In the place of libtpuboard_tf-2.20.so: a request is the number of replicas, a byte, how many
// arrays the program takes from the tables of embeddings, how many it gives them, the channel by
// which the host gives it ones, if any, or kInfeedChannel, and an HLO module behind that; or a text
// behind a zero, the error of the lowering. fake_embeddings.cpp has the rest.
#include <algorithm>
#include <string>

#include "abi/ops.h"
#include "fake_embeddings.hpp"
#include "lowering/lowered.hpp"

namespace {

class FakeHostSide : public tpu::tensorflow::HostSide {
 public:
  tpu::tensorflow::Outcome send(const tpu::tensorflow::HostTransfer&, const void*,
                                size_t) override {
    return {};
  }
  tpu::tensorflow::Outcome receive(const tpu::tensorflow::HostTransfer&, void* bytes,
                                   size_t size) override {
    std::fill_n(static_cast<float*>(bytes), size / sizeof(float), 1.0F);
    constexpr int kOutOfRange = 11;
    return tpuboard_fake_embeddings()->host_fails
               ? tpu::tensorflow::Outcome{kOutOfRange, "the host has no ones"}
               : tpu::tensorflow::Outcome{};
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
  lowered.embedding_arguments = static_cast<size_t>(bytes.at(1));
  lowered.embedding_results = static_cast<size_t>(bytes.at(2));
  if (bytes.at(3) != 0) {
    lowered.host_transfers.push_back(
        {bytes[3], "ones", false, 1, {}, bytes[3] == tpu::test::kInfeedChannel});
  }
  lowered.hlo = bytes.substr(4);
}

void tpuboard_tf_seed(const char* module, size_t size, tpu::tensorflow::Lowered& lowered) {
  lowered.hlo.assign(module, size);
}

// The rendezvous of a step whose parameters name a device can be kept.
void tpuboard_tf_host_side(const SE_OutsideCompilationParams& params,
                           std::shared_ptr<tpu::tensorflow::HostSide>& made) {
  made = params.device_name != nullptr ? std::make_shared<FakeHostSide>() : nullptr;
}

const char* tpuboard_tf_version() { return "2.20.0"; }

const char* tpuboard_tf_interface() { return TPU_LOWERING_INTERFACE; }

}  // extern "C"
#pragma GCC visibility pop
