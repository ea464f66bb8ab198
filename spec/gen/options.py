"""Options of a simulated board: reads spec/sim/options.toml; emits the struct SimOptions, the option table and tables
of manual pages."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parse import check_keys, load, require

# Types of the members of an option, in order.
MEMBERS = {
    "text": ("std::string",), "input": ("std::string",), "output": ("std::string",), "fst": ("std::string",),
    "folder": ("std::string",), "choice": ("std::string",), "flag": ("bool",), "integer": ("int",),
    "count": ("uint64_t",), "seconds": ("std::optional<double>",), "interval": ("double",),
    "texts": ("std::vector<std::string>",), "assignments": ("std::vector<std::string>",),
    "units": ("std::vector<std::pair<std::string, std::string>>",), "range": ("uint64_t", "uint64_t"),
    "length": ("uint64_t", "uint64_t"), "kept_output": ("bool",), "kept_folder": ("bool",)}
NUMBERS = {"integer", "count", "seconds", "interval"}
MEMBER_SLOTS = {"std::string": "text", "bool": "flag", "int": "integer", "uint64_t": "count",
                "std::optional<double>": "seconds", "double": "interval", "std::vector<std::string>": "texts",
                "std::vector<std::pair<std::string, std::string>>": "units"}
COLUMNS = 120


@dataclass
class Option:
    """One row; `name` without dashes, `variable` without its prefix."""

    name: str
    type: str
    members: list[str]
    help: str
    docs: list[str] = field(default_factory=list)
    variable: str = ""
    page: str = ""
    command_line: bool = True
    min: int = 0
    max: int = 0
    values: list[str] = field(default_factory=list)
    expected: str = ""
    unit: str = ""
    default: str = ""
    live: bool = False
    needs: list[str] = field(default_factory=list)
    excludes: list[str] = field(default_factory=list)

    @property
    def kept(self) -> bool:
        """Whether the reader of the option keeps its text for itself."""
        return self.type.startswith("kept_")

    def range_members(self) -> tuple[str, str]:
        """First and last of a range that is the default: "" or "A..B"."""
        first, last = self.default.split("..") if self.default else ("0", "")
        return first, str(int(last) - int(first) + 1) if last else "UINT64_MAX"


def check_option(option: Option, names: set[str], where: str) -> None:
    """Refuses rows that do not hold together."""
    require(option.type in MEMBERS, where, f"unknown type {option.type}; there are {sorted(MEMBERS)}")
    require(len(option.members) == len(MEMBERS[option.type]), where,
            f"type {option.type} has {len(MEMBERS[option.type])} members")
    require((option.type in NUMBERS) == (option.max > option.min), where, "min and max belong to numbers, and to all")
    require((option.type == "choice") == bool(option.values), where, "values belong to choice, and to each")
    require((option.type == "units") == bool(option.expected), where, "expected belongs to units, and to each")
    for other in [*option.needs, *option.excludes]:
        require(other in names and other != option.name, where, f"unknown option {other}")


def parse_options(path: Path) -> tuple[list[Option], list[Option]]:
    """Options of the board, and those of programs of a framework alone."""
    data = load(path)
    check_keys(data, {"option", "client"}, {"option", "client"}, str(path))
    tables: dict[str, list[Option]] = {"option": [], "client": []}
    needed = {"option": {"name", "type", "members", "docs", "help"},
              "client": {"variable", "type", "members", "help"}}
    for table, rows in tables.items():
        for entry in data[table]:
            where = f"{path}: {table} {entry.get('name', entry.get('variable', '?'))}"
            check_keys(entry, set(Option.__dataclass_fields__), needed[table], where)
            rows.append(Option(**({"name": "", "command_line": table == "option"} | entry)))
    options = tables["option"]
    names = {option.name for option in options}
    require(len(names) == len(options), str(path), "two options have one name")
    every = [*options, *tables["client"]]
    for attribute in ("variable", "members"):
        used: list[Any] = [value for option in every if (value := getattr(option, attribute))]
        require(all(used.count(value) == 1 for value in used), str(path), f"two options have one {attribute}")
    for option in every:
        where = f"{path}: option {option.name or option.variable}"
        check_option(option, names, where)
        require(not option.command_line or all(o.command_line for o in options
                                               if o.name in [*option.needs, *option.excludes]), where,
                "what it needs or excludes must be on the command line too")
        require(option in tables["client"] or len(option.docs) == len(option.members), where,
                "each member has its documentation")
    return options, tables["client"]


def quoted(text: str) -> str:
    """A C++ string literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def sim_members(options: list[Option]) -> list[tuple[Option, int, str]]:
    """Members of SimOptions: the option, which of its members, its name."""
    return [(option, i, member.removeprefix("sim.")) for option in options
            for i, member in enumerate(option.members) if member.startswith("sim.")]


