// Metrics over HTTP, for processes of this host.
#include <fmt/format.h>

#include "exporter/servers.hpp"
#include "exporter/timed_http.hpp"
#include "job/jobs.hpp"
#include "readers/prometheus.hpp"
#include "tpu/error.hpp"

namespace tpu::monitor {
namespace {

constexpr const char* kHost = "127.0.0.1";
constexpr int kForbidden = 403;
constexpr int kFailed = 500;

// Whether a request names this host, as it must: a page of another site can have a name of its own
// resolve to this host, and would read the figures (DNS rebinding). Tools that send none are no
// browsers.
bool names_this_host(const httplib::Request& request) {
  std::string host = request.get_header_value("Host");
  const size_t port = host.rfind(':');
  if (port != std::string::npos && host.find(']', port) == std::string::npos) {
    host.resize(port);
  }
  return host.empty() || host == kHost || host == "localhost" || host == "[::1]";
}

class MetricsServer : public Server {
 public:
  MetricsServer(std::filesystem::path folder, int64_t pid, int port)
      : folder_(std::move(folder)), pid_(pid) {
    http_.set_pre_routing_handler([](const httplib::Request& request, httplib::Response& response) {
      if (names_this_host(request)) {
        return httplib::Server::HandlerResponse::Unhandled;
      }
      response.status = kForbidden;
      response.set_content("this server answers requests to 127.0.0.1 and localhost alone\n",
                           "text/plain");
      return httplib::Server::HandlerResponse::Handled;
    });
    http_.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
      try {
        response.set_content(text(), "text/plain; version=0.0.4");
      } catch (const driver::Error& error) {
        response.status = kFailed;
        response.set_content(std::string(error.message()) + "\n", "text/plain");
      }
    });
    // As it comes, the library lets two servers share a port, which would hide one of them.
    http_.set_socket_options([](socket_t socket) {
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    port_ = port == 0 ? http_.bind_to_any_port(kHost) : port;
    if (port_ < 0 || (port != 0 && !http_.bind_to_port(kHost, port))) {
      throw driver::Error(driver::ErrorCode::kFailedPrecondition,
                          fmt::format("port {} of {} is taken; choose another with --prometheus "
                                      "PORT",
                                      port, kHost));
    }
  }
  int port() const override { return port_; }
  void serve() override { http_.listen_after_bind(); }

 private:
  // One job that cannot be read does not hide the others.
  std::string text() const {
    JobList list = list_jobs(folder_);
    std::vector<Report> jobs;
    for (const int64_t job : list.running) {
      if (pid_ != 0 && pid_ != job) {
        continue;
      }
      try {
        JobNews news = read_job(folder_, job);
        if (news.report) {
          jobs.push_back(std::move(*news.report));
        }
      } catch (const driver::Error& error) {  // since the list was made
        list.unreadable.push_back(error.message());
      }
    }
    return prometheus_text(jobs, list.unreadable);
  }

  const std::filesystem::path folder_;
  const int64_t pid_;
  TimedHttpServer http_;
  int port_ = 0;
};

}  // namespace

std::unique_ptr<Server> make_metrics_server(const std::filesystem::path& folder, int64_t pid,
                                            int port) {
  return std::make_unique<MetricsServer>(folder, pid, port);
}

}  // namespace tpu::monitor
