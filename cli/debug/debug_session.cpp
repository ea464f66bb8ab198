// The commands, and where they stop.
#include "cli/debug/debug_session.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <sstream>

#include "check/refuse.hpp"
#include "cli/debug/debug_text.hpp"
#include "format/npy.hpp"
#include "sim/option_names.hpp"
#include "terminal/counted.hpp"
#include "terminal/printable_text.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

constexpr size_t kListed = 10;
constexpr size_t kPrinted = 64;

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream split(line);
  std::vector<std::string> words;
  for (std::string word; split >> word;) {
    words.push_back(word);
  }
  return words;
}

// "model.py:57" of "model.py:57:12 (jit(step)/add)".
std::string line_of(const std::string& where) {
  const std::string place = where.substr(0, where.find(' '));
  return place.substr(0, place.rfind(':'));
}

bool overlap(const spec::MemoryRange& a, const spec::MemoryRange& b) {
  return a.core == b.core && a.memory == b.memory && a.low < b.low + b.bytes &&
         b.low < a.low + a.bytes;
}

// A word of a command as a number, which may be the name of a value; without the word, `otherwise`.
size_t number(const std::vector<std::string>& words, size_t index, size_t otherwise, size_t limit) {
  if (words.size() <= index) {
    return otherwise;
  }
  const std::string& word = words[index];
  return static_cast<size_t>(parse_number(word.starts_with('%') ? word.substr(1) : word, limit));
}

}  // namespace

const std::vector<DebugSession::Command>& DebugSession::commands() {
  using Self = DebugSession;
  static const std::vector<Command> all = {
      {"list", "[%N [COUNT]]", "ops from the present one, or from %N on", 2, &Self::list},
      {"next", "[COUNT]", "pass the next op", 1, &Self::move_ops},
      {"back", "[COUNT]", "go back by an op", 1, &Self::move_ops},
      {"nextline", "[COUNT]", "pass ops to the next source line", 1, &Self::move_lines},
      {"step", "[COUNT]", "pass the next command of the core", 1, &Self::move_commands},
      {"stepback", "[COUNT]", "go back by a command", 1, &Self::move_commands},
      {"goto", "%N", "go where op %N has been made", 1, &Self::go_to},
      {"continue", "", "continue to the next breakpoint", 0, &Self::run_on},
      {"reverse", "", "go back to the breakpoint before", 0, &Self::run_on},
      {"break", "op NAME | line FILE:LINE | nan | difference | read RANGE | write RANGE",
       "stop at an op, a source line, a value that is not finite, an op that made something else "
       "than the reference, a command that touches memory",
       2, &Self::add_break},
      {"breaks", "", "list breakpoints", 0, &Self::list_breaks},
      {"delete", "N", "remove breakpoint N", 1, &Self::remove_break},
      {"print", "[%N|argN|outN [CORE [FIRST [COUNT]]]]",
       "what an op (the present one) has made on a core, an argument, a result", 4, &Self::print},
      {"save", "%N|argN|outN FILE.npy [CORE]", "write it to a file", 3, &Self::save},
      {"memory", "RANGE [TYPE]", "memory of the core at this place", 2, &Self::memory},
      {"core", "[N]", "look at core N of the program", 1, &Self::choose_core},
      {"compare", "", "compare all ops with the reference and go to the first that differs", 0,
       &Self::compare},
      {"help", "", "this list; RANGE: vmem:LOW..HIGH, smem:.., hbm:..", 0, &Self::help},
      {"quit", "", "end the session", 0, nullptr}};
  return all;
}

