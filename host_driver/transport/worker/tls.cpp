// OpenSSL works on memory here, and the socket is read and written outside of it: one thread can
// wait for bytes while another one sends.
#include "transport/worker/tls.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <array>
#include <utility>
#include <vector>

#include "sync/mutex.hpp"
#include "tpu/error.hpp"
#include "transport/worker/frame.hpp"

namespace tpu::driver::worker {
namespace {

std::string reason() {
  std::string text;
  while (const unsigned long code = ::ERR_get_error()) {
    std::array<char, 256> line{};
    ::ERR_error_string_n(code, line.data(), line.size());
    text += (text.empty() ? "" : "; ") + std::string(line.data());
  }
  return text.empty() ? "no reason is known" : text;
}

[[noreturn]] void refuse_file(const std::string& file, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", file, why));
}

TlsContext make_context(const SSL_METHOD* method) {
  TlsContext context(::SSL_CTX_new(method));
  if (!context || ::SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) != 1) {
    throw Error(ErrorCode::kInternal, "OpenSSL has no TLS 1.3: " + reason());
  }
  return context;
}

struct FreeSsl {
  void operator()(SSL* ssl) const { ::SSL_free(ssl); }
};
using Ssl = std::unique_ptr<SSL, FreeSsl>;

Ssl make_ssl(const TlsContext& context) {
  ::ERR_clear_error();
  Ssl ssl(::SSL_new(context.get()));
  if (!ssl) {
    throw Error(ErrorCode::kResourceExhausted, "TLS: " + reason());
  }
  return ssl;
}

// Of a key, which is as secret as a token.
void check_mode(const std::string& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) == 0 && (status.st_mode & 077) != 0) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{}: others can read the key (mode {:04o}); chmod 600 it", file,
                            status.st_mode & 07777));
  }
}

class TlsStream final : public Stream {
 public:
  TlsStream(Ssl ssl, std::unique_ptr<Stream> stream)
      : stream_(std::move(stream)), ssl_(std::move(ssl)) {
    ::SSL_set_bio(ssl_.get(), ::BIO_new(::BIO_s_mem()), ::BIO_new(::BIO_s_mem()));
  }

  /// Throws ConnectionLost, Error (FailedPrecondition).
  void shake_hands() {
    for (;;) {
      int done = 0;
      {
        const base::MutexLock lock(mutex_);
        ::ERR_clear_error();
        done = ::SSL_do_handshake(ssl_.get());
        const int error = ::SSL_get_error(ssl_.get(), done);
        if (done != 1 && error != SSL_ERROR_WANT_READ) {
          fail_handshake();
        }
      }
      send_made();
      if (done == 1) {
        return;
      }
      take_more();
    }
  }

  size_t read(std::span<std::byte> bytes, base::Descriptor* /*descriptor*/) override {
    for (;;) {
      size_t got = 0;
      {
        const base::MutexLock lock(mutex_);
        ::ERR_clear_error();
        const int done = ::SSL_read_ex(ssl_.get(), bytes.data(), bytes.size(), &got);
        if (done == 1) {
          return got;
        }
        if (const int error = ::SSL_get_error(ssl_.get(), done); error != SSL_ERROR_WANT_READ) {
          throw ConnectionLost(error == SSL_ERROR_ZERO_RETURN
                                   ? "the other end has closed the connection"
                                   : "TLS: " + reason());
        }
      }
      take_more();
    }
  }

  void write(std::span<const std::byte> bytes, int /*descriptor*/) override {
    while (!bytes.empty()) {
      {
        const base::MutexLock lock(mutex_);
        ::ERR_clear_error();
        size_t taken = 0;
        const size_t piece = std::min(bytes.size(), kPieceBytes);
        if (::SSL_write_ex(ssl_.get(), bytes.data(), piece, &taken) != 1) {
          throw ConnectionLost("TLS: " + reason());
        }
        bytes = bytes.subspan(taken);
      }
      send_made();
    }
  }

  // The rest of a read may have other records, or the beginning of one.
  bool has_pending() override {
    const base::MutexLock lock(mutex_);
    return ::SSL_has_pending(ssl_.get()) != 0 ||
           ::BIO_ctrl_pending(::SSL_get_rbio(ssl_.get())) != 0;
  }
  void shut_down() override { stream_->shut_down(); }
  int socket() const override { return stream_->socket(); }
  void limit_reads(std::chrono::milliseconds limit) override { stream_->limit_reads(limit); }

