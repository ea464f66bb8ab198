// Which rows, by the paths of board_signals.cpp.
#include "waves/wave_page.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

namespace tpu::model {
namespace {

using Signal = SignalTree::Signal;
using Signals = std::vector<const Signal*>;
using Draw = WaveRow::Draw;

constexpr std::string_view kBoard = "board.";

// "chip0.core1" of all below that core; "chip0.pcie" of what belongs to none.
std::string owner_of(const std::string& path) {
  size_t end = kBoard.size();
  for (int part = 0; part < 2; ++part) {
    end = std::min(path.find('.', end + 1), path.size());
  }
  return path.substr(kBoard.size(), end - kBoard.size());
}

bool is_core(const std::string& owner) { return owner.find(".core") != std::string::npos; }

// Below its owner: "vpu.op", or "step".
std::string name_of(const Signal& signal) {
  const std::string& path = signal.path;
  return path.substr(kBoard.size() + owner_of(path).size() + 1);
}

// "vpu" of "vpu.op", "core" of what a core has itself.
std::string instance_of(const Signal& signal) {
  const std::string name = name_of(signal);
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? "core" : name.substr(0, dot);
}

std::string leaf_of(const Signal& signal) { return signal.path.substr(signal.path.rfind('.') + 1); }

struct Shown {
  std::string_view leaf;
  std::string_view label;  // behind the instance
  Draw draw;
};
// Of each instance of a core, in its own page.
constexpr std::array<Shown, 9> kShown = {
    {{"step", "step", Draw::kValues},
     {"state", "state", Draw::kValues},
     {"op", "op", Draw::kTones},
     {"queued", "queued", Draw::kStairs},
     {"flow_left", "bytes left", Draw::kStairs},
     {"read_bytes_per_kcycle", "read B/kcycle", Draw::kHighStairs},
     {"write_bytes_per_kcycle", "write B/kcycle", Draw::kHighStairs},
     {"sent_bytes_per_kcycle", "sent B/kcycle", Draw::kHighStairs},
     {"received_bytes_per_kcycle", "received B/kcycle", Draw::kHighStairs}}};

const Shown* shown(const Signal& signal) {
  const std::string leaf = leaf_of(signal);
  const auto found = std::ranges::find(kShown, leaf, &Shown::leaf);
  return found == kShown.end() ? nullptr : &*found;
}

// The others, by instance.
std::vector<WaveGroup> groups_of(const Signals& signals, bool open) {
  std::vector<WaveGroup> groups;
  for (const Signal* signal : signals) {
    const std::string instance = instance_of(*signal);
    if (groups.empty() || groups.back().name != instance) {
      groups.push_back({instance, open, {}});
    }
    groups.back().rows.push_back({signal, leaf_of(*signal)});
  }
  return groups;
}

WavePage page_of_core(const std::string& name, const Signals& signals) {
  WavePage page{name, {{}}};
  Signals others;
  for (const Signal* signal : signals) {
    const Shown* row = shown(*signal);
    if (row == nullptr) {
      others.push_back(signal);
      continue;
    }
    const std::string instance = instance_of(*signal);
    const std::string label =
        instance == "core" ? std::string(row->label) : instance + " " + std::string(row->label);
    page.groups[0].rows.push_back({signal, label, row->draw});
  }
  const std::vector<WaveGroup> rest = groups_of(others, page.groups[0].rows.empty());
  page.groups.insert(page.groups.end(), rest.begin(), rest.end());
  return page;
}

// One row an engine; all signals of a core that has no engine in the file.
std::vector<WaveGroup> groups_on_board(const std::string& owner, const Signals& signals) {
  WaveGroup engines{owner, true, {}};
  for (const Signal* signal : signals) {
    if (signal->kind.format == WaveFormat::kText) {
      engines.rows.push_back({signal, instance_of(*signal), Draw::kTones});
    }
  }
  if (!engines.rows.empty()) {
    return {engines};
  }
  std::vector<WaveGroup> groups = groups_of(signals, is_core(owner));
  for (WaveGroup& group : groups) {
    group.name = is_core(owner) ? owner + "." + group.name : owner;
  }
  return groups;
}

}  // namespace

std::vector<WavePage> wave_pages(const SignalTree& tree) {
  std::vector<std::string> owners;
  std::map<std::string, Signals> by_owner;
  for (const Signal& signal : tree.signals()) {
    const std::string owner = owner_of(signal.path);
    Signals& signals = by_owner[owner];
    if (signals.empty()) {
      owners.push_back(owner);
    }
    signals.push_back(&signal);
  }
  const auto cores = std::ranges::count_if(owners, is_core);
  std::ranges::stable_partition(owners, is_core);
  std::vector<WavePage> pages = {{}};
  for (const std::string& owner : owners) {
    std::vector<WaveGroup> groups = groups_on_board(owner, by_owner[owner]);
    if (is_core(owner)) {
      pages.push_back(page_of_core(owner, by_owner[owner]));
      groups = cores == 1 ? pages.back().groups : groups;
    }
    pages[0].groups.insert(pages[0].groups.end(), groups.begin(), groups.end());
  }
  return pages;
}

}  // namespace tpu::model