bool DebugSession::command(const std::string& line, const std::string& where) {
  Words words = words_of(line);
  if (words.empty() || words[0].starts_with('#')) {
    return true;
  }
  // A beginning names the first command that has it: n, b, s, c, p, l, r.
  const auto found = std::find_if(commands().begin(), commands().end(), [&](const Command& each) {
    return each.name.starts_with(words[0]);
  });
  try {
    if (found == commands().end()) {
      refuse(fmt::format("{}: no such command; `help` lists them", words[0]));
    }
    if (words.size() - 1 > found->words) {
      refuse(fmt::format("{} {}: more than it takes", found->name, found->usage));
    }
    if (found->run == nullptr) {
      return false;
    }
    words[0] = found->name;
    (this->*found->run)(words);
  } catch (const Error& error) {
    ++wrong_;
    spec::print(out_, "error: {}{}\n", where,
                spec::name_options(error.message(), spec::OptionDoor::kCommandLine));
  }
  out_.flush();
  return true;
}

std::vector<std::string> DebugSession::completions(const std::string& line) const {
  Words words = words_of(line);
  if (words.empty() || line.ends_with(' ')) {
    words.emplace_back();
  }
  std::vector<std::string> all;
  if (words.size() == 1) {
    for (const Command& each : commands()) {
      all.push_back(each.name);
    }
  } else if (words[0] == "break" && words.size() == 2) {
    all = {"op", "line", "nan", "difference", "read", "write"};
  } else if (words[0] == "break" && words[1] == "op") {
    for (const compiler::KeptValue& value : run_.kept().values) {
      all.push_back(value.op);
    }
  } else if (words[0] == "break" && words[1] == "line") {
    for (const compiler::KeptValue& value : run_.kept().values) {
      all.push_back(value.where);
    }
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  std::erase_if(all, [&](const std::string& each) { return !each.starts_with(words.back()); });
  return all;
}

void DebugSession::help(const Words& /*words*/) {
  for (const Command& each : commands()) {
    spec::print(out_, "  {} {}\n      {}\n", each.name, each.usage, each.help);
  }
}

void DebugSession::show_value(size_t value) const {
  spec::print(out_, "{}{}\n", place_.value() == value ? "> " : "  ",
              value_text(run_.kept(), value));
}

void DebugSession::show_place() const {
  const auto command = place_.command();
  if (!command) {
    spec::print(out_, "before the first command\n");
    return;
  }
  for (const size_t value : place_.values_of(*command)) {
    show_value(value);
  }
  spec::print(out_, "  #{} {}\n", *command,
              command_text(run_.commands()[*command], run_.program()));
}

void DebugSession::list(const Words& words) {
  const size_t all = run_.kept().values.size();
  const size_t from = number(words, 1, place_.value().value_or(0), all);
  const size_t count = number(words, 2, kListed, SIZE_MAX);
  for (size_t i = from; i < all && i - from < count; ++i) {
    show_value(i);
  }
}

void DebugSession::move_ops(const Words& words) {
  const bool forth = words[0] == "next";
  if (!place_.move_values(number(words, 1, 1, SIZE_MAX), forth)) {
    spec::print(out_, "there is no op {}\n", forth ? "behind this place" : "before this one");
    return;
  }
  show_place();
}

void DebugSession::move_lines(const Words& words) {
  const auto line = [&] {
    const auto value = place_.value();
    return value ? line_of(run_.kept().values[*value].where) : "";
  };
  for (size_t count = number(words, 1, 1, SIZE_MAX); count > 0; --count) {
    const std::string from = line();
    while (line() == from) {
      if (!place_.move_values(1, true)) {
        spec::print(out_, "there is no op of another line behind this place\n");
        return show_place();
      }
    }
  }
  show_place();
}

void DebugSession::move_commands(const Words& words) {
  const bool forth = words[0] == "step";
  if (!place_.move_commands(number(words, 1, 1, SIZE_MAX), forth)) {
    spec::print(out_, "there is no command {}\n", forth ? "behind this place" : "before this one");
    return;
  }
  show_place();
}

void DebugSession::go_to(const Words& words) {
  if (words.size() < 2) {
    refuse("goto: which op? `list` shows them");
  }
  const size_t value = number(words, 1, 0, run_.kept().values.size());
  if (!place_.to_value(value)) {
    refuse(fmt::format("%{}: no command of core {} has made it", value, place_.core()));
  }
  show_place();
}

void DebugSession::choose_core(const Words& words) {
  place_.look_at(number(words, 1, place_.core(), run_.devices().size()));
  spec::print(out_, "core {} of {}: TPU:{}\n", place_.core(), run_.devices().size(),
              place_.device());
}

bool DebugSession::not_finite(size_t value) const {
  for (size_t core = 0; core < run_.devices().size(); ++core) {
    const std::vector<double> all = numbers_of(run_.value(value, core));
    if (std::any_of(all.begin(), all.end(), [](double x) { return !std::isfinite(x); })) {
      return true;
    }
  }
  return false;
}

void DebugSession::add_break(const Words& words) {
  const std::string kind = words.size() > 1 ? words[1] : "";
  const std::string what = words.size() > 2 ? words[2] : "";
  Break made{words.size() > 2 ? kind + " " + what : kind, {}, {}};
  if (kind == "op" && !what.empty()) {
    made.by_value = [this, what](size_t i) {
      return run_.kept().values[i].op.find(what) != std::string::npos;
    };
  } else if (kind == "line" && !what.empty()) {
    made.by_value = [this, what](size_t i) {
      return run_.kept().values[i].where.find(what) != std::string::npos;
    };
  } else if (kind == "nan" && what.empty()) {
    made.by_value = [this](size_t i) { return not_finite(i); };
  } else if (kind == "difference" && what.empty()) {
    made.by_value = [this](size_t i) {
      const auto& first = run_.check(tolerance_).first;
      return first && first->value == i;
    };
  } else if ((kind == "read" || kind == "write") && !what.empty()) {
    made.by_command = [writes = kind == "write", range = parse_range(what, place_.device())](
                          const spec::LoggedCommand& command) {
      return std::any_of(command.operands.begin(), command.operands.end(), [&](const auto& each) {
        return each.write == writes && overlap(each.range, range);
      });
    };
  } else {
    refuse(
        "break: expected op NAME, line FILE:LINE, nan, difference, read RANGE or write RANGE, "
        "where RANGE is vmem:LOW..HIGH, smem:.. or hbm:..");
  }
  const auto& values = run_.kept().values;
  const bool named = kind == "op" || kind == "line";
  if (named && std::none_of(values.begin(), values.end(), [&](const auto& value) {
        return made.by_value(static_cast<size_t>(&value - values.data()));
      })) {
    refuse(fmt::format("break {}: the program has no such op; `list` shows all ops", made.text));
  }
  breaks_.push_back(std::move(made));
  spec::print(out_, "breakpoint {}: {}\n", breaks_.size() - 1, breaks_.back().text);
}

void DebugSession::list_breaks(const Words& /*words*/) {
  for (size_t i = 0; i < breaks_.size(); ++i) {
    spec::print(out_, "  {}: {}\n", i, breaks_[i].text);
  }
}

void DebugSession::remove_break(const Words& words) {
  const size_t which = words.size() > 1 ? number(words, 1, 0, SIZE_MAX) : breaks_.size();
  if (which >= breaks_.size()) {
    refuse("delete: there is no such breakpoint; `breaks` lists them");
  }
  breaks_.erase(breaks_.begin() + static_cast<ptrdiff_t>(which));
}

// Says which breakpoint a command is.
bool DebugSession::stops(size_t command) {
  const std::vector<size_t> values = place_.values_of(command);
  for (size_t b = 0; b < breaks_.size(); ++b) {
    const Break& each = breaks_[b];
    if ((each.by_command && each.by_command(run_.commands()[command])) ||
        (each.by_value && std::any_of(values.begin(), values.end(), each.by_value))) {
      spec::print(out_, "breakpoint {}: {}\n", b, each.text);
      return true;
    }
  }
  return false;
}

void DebugSession::run_on(const Words& words) {
  const bool forth = words[0] == "continue";
  const size_t behind = place_.command() ? *place_.command() + 1 : 0;
  const size_t left = forth ? run_.commands().size() - behind : (behind == 0 ? 0 : behind - 1);
  for (size_t i = 0; i < left; ++i) {
    const size_t command = forth ? behind + i : behind - 2 - i;
    if (stops(command)) {
      place_.to_command(command);
      return show_place();
    }
  }
  if (forth) {
    place_.to_end();
    spec::print(out_, "the program has ended{}{}\n", run_.failure().empty() ? "" : ": ",
                run_.failure());
  } else {
    place_.to_begin();
    show_place();
  }
}

HostArray DebugSession::array(const std::string& name, size_t core) const {
  if (name.starts_with("arg")) {
    return run_.argument(
        static_cast<size_t>(parse_number(name.substr(3), run_.program().args.size())));
  }
  if (name.starts_with("out")) {
    return run_.result(static_cast<size_t>(parse_number(name.substr(3), run_.kept().results)),
                       core);
  }
  return run_.value(number({name}, 0, 0, run_.kept().values.size()), core);
}

void DebugSession::print(const Words& words) {
  std::string name = words.size() > 1 ? words[1] : "";
  if (name.empty()) {
    if (!place_.value()) {
      refuse("print: no op has been passed; name one");
    }
    name = fmt::format("%{}", *place_.value());
  }
  const size_t core = number(words, 2, place_.core(), run_.devices().size());
  const HostArray made = array(name, core);
  if (words.size() > 3) {
    spec::print(
        out_, "{}",
        elements_text(made, number(words, 3, 0, SIZE_MAX), number(words, 4, kPrinted, SIZE_MAX)));
  } else {
    spec::print(out_, "{}: {}", name, array_text(made));
  }
}

void DebugSession::save(const Words& words) {
  if (words.size() < 3) {
    refuse("save: expected an array and a file: save %3 three.npy");
  }
  write_npy(words[2], array(words[1], number(words, 3, place_.core(), run_.devices().size())));
}

void DebugSession::memory(const Words& words) {
  const auto command = place_.command();
  if (words.size() < 2 || !command) {
    refuse(command ? "memory: expected vmem:LOW..HIGH, smem:LOW..HIGH or hbm:LOW..HIGH"
                   : "memory: no command has been passed; `step` passes one");
  }
  const spec::MemoryRange range = parse_range(words[1], place_.device());
  const DType dtype = words.size() > 2 ? parse_dtype(words[2]) : DType::kF32;
  if (range.bytes > (uint64_t{1} << 30)) {
    refuse("memory: at most 1 GiB at a time");
  }
  const std::vector<std::byte> bytes = run_.memory_after(*command, range);
  const HostArray array{dtype, {static_cast<int64_t>(bytes.size() / dtype_bytes(dtype))}, bytes};
  spec::print(out_, "{}",
              array.shape[0] == 0 ? "  less than an element\n" : elements_text(array, 0, kPrinted));
}

void DebugSession::compare(const Words& /*words*/) {
  const compiler::ValueChecked& checked = run_.check(tolerance_);
  for (const size_t value : checked.not_covered) {
    spec::print(out_, "not compared, the reference does not evaluate it:\n");
    show_value(value);
  }
  const auto& first = checked.first;
  if (!first) {
    spec::print(out_, "{} compared: all match the reference (tolerance {})\n",
                spec::counted(run_.kept().values.size() - checked.not_covered.size(), "op"),
                tolerance_);
    return;
  }
  found_ = true;
  spec::print(out_,
              "the first op that differs: on core {}, {} elements, most of all element {}: "
              "{:.8g} instead of {:.8g}\n",
              first->core, first->elements, first->element, first->made, first->expected);
  place_.look_at(first->core);
  place_.to_value(first->value);
  show_place();
}

}  // namespace tpu::driver