 private:
  [[noreturn]] void fail_handshake() TPU_REQUIRES(mutex_) {
    const long verified = ::SSL_get_verify_result(ssl_.get());
    if (::SSL_is_server(ssl_.get()) == 0 && verified != X509_V_OK) {
      throw Error(ErrorCode::kFailedPrecondition,
                  fmt::format("the certificate of the worker is rejected: {}",
                              ::X509_verify_cert_error_string(verified)));
    }
    throw ConnectionLost("TLS: " + reason());
  }

  // The socket is written in the order in which the records were made.
  void send_made() {
    const base::MutexLock sending(send_mutex_);
    std::vector<std::byte> made;
    {
      const base::MutexLock lock(mutex_);
      BIO* const out = ::SSL_get_wbio(ssl_.get());
      made.resize(static_cast<size_t>(::BIO_ctrl_pending(out)));
      if (!made.empty()) {
        ::BIO_read(out, made.data(), static_cast<int>(made.size()));
      }
    }
    stream_->write(made, -1);
  }

  void take_more() {
    const size_t got = stream_->read(taken_, nullptr);
    const base::MutexLock lock(mutex_);
    ::BIO_write(::SSL_get_rbio(ssl_.get()), taken_.data(), static_cast<int>(got));
  }

  const std::unique_ptr<Stream> stream_;
  base::Mutex send_mutex_;  // before mutex_
  base::Mutex mutex_;
  const Ssl ssl_ TPU_GUARDED_BY(mutex_);
  std::vector<std::byte> taken_ = std::vector<std::byte>(size_t{128} << 10);
};

bool is_address(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  return ::inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

}  // namespace

void FreeContext::operator()(ssl_ctx_st* context) const { ::SSL_CTX_free(context); }

TlsClient::TlsClient(const std::string& ca, std::string host)
    : context_(make_context(::TLS_client_method())), host_(std::move(host)) {
  ::ERR_clear_error();
  if (::SSL_CTX_load_verify_locations(context_.get(), ca.c_str(), nullptr) != 1) {
    refuse_file(ca, "expected certificates in PEM: " + reason());
  }
  ::SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
  // A certificate that is named itself need not be that of a signer.
  ::X509_VERIFY_PARAM_set_flags(::SSL_CTX_get0_param(context_.get()), X509_V_FLAG_PARTIAL_CHAIN);
}

std::unique_ptr<Stream> TlsClient::wrap(std::unique_ptr<Stream> stream) const {
  Ssl ssl = make_ssl(context_);
  // Without the name every certificate of the signer would do.
  const bool named =
      is_address(host_)
          ? ::X509_VERIFY_PARAM_set1_ip_asc(::SSL_get0_param(ssl.get()), host_.c_str()) == 1
          : ::SSL_set1_host(ssl.get(), host_.c_str()) == 1 &&
                ::SSL_set_tlsext_host_name(ssl.get(), host_.c_str()) == 1;
  if (!named) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("'{}' cannot be the name in a certificate: {}", host_, reason()));
  }
  ::SSL_set_connect_state(ssl.get());
  auto made = std::make_unique<TlsStream>(std::move(ssl), std::move(stream));
  made->shake_hands();
  return made;
}

TlsServer::TlsServer(const std::string& certificate, const std::string& key)
    : context_(make_context(::TLS_server_method())) {
  ::ERR_clear_error();
  if (::SSL_CTX_use_certificate_chain_file(context_.get(), certificate.c_str()) != 1) {
    refuse_file(certificate, "expected a certificate in PEM: " + reason());
  }
  const X509* const own = ::SSL_CTX_get0_certificate(context_.get());
  if (::X509_cmp_current_time(::X509_get0_notAfter(own)) < 0) {
    refuse_file(certificate, "the certificate has expired");
  }
  check_mode(key);
  if (::SSL_CTX_use_PrivateKey_file(context_.get(), key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      ::SSL_CTX_check_private_key(context_.get()) != 1) {
    refuse_file(key, "expected the key of the certificate in PEM: " + reason());
  }
}

std::unique_ptr<Stream> TlsServer::wrap(std::unique_ptr<Stream> stream) const {
  Ssl ssl = make_ssl(context_);
  ::SSL_set_accept_state(ssl.get());
  auto made = std::make_unique<TlsStream>(std::move(ssl), std::move(stream));
  made->shake_hands();
  return made;
}

}  // namespace tpu::driver::worker