def initial(option: Option, index: int) -> str:
    """Initialiser of a member; empty: none needed."""
    if option.type == "range":
        return option.range_members()[index]
    if option.type == "length":
        return "UINT64_MAX"
    simple = {"flag": "false", "kept_output": "false", "kept_folder": "false", "integer": "0", "count": "0"}
    return simple.get(option.type, "")


def emit_sim_options(options: list[Option], out: Path) -> None:
    """Writes tpu/sim_options.hpp."""
    text = ["// Options of the simulated board. Generated from spec/sim/options.toml by spec/gen. Do not edit.",
            "// With no_data the board computes no values, with schedule_seed programs take other times; no other",
            "// option changes what a program computes, or when. Public: installed as tpu/sim_options.hpp.",
            "#pragma once\n\n#include <cstdint>\n#include <string>\n#include <utility>\n#include <vector>\n\n"
            "namespace tpu::spec {\n",
            "/// Options of the simulated board; see `tpuboard run --help`. Steps are counted from 0 since the",
            "/// board was opened, those of all launches together.", "struct SimOptions {"]
    for option, index, name in sim_members(options):
        start = initial(option, index)
        text += textwrap.wrap(option.docs[index], 96, initial_indent="  /// ", subsequent_indent="  /// ")
        text.append(f"  {MEMBERS[option.type][index]} {name}{f' = {start}' if start else ''};")
    text.append("};\n\n}  // namespace tpu::spec\n")
    (out.parent / "sim_options.hpp").write_text("\n".join(text))


def option_row(option: Option) -> str:
    """A row of the table of options."""
    def texts(values: list[str]) -> str:
        return "{" + ", ".join(map(quoted, values)) + "}"

    fields = [quoted(m.rsplit(".", 1)[-1]) for m in option.members] + ['""'] * (2 - len(option.members))
    owner = "SimOptions" if option.members[0].startswith("sim.") else "OpenOptions"
    lists = [f"OptionTexts{texts(values)}" for values in (option.values, option.needs, option.excludes)]
    return (f"    OptionInfo{{{quoted(option.name)}, {quoted(option.variable)}, {quoted(owner)}, "
            f"{{{', '.join(fields)}}}, "
            f"OptionType::k{''.join(part.capitalize() for part in option.type.split('_'))}, "
            f"{str(option.command_line).lower()}, {str(option.live).lower()}, {option.min}, {option.max}, "
            f"{lists[0]}, {quoted(option.expected)}, {quoted(option.unit)}, {quoted(option.default)}, "
            f"{lists[1]}, {lists[2]},\n               {quoted(option.help)}}},")


def member_row(option: Option, prefix: str) -> str:
    """Pointers to the members of an option."""
    slots = []
    members = zip(MEMBERS[option.type], option.members, strict=True)
    for slot, (ctype, member) in zip(("", "second_"), members, strict=False):
        slots.append(f".{slot}{MEMBER_SLOTS[ctype]} = [](A& a) -> auto& {{ return a.{prefix}{member}; }}")
    if option.kept:
        slots.append(f".text = [](A& a) -> auto& {{ return a.{option.name.replace('-', '_')}; }}")
        slots.sort(key=lambda slot: not slot.startswith(".text"))
    return "    OptionMember<A>{" + ", ".join(slots) + "},"


def table_of(name: str, options: list[Option], prefix: str) -> list[str]:
    """The rows of some options and the pointers to their members."""
    return [f"inline constexpr std::array<OptionInfo, {len(options)}> k{name}s = {{{{",
            *map(option_row, options), "}};",
            "template <class A>",
            f"inline constexpr std::array<OptionMember<A>, {len(options)}> k{name}Members = {{{{",
            *(member_row(option, prefix) for option in options), "}};\n"]


