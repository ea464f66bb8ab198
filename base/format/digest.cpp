// Each array enters as: dtype name, zero byte, rank and dimensions as u64, elements; little-endian.
// In pieces, the elements of each stand behind a byte 1, and a piece of zeros is a byte 0.
#include "format/digest.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

constexpr std::array<std::byte, Digest::kPieceBytes> kZeroPiece{};

}  // namespace

struct Digest::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }

  void update(const void* data, size_t bytes) {
    if (EVP_DigestUpdate(context, data, bytes) != 1) {
      throw Error(ErrorCode::kInternal, "SHA-256 failed");
    }
  }
};

Digest::Digest(Zeros zeros) : state_(std::make_unique<State>()), zeros_(zeros) {
  if (state_->context == nullptr ||
      EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) != 1) {
    throw Error(ErrorCode::kInternal, "SHA-256 is not available in the OpenSSL library");
  }
}

Digest::~Digest() = default;

void Digest::add(const HostView& array) {
  begin(array.dtype, array.shape);
  add_bytes(array.bytes);
}

void Digest::add_bytes(std::span<const std::byte> bytes) {
  if (!in_pieces_) {
    state_->update(bytes.data(), bytes.size());
    return;
  }
  while (!bytes.empty()) {
    if (begun_.empty() && bytes.size() >= kPieceBytes) {
      add_piece(bytes.first(kPieceBytes));
      bytes = bytes.subspan(kPieceBytes);
      continue;
    }
    const size_t taken = std::min(bytes.size(), kPieceBytes - begun_.size());
    begun_.insert(begun_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(taken));
    bytes = bytes.subspan(taken);
    if (begun_.size() == kPieceBytes) {
      end_piece();
    }
  }
}

void Digest::add_piece(std::span<const std::byte> piece) {
  const bool zeros = std::memcmp(piece.data(), kZeroPiece.data(), piece.size()) == 0;
  const std::byte mark{zeros ? uint8_t{0} : uint8_t{1}};
  state_->update(&mark, 1);
  if (!zeros) {
    state_->update(piece.data(), piece.size());
  }
}

void Digest::end_piece() {
  if (!begun_.empty()) {
    add_piece(begun_);
    begun_.clear();
  }
}

void Digest::add_zeros(uint64_t count) {
  for (uint64_t left = count; left > 0;) {
    const uint64_t piece = std::min<uint64_t>(left, kZeroPiece.size());
    add_bytes(std::span(kZeroPiece).first(piece));
    left -= piece;
  }
}

void Digest::begin(DType dtype, const Shape& shape) {
  end_piece();
  in_pieces_ = zeros_ == Zeros::kCounted && byte_count(dtype, shape) >= kLargeBytes;
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
  end_piece();
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
