// The header of a .npy file is a Python dict literal with three known keys; nothing else is
// accepted.
#include "format/npy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

#include "check/checked.hpp"
#include "check/host_room.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kAlign = 64;

struct Descr {
  std::string_view text;
  DType dtype;
  bool big_endian = false;
};
// The first of a type is the one that is written.
constexpr std::array kDescrs = std::to_array<Descr>({
    {"<f4", DType::kF32},       {"<V2", DType::kBf16},      {"|V2", DType::kBf16},
    {"<i4", DType::kI32},       {"<u4", DType::kU32},       {"|i1", DType::kI8},
    {"<i1", DType::kI8},        {"i1", DType::kI8},         {"|u1", DType::kU8},
    {"<u1", DType::kU8},        {"u1", DType::kU8},         {"|b1", DType::kI1},
    {"<b1", DType::kI1},        {"?", DType::kI1},          {"<i2", DType::kI16},
    {"<u2", DType::kU16},       {"<i8", DType::kI64},       {"<u8", DType::kU64},
    {"V2", DType::kBf16},       {"<bf2", DType::kBf16},     {"=f4", DType::kF32},
    {"=i4", DType::kI32},       {">f4", DType::kF32, true}, {">i2", DType::kI16, true},
    {">u2", DType::kU16, true}, {">i4", DType::kI32, true}, {">u4", DType::kU32, true},
    {">i8", DType::kI64, true}, {">u8", DType::kU64, true}, {"<c8", DType::kC64},
    {"=c8", DType::kC64},       {">c8", DType::kC64, true}, {"<f8", DType::kF64},
    {"=f8", DType::kF64},       {">f8", DType::kF64, true},
});

[[noreturn]] void refuse(const std::string& name, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", name, what));
}

// Reader of the header's literal.
class Literal {
 public:
  Literal(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  bool take(char c) {
    space();
    if (at_ < text_.size() && text_[at_] == c) {
      ++at_;
      return true;
    }
    return false;
  }
  void need(char c) {
    if (!take(c)) {
      refuse(name_, fmt::format("damaged header: '{}' expected at byte {}", c, at_));
    }
  }
  std::string_view quoted() {
    space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    const size_t end =
        quote == '\'' || quote == '"' ? text_.find(quote, at_ + 1) : std::string_view::npos;
    if (end == std::string_view::npos) {
      refuse(name_,
             "damaged header: a quoted text is expected; structured types are not supported");
    }
    const std::string_view result = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return result;
  }
  std::string_view word() {
    space();
    const size_t start = at_;
    while (at_ < text_.size() && std::isalnum(static_cast<unsigned char>(text_[at_])) != 0) {
      ++at_;
    }
    return text_.substr(start, at_ - start);
  }
  int64_t number() {
    if (take('-')) {
      refuse(name_, fmt::format("damaged header: a dimension has the negative size -{}", word()));
    }
    const std::string_view digits = word();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) {
      refuse(name_, fmt::format("damaged header: invalid dimension '{}'", digits));
    }
    return value;
  }
  bool done() {
    space();
    return at_ == text_.size();
  }

 private:
  void space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) {
      ++at_;
    }
  }

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0;
};

struct Header {
  std::optional<DType> dtype;
  std::optional<Shape> shape;
  bool big_endian = false;
  std::optional<bool> fortran;
};

Shape parse_shape(Literal& literal) {
  Shape shape;
  literal.need('(');
  while (!literal.take(')')) {
    shape.push_back(literal.number());
    if (!literal.take(',')) {
      literal.need(')');
      break;
    }
  }
  return shape;
}

