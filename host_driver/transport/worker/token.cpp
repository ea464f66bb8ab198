#include "transport/worker/token.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "socket/descriptor.hpp"
#include "tpu/error.hpp"

namespace tpu::driver::worker {
namespace {

constexpr size_t kDigits = 2 * kSecretBytes;

[[noreturn]] void refuse_token(ErrorCode code, const std::string& path, const std::string& why) {
  throw Error(code, fmt::format("token {}: {}", path, why));
}

int digit(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void make_token(const std::string& path) {
  const base::Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) {
    if (errno == EEXIST) {
      return;
    }
    refuse_token(ErrorCode::kFailedPrecondition, path, std::strerror(errno));
  }
  std::string text;
  for (const std::byte each : random_secret()) {
    text += fmt::format("{:02x}", std::to_integer<int>(each));
  }
  text += '\n';
  if (::write(file.number(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    const std::string why = std::strerror(errno);
    ::unlink(path.c_str());
    refuse_token(ErrorCode::kFailedPrecondition, path, why);
  }
}

}  // namespace

std::vector<std::byte> read_token(const std::string& path) {
  const base::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!file.valid() || ::fstat(file.number(), &status) != 0) {
    refuse_token(ErrorCode::kInvalidArgument, path, std::strerror(errno));
  }
  if ((status.st_mode & 077) != 0) {
    refuse_token(ErrorCode::kFailedPrecondition, path,
                 fmt::format("others can read it (mode {:04o}); chmod 600 it, or make a new one",
                             status.st_mode & 07777));
  }
  std::array<char, kDigits + 2> text{};
  const ssize_t got = ::read(file.number(), text.data(), text.size());
  const bool complete = got == static_cast<ssize_t>(kDigits) ||
                        (got == static_cast<ssize_t>(kDigits) + 1 && text[kDigits] == '\n');
  std::vector<std::byte> token;
  for (size_t i = 0; complete && i < kDigits; i += 2) {
    const int high = digit(text[i]);
    const int low = digit(text[i + 1]);
    if (high < 0 || low < 0) {
      break;
    }
    token.push_back(static_cast<std::byte>(high << 4 | low));
  }
  if (token.size() != kSecretBytes) {
    refuse_token(ErrorCode::kInvalidArgument, path,
                 fmt::format("expected {} hexadecimal digits (0-9, a-f)", kDigits));
  }
  return token;
}

std::vector<std::byte> read_or_make_token(const std::string& path) {
  make_token(path);
  return read_token(path);
}

std::vector<std::byte> random_secret() {
  std::vector<std::byte> secret(kSecretBytes);
  if (::RAND_bytes(reinterpret_cast<unsigned char*>(secret.data()), kSecretBytes) != 1) {
    throw Error(ErrorCode::kInternal, "OpenSSL gives no random numbers");
  }
  return secret;
}

bool same_secret(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace tpu::driver::worker
