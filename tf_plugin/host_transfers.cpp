#include "host_transfers.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "errors.hpp"
#include "feed_queues.hpp"

namespace tpu::tensorflow {
namespace {

void feed(FeedQueues::Step& step, const HostTransfer& transfer, const driver::HostCallInfo& call,
          std::span<std::byte> bytes) {
  try {
    transfer.to_host ? step.give(bytes) : step.take(transfer, bytes);
  } catch (const driver::Error& error) {
    throw driver::Error(error.code(), error.message(),
                        {.device = -1, .op = call.op, .source = call.source});
  }
}

}  // namespace

driver::HostCallHandler host_call_handler(
    const std::shared_ptr<HostSide>& host, int device,
    std::shared_ptr<const std::vector<HostTransfer>> transfers) {
  return [host, feeds = std::make_shared<FeedQueues::Step>(device),
          transfers = std::move(transfers)](const driver::HostCallInfo& call, size_t /*partition*/,
                                            std::span<std::byte> bytes) {
    const auto transfer = std::ranges::find(*transfers, call.channel, &HostTransfer::channel);
    if (transfer == transfers->end()) {
      throw driver::Error(driver::ErrorCode::kInternal,
                          fmt::format("no host computation has channel {}", call.channel),
                          {.device = -1, .op = call.op, .source = call.source});
    }
    if (transfer->feed) {
      return feed(*feeds, *transfer, call, bytes);
    }
    const Outcome outcome = call.to_host ? host->send(*transfer, bytes.data(), bytes.size())
                                         : host->receive(*transfer, bytes.data(), bytes.size());
    if (outcome.error_code != 0) {
      const driver::Error plain = pjrt::error_of(static_cast<PJRT_Error_Code>(outcome.error_code),
                                                 outcome.error.data(), outcome.error.size());
      throw driver::Error(plain.code(), plain.message(),
                          {.device = -1, .op = call.op, .source = call.source});
    }
  };
}

}  // namespace tpu::tensorflow
