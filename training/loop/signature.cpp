// Lists are expanded ("state*3"), compared with the program and then checked as the convention is.
#include "loop/signature.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "check/checked.hpp"
#include "check/refuse.hpp"
#include "loop/signature_check.hpp"

namespace tpu::training {

using driver::Executable;
using driver::ParameterInfo;
using driver::refuse;
using driver::Shape;
using driver::whole_number;

namespace {

constexpr uint64_t kMaxEntries = 65536;

bool is_state(const std::string& entry) { return entry == "state" || entry.starts_with("state:"); }

std::string enumeration(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    text += i == 0 ? "" : i + 1 == names.size() ? " and " : ", ";
    text += names[i];
  }
  return text;
}

std::vector<std::string> input_names(const TrainConfig& config) {
  std::vector<std::string> names;
  for (const InputConfig& input : config.inputs) {
    names.push_back(input.name);
  }
  return names;
}

// "state*3" is three times "state".
std::vector<std::string> expanded(const std::vector<std::string>& list, const char* key) {
  std::vector<std::string> entries;
  for (const std::string& entry : list) {
    const size_t star = entry.find('*');
    const std::optional<uint64_t> count =
        star == std::string::npos ? 1 : whole_number(std::string_view(entry).substr(star + 1));
    if (!count || *count < 1 || *count > kMaxEntries) {
      refuse(fmt::format("program.{}: \"{}\": expected a count in 1..{} after '*'", key, entry,
                         kMaxEntries));
    }
    entries.insert(entries.end(), *count, entry.substr(0, star));
  }
  return entries;
}

// Which list of which program is read.
struct List {
  const char* key;  // in [program]
  const std::string& program;
  size_t count;       // of the arguments or results
  bool loss = false;  // "loss" is the loss, not a metric of that name
};

class Reading {
 public:
  Reading(const TrainConfig& config, List list, size_t leaves)
      : config_(config), list_(list), leaves_(leaves) {}

  std::vector<Place> places(const std::vector<std::string>& entries, bool results,
                            std::vector<std::string>& metrics) {
    if (entries.size() != list_.count) {
      refuse(fmt::format("program.{} names {}, {} has {}", list_.key, entries.size(), list_.program,
                         list_.count));
    }
    std::vector<Place> found;
    for (const std::string& entry : entries) {
      const Place place = results ? result(entry, metrics) : argument(entry);
      const bool twice = place.role != Role::kIgnored &&
                         std::find(found.begin(), found.end(), place) != found.end();
      if (twice) {
        refuse(fmt::format("program.{}: \"{}\" is listed twice", list_.key, entry));
      }
      found.push_back(place);
    }
    return found;
  }

 private:
  std::optional<Place> state(const std::string& entry) {
    constexpr std::string_view kLeaf = "state:";
    if (entry == "state") {
      return Place{Role::kState, next_leaf_++};
    }
    if (!entry.starts_with(kLeaf)) {
      return std::nullopt;
    }
    const auto leaf = whole_number(std::string_view(entry).substr(kLeaf.size()));
    if (!leaf || *leaf >= leaves_) {
      refuse(fmt::format("program.{}: \"{}\": there are state leaves 0 to {}", list_.key, entry,
                         leaves_ - 1));
    }
    return Place{Role::kState, static_cast<size_t>(*leaf)};
  }

  Place argument(const std::string& entry) {
    if (const std::optional<Place> leaf = state(entry)) {
      return *leaf;
    }
    for (size_t i = 0; i < config_.inputs.size(); ++i) {
      if (config_.inputs[i].name == entry) {
        return {Role::kInput, i};
      }
    }
    if (entry == "mask") {
      return {Role::kMask};
    }
    if (entry == "learning_rate") {
      return {Role::kLearningRate};
    }
    refuse(
        fmt::format("program.{}: \"{}\" is not an input; known: state, state:N, {}, mask, "
                    "learning_rate",
                    list_.key, entry, fmt::join(input_names(config_), ", ")));
  }

