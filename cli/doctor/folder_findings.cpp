// Folders that programs of the board write to, whether or not they exist yet; and the locale.
#include <fmt/format.h>
#include <langinfo.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <clocale>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "cli/doctor/finding.hpp"
#include "file/files.hpp"
#include "job/jobs.hpp"

namespace tpu::driver {
namespace {

namespace fs = std::filesystem;

// Why nothing can be written below a folder that may be missing; empty: it can.
std::string unwritable(const fs::path& folder) {
  fs::path nearest = folder;
  std::error_code none;
  while (!fs::exists(nearest, none) && nearest.has_relative_path()) {
    nearest = nearest.parent_path();
  }
  if (!fs::is_directory(nearest, none)) {
    return fmt::format("{} is not a folder", nearest.string());
  }
  if (::access(nearest.c_str(), W_OK | X_OK) != 0) {
    return fmt::format("{}: {}", nearest.string(), std::strerror(errno));
  }
  return {};
}

void look_at_folder(Findings& found, const std::string& topic, const fs::path& folder,
                    const std::string& advice) {
  const std::string why = unwritable(folder);
  found.push_back({why.empty() ? Level::kOk : Level::kWarning, topic,
                   why.empty() ? folder.string() : fmt::format("cannot be written to: {}", why),
                   why.empty() ? "" : advice});
}

void look_at_cache(Findings& found) {
  const std::string named = value_of("TPUBOARD_CACHE");
  if (named == "off") {
    found.push_back({Level::kNote, "compile cache", "off (TPUBOARD_CACHE)", ""});
    return;
  }
  const std::string advice =
      "every process compiles its programs again; name a folder by TPUBOARD_CACHE=DIR, or "
      "TPUBOARD_CACHE=off";
  if (!named.empty()) {
    return look_at_folder(found, "compile cache", named, advice);
  }
  if (const std::string usual = default_cache_folder(); !usual.empty()) {
    return look_at_folder(found, "compile cache", usual, advice);
  }
  found.push_back({Level::kWarning, "compile cache", "no folder, since HOME is not set", advice});
}

void look_at_shared_memory(Findings& found) {
  const fs::path folder = "/dev/shm";
  std::error_code none;
  const bool is_there = fs::is_directory(folder, none) && ::access(folder.c_str(), W_OK) == 0;
  found.push_back(
      {is_there ? Level::kOk : Level::kNote, "/dev/shm", is_there ? "is there" : "is not there",
       is_there ? ""
                : "the board does not use it; multiprocessing of Python and loaders of PyTorch do: "
                  "mount a tmpfs there (docker run --shm-size)"});
}

void look_at_locale(Findings& found) {
  if (std::setlocale(LC_CTYPE, "") == nullptr) {
    found.push_back({Level::kNote, "locale", "the locale of LC_ALL, LC_CTYPE or LANG is missing",
                     "the board prints ASCII alone; for names of files set LC_ALL=C.UTF-8"});
    return;
  }
  const std::string_view code = nl_langinfo(CODESET);
  const bool is_utf8 = code == "UTF-8";
  found.push_back({is_utf8 ? Level::kOk : Level::kNote, "locale", std::string(code),
                   is_utf8 ? ""
                           : "the board prints ASCII alone; names of files that have other "
                             "characters may look wrong: LC_ALL=C.UTF-8"});
  std::setlocale(LC_CTYPE, "C");
}

}  // namespace

void look_at_folders(Findings& found) {
  look_at_cache(found);
  std::error_code none;
  const fs::path temporary = fs::temp_directory_path(none);
  look_at_folder(found, "temporary folder", none ? fs::path("/tmp") : temporary,
                 "pods, servers and live metrics need one; name another by TMPDIR=DIR");
  look_at_folder(found, "live metrics", monitor::jobs_folder(),
                 "tpuboard monitor does not show jobs of this user; name a folder of this user by "
                 "XDG_RUNTIME_DIR");
  look_at_folder(found, "working folder", fs::current_path(none),
                 "results go to out/ in it; name another folder by --out");
  look_at_shared_memory(found);
  look_at_locale(found);
}

}  // namespace tpu::driver
