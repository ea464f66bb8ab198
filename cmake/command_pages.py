"""Manual pages and shell completion of the commands, from what `PROGRAM --help` prints (CLI11's form).

What an option of the board takes (a choice, a file, a folder, a number) is read from spec/sim/options.toml, since a
help text does not tell a file from any other text.

Usage: command_pages.py --out DIR --version TEXT PROGRAM...
Writes man/PROGRAM.1 and man/PROGRAM-SUBCOMMAND.1, bash/PROGRAM, zsh/_PROGRAM, fish/PROGRAM.fish. A help text that it
does not understand is an error.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

SPEC = Path(__file__).resolve().parent.parent / "spec"
sys.path.insert(0, str(SPEC / "gen"))
from options import Option, parse_options  # noqa: E402

FILE_TYPES = {"input", "output", "fst", "kept_output"}
FOLDER_TYPES = {"folder", "kept_folder"}
PRESETS = sorted(path.stem for path in (SPEC / "board").glob("v*.toml"))
CHOICES = re.compile(r"\{([\w.,-]+)\}")  # TEXT:{sim,null}
WORDS = re.compile(r"^\w+(?:\|\w+)+$")  # auto|on|off
FILE_VALUE = re.compile(r"\b(?:FILE|DIR|PROGRAM|CONFIG)\b")
TEXT_COLUMN = 30  # where CLI11 starts the text of an entry
RULE = re.compile(r"\s*\b(Excludes|Needs): (.*)$")


@dataclass
class Entry:
    """One line of a help text: an option, a positional or a subcommand."""

    names: list[str]  # "-o", "--output"; of others the one name
    value: str  # "FILE.fst", "TEXT:{sim,null}=sim"; empty for a flag
    text: str
    row: Option | None = None  # of an option of the board

    def choices(self) -> list[str]:
        """Words that the value may be, or that it often is."""
        if self.row is not None:
            return PRESETS if self.row.name == "board" else self.row.values
        first = self.value.split(" ")[0] if self.value else ""
        found = CHOICES.search(self.value)
        return found.group(1).split(",") if found else first.split("|") if WORDS.match(first) else []

    def takes_file(self) -> bool:
        """True if the value is best completed as a file name."""
        if self.row is not None:
            return self.row.type in FILE_TYPES
        if not self.value or self.choices():
            return False
        named = FILE_VALUE.search(self.value) is not None
        return named or (self.value.startswith("TEXT") and re.search(r"\bfile\b|\bOUT\.", self.text) is not None)


    def takes_folder(self) -> bool:
        """True if the value is a folder."""
        return self.row is not None and self.row.type in FOLDER_TYPES


def board_options() -> dict[str, Option]:
    """Options of the board by their names on the command line."""
    options, _ = parse_options(SPEC / "sim/options.toml")
    return {f"--{option.name}": option for option in options if option.command_line}


BOARD_OPTIONS = board_options()


@dataclass
class Help:
    """What one --help says."""

    command: list[str]  # ["tpuboard", "run"]
    purpose: str
    usage: str
    sections: dict[str, list[Entry]] = field(default_factory=dict)

    def entries(self, section: str) -> list[Entry]:
        """Entries of `Options`, `Positionals` or `Subcommands`."""
        return self.sections.get(section, [])


def entry_of(left: str, text: str) -> Entry:
    """`left`: names and value as CLI11 prints them."""
    names, _, value = left.strip().partition(" ")
    rule = RULE.search(value) or RULE.search(" " + value)
    if rule:
        text = f"{text} ({'not with' if rule.group(1) == 'Excludes' else 'needs'} {', '.join(rule.group(2).split())})"
        value = RULE.sub("", " " + value)
    row = next((BOARD_OPTIONS[name] for name in names.split(",") if name in BOARD_OPTIONS), None)
    return Entry(names.split(","), value.replace(" REQUIRED", "").replace("REQUIRED", "").strip(), text.strip(), row)


def parse(command: list[str], text: str) -> Help:
    """A help text of CLI11: purpose, usage, sections of entries whose text may stand in the next line."""
    lines = text.rstrip().splitlines()
    usage = next((n for n, line in enumerate(lines) if line.startswith("Usage: ")), None)
    if usage is None:
        raise SystemExit(f"{' '.join(command)} --help: no line 'Usage: ...' in {text!r}")
    words = lines[usage].removeprefix("Usage: ").split(" ")
    result = Help(command, " ".join(lines[:usage]).strip(),
                  " ".join(words[len(command):] if words[0].endswith(command[0]) else words))
    section: list[Entry] | None = None
    rest = lines[usage + 1:]
    for number, line in enumerate(rest):
        heading = re.fullmatch(r"(\w+):", line)
        if heading:
            section = result.sections.setdefault(heading.group(1), [])
        elif section is not None and re.match(r"  \S", line):
            # Names that do not fit into their column have their text in the next line.
            below = rest[number + 1] if number + 1 < len(rest) else ""
            if below.startswith(" " * TEXT_COLUMN):
                section.append(entry_of(line, below))
            else:
                section.append(entry_of(line[:TEXT_COLUMN], line[TEXT_COLUMN:]))
        elif line.strip() and not (section and line.startswith(" " * TEXT_COLUMN)):
            raise SystemExit(f"{' '.join(command)} --help: cannot place the line {line!r}")
    return result


def read_help(program: Path, emulator: list[str]) -> list[Help]:
    """Help of the program and of each of its subcommands. `emulator`: words in front of the program's."""
    def ask(*words: str) -> str:
        command = [*emulator, str(program), *words, "--help"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    top = parse([program.name], ask())
    return [top] + [parse([program.name, sub.names[0]], ask(sub.names[0])) for sub in top.entries("Subcommands")]


def roff(text: str) -> str:
    """Text that roff prints as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def man_page(page: Help, version: str) -> str:
    """A page of section 1."""
    name = "-".join(page.command)
    text = [f'.TH "{name.upper()}" 1 "" "tpuboard {version}" "User Commands"', ".SH NAME",
            f"{roff(name)} \\- {roff(page.purpose)}", ".SH SYNOPSIS", f".B {roff(' '.join(page.command))}",
            roff(page.usage)]
    for section, heading in (("Positionals", "ARGUMENTS"), ("Options", "OPTIONS"), ("Subcommands", "COMMANDS")):
        if page.entries(section):
            text.append(f".SH {heading}")
        for entry in page.entries(section):
            names = ", ".join(f"\\fB{roff(n)}\\fR" for n in entry.names)
            value = f" \\fI{roff(entry.value)}\\fR" if entry.value else ""
            text += [".TP", names + value, roff(entry.text) or "\\&"]
            if section == "Subcommands":
                text += [".br", f"See \\fB{roff(name)}\\-{roff(entry.names[0])}\\fR(1)."]
    others = ["tpuc", "tpuboard"] if page.command[0] == "tpuboard" else ["tpuboard"]
    text += [".SH SEE ALSO", ", ".join(f"\\fB{other}\\fR(1)" for other in others if other != name)]
    return "\n".join(text) + "\n"


def bash_words(page: Help) -> str:
    """Option names and subcommands of a page."""
    return " ".join([sub.names[0] for sub in page.entries("Subcommands")]
                    + [n for entry in page.entries("Options") for n in entry.names])


def bash_completion(pages: list[Help]) -> str:
    """A completion function for bash, without the bash-completion package."""
    program = pages[0].command[0]
    text = [f"# bash completion of {program}, made from its --help", f"_{program}() {{",
            '  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= words',
            "  COMPREPLY=()"]
    subcommands = [page.command[1] for page in pages[1:]]
    if subcommands:
        text += ["  local at", "  for ((at = 1; at < COMP_CWORD; at++)); do", '    case "${COMP_WORDS[at]}" in',
                 f"      {'|'.join(subcommands)}) command=${{COMP_WORDS[at]}}; break ;;", "    esac", "  done"]
    text.append('  case "$command:$before" in')
    for page in pages:
        command = page.command[1] if len(page.command) > 1 else ""
        for entry in page.entries("Options"):
            if not entry.value:
                continue
            pattern = "|".join(f"{command}:{n}" for n in entry.names)
            words = [f'-W "{" ".join(entry.choices())}"'] if entry.choices() else []
            words += ["-f"] if entry.takes_file() else ["-d"] if entry.takes_folder() else []
            how = " ".join(words)
            if words:
                text.append(f"    {pattern}) mapfile -t COMPREPLY < <(compgen {how} -- \"$word\"); return ;;")
            else:
                text.append(f"    {pattern}) return ;;")
    text += ["  esac", '  case "$command" in']
    for page in pages:
        command = page.command[1] if len(page.command) > 1 else '""'
        text.append(f'    {command}) words="{bash_words(page)}" ;;')
    text += ["  esac", '  if [[ $word == -* || ( -z $command && -n "' + ("1" if subcommands else "") + '" ) ]]; then',
             '    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")', "  else",
             '    mapfile -t COMPREPLY < <(compgen -f -- "$word")', "  fi", "}",
             f"complete -o filenames -F _{program} {program}", ""]
    return "\n".join(text)


def zsh_text(text: str) -> str:
    """Text inside single quotes and brackets of an _arguments specification."""
    return text.replace("'", "'\\''").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")


def zsh_arguments(page: Help) -> list[str]:
    """Specifications for _arguments."""
    specs = []
    for entry in page.entries("Options"):
        value = ""
        if entry.value:
            action = ("_files" if entry.takes_file() else f"({' '.join(entry.choices())})" if entry.choices()
                      else "_files -/" if entry.takes_folder() else " ")
            value = f":value:{action}"
        specs += [f"'*{n}[{zsh_text(entry.text)}]{value}'" for n in entry.names]
    if page.entries("Positionals"):
        specs.append("'*:file:_files'")
    return specs


def zsh_completion(pages: list[Help]) -> str:
    """A completion function for zsh."""
    program = pages[0].command[0]
    text = [f"#compdef {program}", f"# zsh completion of {program}, made from its --help", ""]
    join = " \\\n    "
    if len(pages) == 1:
        text.append(f"_arguments{join}{join.join(zsh_arguments(pages[0]))}")
    else:
        text += ["local -a commands", "commands=("]
        text += [f"  '{sub.names[0]}:{zsh_text(sub.text)}'" for sub in pages[0].entries("Subcommands")]
        text += [")", "if (( CURRENT == 2 )); then", "  _describe command commands -- && return", "fi",
                 "case ${words[2]} in"]
        for page in pages[1:]:
            text += [f"  {page.command[1]}) shift words; (( CURRENT-- ))",
                     f"  _arguments{join}{join.join(zsh_arguments(page))} ;;"]
        text += [f"  *) _arguments{join}{join.join(zsh_arguments(pages[0]))} ;;", "esac"]
    return "\n".join(text) + "\n"


def fish_completion(pages: list[Help]) -> str:
    """Completion for fish."""
    program = pages[0].command[0]
    quote = str.maketrans({"'": "\\'", "\\": "\\\\"})
    text = [f"# fish completion of {program}, made from its --help"]
    for page in pages:
        only = ""
        if len(pages) > 1:
            only = f" -n '__fish_seen_subcommand_from {page.command[1]}'" if len(page.command) > 1 \
                else " -n __fish_use_subcommand"
        for sub in page.entries("Subcommands"):
            text.append(f"complete -c {program}{only} -f -a {sub.names[0]} -d '{sub.text.translate(quote)}'")
        for entry in page.entries("Options"):
            names = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in entry.names)
            value = "" if not entry.value else " -r -F" if entry.takes_file() else " -x"
            if entry.choices():
                value += f" -a '{' '.join(entry.choices())}'"
            elif entry.takes_folder():
                value += " -a '(__fish_complete_directories)'"
            text.append(f"complete -c {program}{only} {names}{value} -d '{entry.text.translate(quote)}'")
    return "\n".join(text) + "\n"


def write(path: Path, text: str) -> None:
    """Writes a file and its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of what is made")
    parser.add_argument("--version", required=True, help="version in the foot of the pages")
    parser.add_argument("--emulator", default="", help="command that runs programs of another processor")
    parser.add_argument("program", type=Path, nargs="+", help="commands to ask")
    args = parser.parse_args()
    for program in args.program:
        pages = read_help(program, shlex.split(args.emulator))
        for page in pages:
            write(args.out / "man" / f"{'-'.join(page.command)}.1", man_page(page, args.version))
        write(args.out / "bash" / program.name, bash_completion(pages))
        write(args.out / "zsh" / f"_{program.name}", zsh_completion(pages))
        write(args.out / "fish" / f"{program.name}.fish", fish_completion(pages))


if __name__ == "__main__":
    main()
