// Each array enters as: dtype name, zero byte, rank and dimensions as u64, elements; little-endian.
#include "files/digest.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "tpu/error.hpp"

namespace tpu::driver {

struct Digest::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }

  void update(const void* data, size_t bytes) {
    if (EVP_DigestUpdate(context, data, bytes) != 1) {
      throw Error(ErrorCode::kInternal, "SHA-256 failed");
    }
  }
};

Digest::Digest() : state_(std::make_unique<State>()) {
  if (state_->context == nullptr ||
      EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) != 1) {
    throw Error(ErrorCode::kInternal, "SHA-256 is not there");
  }
}

Digest::~Digest() = default;

void Digest::add(const HostView& array) {
  begin(array.dtype, array.shape);
  add_bytes(array.bytes);
}

void Digest::add_bytes(std::span<const std::byte> bytes) {
  state_->update(bytes.data(), bytes.size());
}

void Digest::add_zeros(uint64_t count) {
  static constexpr std::array<std::byte, 1 << 16> kZeros{};
  for (uint64_t left = count; left > 0;) {
    const uint64_t piece = std::min<uint64_t>(left, kZeros.size());
    add_bytes(std::span(kZeros).first(piece));
    left -= piece;
  }
}

void Digest::begin(DType dtype, const Shape& shape) {
  const std::string name = dtype_name(dtype);
  state_->update(name.c_str(), name.size() + 1);
  const auto number = [&](uint64_t value) {
    std::array<unsigned char, 8> bytes{};
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<unsigned char>(value >> (8 * i));
    }
    state_->update(bytes.data(), bytes.size());
  };
  number(shape.size());
  for (const int64_t dim : shape) {
    number(static_cast<uint64_t>(dim));
  }
}

std::string Digest::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned int length = 0;
  if (EVP_DigestFinal_ex(state_->context, bytes.data(), &length) != 1) {
    throw Error(ErrorCode::kInternal, "SHA-256 failed");
  }
  std::string text;
  for (unsigned int i = 0; i < length; ++i) {
    text += fmt::format("{:02x}", bytes[i]);
  }
  return text;
}

}  // namespace tpu::driver
