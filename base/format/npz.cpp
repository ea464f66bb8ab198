// libzip knows ZIP; what its members hold is npy.hpp's.
#include "format/npz.hpp"

#include <fmt/format.h>
#include <zip.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "check/host_room.hpp"
#include "file/files.hpp"
#include "format/npy.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

constexpr std::string_view kSuffix = ".npy";

[[noreturn]] void refuse_npz(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", path, what));
}

using Archive = std::unique_ptr<zip_t, void (*)(zip_t*)>;

Archive open_archive(const std::string& path) {
  // Says what is wrong with the path in the words of all other files; an archive has no name yet.
  const FileBytes readable(path);
  int code = 0;
  zip_t* archive = zip_open(path.c_str(), ZIP_RDONLY | ZIP_CHECKCONS, &code);
  if (archive == nullptr) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    const std::string text = zip_error_strerror(&error);
    zip_error_fini(&error);
    refuse_npz(path, fmt::format("not an .npz file: {}", text));
  }
  return {archive, zip_discard};
}

std::vector<std::string> names_in(zip_t* archive) {
  std::vector<std::string> names;
  for (zip_int64_t i = 0; i < zip_get_num_entries(archive, 0); ++i) {
    const char* raw = zip_get_name(archive, static_cast<zip_uint64_t>(i), 0);
    std::string_view name = raw == nullptr ? "" : raw;
    if (name.ends_with(kSuffix)) {
      name.remove_suffix(kSuffix.size());
    }
    names.emplace_back(name);
  }
  return names;
}

}  // namespace

std::vector<std::string> npz_names(const std::string& path) {
  return names_in(open_archive(path).get());
}

HostArray read_npz(const std::string& path, const std::string& name) {
  const Archive archive = open_archive(path);
  const std::vector<std::string> names = names_in(archive.get());
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    refuse_npz(path, fmt::format("has no array '{}'; it has {}", name, fmt::join(names, ", ")));
  }
  const auto index = static_cast<zip_uint64_t>(found - names.begin());
  const std::string what = fmt::format("{}, array '{}'", path, name);
  zip_stat_t info;
  zip_stat_init(&info);
  if (zip_stat_index(archive.get(), index, 0, &info) != 0 || (info.valid & ZIP_STAT_SIZE) == 0) {
    refuse_npz(what, "has no size");
  }
  need_host_room(info.size, what);
  const std::unique_ptr<zip_file_t, int (*)(zip_file_t*)> member(
      zip_fopen_index(archive.get(), index, 0), zip_fclose);
  if (member == nullptr) {
    refuse_npz(what, zip_strerror(archive.get()));
  }
  std::vector<std::byte> bytes(info.size);
  const zip_int64_t count = zip_fread(member.get(), bytes.data(), bytes.size());
  if (count < 0 || static_cast<uint64_t>(count) != info.size) {
    refuse_npz(what, fmt::format("damaged: {}", zip_file_strerror(member.get())));
  }
  return parse_npy(bytes, what);
}

}  // namespace tpu::driver