Header parse_header(std::string_view text, const std::string& name) {
  Header header;
  Literal literal(text, name);
  literal.need('{');
  while (!literal.take('}')) {
    const std::string_view key = literal.quoted();
    literal.need(':');
    if (key == "descr") {
      const std::string_view descr = literal.quoted();
      for (const Descr& known : kDescrs) {
        if (known.text == descr) {
          header.dtype = known.dtype;
          header.big_endian = known.big_endian;
        }
      }
      if (!header.dtype) {
        refuse(name, fmt::format("element type '{}' is not supported; supported are f4, f8, V2 "
                                 "(bf16), c8 (complex64), i1, i2, i4, i8, u1, u2, u4, u8 and b1",
                                 descr));
      }
    } else if (key == "fortran_order") {
      const std::string_view value = literal.word();
      if (value != "False" && value != "True") {
        refuse(name,
               fmt::format("damaged header: fortran_order is '{}', not True or False", value));
      }
      header.fortran = value == "True";
    } else if (key == "shape") {
      header.shape = parse_shape(literal);
    } else {
      refuse(name, fmt::format("damaged header: unknown key '{}'", key));
    }
    if (!literal.take(',')) {
      literal.need('}');
      break;
    }
  }
  if (!literal.done() || !header.dtype || !header.shape || !header.fortran) {
    refuse(name, "damaged header: descr, fortran_order and shape are expected");
  }
  return header;
}

}  // namespace

namespace {

// What a file holds, and where its data begin.
struct NpyType {
  DType dtype;
  Shape shape;
  size_t data_at;
  bool big_endian, fortran;
};

NpyType parse_type(std::span<const std::byte> bytes, const std::string& name) {
  const auto byte_at = [&](size_t at) { return static_cast<size_t>(bytes[at]); };
  if (bytes.size() < 10 || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    refuse(name, "not a NumPy .npy file");
  }
  const size_t major = byte_at(6);
  if (major < 1 || major > 3) {
    refuse(name, fmt::format("NumPy format version {} is not supported", major));
  }
  const size_t head = major == 1 ? 10 : 12;
  if (bytes.size() < head) {
    refuse(name, "truncated header");
  }
  size_t length = byte_at(8) | byte_at(9) << 8;
  if (major > 1) {
    length |= byte_at(10) << 16 | byte_at(11) << 24;
  }
  if (length > bytes.size() - head) {
    refuse(name, "truncated header");
  }
  const Header header =
      parse_header({reinterpret_cast<const char*>(bytes.data()) + head, length}, name);
  NpyType array{*header.dtype, *header.shape, head + length, header.big_endian, *header.fortran};
  const std::span<const std::byte> data = bytes.subspan(array.data_at);
  const uint64_t wanted = array_bytes(array.dtype, array.shape, name);
  if (wanted != data.size()) {
    refuse(name, fmt::format("{} needs {} elements of {} bytes; the file holds {} bytes of data",
                             type_text(array.dtype, array.shape), wanted / dtype_bytes(array.dtype),
                             dtype_bytes(array.dtype), data.size()));
  }
  return array;
}

}  // namespace

