// The host's side of transfers: the rendezvous of a step of TensorFlow, where the operations that
// run on the host meet the program. The keys are those of _XlaRecvAtHost and _XlaSendFromHost.
// The rendezvous is used as what it is: its C functions of version 2.20 need a device context.
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "lowering/lowered.hpp"
#include "lowering/outcome.hpp"
#include "tensorflow/core/common_runtime/next_pluggable_device/c/outside_compilation_params.h"
#include "tensorflow/core/framework/rendezvous.h"
#include "tensorflow/core/framework/tensor.h"

namespace tpu::tensorflow {
namespace {

namespace tf = ::tensorflow;

// Tensors are in the memory of the host, although the key names a core.
tf::RendezvousInterface::Args on_host() {
  tf::RendezvousInterface::Args args;
  args.alloc_attrs.set_on_host(true);
  return args;
}

absl::Status check_received(const HostTransfer& transfer, const tf::Tensor& tensor, size_t size) {
  const tf::TensorShape expected(transfer.dims);
  const auto type = static_cast<tf::DataType>(transfer.type);
  if (tensor.dtype() == type && tensor.shape() == expected && tensor.tensor_data().size() == size) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      transfer.name, ": the host gave ", tf::DataTypeString(tensor.dtype()),
      tensor.shape().DebugString(), ", the program was compiled for ", tf::DataTypeString(type),
      expected.DebugString(), "; use tf.ensure_shape in the function that runs on the host"));
}

// What a receiver waits for.
struct Received {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  absl::Status status;
  tf::Tensor tensor;
};

class StepHostSide : public HostSide {
 public:
  // What the parameters point to ends with the call that has them, except the rendezvous, which
  // lives as long as the step. A launch can outlive a step that was cancelled.
  explicit StepHostSide(const SE_OutsideCompilationParams& params)
      : core_(params.device_name),
        key_(params.rendezvous_key),
        rendezvous_(*static_cast<tf::RendezvousInterface*>(params.rendezvous->rendezvous)) {
    tf::DeviceNameUtils::ParsedName name;
    if (tf::DeviceNameUtils::ParseFullName(core_, &name)) {
      name.type = "CPU";
      name.id = 0;
    }
    host_ = tf::DeviceNameUtils::ParsedNameToString(name);
    if (auto* const counted = dynamic_cast<tf::Rendezvous*>(&rendezvous_)) {
      counted->Ref();
      kept_.reset(counted);
    }
  }

  Outcome send(const HostTransfer& transfer, const void* bytes, size_t size) override {
    return outcome_of(send_array(transfer, bytes, size));
  }

  Outcome receive(const HostTransfer& transfer, void* bytes, size_t size) override {
    return outcome_of(receive_array(transfer, bytes, size));
  }

  void abort(int code, const std::string& text) override {
    rendezvous_.StartAbort(absl::Status(static_cast<absl::StatusCode>(code), text));
  }

  bool keeps_rendezvous() const override { return kept_ != nullptr; }

 private:
  absl::StatusOr<tf::Rendezvous::ParsedKey> parsed_key(const HostTransfer& transfer) const {
    constexpr tf::uint64 kIncarnation = 1;
    const std::string& from = transfer.to_host ? core_ : host_;
    const std::string& to = transfer.to_host ? host_ : core_;
    tf::Rendezvous::ParsedKey key;
    TF_RETURN_IF_ERROR(tf::Rendezvous::ParseKey(
        tf::Rendezvous::CreateKey(from, kIncarnation, to, key_ + transfer.name,
                                  tf::FrameAndIter(0, 0)),
        &key));
    return key;
  }

  absl::Status send_array(const HostTransfer& transfer, const void* bytes, size_t size) {
    TF_ASSIGN_OR_RETURN(const auto key, parsed_key(transfer));
    tf::Tensor tensor(static_cast<tf::DataType>(transfer.type), tf::TensorShape(transfer.dims));
    if (tensor.tensor_data().size() != size) {
      return absl::InternalError(absl::StrCat(transfer.name, ": the program sends ", size,
                                              " bytes, expected ", tensor.tensor_data().size()));
    }
    std::memcpy(const_cast<char*>(tensor.tensor_data().data()), bytes, size);
    return rendezvous_.Send(key, on_host(), tensor, /*is_dead=*/false);
  }

  absl::Status receive_array(const HostTransfer& transfer, void* bytes, size_t size) {
    TF_ASSIGN_OR_RETURN(const auto key, parsed_key(transfer));
    const auto received = std::make_shared<Received>();
    rendezvous_.RecvAsync(
        key, on_host(),
        [received](const absl::Status& status, const tf::RendezvousInterface::Args&,
                   const tf::RendezvousInterface::Args&, const tf::Tensor& tensor, bool is_dead) {
          const std::lock_guard<std::mutex> lock(received->mutex);
          received->status = is_dead ? absl::InternalError(
                                           "the host does not compute an array that the program "
                                           "waits for")
                                     : status;
          received->tensor = tensor;
          received->done = true;
          received->changed.notify_all();
        });
    std::unique_lock<std::mutex> lock(received->mutex);
    received->changed.wait(lock, [&] { return received->done; });
    TF_RETURN_IF_ERROR(received->status);
    TF_RETURN_IF_ERROR(check_received(transfer, received->tensor, size));
    std::memcpy(bytes, received->tensor.tensor_data().data(), size);
    return absl::OkStatus();
  }

  struct Unref {
    void operator()(tf::Rendezvous* rendezvous) const { rendezvous->Unref(); }
  };

  const std::string core_, key_;
  std::string host_;
  tf::RendezvousInterface& rendezvous_;
  std::unique_ptr<tf::Rendezvous, Unref> kept_;
};

}  // namespace
}  // namespace tpu::tensorflow

extern "C" [[gnu::visibility("default")]] void tpuboard_tf_host_side(
    const SE_OutsideCompilationParams& params, std::shared_ptr<tpu::tensorflow::HostSide>& made) {
  made = std::make_shared<tpu::tensorflow::StepHostSide>(params);
}
