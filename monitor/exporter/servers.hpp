// The two servers of the exporter. Each takes its port or throws driver::Error (FailedPrecondition)
// that names it; port 0 is any free one.
#pragma once

#include <filesystem>
#include <memory>

namespace tpu::monitor {

class Server {
 public:
  virtual ~Server() = default;
  virtual int port() const = 0;
  /// Returns only when the server cannot go on.
  virtual void serve() = 0;
};

/// http://localhost:PORT/metrics: all jobs in `folder`, or `pid` alone.
std::unique_ptr<Server> make_metrics_server(const std::filesystem::path& folder, int64_t pid,
                                            int port);

/// The service that tpu-info asks, of one job: `pid`, or the only one (0).
std::unique_ptr<Server> make_tpu_info_server(const std::filesystem::path& folder, int64_t pid,
                                             int port);

}  // namespace tpu::monitor
