// HBM is told by core, the duty cycle by chip, faults on purpose by board: tpu-info of a v3 expects
// two cores a chip.
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/security/server_credentials.h>

#include <map>

#include "exporter/servers.hpp"
#include "job/jobs.hpp"
#include "runtime_metrics.grpc.pb.h"
#include "tpu/error.hpp"

namespace tpu::monitor {
namespace {

namespace wire = ::tpu::monitoring::runtime;

wire::Gauge& add_metric(wire::TPUMetric& to, int64_t device) {
  wire::Metric& metric = *to.add_metrics();
  metric.mutable_attribute()->set_key("device-id");
  metric.mutable_attribute()->mutable_value()->set_int_attr(device);
  return *metric.mutable_gauge();
}

void add_hbm_total(const Report& job, wire::TPUMetric& to) {
  for (size_t i = 0; i < job.now.cores.size(); ++i) {
    add_metric(to, static_cast<int64_t>(i))
        .set_as_int(static_cast<int64_t>(job.now.cores[i].hbm_bytes));
  }
}

void add_hbm_usage(const Report& job, wire::TPUMetric& to) {
  for (size_t i = 0; i < job.now.cores.size(); ++i) {
    add_metric(to, static_cast<int64_t>(i))
        .set_as_int(static_cast<int64_t>(job.now.cores[i].hbm_used));
  }
}

// Share of time with a program on a core; 0 while no simulated time passes.
void add_duty_cycle(const Report& job, wire::TPUMetric& to) {
  struct Chip {
    double busy = 0;
    int cores = 0;
  };
  std::map<int, Chip> chips;
  for (size_t i = 0; i < job.now.cores.size() && i < job.lately.cores.size(); ++i) {
    Chip& chip = chips[job.now.cores[i].chip];
    chip.busy += job.lately.board_seconds > 0 ? 1 - job.lately.cores[i].time.idle() : 0;
    ++chip.cores;
  }
  for (const auto& [number, chip] : chips) {
    add_metric(to, number).set_as_double(100 * chip.busy / chip.cores);
  }
}

// Of the whole board, as its first device: kinds and places are in Prometheus.
template <uint64_t spec::FaultTally::*member>
void add_faults(const Report& job, wire::TPUMetric& to) {
  uint64_t count = 0;
  for (const spec::FaultTally& tally : job.now.faults) {
    count += tally.*member;
  }
  add_metric(to, 0).set_as_int(static_cast<int64_t>(count));
}

struct KnownMetric {
  const char* name;
  const char* description;
  void (*add)(const Report& job, wire::TPUMetric& to);
};

constexpr KnownMetric kMetrics[] = {
    {"tpu.runtime.hbm.memory.total.bytes", "HBM of a core", add_hbm_total},
    {"tpu.runtime.hbm.memory.usage.bytes", "HBM that buffers and programs have", add_hbm_usage},
    {"tpu.runtime.tensorcore.dutycycle.percent", "Share of time with a program on a chip's cores",
     add_duty_cycle},
    {"tpuboard.faults.count", "Faults on purpose that have happened",
     add_faults<&spec::FaultTally::fired>},
    {"tpuboard.fault_effects.count", "Times that the board met what such a fault left",
     add_faults<&spec::FaultTally::seen>},
};

class Service : public wire::RuntimeMetricService::Service {
 public:
  Service(std::filesystem::path folder, int64_t pid) : folder_(std::move(folder)), pid_(pid) {}

  grpc::Status GetRuntimeMetric(grpc::ServerContext* context, const wire::MetricRequest* request,
                                wire::MetricResponse* response) override {
    static_cast<void>(context);
    for (const KnownMetric& known : kMetrics) {
      if (request->metric_name() == known.name) {
        return answer(known, *response->mutable_metric());
      }
    }
    return {grpc::StatusCode::NOT_FOUND,
            fmt::format("tpuboard has no metric {}", request->metric_name())};
  }

  grpc::Status ListSupportedMetrics(grpc::ServerContext* context,
                                    const wire::ListSupportedMetricsRequest* request,
                                    wire::ListSupportedMetricsResponse* response) override {
    static_cast<void>(context);
    for (const KnownMetric& known : kMetrics) {
      if (std::string_view(known.name).find(request->filter()) != std::string_view::npos) {
        response->add_supported_metric()->set_metric_name(known.name);
      }
    }
    return grpc::Status::OK;
  }

 private:
  grpc::Status answer(const KnownMetric& known, wire::TPUMetric& to) const {
    try {
      const JobNews news = read_job(folder_, choose_job(folder_, pid_));
      if (!news.report) {
        return {grpc::StatusCode::UNAVAILABLE, "the job has just ended"};
      }
      to.set_name(known.name);
      to.set_description(known.description);
      known.add(*news.report, to);
      return grpc::Status::OK;
    } catch (const driver::Error& error) {
      return {grpc::StatusCode::UNAVAILABLE, error.message()};
    }
  }

  const std::filesystem::path folder_;
  const int64_t pid_;
};

class TpuInfoServer : public Server {
 public:
  TpuInfoServer(const std::filesystem::path& folder, int64_t pid, int port)
      : service_(folder, pid) {
    grpc::ServerBuilder builder;
    // tpu-info speaks with processes of the same host alone.
    builder.AddListeningPort(fmt::format("localhost:{}", port),
                             grpc::experimental::LocalServerCredentials(LOCAL_TCP), &port_);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      throw driver::Error(driver::ErrorCode::kFailedPrecondition,
                          fmt::format("port {} of localhost is taken; choose another with "
                                      "--tpu-info PORT (tpu-info itself asks port 8431)",
                                      port));
    }
  }
  int port() const override { return port_; }
  void serve() override { server_->Wait(); }

 private:
  Service service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

std::unique_ptr<Server> make_tpu_info_server(const std::filesystem::path& folder, int64_t pid,
                                             int port) {
  return std::make_unique<TpuInfoServer>(folder, pid, port);
}

}  // namespace tpu::monitor
