// OpenSSL works on memory here, and the socket is read and written outside of it: one thread can
// wait for bytes while another one sends.
#include "transport/worker/tls.hpp"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <utility>
#include <vector>

#include "sync/mutex.hpp"
#include "tpu/error.hpp"
#include "transport/worker/frame.hpp"

namespace tpu::driver::worker {
namespace {

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
                                   : "TLS: " + tls_reason());
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
          throw ConnectionLost("TLS: " + tls_reason());
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
    throw ConnectionLost("TLS: " + tls_reason());
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

}  // namespace

TlsClient::TlsClient(const std::string& ca, std::string host)
    : context_(make_tls_context(::TLS_client_method())), host_(std::move(host)) {
  trust_file(context_.get(), ca);
}

std::unique_ptr<Stream> TlsClient::wrap(std::unique_ptr<Stream> stream) const {
  Ssl ssl = make_ssl(context_);
  expect_name(ssl.get(), host_);  // without it every certificate of the signer would do
  ::SSL_set_connect_state(ssl.get());
  auto made = std::make_unique<TlsStream>(std::move(ssl), std::move(stream));
  made->shake_hands();
  return made;
}

TlsServer::TlsServer(const std::string& certificate, const std::string& key)
    : context_(make_tls_context(::TLS_server_method())) {
  use_identity(context_.get(), certificate, key);
}

std::unique_ptr<Stream> TlsServer::wrap(std::unique_ptr<Stream> stream) const {
  Ssl ssl = make_ssl(context_);
  ::SSL_set_accept_state(ssl.get());
  auto made = std::make_unique<TlsStream>(std::move(ssl), std::move(stream));
  made->shake_hands();
  return made;
}

}  // namespace tpu::driver::worker
