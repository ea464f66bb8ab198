// Archive: one function of a class names its state once, for both directions. Saving reads the
// fields, loading writes them. What the bytes go to and come from is the archive's own
// (snapshot_file.hpp).
//
//   void Timer::visit_state(spec::Archive& archive) { archive(compare_, armed_); }
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace tpu::spec {

/// State that cannot be saved or loaded; the text says why.
class ArchiveError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Archive;

/// A type that names its own fields.
template <typename T>
concept HasState = requires(T& value, Archive& archive) {
  value.visit_state(archive);
};

class Archive {
 public:
  virtual ~Archive() = default;

  bool loading() const { return loading_; }
  /// What follows belongs to `name`; sections are loaded in the order in which they were saved.
  virtual void section(const std::string& name) = 0;
  /// Bytes of memory that is there already.
  virtual void bytes(std::span<std::byte> data) = 0;
  /// Bytes that the section still has; only when loading.
  virtual uint64_t left() const = 0;

  /// What has been loaded and is no state that could have been saved; `what` is for people. Before
  /// the value is used: for an index, a length, an enumeration, a time. Nothing when saving.
  void need(bool good, const char* what) const {
    if (loading_ && !good) {
      throw ArchiveError(what);
    }
  }

  void bytes(uint8_t* data, uint64_t count) {
    bytes(std::as_writable_bytes(std::span(data, count)));
  }

  template <typename... T>
  void operator()(T&... fields) {
    (field(fields), ...);
  }

  /// A list that is as long on every board of these numbers.
  template <typename T>
  void fixed(std::vector<T>& values) {
    const size_t count = values.size();
    (*this)(values);
    need(values.size() == count, "a list has another length than on this board");
  }
  /// An enumeration whose values go from 0 to `last`.
  template <typename Enum>
  requires std::is_enum_v<Enum>
  void choice(Enum& value, Enum last) {
    auto number = static_cast<std::underlying_type_t<Enum>>(value);
    (*this)(number);
    if (loading_ && (number < 0 || number > static_cast<std::underlying_type_t<Enum>>(last))) {
      throw ArchiveError("invalid enumeration value: expected 0 to " +
                         std::to_string(static_cast<int64_t>(last)) + ", found " +
                         std::to_string(static_cast<int64_t>(number)));
    }
    value = static_cast<Enum>(number);
  }

  /// The size of a container; of one that is loaded no more than the section has bytes for.
  uint64_t size(uint64_t now, uint64_t least_bytes) {
    (*this)(now);
    if (loading_ && least_bytes != 0 && now > left() / least_bytes) {
      throw ArchiveError("a list of " + std::to_string(now) +
                         " elements does not fit into its section (" + std::to_string(left()) +
                         " bytes left)");
    }
    return now;
  }

 protected:
  explicit Archive(bool loading) : loading_(loading) {}

 private:
  // One object, one pattern of bytes, and every pattern an object: integers, and structs of these
  // without holes. Structs with a flag have a visit_state(); an enumeration is a choice().
  template <typename T>
  static constexpr bool kPlain =
      !HasState<T> && std::is_trivially_copyable_v<T> &&
      std::has_unique_object_representations_v<T> && !std::is_same_v<T, bool> &&
      (!std::is_enum_v<T> || std::is_same_v<T, std::byte>);

  template <typename T>
  void plain(T* first, size_t count) {
    bytes(std::as_writable_bytes(std::span(first, count)));
  }

  template <typename T>
  void field(T& value) {
    if constexpr (HasState<T>) {
      value.visit_state(*this);
    } else {
      static_assert(kPlain<T>, "give it a visit_state() function");
      plain(&value, 1);
    }
  }
  void field(bool& flag) {
    uint8_t byte = flag ? 1 : 0;
    plain(&byte, 1);
    need(byte <= 1, "a flag is neither 0 nor 1");
    flag = byte != 0;
  }
  template <typename T, size_t kCount>
  void field(std::array<T, kCount>& values) {
    elements(values);
  }
  template <typename T>
  void field(std::vector<T>& values) {
    values.resize(size(values.size(), kPlain<T> ? sizeof(T) : 1));
    elements(values);
  }
  template <typename T>
  void field(std::deque<T>& values) {
    values.resize(size(values.size(), 1));
    for (T& value : values) {
      field(value);
    }
  }
  void field(std::string& text) {
    text.resize(size(text.size(), 1));
    plain(text.data(), text.size());
  }
  void field(std::vector<bool>& flags) {
    flags.resize(size(flags.size(), 1));
    for (size_t i = 0; i < flags.size(); ++i) {
      bool flag = flags[i];
      field(flag);
      flags[i] = flag;
    }
  }
  template <typename Values>
  void elements(Values& values) {
    using T = typename Values::value_type;
    if constexpr (kPlain<T>) {
      plain(values.data(), values.size());
    } else {
      for (T& value : values) {
        field(value);
      }
    }
  }

  const bool loading_;
};

}  // namespace tpu::spec
