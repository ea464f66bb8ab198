// GTKWave's save files: lines of its own session format. "@" gives the flags of the rows behind it
// in hexadecimal (TR_ of analyzer.h in GTKWave 3.3), "^1" the file that names and colours values,
// "+{NAME}" how a row is called, "[31:0]" is a part of a vector's name.
#include <algorithm>
#include <array>
#include <cmath>
#include <iomanip>
#include <ostream>

#include "waves/fst_writer.hpp"
#include "waves/wave_views.hpp"

namespace tpu::model {
namespace {

constexpr uint64_t bit(int number) { return uint64_t{1} << number; }
constexpr uint64_t kHex = bit(1);
constexpr uint64_t kDecimal = bit(2);
constexpr uint64_t kBinary = bit(3);
constexpr uint64_t kRight = bit(5);  // of the name
constexpr uint64_t kBlank = bit(9);  // a row without a signal
constexpr uint64_t kInClosed = bit(12);
constexpr uint64_t kNamedByFile = bit(13);
constexpr uint64_t kStairs = bit(15);  // drawn as a curve
constexpr uint64_t kHigher = bit(17);  // more place for the curve above
constexpr uint64_t kFullScale = bit(19);
constexpr uint64_t kClosed = bit(22);
constexpr uint64_t kGroupBegin = bit(23);
constexpr uint64_t kGroupEnd = bit(24);
constexpr uint64_t kEnum = bit(32);

// By WaveTone.
constexpr std::array<const char*, 4> kColours = {"", "?SteelBlue4?", "?DarkOrange4?",
                                                 "?DarkGreen?"};
constexpr int kCurveColour = 3;  // of GTKWave's seven: yellow

constexpr int kWindowWidth = 1600;
constexpr int kWindowHeight = 900;
constexpr int kNamesWidth = 340;  // with their values
constexpr int kTreeWidth = 60;    // closed
constexpr int kWavesWidth = kWindowWidth - kNamesWidth - kTreeWidth - 40;
constexpr double kUnitPixels = 200;  // the zoom is -log2 of the time that these show

// Named markers are written across their line, of which the left half may be outside.
constexpr const char* kTrigger = "          trigger";

class View {
 public:
  View(std::ostream& out, const WaveViewFiles& files) : out_(out), files_(files) {}

  void head(const WaveSpan& span) {
    const double picoseconds = std::max<double>(1, static_cast<double>(span.end - span.begin));
    out_ << "[*] Opens " << files_.wave.filename().string() << ": gtkwave "
         << files_.view.filename().string() << "\n[dumpfile] " << files_.wave << "\n[savefile] "
         << files_.view << "\n[timestart] " << span.begin << "\n[size] " << kWindowWidth << " "
         << kWindowHeight << "\n*" << std::fixed << std::setprecision(6)
         << -std::log2(picoseconds * kUnitPixels / kWavesWidth);
    if (span.trigger) {
      out_ << " " << *span.trigger << " " << *span.trigger << "\n[markername] A" << kTrigger;
    }
    out_ << "\n[treeopen] board.\n[sst_width] " << kTreeWidth << "\n[signals_width] " << kNamesWidth
         << "\n[sst_expanded] 0\n";
  }

  void group(const WaveGroup& group) {
    const uint64_t closed = group.open ? 0 : kClosed;
    if (!group.name.empty()) {
      line(kBlank | kGroupBegin | closed, "-" + group.name);
    }
    for (const WaveRow& each : group.rows) {
      row(each);
    }
    if (!group.name.empty()) {
      line(kBlank | kGroupEnd | closed | (group.open ? 0 : kInClosed), "-" + group.name);
    }
  }

 private:
  void line(uint64_t flags, const std::string& text) {
    out_ << "@" << std::hex << flags << std::dec << "\n" << text << "\n";
  }

  static bool is_curve(const WaveRow& row) {
    return row.draw == WaveRow::Draw::kStairs || row.draw == WaveRow::Draw::kHighStairs;
  }

  static uint64_t format_of(const WaveRow& row) {
    const WaveKind& kind = row.signal->kind;
    if (kind.format == WaveFormat::kText) {
      return kHex | kNamedByFile;
    }
    if (is_curve(row)) {
      return kDecimal | kStairs | kFullScale;
    }
    if (kind.format == WaveFormat::kNames) {
      return kBinary | kEnum;
    }
    return kind.width == 1 ? kBinary : kind.format == WaveFormat::kHex ? kHex : kDecimal;
  }

  void row(const WaveRow& row) {
    const bool text = row.signal->kind.format == WaveFormat::kText;
    const bool curve = is_curve(row);
    const uint32_t width = text ? kWaveTextBits : row.signal->kind.width;
    std::string name = row.signal->path + (text ? "_number" : "");
    name += width > 1 ? "[" + std::to_string(width - 1) + ":0]" : "";
    std::string before = curve ? "[color] " + std::to_string(kCurveColour) + "\n" : "";
    before += text ? "^1 " + files_.tones.string() + "\n" : "";
    line(format_of(row) | kRight, before + "+{" + row.label + "} " + name);
    if (row.draw == WaveRow::Draw::kHighStairs) {
      line(kHigher, "-");
    }
  }

  std::ostream& out_;
  const WaveViewFiles& files_;
};

}  // namespace

void write_gtkwave_view(std::ostream& out, const WaveViewFiles& files, const WavePage& page,
                        const WaveSpan& span) {
  View view(out, files);
  view.head(span);
  for (const WaveGroup& group : page.groups) {
    view.group(group);
  }
}

// "00001a ?DarkGreen?dot_general.3 train.py:42": what GTKWave shows in the place of a value.
void write_gtkwave_tones(std::ostream& out, const WaveSpan& span) {
  out << "# Texts of the signals `op` by their numbers (`op_number`), for GTKWave.\n" << std::hex;
  for (size_t number = 0; number < span.texts.size(); ++number) {
    const WaveText& text = span.texts[number];
    out << std::setw(kWaveTextBits / 4) << std::setfill('0') << number << " "
        << kColours[static_cast<size_t>(text.tone)] << (text.text.empty() ? "-" : text.text)
        << "\n";
  }
}

}  // namespace tpu::model
