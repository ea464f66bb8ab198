"""Errors below the command line and the environment name options by their fields, `SimOptions::waves_trigger`.

Refused there, in string literals: names of the command line (`--waves-trigger`) and of the environment
(`TPUBOARD_WAVES_TRIGGER`) of options of the board, since the user may have come another way; and fields that
spec/sim/options.toml does not have. Commands to type (`tpuboard run ..`, `" --board "`) may hold options.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from sources import ROOT, files

LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"')
COMMENT = re.compile(r"//[^\n]*")
JOINED = re.compile(r'"\s*\n\s*"')
FIELD = re.compile(r"\b(SimOptions|OpenOptions)::(\w+)")
# Where options are given, and what is built for tests and people at a shell.
DOORS = ("cli/", "compiler/cli/", "client/client_options.cpp", "tests/", "benchmarks/", "examples/",
         "monitor/exporter/")
# Of OpenOptions, without a row: nothing that a command line or a variable could say.
STRUCT_ALONE = {"factory", "staging_bytes", "completion_thread", "snapshot", "firmware", "console"}


def option_names() -> tuple[set[str], set[str], set[str]]:
    """Names on the command line, in the environment, and fields as `Owner::member`."""
    options = tomllib.loads((ROOT / "spec/sim/options.toml").read_text(encoding="utf-8"))["option"]
    flags = {"--" + option["name"] for option in options if option.get("command_line", True)}
    variables = {"TPUBOARD_" + option["variable"] for option in options if "variable" in option}
    fields = {f"OpenOptions::{name}" for name in STRUCT_ALONE}
    for option in options:
        for member in option["members"]:
            owner, name = ("SimOptions", member[4:]) if member.startswith("sim.") else ("OpenOptions", member)
            fields.add(f"{owner}::{name}")
    return flags, variables, fields


def file_errors(path: Path, names: tuple[set[str], set[str], set[str]]) -> list[str]:
    """What the string literals of one file may not say."""
    where = path.relative_to(ROOT).as_posix()
    if where.startswith(DOORS):
        return []
    flags, variables, fields = names
    text = JOINED.sub("", COMMENT.sub("", path.read_text(encoding="utf-8")))
    errors = []
    for literal in LITERAL.findall(text):
        said = set(re.findall(r"--[a-z][a-z-]*|TPUBOARD_[A-Z_]+", literal)) & (flags | variables)
        if said and not re.search(r'\btpu(board|c) |^" --', literal):
            errors.append(f"{where}: {literal} names {', '.join(sorted(said))}; name the field, SimOptions::..")
        for owner, name in FIELD.findall(literal):
            if f"{owner}::{name}" not in fields:
                errors.append(f"{where}: {literal}: spec/sim/options.toml has no {owner}::{name}")
    return errors


def main() -> int:
    """Prints what is wrong."""
    names = option_names()
    errors = [error for path in files(".hpp", ".cpp") for error in file_errors(path, names)]
    print("\n".join(errors) if errors else "option names: errors name fields")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
