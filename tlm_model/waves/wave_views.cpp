// Save files. GTKWave: lines of its own session format, "@" the flags of the signals behind it.
// Surfer: its command files (docs/commands of the Surfer project); its state files have no
// documented form and change with its versions.
#include "waves/wave_views.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <vector>

namespace tpu::model {
namespace {

namespace fs = std::filesystem;
using Signals = std::vector<const SignalTree::Signal*>;

// The path up to the parts that name a core, or a chip for what belongs to none.
std::string scope_of(const std::string& path) {
  constexpr size_t kCoreParts = 3;  // board, chip, core
  size_t end = 0;
  for (size_t part = 0; part < kCoreParts; ++part) {
    end = std::min(path.find('.', end + (part == 0 ? 0 : 1)), path.size());
  }
  return path.substr(0, end);
}

std::string instance_of(const std::string& path) { return path.substr(0, path.rfind('.')); }

// "[31:0]" is part of the name of a vector for GTKWave.
void write_gtkw(std::ostream& out, const fs::path& wave, const Signals& signals) {
  constexpr const char* kBit = "@28";  // binary, right-justified
  constexpr const char* kHex = "@22";  // hexadecimal, right-justified
  constexpr const char* kComment = "@200";
  out << "[dumpfile] \"" << fs::absolute(wave).string() << "\"\n[timestart] 0\n[size] 1600 900\n";
  std::string instance;
  for (const SignalTree::Signal* signal : signals) {
    if (const std::string own = instance_of(signal->path); own != instance) {
      instance = own;
      out << kComment << "\n-" << instance << "\n";
    }
    out << (signal->width == 1 ? kBit : kHex) << "\n" << signal->path;
    if (signal->width > 1) {
      out << "[" << signal->width - 1 << ":0]";
    }
    out << "\n";
  }
}

void write_surfer(std::ostream& out, const fs::path& wave, const Signals& signals) {
  out << "load_file " << fs::absolute(wave).string() << "\n";
  std::string instance;
  for (const SignalTree::Signal* signal : signals) {
    if (const std::string own = instance_of(signal->path); own != instance) {
      instance = own;
      out << "divider_add " << instance << "\n";
    }
    out << "variable_add " << signal->path << "\n";
  }
  out << "zoom_fit\n";
}

template <class Write>
std::string write_file(const fs::path& path, const Write& write) {
  std::ofstream file(path);
  write(file);
  return file.flush() ? "" : "waves: writing " + path.string() + " failed (is the disk full?)";
}

}  // namespace

std::string write_wave_views(const std::string& wave_path, const SignalTree& tree) {
  const fs::path wave(wave_path);
  std::map<std::string, Signals> files;  // by what stands before ".gtkw"
  Signals all;
  for (const SignalTree::Signal& signal : tree.signals()) {
    all.push_back(&signal);
    files["." + scope_of(signal.path).substr(std::string("board.").size())].push_back(&signal);
  }
  files[""] = all;
  std::string error;
  for (const auto& [name, signals] : files) {
    fs::path path = wave;
    path.replace_extension();
    path += name + ".gtkw";
    const std::string trouble =
        write_file(path, [&](std::ostream& out) { write_gtkw(out, wave, signals); });
    error = error.empty() ? trouble : error;
  }
  const std::string trouble = write_file(fs::path(wave).replace_extension(".sucl"),
                                         [&](std::ostream& out) { write_surfer(out, wave, all); });
  return error.empty() ? trouble : error;
}

}  // namespace tpu::model