TABLE_HEAD = """#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tpu/sim_options.hpp"

namespace tpu::spec {

/// How the value of an option is written; spec/sim/options.toml.
enum class OptionType : uint8_t {
"""

TABLE_TYPES = """
/// Up to eight texts.
struct OptionTexts {
  std::array<std::string_view, 8> texts{};
  constexpr const std::string_view* begin() const { return texts.data(); }
  constexpr const std::string_view* end() const {
    const std::string_view* last = begin();
    while (last != texts.data() + texts.size() && !last->empty()) {
      ++last;
    }
    return last;
  }
  constexpr bool empty() const { return begin() == end(); }
};

/// One option.
struct OptionInfo {
  std::string_view name;      ///< of the command line, without "--"
  std::string_view variable;  ///< of the environment, without "TPUBOARD_"; empty: none
  std::string_view owner;     ///< struct of its members: SimOptions or OpenOptions
  std::array<std::string_view, 2> members;
  OptionType type;
  bool command_line;  ///< it exists there
  bool live;          ///< an open board can change it
  uint64_t min;       ///< of numbers
  uint64_t max;
  OptionTexts values;         ///< of a choice
  std::string_view expected;  ///< of units: which modes there are
  std::string_view unit;      ///< of the value, in help texts
  std::string_view shown;     ///< default in help texts; empty: not shown
  OptionTexts needs;          ///< names of options
  OptionTexts excludes;
  std::string_view help;
};

/// Members of an option in A; those that its type lacks are null.
template <class A>
struct OptionMember {
  std::string& (*text)(A&) = nullptr;
  bool& (*flag)(A&) = nullptr;
  int& (*integer)(A&) = nullptr;
  uint64_t& (*count)(A&) = nullptr;
  uint64_t& (*second_count)(A&) = nullptr;  ///< of ranges: how many; of lengths: in steps
  std::optional<double>& (*seconds)(A&) = nullptr;
  double& (*interval)(A&) = nullptr;
  std::vector<std::string>& (*texts)(A&) = nullptr;
  std::vector<std::pair<std::string, std::string>>& (*units)(A&) = nullptr;
};

"""


def emit_option_table(options: list[Option], client: list[Option], out: Path) -> None:
    """Writes option_table.hpp."""
    types = ", ".join("k" + "".join(part.capitalize() for part in name.split("_")) for name in MEMBERS)
    text = ["// Generated from spec/sim/options.toml by spec/gen. Do not edit.\n#pragma once\n",
            TABLE_HEAD + f"  {types}\n}};\n" + TABLE_TYPES,
            "/// Options of a board: rows, and their members in an A that has `open` (OpenOptions) and texts for what",
            "/// the reader of an option writes itself.",
            *table_of("BoardOption", options, "open."),
            "/// Variables of programs of a framework, and their members in an A that has `client`.",
            *table_of("ClientOption", client, "client."),
            "/// First option that two records differ in although an open board cannot change it; null: none.",
            "inline const OptionInfo* fixed_difference(const SimOptions& a, const SimOptions& b) {",
            "  constexpr auto row = [](size_t i) { return &kBoardOptions[i]; };"]
    for option, _, name in sim_members(options):
        if not option.live:
            text.append(f"  if (a.{name} != b.{name}) {{\n    return row({options.index(option)});\n  }}")
    text.append("  return nullptr;\n}\n\n}  // namespace tpu::spec\n")
    (out / "option_table.hpp").write_text("\n".join(text))


def struct_table(options: list[Option]) -> str:
    """Options by their three names, for docs/host_driver.md."""
    lines = ["| member of `OpenOptions` | command line | environment | open board |", "|---|---|---|---|"]
    for option in options:
        fields = ", ".join(f"`{member}`" for member in option.members)
        flag = f"`--{option.name}`" if option.command_line else ""
        variable = f"`TPUBOARD_{option.variable}`" if option.variable else ""
        lines.append(f"| {fields} | {flag} | {variable} | {'yes' if option.live else ''} |")
    return "\n".join(lines) + "\n"


def variable_table(options: list[Option], client: list[Option]) -> str:
    """Environment variables, for docs/jax.md."""
    lines = []
    for option in [*client[:1], *(o for o in options if o.variable), *client[1:]]:
        text = f"- `TPUBOARD_{option.variable}`: {option.page or option.help}"
        lines += textwrap.wrap(text, COLUMNS, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines) + "\n"