namespace {

// One element, of numbers of kNumber bytes whose bytes are put the other way round; 1: as they are.
template <size_t kBytes, size_t kNumber>
void move_element(const std::byte* from, std::byte* to) {
  if constexpr (kNumber == 1) {
    std::memcpy(to, from, kBytes);
  } else {
    for (size_t at = 0; at < kBytes; at += kNumber) {
      std::reverse_copy(from + at, from + at + kNumber, to + at);
    }
  }
}

// From the first dimension fastest to the last one, in squares of these two that fit the caches.
template <size_t kBytes, size_t kNumber>
void to_c_order(const std::byte* from, std::byte* to, const Shape& shape) {
  constexpr size_t kSquare = 32;
  const auto rows = static_cast<size_t>(shape.front()), columns = static_cast<size_t>(shape.back());
  size_t middle = 1;
  for (size_t d = 1; d + 1 < shape.size(); ++d) {
    middle *= static_cast<size_t>(shape[d]);
  }
  for (size_t m = 0; m < middle; ++m) {
    size_t in_file = 0, rest = m;  // of the dimensions between, numbered as they are here
    size_t pitch = middle;
    for (size_t d = 1; d + 1 < shape.size(); ++d) {
      pitch /= static_cast<size_t>(shape[d]);
      size_t below = 1;
      for (size_t e = 1; e < d; ++e) {
        below *= static_cast<size_t>(shape[e]);
      }
      in_file += rest / pitch * below;
      rest %= pitch;
    }
    for (size_t r0 = 0; r0 < rows; r0 += kSquare) {
      for (size_t c0 = 0; c0 < columns; c0 += kSquare) {
        for (size_t r = r0; r < std::min(rows, r0 + kSquare); ++r) {
          for (size_t c = c0; c < std::min(columns, c0 + kSquare); ++c) {
            move_element<kBytes, kNumber>(from + ((c * middle + in_file) * rows + r) * kBytes,
                                          to + ((r * middle + m) * columns + c) * kBytes);
          }
        }
      }
    }
  }
}

template <size_t kBytes, size_t kNumber>
void turn(std::span<const std::byte> from, std::byte* to, const NpyType& type) {
  if (type.fortran && type.shape.size() > 1) {
    if (!from.empty()) {
      to_c_order<kBytes, kNumber>(from.data(), to, type.shape);
    }
    return;
  }
  for (size_t at = 0; at < from.size(); at += kBytes) {
    move_element<kBytes, kNumber>(from.data() + at, to + at);
  }
}

template <size_t kBytes>
void turn(std::span<const std::byte> from, std::byte* to, const NpyType& type) {
  constexpr size_t kHalf = kBytes == 8 ? 4 : kBytes;
  if (!type.big_endian) {
    turn<kBytes, 1>(from, to, type);
  } else if (type.dtype == DType::kC64) {
    turn<kBytes, kHalf>(from, to, type);
  } else {
    turn<kBytes, kBytes>(from, to, type);
  }
}

// The array; what has to be turned is so in `turned`.
HostView parse_view(std::span<const std::byte> bytes, const std::string& name,
                    std::vector<std::byte>& turned) {
  NpyType type = parse_type(bytes, name);
  std::span<const std::byte> data = bytes.subspan(type.data_at);
  if (type.big_endian || (type.fortran && type.shape.size() > 1)) {
    need_host_room(data.size(), name);
    turned.resize(data.size());
    switch (dtype_bytes(type.dtype)) {
      case 1:
        turn<1>(data, turned.data(), type);
        break;
      case 2:
        turn<2>(data, turned.data(), type);
        break;
      case 4:
        turn<4>(data, turned.data(), type);
        break;
      default:
        turn<8>(data, turned.data(), type);
    }
    data = turned;
  }
  return {type.dtype, std::move(type.shape), data};
}

HostArray copy_of(const HostView& view) {
  return {view.dtype, view.shape, {view.bytes.begin(), view.bytes.end()}};
}

}  // namespace

HostArray parse_npy(std::span<const std::byte> bytes, const std::string& name) {
  std::vector<std::byte> turned;
  return copy_of(parse_view(bytes, name, turned));
}

NpyFile::NpyFile(const std::string& path)
    : file_(path), view_(file_.use([&](auto bytes) { return parse_view(bytes, path, turned_); })) {}

HostArray read_npy(const std::string& path) {
  const NpyFile file(path);
  need_host_room(file.view().bytes.size(), path);
  HostArray array = copy_of(file.view());
  file.check();
  return array;
}

std::string npy_header(DType dtype, const Shape& dims) {
  std::string_view descr;
  for (const Descr& known : kDescrs) {
    if (known.dtype == dtype && descr.empty()) {
      descr = known.text;
    }
  }
  std::string shape = fmt::format("({}", fmt::join(dims, ", "));
  shape += dims.size() == 1 ? ",)" : ")";
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", descr, shape);
  const bool small = text.size() + kAlign < 65536;
  const size_t head = small ? 10 : 12;
  text.append(kAlign - (head + text.size() + 1) % kAlign, ' ');
  text += '\n';
  std::string prefix(kMagic);
  prefix += small ? '\1' : '\2';
  prefix += '\0';
  for (size_t i = 0; i < head - 8; ++i) {
    prefix += static_cast<char>(text.size() >> (8 * i) & 0xFF);
  }
  return prefix + text;
}

std::vector<std::byte> format_npy(const HostView& array) {
  const std::string text = npy_header(array.dtype, array.shape);
  const auto header = std::as_bytes(std::span(text));
  std::vector<std::byte> bytes(header.begin(), header.end());
  bytes.insert(bytes.end(), array.bytes.begin(), array.bytes.end());
  return bytes;
}

void write_npy(const std::string& path, const HostView& array) {
  const std::string header = npy_header(array.dtype, array.shape);
  FileWriter file(path);
  file.add(std::as_bytes(std::span(header)));
  file.add(array.bytes);
  file.finish();
}

}  // namespace tpu::driver
