// What both ends of TLS 1.3 have in common: keys, certificates, and who is trusted.
#pragma once

#include <memory>
#include <string>

struct ssl_ctx_st;
struct ssl_method_st;
struct ssl_st;

namespace tpu::driver::worker {

struct FreeContext {
  void operator()(ssl_ctx_st* context) const;
};
using TlsContext = std::unique_ptr<ssl_ctx_st, FreeContext>;

struct FreeSsl {
  void operator()(ssl_st* ssl) const;
};
using Ssl = std::unique_ptr<ssl_st, FreeSsl>;

/// What OpenSSL says of its last error.
std::string tls_reason();

/// TLS 1.3 alone. Throws Error (Internal).
TlsContext make_tls_context(const ssl_method_st* method);
/// A certificate and its key, files in PEM. Throws Error (InvalidArgument), also for a certificate
/// that has expired; FailedPrecondition for a key that others can read.
void use_identity(ssl_ctx_st* context, const std::string& certificate, const std::string& key);
/// `file`: certificates in PEM, of the other end or of who signed it. Throws Error
/// (InvalidArgument).
void trust_file(ssl_ctx_st* context, const std::string& file);
/// The certificates in a text, in PEM, without what else is there, as keys. Empty: there are none.
std::string certificates_in(const std::string& pem);
/// As trust_file(), of a text.
void trust_text(ssl_ctx_st* context, const std::string& pem);

/// Throws Error (ResourceExhausted).
Ssl make_ssl(const TlsContext& context);
/// The certificate of the other end must have this name or address. Throws Error
/// (InvalidArgument).
void expect_name(ssl_st* ssl, const std::string& host);
/// The certificate that the other end has shown has this name or address.
bool has_name(const ssl_st* ssl, const std::string& host);

}  // namespace tpu::driver::worker
