// tpuboard examples: copies the examples of the installation to where they can be changed.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "cli/own_files.hpp"
#include "cli/scratch_folder.hpp"
#include "file/files.hpp"
#include "terminal/printable_text.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

namespace fs = std::filesystem;

Error not_copied(const std::string& what) { return {ErrorCode::kFailedPrecondition, what}; }

// What is below a folder, without what Python leaves there; a folder before its files.
std::vector<fs::path> entries_below(const fs::path& folder) {
  std::vector<fs::path> entries;
  for (auto at = fs::recursive_directory_iterator(folder); at != fs::end(at); ++at) {
    if (at->path().filename() == "__pycache__") {
      at.disable_recursion_pending();
    } else {
      entries.push_back(at->path().lexically_relative(folder));
    }
  }
  return entries;
}

// How many files. They belong to the user, who can change them also where the installation's are
// for reading alone. `folder`: what the user calls the place of `to`.
size_t copy_files(const fs::path& from, const std::vector<fs::path>& entries, const fs::path& to,
                  const std::string& folder) {
  fs::create_directory(to);
  size_t files = 0;
  for (const fs::path& entry : entries) {
    if (fs::is_directory(from / entry)) {
      fs::create_directory(to / entry);
      continue;
    }
    std::error_code error;
    if (!fs::copy_file(from / entry, to / entry, error)) {
      throw not_copied(fmt::format("{}: {} cannot be copied to it: {}; name another DIR", folder,
                                   (from / entry).string(), error.message()));
    }
    fs::permissions(to / entry, fs::perms::owner_write, fs::perm_options::add);
    ++files;
  }
  return files;
}

void examples(const std::string& folder) {
  const fs::path from = example_file("README.md").parent_path();
  const fs::path to = fs::path(folder) / "examples";
  const std::string taken = fmt::format(
      "{}: exists already, and nothing in it is replaced; name another DIR, or remove it first",
      to.string());
  if (fs::symlink_status(to).type() != fs::file_type::not_found) {
    throw not_copied(taken);
  }
  // Before anything is made: the copy can be in the folder that is copied.
  const std::vector<fs::path> entries = entries_below(from);
  make_folder(folder);
  const ScratchFolder unfinished(fs::path(folder) / "examples.XXXXXX", [&](const char* why) {
    throw not_copied(
        fmt::format("{}: no folder can be made in it: {}; name another one", folder, why));
  });
  const fs::path copy = fs::path(unfinished.path()) / "examples";
  const size_t files = copy_files(from, entries, copy, folder);
  std::error_code error;
  fs::rename(copy, to, error);
  if (error) {
    throw not_copied(fs::exists(to) ? taken : fmt::format("{}: {}", to.string(), error.message()));
  }
  spec::print("== {}: {} files; its README.md says what each folder shows\n", shown(to), files);
  spec::print("== next: {} run {} --no-data\n", own_command(),
              shown(to / "mnist_mlp" / "train_step.mlirbc"));
}

}  // namespace

void add_examples_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("examples", "Copy the examples of the installation");
  auto folder = std::make_shared<std::string>();
  command->add_option("DIR", *folder, "Where the folder `examples` is made; . is the current one")
      ->required()
      ->check(folder_named)
      ->type_name("");
  command->callback([folder] { examples(*folder); });
}

}  // namespace tpu::driver