  Place result(const std::string& entry, std::vector<std::string>& metrics) {
    if (const std::optional<Place> leaf = state(entry)) {
      return *leaf;
    }
    if (entry == "loss" && list_.loss) {
      return {Role::kLoss};
    }
    if (entry == "-") {
      return {Role::kIgnored};
    }
    const auto known = std::find(metrics.begin(), metrics.end(), entry);
    const auto index = static_cast<size_t>(known - metrics.begin());
    if (known == metrics.end()) {
      metrics.push_back(entry);
    }
    return {Role::kMetric, index};
  }

  const TrainConfig& config_;
  const List list_;
  const size_t leaves_;
  size_t next_leaf_ = 0;
};

// Arguments that have the names of the inputs are these; all others are state, in order. Empty when
// not every input is found.
std::vector<std::string> by_name(const TrainConfig& config, const ProgramNames& program) {
  std::vector<std::string> entries(program.arguments.size(), "state");
  size_t inputs = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string& name = program.arguments[i];
    const bool is_input = std::any_of(config.inputs.begin(), config.inputs.end(),
                                      [&](const InputConfig& input) { return input.name == name; });
    inputs += is_input ? 1 : 0;
    if (is_input || name == "mask" || name == "learning_rate") {
      entries[i] = name;
    }
  }
  return inputs == config.inputs.size() ? entries : std::vector<std::string>();
}

std::vector<std::string> train_arguments(const TrainConfig& config, const ProgramNames& program) {
  if (!config.train_signature.arguments.empty()) {
    return expanded(config.train_signature.arguments, "arguments");
  }
  std::vector<std::string> entries = by_name(config, program);
  if (!entries.empty()) {
    return entries;
  }
  std::vector<std::string> names = input_names(config);
  if (takes_rate(config)) {
    names.emplace_back("learning_rate");
  }
  const size_t arguments = program.arguments.size();
  if (arguments <= names.size()) {
    refuse(
        fmt::format("{}: a train program takes state leaves, {} and returns the new leaves and the "
                    "loss; this one has {} arguments and {} results",
                    program.name, enumeration(names), arguments, program.results));
  }
  entries.assign(arguments - names.size(), "state");
  entries.insert(entries.end(), names.begin(), names.end());
  return entries;
}

std::vector<std::string> train_results(const TrainConfig& config, const ProgramNames& program,
                                       size_t leaves) {
  if (!config.train_signature.results.empty()) {
    return expanded(config.train_signature.results, "results");
  }
  if (program.results != leaves + 1) {
    refuse(fmt::format(
        "{}: a train program takes state leaves, {} and returns the new leaves and the "
        "loss; this one has {} arguments and {} results; say in program.arguments and "
        "program.results what they are",
        program.name, enumeration(input_names(config)), program.arguments.size(), program.results));
  }
  std::vector<std::string> entries(leaves, "state");
  entries.emplace_back("loss");
  return entries;
}

std::vector<std::string> eval_arguments(const TrainConfig& config, const ProgramNames& program,
                                        size_t leaves) {
  if (!config.eval_signature.arguments.empty()) {
    return expanded(config.eval_signature.arguments, "eval_arguments");
  }
  std::vector<std::string> entries = by_name(config, program);
  if (!entries.empty()) {
    return entries;
  }
  std::vector<std::string> names = input_names(config);
  names.emplace_back("mask");
  const size_t arguments = program.arguments.size();
  const size_t results = program.results;
  if (arguments <= names.size() || arguments - names.size() > leaves || results == 0 ||
      (results > 2 && config.eval_signature.results.empty())) {
    refuse(
        fmt::format("{}: an eval program takes the first state leaves, {} and returns correct and, "
                    "if wanted, loss_sum; this one has {} arguments and {} results",
                    program.name, enumeration(names), arguments, results));
  }
  entries.assign(arguments - names.size(), "state");
  entries.insert(entries.end(), names.begin(), names.end());
  return entries;
}

std::vector<std::string> eval_results(const TrainConfig& config, const ProgramNames& program) {
  if (!config.eval_signature.results.empty()) {
    return expanded(config.eval_signature.results, "eval_results");
  }
  const std::vector<std::string> usual = {"correct", "loss_sum"};
  const size_t results = program.results;
  if (results == 0 || results > usual.size()) {
    refuse(
        fmt::format("{}: an eval program returns correct and, if wanted, loss_sum; this "
                    "one has {} results; say in program.eval_results what they are",
                    program.name, results));
  }
  return {usual.begin(), usual.begin() + static_cast<ptrdiff_t>(results)};
}

