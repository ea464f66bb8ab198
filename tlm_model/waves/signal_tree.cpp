// Globs, scopes, and names that are like one.
#include "waves/signal_tree.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "check/near_names.hpp"

namespace tpu::model {
namespace {

// The instance at `path` or one that holds it.
bool takes(const std::string& glob, const std::string& path) {
  for (size_t end = path.size(); end != std::string::npos && end != 0;
       end = path.rfind('.', end - 1)) {
    if (fnmatch(glob.c_str(), path.substr(0, end).c_str(), 0) == 0) {
      return true;
    }
  }
  return false;
}

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t dot = std::min(path.find('.', begin), path.size());
    parts.push_back(path.substr(begin, dot - begin));
    begin = dot + 1;
  }
  return parts;
}

}  // namespace

SignalTree::SignalTree(std::vector<std::string> globs)
    : globs_(std::move(globs)), matched_(globs_.size()) {}

uint32_t SignalTree::add(const std::string& path, WaveKind kind) {
  bool wanted = globs_.empty();
  for (size_t i = 0; i < globs_.size(); ++i) {
    const bool taken = takes(globs_[i], path);
    matched_[i] = matched_[i] || taken;
    wanted = wanted || taken;
  }
  paths_.push_back(path);
  if (!wanted) {
    return kNoSignal;
  }
  signals_.push_back({path, kind});
  return static_cast<uint32_t>(signals_.size() - 1);
}

void SignalTree::check() const {
  for (size_t i = 0; i < globs_.size(); ++i) {
    if (!matched_[i]) {
      const std::string& glob = globs_[i];
      const std::string unit = glob.substr(0, glob.find(".rtl"));
      const std::string name = unit.substr(unit.rfind('.') + 1);
      const auto is_there = [&](const std::string& instance) {
        return std::ranges::any_of(paths_,
                                   [&](const std::string& path) { return takes(instance, path); });
      };
      if (unit != glob && name.starts_with("mxu") && is_there(unit) && !is_there(unit + ".rtl")) {
        throw std::runtime_error("SimOptions::waves_scopes " + glob + ": " + name +
                                 " does not run as Verilog; add SimOptions::mxu '" + unit +
                                 "=rtl'");
      }
      throw std::runtime_error("SimOptions::waves_scopes " + globs_[i] +
                               ": matches no instance of this board; like it are " +
                               near(globs_[i]));
    }
  }
}

std::string SignalTree::near(const std::string& glob) const {
  std::set<std::string> instances;
  for (const std::string& path : paths_) {
    for (size_t end = path.size(); end != std::string::npos; end = path.rfind('.', end - 1)) {
      instances.insert(path.substr(0, end));
    }
  }
  return spec::near_names(glob, instances);
}

void SignalTree::declare(FstProcess& fst) const {
  std::map<const WaveEnum*, uint32_t> enums;
  std::vector<std::string> open;
  for (const Signal& signal : signals_) {
    uint32_t number = 0;
    if (const WaveEnum* const names = signal.kind.names) {
      uint32_t& known = enums[names];
      if (known == 0) {
        known = fst.add_enum(names->name, signal.kind.width, names->values);
      }
      number = known;
    }
    std::vector<std::string> scope = parts_of(signal.path);
    const std::string name = scope.back();
    scope.pop_back();
    const auto same = static_cast<size_t>(std::ranges::mismatch(open, scope).in1 - open.begin());
    for (; open.size() > same; open.pop_back()) {
      fst.pop_scope();
    }
    for (; open.size() < scope.size(); open.push_back(scope[open.size()])) {
      fst.push_scope(scope[open.size()]);
    }
    fst.add_signal(name, signal.kind.width, number);
  }
  for (; !open.empty(); open.pop_back()) {
    fst.pop_scope();
  }
}

}  // namespace tpu::model
