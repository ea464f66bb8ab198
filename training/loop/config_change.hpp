// Keys of a training configuration that the command line changes: "run.batch=64".
#pragma once

#include <toml++/toml.h>

#include <string>
#include <vector>

namespace tpu::training {

/// Sets each "SECTION.KEY=VALUE" in `root`. VALUE is written as in the file; a text needs no
/// quotes. Errors about such a key name "--with SECTION.KEY=VALUE" in place of file and line.
/// Throws Error (InvalidArgument) for a text that names no key.
void change_config(toml::table& root, const std::vector<std::string>& changes);

}  // namespace tpu::training