ProgramNames names_of(const Executable& program) {
  ProgramNames names{program.name(), {}, program.results().size()};
  for (const ParameterInfo& info : program.arguments()) {
    names.arguments.push_back(info.name);
  }
  return names;
}

size_t state_leaves(const std::vector<std::string>& entries) {
  return static_cast<size_t>(std::count_if(entries.begin(), entries.end(), is_state));
}

std::vector<Place> argument_places(const TrainConfig& config, const ProgramNames& program,
                                   const char* key, const std::vector<std::string>& entries,
                                   size_t leaves) {
  std::vector<std::string> none;  // metrics are results
  return Reading(config, {key, program.name, program.arguments.size()}, leaves)
      .places(entries, false, none);
}

std::vector<size_t> with_examples(const std::vector<Place>& places) {
  std::vector<size_t> found;
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].role == Role::kInput || places[i].role == Role::kMask) {
      found.push_back(i);
    }
  }
  return found;
}

}  // namespace

std::optional<size_t> Signature::argument(Place place) const {
  const auto at = std::find(arguments.begin(), arguments.end(), place);
  return at == arguments.end() ? std::nullopt : std::optional<size_t>(at - arguments.begin());
}

std::optional<size_t> Signature::result(Place place) const {
  const auto at = std::find(results.begin(), results.end(), place);
  return at == results.end() ? std::nullopt : std::optional<size_t>(at - results.begin());
}

size_t Signature::count(Role role) const {
  return static_cast<size_t>(std::count_if(arguments.begin(), arguments.end(),
                                           [&](const Place& place) { return place.role == role; }));
}

Signature train_signature(const TrainConfig& config, const Executable& program) {
  Signature made;
  const ProgramNames names = names_of(program);
  const std::vector<std::string> entries = train_arguments(config, names);
  const size_t leaves = state_leaves(entries);
  made.arguments = argument_places(config, names, "arguments", entries, leaves);
  made.results = Reading(config, {"results", names.name, names.results, true}, leaves)
                     .places(train_results(config, names, leaves), true, made.metrics);
  check_train_signature(config, program, made);
  return made;
}

Signature eval_signature(const TrainConfig& config, const Executable& program,
                         const Signature& train_signature, const Executable& train) {
  Signature made;
  const ProgramNames names = names_of(program);
  const size_t leaves = train_signature.count(Role::kState);
  made.arguments = argument_places(config, names, "eval_arguments",
                                   eval_arguments(config, names, leaves), leaves);
  made.results = Reading(config, {"eval_results", names.name, names.results}, leaves)
                     .places(eval_results(config, names), true, made.metrics);
  check_eval_signature(config, program, made, train, train_signature);
  return made;
}

std::vector<size_t> batch_arguments(const TrainConfig& config, const ProgramNames& train) {
  const std::vector<std::string> entries = train_arguments(config, train);
  return with_examples(argument_places(config, train, "arguments", entries, state_leaves(entries)));
}

std::vector<size_t> eval_batch_arguments(const TrainConfig& config, const ProgramNames& eval,
                                         const ProgramNames& train) {
  const size_t leaves = state_leaves(train_arguments(config, train));
  return with_examples(argument_places(config, eval, "eval_arguments",
                                       eval_arguments(config, eval, leaves), leaves));
}

int64_t eval_batch(const Signature& signature, const Executable& program) {
  for (size_t i = 0; i < signature.arguments.size(); ++i) {
    if (signature.arguments[i].role == Role::kInput) {
      const Shape& shape = program.arguments()[i].shape;
      return shape.empty() ? 0 : shape[0];
    }
  }
  refuse(fmt::format("{}: an eval program takes at least one input", program.name()));
}

size_t find_leaf(const std::string& name, const Signature& signature, const Executable& program) {
  const std::optional<uint64_t> number = whole_number(name);
  for (size_t i = 0; i < signature.arguments.size(); ++i) {
    const Place place = signature.arguments[i];
    if (place.role == Role::kState &&
        (number ? place.index == *number : program.arguments()[i].name == name)) {
      return i;
    }
  }
  refuse(fmt::format("{}: no state leaf {}; give the number or the name of a state leaf",
                     program.name(), name));
}

}  // namespace tpu::training
