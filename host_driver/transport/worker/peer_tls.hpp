// TLS 1.3 between workers that share a pod. Both ends show the certificate by which programs know
// them, and take the other end's if the program trusts it. Nothing here waits after the handshake.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "socket/descriptor.hpp"
#include "socket/pipe.hpp"
#include "transport/worker/tls_context.hpp"

namespace tpu::driver::worker {

/// What BIOs of OpenSSL have of a connection.
struct TlsSocket {
  base::Descriptor descriptor;
  int error = 0;  ///< errno of the call that failed last
};

/// The other end does not take the certificate of this one.
class CertificateRejected : public base::PipeBroken {
 public:
  using base::PipeBroken::PipeBroken;
};

class TlsPipe final : public base::Pipe {
 public:
  /// After `records` a key of what is sent is replaced.
  TlsPipe(Ssl ssl, base::Descriptor socket, uint64_t records);

  /// Goes on with the handshake, which is over when it returns 0; else events of the socket that it
  /// waits for, as of poll(). Throws Error: FailedPrecondition for a certificate that is not
  /// trusted, has expired or has another name, at either end; Unavailable for everything else.
  short shake_hands();
  /// The certificate of the other end has this name or address.
  bool is_of(const std::string& host) const { return has_name(ssl_.get(), host); }

  size_t send(std::span<const std::byte> bytes) override;
  size_t receive(std::span<std::byte> bytes) override;
  bool has_pending() const override;
  int socket() const override { return socket_->descriptor.number(); }
  void end() override;

 private:
  bool waits(int done, int& error) const;
  std::string reason(int error) const;
  [[noreturn]] void fail(int error) const;

  const std::unique_ptr<TlsSocket> socket_;
  const Ssl ssl_;
  const uint64_t records_per_key_;
  uint64_t records_ = 0;  // of this key
};

class PeerTls {
 public:
  static constexpr uint64_t kRecordsPerKey = uint64_t{1} << 22;

  /// Files in PEM, and certificates in PEM that are trusted: of the other workers, or of who signed
  /// them. Throws Error (InvalidArgument, FailedPrecondition).
  PeerTls(const std::string& certificate, const std::string& key, const std::string& trusted,
          uint64_t records_per_key = kRecordsPerKey);

  /// To a worker of this name or address; shake_hands() is to follow. Throws Error.
  std::shared_ptr<TlsPipe> connect(base::Descriptor socket, const std::string& host) const;
  /// From another worker, whose name is_of() checks when it is known. Throws Error.
  std::shared_ptr<TlsPipe> accept(base::Descriptor socket) const;

 private:
  TlsContext context_;
  const uint64_t records_per_key_;
};

}  // namespace tpu::driver::worker
