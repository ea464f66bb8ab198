// Which files there are.
#include "waves/wave_views.hpp"

#include <span>
#include <sstream>
#include <string>
#include <system_error>

#include "file/output_file.hpp"

namespace tpu::model {
namespace {

namespace fs = std::filesystem;

template <class Write>
bool write_file(const fs::path& path, const Write& write) {
  std::ostringstream text;
  write(text);
  const std::string bytes = text.str();
  try {
    spec::OutputFile file(path.string());
    file.add(std::as_bytes(std::span(bytes)));
    file.finish();
    return true;
  } catch (const std::system_error&) {
    return false;
  }
}

}  // namespace

bool write_wave_views(const std::string& wave_path, const SignalTree& tree, const WaveSpan& span) {
  const fs::path wave = fs::absolute(wave_path);
  const auto beside = [&](const std::string& end) {
    fs::path path = wave;
    path.replace_extension();
    path += end;
    return path;
  };
  WaveViewFiles files{wave, {}, beside(".ops.txt")};
  bool good = write_file(files.tones, [&](std::ostream& out) { write_gtkwave_tones(out, span); });
  for (const WavePage& page : wave_pages(tree)) {
    const std::string name = page.name.empty() ? "" : "." + page.name;
    for (const auto& [end, write] :
         {std::pair(".gtkw", &write_gtkwave_view), std::pair(".sucl", &write_surfer_view)}) {
      files.view = beside(name + end);
      good =
          write_file(files.view, [&](std::ostream& out) { write(out, files, page, span); }) && good;
    }
  }
  return good;
}

}  // namespace tpu::model
