// TLS 1.3 around a connection.
#pragma once

#include <memory>
#include <string>

#include "transport/worker/byte_stream.hpp"
#include "transport/worker/tls_context.hpp"

namespace tpu::driver::worker {

/// Of a driver, which knows the worker by a certificate.
class TlsClient {
 public:
  /// `ca`: a file of certificates that are trusted, of the worker or of who signed it; `host`: the
  /// name or address that its certificate must have. Throws Error (InvalidArgument).
  TlsClient(const std::string& ca, std::string host);
  /// Shakes hands. Throws ConnectionLost, Error (FailedPrecondition) for a certificate that is not
  /// trusted, expired or of another name.
  std::unique_ptr<Stream> wrap(std::unique_ptr<Stream> stream) const;

 private:
  TlsContext context_;
  std::string host_;
};

/// Of a worker.
class TlsServer {
 public:
  /// Files in PEM. Throws Error (InvalidArgument), also for a certificate that has expired.
  TlsServer(const std::string& certificate, const std::string& key);
  std::unique_ptr<Stream> wrap(std::unique_ptr<Stream> stream) const;

 private:
  TlsContext context_;
};

}  // namespace tpu::driver::worker
