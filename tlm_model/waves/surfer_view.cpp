// Surfer's command files (its documentation: Commands). Its state files have no documented form and
// change with its versions. No command draws a curve or zooms to a place: the waves end at the
// right edge, and the window takes between a half and all of the width.
#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "waves/wave_views.hpp"

namespace tpu::model {
namespace {

// Rows are named by their places: hexadecimal digits, as letters from a to p.
std::string place_name(size_t place) {
  std::string name;
  do {
    name.insert(name.begin(), static_cast<char>('a' + place % 16));
    place /= 16;
  } while (place != 0);
  return name;
}

std::string scope_of(const WaveGroup& group) {
  const std::string& path = group.rows.front().signal->path;
  return path.substr(0, path.rfind('.'));
}

void write_row_look(std::ostream& out, const WaveRow& row, size_t place) {
  out << "item_focus " << place_name(place) << "\nitem_rename " << row.label << "\n";
  if (row.signal->kind.format == WaveFormat::kDecimal && row.signal->kind.width > 1) {
    out << "item_set_format Unsigned\nitem_set_color Yellow\n";
  }
}

void write_span(std::ostream& out, const WaveSpan& span) {
  if (span.trigger) {
    out << "cursor_set " << *span.trigger << "\nmarker_set trigger " << *span.trigger << "\n";
  }
  out << "zoom_fit\n";
  const double length = static_cast<double>(std::max<uint64_t>(1, span.end - span.begin));
  for (double shown = static_cast<double>(span.end) / 2; shown >= length; shown /= 2) {
    out << "zoom_in\n";
  }
  out << "scroll_to_end\n";
}

}  // namespace

void write_surfer_view(std::ostream& out, const WaveViewFiles& files, const WavePage& page,
                       const WaveSpan& span) {
  out << "load_file " << files.wave.string() << "\n";
  std::vector<const WaveRow*> places;  // of the open groups; null: a divider
  for (const WaveGroup& group : page.groups) {
    if (!group.open && !group.name.empty()) {
      continue;
    }
    if (!group.name.empty()) {
      std::string name = group.name;  // of one word
      std::ranges::replace(name, '.', '_');
      out << "divider_add " << name << "\n";
      places.push_back(nullptr);
    }
    for (const WaveRow& row : group.rows) {
      out << "variable_add " << row.signal->path << "\n";
      places.push_back(&row);
    }
  }
  for (const WaveGroup& group : page.groups) {
    if (!group.open && !group.name.empty()) {
      out << "scope_add_as_group " << scope_of(group) << "\n";
    }
  }
  out << "group_fold_all\n";
  for (size_t place = 0; place < places.size(); ++place) {
    if (places[place] != nullptr) {
      write_row_look(out, *places[place], place);
    }
  }
  out << "item_unfocus\n";
  write_span(out, span);
}

}  // namespace tpu::model
