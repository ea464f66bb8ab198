#include "transport/worker/tls_context.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <array>
#include <functional>
#include <utility>

#include "tpu/error.hpp"

namespace tpu::driver::worker {
namespace {

[[noreturn]] void refuse_file(const std::string& file, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", file, why));
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

bool is_address(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  return ::inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

// A certificate that is named itself need not be that of a signer.
void verify_with_what_is_trusted(ssl_ctx_st* context) {
  ::SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  ::X509_VERIFY_PARAM_set_flags(::SSL_CTX_get0_param(context), X509_V_FLAG_PARTIAL_CHAIN);
}

// How many there are.
int for_each_certificate(const std::string& pem, const std::function<void(X509& one)>& call) {
  const std::unique_ptr<BIO, decltype(&::BIO_free)> text(
      ::BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), ::BIO_free);
  int count = 0;
  for (;; ++count) {
    const std::unique_ptr<X509, decltype(&::X509_free)> one(
        ::PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr), ::X509_free);
    if (!one) {
      break;
    }
    call(*one);
  }
  ::ERR_clear_error();  // the end of the text is an error to OpenSSL
  return count;
}

}  // namespace

void FreeContext::operator()(ssl_ctx_st* context) const { ::SSL_CTX_free(context); }
void FreeSsl::operator()(ssl_st* ssl) const { ::SSL_free(ssl); }

std::string tls_reason() {
  std::string text;
  while (const unsigned long code = ::ERR_get_error()) {
    std::array<char, 256> line{};
    ::ERR_error_string_n(code, line.data(), line.size());
    text += (text.empty() ? "" : "; ") + std::string(line.data());
  }
  return text.empty() ? "no reason is known" : text;
}

TlsContext make_tls_context(const ssl_method_st* method) {
  TlsContext context(::SSL_CTX_new(method));
  if (!context || ::SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) != 1) {
    throw Error(ErrorCode::kInternal, "OpenSSL has no TLS 1.3: " + tls_reason());
  }
  return context;
}

void use_identity(ssl_ctx_st* context, const std::string& certificate, const std::string& key) {
  ::ERR_clear_error();
  if (::SSL_CTX_use_certificate_chain_file(context, certificate.c_str()) != 1) {
    refuse_file(certificate, "expected a certificate in PEM: " + tls_reason());
  }
  const X509* const own = ::SSL_CTX_get0_certificate(context);
  if (::X509_cmp_current_time(::X509_get0_notAfter(own)) < 0) {
    refuse_file(certificate, "the certificate has expired");
  }
  check_mode(key);
  if (::SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      ::SSL_CTX_check_private_key(context) != 1) {
    refuse_file(key, "expected the key of the certificate in PEM: " + tls_reason());
  }
}

void trust_file(ssl_ctx_st* context, const std::string& file) {
  ::ERR_clear_error();
  if (::SSL_CTX_load_verify_locations(context, file.c_str(), nullptr) != 1) {
    refuse_file(file, "expected certificates in PEM: " + tls_reason());
  }
  verify_with_what_is_trusted(context);
}

std::string certificates_in(const std::string& pem) {
  const std::unique_ptr<BIO, decltype(&::BIO_free)> made(::BIO_new(::BIO_s_mem()), ::BIO_free);
  for_each_certificate(pem, [&](X509& one) { ::PEM_write_bio_X509(made.get(), &one); });
  std::string text(static_cast<size_t>(::BIO_ctrl_pending(made.get())), '\0');
  ::BIO_read(made.get(), text.data(), static_cast<int>(text.size()));
  return text;
}

void trust_text(ssl_ctx_st* context, const std::string& pem) {
  const int count = for_each_certificate(
      pem, [&](X509& one) { ::X509_STORE_add_cert(::SSL_CTX_get_cert_store(context), &one); });
  if (count == 0) {
    throw Error(ErrorCode::kInvalidArgument, "OpenOptions::connect_ca has no certificate in PEM");
  }
  verify_with_what_is_trusted(context);
}

Ssl make_ssl(const TlsContext& context) {
  ::ERR_clear_error();
  Ssl ssl(::SSL_new(context.get()));
  if (!ssl) {
    throw Error(ErrorCode::kResourceExhausted, "TLS: " + tls_reason());
  }
  return ssl;
}

void expect_name(ssl_st* ssl, const std::string& host) {
  const bool named = is_address(host)
                         ? ::X509_VERIFY_PARAM_set1_ip_asc(::SSL_get0_param(ssl), host.c_str()) == 1
                         : ::SSL_set1_host(ssl, host.c_str()) == 1 &&
                               ::SSL_set_tlsext_host_name(ssl, host.c_str()) == 1;
  if (!named) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("'{}' cannot be the name in a certificate: {}", host, tls_reason()));
  }
}

bool has_name(const ssl_st* ssl, const std::string& host) {
  const std::unique_ptr<X509, decltype(&::X509_free)> shown(::SSL_get1_peer_certificate(ssl),
                                                            ::X509_free);
  return shown && (is_address(host)
                       ? ::X509_check_ip_asc(shown.get(), host.c_str(), 0) == 1
                       : ::X509_check_host(shown.get(), host.data(), host.size(), 0, nullptr) == 1);
}

}  // namespace tpu::driver::worker
