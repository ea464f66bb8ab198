// Files beside a wave file that open it in a viewer on what was recorded: GTKWave save files,
// FILE.gtkw for the board and FILE.chipC.coreK.gtkw for each core, with the colours of operations
// in FILE.ops.txt; for Surfer command files of the same names, ending with ".sucl".
#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>

#include "waves/signal_tree.hpp"
#include "waves/wave_page.hpp"
#include "waves/wave_span.hpp"

namespace tpu::model {

// False: one could not be written.
bool write_wave_views(const std::string& wave_path, const SignalTree& tree, const WaveSpan& span);

struct WaveViewFiles {
  std::filesystem::path wave;
  std::filesystem::path view;   // the file that is written
  std::filesystem::path tones;  // names and colours of texts, for GTKWave
};
void write_gtkwave_view(std::ostream& out, const WaveViewFiles& files, const WavePage& page,
                        const WaveSpan& span);
void write_gtkwave_tones(std::ostream& out, const WaveSpan& span);
void write_surfer_view(std::ostream& out, const WaveViewFiles& files, const WavePage& page,
                       const WaveSpan& span);

}  // namespace tpu::model
