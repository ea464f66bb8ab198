#include "input/records/compression.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <new>

#include "check/host_room.hpp"
#include "tpu/error.hpp"

namespace tpu::input {
namespace {

constexpr int kGzipWindow = 15 + 16;
constexpr int kZlibWindow = 15;
constexpr int kEitherWindow = 15 + 32;
constexpr size_t kGrowth = size_t{1} << 16;
constexpr size_t kPackedPiece = size_t{1} << 18;

class Inflater {
 public:
  Inflater() {
    if (inflateInit2(&stream_, kEitherWindow) != Z_OK) {
      throw std::bad_alloc();
    }
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  z_stream& stream() { return stream_; }

 private:
  z_stream stream_{};
};

[[noreturn]] void damaged(const std::string& path, uint64_t at, const std::string& why) {
  throw driver::Error(driver::ErrorCode::kInvalidArgument,
                      fmt::format("{}: damaged compressed data near byte {}: {}", path, at, why));
}

}  // namespace

Compression compression_of(std::span<const std::byte> first) {
  if (first.size() < 2) {
    return Compression::kNone;
  }
  const auto a = static_cast<unsigned>(first[0]);
  const auto b = static_cast<unsigned>(first[1]);
  if (a == 0x1F && b == 0x8B) {
    return Compression::kGzip;
  }
  const bool zlib = (a & 0x0F) == 8 && a >> 4 <= 7 && (a << 8 | b) % 31 == 0;
  return zlib ? Compression::kZlib : Compression::kNone;
}

std::vector<std::byte> unpack(const std::function<std::span<const std::byte>()>& next,
                              const std::string& path) {
  Inflater inflater;
  z_stream& stream = inflater.stream();
  std::vector<std::byte> out;
  size_t used = 0;
  uint64_t taken = 0;
  bool ended = false;  // a member
  for (std::span<const std::byte> piece = next(); !piece.empty(); piece = next()) {
    // zlib does not write to its input; its type says otherwise.
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(piece.data()));
    stream.avail_in = static_cast<uInt>(piece.size());
    while (stream.avail_in > 0) {
      if (ended) {
        inflateReset(&stream);
        ended = false;
      }
      if (out.size() - used < kGrowth / 2) {
        const size_t size = out.size() + std::max({kGrowth, out.size() / 2, 2 * piece.size()});
        driver::need_host_room(size, fmt::format("{}, unpacked", path));
        out.resize(size);
      }
      const size_t room = std::min<size_t>(out.size() - used, std::numeric_limits<uInt>::max());
      stream.next_out = reinterpret_cast<Bytef*>(out.data() + used);
      stream.avail_out = static_cast<uInt>(room);
      const int result = inflate(&stream, Z_NO_FLUSH);
      used += room - stream.avail_out;
      if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
        damaged(path, taken + piece.size() - stream.avail_in,
                stream.msg != nullptr ? stream.msg : "no valid data");
      }
      ended = result == Z_STREAM_END;
    }
    taken += piece.size();
  }
  if (!ended) {
    damaged(path, taken, "the file ends in the middle");
  }
  out.resize(used);
  out.shrink_to_fit();
  return out;
}

struct Packer::State {
  z_stream stream{};
};

Packer::Packer(Compression compression) {
  if (compression == Compression::kNone) {
    return;
  }
  state_ = std::make_unique<State>();
  constexpr int kMemoryLevel = 8;
  if (deflateInit2(&state_->stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED,
                   compression == Compression::kGzip ? kGzipWindow : kZlibWindow, kMemoryLevel,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::bad_alloc();
  }
}

Packer::~Packer() {
  if (state_) {
    deflateEnd(&state_->stream);
  }
}

std::span<const std::byte> Packer::add(std::span<const std::byte> bytes, bool last) {
  if (!state_) {
    return bytes;
  }
  z_stream& stream = state_->stream;
  out_.clear();
  do {
    const size_t count = std::min<size_t>(bytes.size(), std::numeric_limits<uInt>::max());
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(bytes.data()));
    stream.avail_in = static_cast<uInt>(count);
    bytes = bytes.subspan(count);
    const int flush = last && bytes.empty() ? Z_FINISH : Z_NO_FLUSH;
    do {
      const size_t used = out_.size();
      out_.resize(used + kPackedPiece);
      stream.next_out = reinterpret_cast<Bytef*>(out_.data() + used);
      stream.avail_out = static_cast<uInt>(kPackedPiece);
      deflate(&stream, flush);
      out_.resize(used + kPackedPiece - stream.avail_out);
    } while (stream.avail_out == 0);
  } while (!bytes.empty());
  return out_;
}

}  // namespace tpu::input
