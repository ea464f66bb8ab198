// OpenSSL reads and writes the socket through a BIO that does not wait and raises no SIGPIPE. What
// it could not send whole it keeps, and counts as not sent: it is offered the same bytes again.
#include "transport/worker/peer_tls.hpp"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/sslerr.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tpu/error.hpp"

namespace tpu::driver::worker {
namespace {

TlsSocket& socket_of(BIO* bio) { return *static_cast<TlsSocket*>(::BIO_get_data(bio)); }

int moved(TlsSocket& socket, ssize_t count, BIO* bio, int retry) {
  if (count < 0) {
    socket.error = errno;
    if (errno == EAGAIN || errno == EINTR) {
      ::BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
    }
  }
  return static_cast<int>(count);
}

int write_socket(BIO* bio, const char* data, int size) {
  ::BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
  TlsSocket& socket = socket_of(bio);
  return moved(socket,
               ::send(socket.descriptor.number(), data, static_cast<size_t>(size),
                      MSG_NOSIGNAL | MSG_DONTWAIT),
               bio, BIO_FLAGS_WRITE);
}

int read_socket(BIO* bio, char* data, int size) {
  ::BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
  TlsSocket& socket = socket_of(bio);
  return moved(socket,
               ::recv(socket.descriptor.number(), data, static_cast<size_t>(size), MSG_DONTWAIT),
               bio, BIO_FLAGS_READ);
}

long control_socket(BIO* /*bio*/, int command, long /*number*/, void* /*place*/) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;  // nothing waits in the BIO
}

const BIO_METHOD* socket_method() {
  static const std::unique_ptr<BIO_METHOD, decltype(&::BIO_meth_free)> method = [] {
    BIO_METHOD* const made =
        ::BIO_meth_new(::BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket without waiting");
    ::BIO_meth_set_write(made, write_socket);
    ::BIO_meth_set_read(made, read_socket);
    ::BIO_meth_set_ctrl(made, control_socket);
    return std::unique_ptr<BIO_METHOD, decltype(&::BIO_meth_free)>(made, ::BIO_meth_free);
  }();
  return method.get();
}

// The last error is what the other end says of the certificate of this one.
bool is_certificate_rejected() {
  constexpr int kAlerts[] = {
      SSL_R_SSLV3_ALERT_BAD_CERTIFICATE,     SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE,
      SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED, SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED,
      SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN, SSL_R_TLSV1_ALERT_UNKNOWN_CA,
      SSL_R_TLSV1_ALERT_ACCESS_DENIED,       SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED};
  const unsigned long code = ::ERR_peek_last_error();
  return ERR_GET_LIB(code) == ERR_LIB_SSL &&
         std::ranges::find(kAlerts, ERR_GET_REASON(code)) != std::ranges::end(kAlerts);
}

}  // namespace

TlsPipe::TlsPipe(Ssl ssl, base::Descriptor socket, uint64_t records)
    : socket_(std::make_unique<TlsSocket>(TlsSocket{std::move(socket)})),
      ssl_(std::move(ssl)),
      records_per_key_(records) {
  BIO* const bio = ::BIO_new(socket_method());
  ::BIO_set_data(bio, socket_.get());
  ::BIO_set_init(bio, 1);
  ::SSL_set_bio(ssl_.get(), bio, bio);
}

bool TlsPipe::waits(int done, int& error) const {
  error = ::SSL_get_error(ssl_.get(), done);
  return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
}

std::string TlsPipe::reason(int error) const {
  if (error == SSL_ERROR_ZERO_RETURN || (error == SSL_ERROR_SYSCALL && socket_->error == 0)) {
    return "the connection has ended";
  }
  if (error == SSL_ERROR_SYSCALL) {
    return std::strerror(socket_->error);
  }
  const bool rejected = is_certificate_rejected();
  return (rejected ? "it rejects the certificate of this worker: TLS: " : "TLS: ") + tls_reason();
}

void TlsPipe::fail(int error) const {
  const bool rejected = is_certificate_rejected();
  const std::string text = reason(error);
  if (rejected) {
    throw CertificateRejected(text);
  }
  throw base::PipeBroken(text);
}

short TlsPipe::shake_hands() {
  ::ERR_clear_error();
  socket_->error = 0;
  const int done = ::SSL_do_handshake(ssl_.get());
  int error = 0;
  if (done == 1) {
    return 0;
  }
  if (waits(done, error)) {
    return error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
  }
  if (const long verified = ::SSL_get_verify_result(ssl_.get()); verified != X509_V_OK) {
    throw Error(
        ErrorCode::kFailedPrecondition,
        fmt::format("its certificate is rejected: {}", ::X509_verify_cert_error_string(verified)));
  }
  const bool rejected = is_certificate_rejected();
  throw Error(rejected ? ErrorCode::kFailedPrecondition : ErrorCode::kUnavailable, reason(error));
}

size_t TlsPipe::send(std::span<const std::byte> bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    ::ERR_clear_error();
    socket_->error = 0;
    size_t taken = 0;
    const int done = ::SSL_write_ex(ssl_.get(), bytes.data() + sent, bytes.size() - sent, &taken);
    int error = 0;
    if (done != 1 && waits(done, error)) {
      break;
    }
    if (done != 1) {
      fail(error);
    }
    sent += taken;
    if (++records_ >= records_per_key_) {
      ::SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);  // in front of the next record
      records_ = 0;
    }
  }
  return sent;
}

size_t TlsPipe::receive(std::span<std::byte> bytes) {
  ::ERR_clear_error();
  socket_->error = 0;
  size_t got = 0;
  const int done = ::SSL_read_ex(ssl_.get(), bytes.data(), bytes.size(), &got);
  int error = 0;
  if (done != 1 && !waits(done, error)) {
    fail(error);
  }
  return done == 1 ? got : 0;
}

// Of a record that came in part poll() sees the rest.
bool TlsPipe::has_pending() const { return ::SSL_pending(ssl_.get()) > 0; }

void TlsPipe::end() {
  ::ERR_clear_error();
  ::SSL_shutdown(ssl_.get());
  ::shutdown(socket(), SHUT_WR);
}

PeerTls::PeerTls(const std::string& certificate, const std::string& key, const std::string& trusted,
                 uint64_t records_per_key)
    : context_(make_tls_context(::TLS_method())), records_per_key_(records_per_key) {
  SSL_CTX* const context = context_.get();
  use_identity(context, certificate, key);
  trust_text(context, trusted);
  // Of workers alone, which have certificates of servers at both ends.
  ::SSL_CTX_set_purpose(context, X509_PURPOSE_SSL_SERVER);
  ::SSL_CTX_set_num_tickets(context, 0);
  ::SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  // The end of a process without a word is that of its stream.
  ::SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
  ::SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
}

std::shared_ptr<TlsPipe> PeerTls::connect(base::Descriptor socket, const std::string& host) const {
  Ssl ssl = make_ssl(context_);
  expect_name(ssl.get(), host);
  ::SSL_set_connect_state(ssl.get());
  return std::make_shared<TlsPipe>(std::move(ssl), std::move(socket), records_per_key_);
}

std::shared_ptr<TlsPipe> PeerTls::accept(base::Descriptor socket) const {
  Ssl ssl = make_ssl(context_);
  ::SSL_set_accept_state(ssl.get());
  return std::make_shared<TlsPipe>(std::move(ssl), std::move(socket), records_per_key_);
}

}  // namespace tpu::driver::worker
