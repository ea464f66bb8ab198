"""The installed manual pages and completions know every option, subcommand and choice that --help prints, and complete
the value of each option of the board as its row in spec/sim/options.toml says.

Usage: command_pages_test.py PREFIX (of an installed tree with the component `tools`)
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

OPTION = re.compile(r"^  (-[\w,-]+)", re.MULTILINE)
SUBCOMMANDS = re.compile(r"^Subcommands:\n((?:  .*\n?)+)", re.MULTILINE)
# Words typed, the last one under way, and what must be offered.
TYPED = [("tpuboard", "tr", "train"), ("tpuboard", "run", "--transp", "--transport"), ("tpuc", "--dis", "--disasm"),
         ("tpuboard", "run", "--transport", "", "sim"), ("tpuboard", "run", "--simd", "sc", "scalar")]
COMPLETE = """
source "$1"; shift
wanted=${!#}; COMP_WORDS=("${@:1:$#-1}"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_$1
printf '%s\\n' "${COMPREPLY[@]}" | grep -qx -- "$wanted"
"""


OFFER = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_$1
printf '%s\\n' "${COMPREPLY[@]}"
"""
ROOT = Path(__file__).resolve().parents[2]


def help_of(*command: str) -> str:
    """What a command prints."""
    return subprocess.run([*command, "--help"], check=True, capture_output=True, text=True).stdout


def page_errors(prefix: Path, program: str) -> list[str]:
    """Names of one program that a page or a completion lacks."""
    share = prefix / "share"
    shells = {"bash": share / "bash-completion/completions" / program,
              "zsh": share / "zsh/site-functions" / f"_{program}",
              "fish": share / "fish/vendor_completions.d" / f"{program}.fish"}
    top = help_of(str(prefix / "bin" / program))
    listed = SUBCOMMANDS.search(top)
    subcommands = [line.split()[0] for line in listed.group(1).splitlines()] if listed else []
    errors = []
    for subcommand in [None, *subcommands]:
        text = help_of(str(prefix / "bin" / program), *([subcommand] if subcommand else []))
        names = [name for group in OPTION.findall(text) for name in group.split(",")]
        if not names:
            errors.append(f"{program} {subcommand}: --help names no option")
        page = share / "man/man1" / f"{program}{'-' + subcommand if subcommand else ''}.1"
        shown = page.read_text(encoding="utf-8").replace("\\-", "-")
        errors += [f"{page.name} lacks {name}" for name in names if f"\\fB{name}\\fR" not in shown]
        for shell, path in shells.items():
            completion = path.read_text(encoding="utf-8")
            if shell == "fish":
                names = [name.lstrip("-") for name in names]
            wanted = [*names, *([subcommand] if subcommand else [])]
            errors += [f"{shell} completion of {program} lacks {name} of {subcommand or program}" for name in wanted
                       if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", completion)]
    return errors


def offered(script: Path, words: list[str], folder: Path) -> set[str]:
    """What bash offers for the last word in a folder."""
    run = subprocess.run(["bash", "-c", OFFER, "bash", str(script), *words], check=True, capture_output=True, text=True,
                         cwd=folder)
    return set(run.stdout.split())


def value_errors(script: Path) -> list[str]:
    """Options of the board whose values are not completed as their rows in spec/sim/options.toml say."""
    rows = tomllib.loads((ROOT / "spec/sim/options.toml").read_text(encoding="utf-8"))["option"]
    presets = {path.stem for path in (ROOT / "spec/board").glob("v*.toml")}
    errors = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "some_folder").mkdir()
        (folder / "some_file").touch()
        for row in rows:
            if row["type"] == "flag" or not row.get("command_line", True):
                continue
            wanted = set(row.get("values", []))
            if row["type"] in ("input", "output", "fst", "kept_output"):
                wanted |= {"some_file", "some_folder"}
            elif row["type"] in ("folder", "kept_folder"):
                wanted |= {"some_folder"}
            wanted |= presets if row["name"] == "board" else set()
            found = offered(script, ["tpuboard", "run", f"--{row['name']}", ""], folder)
            if found != wanted:
                errors.append(f"after --{row['name']} bash offers {sorted(found)}, expected {sorted(wanted)}")
    return errors


def main() -> int:
    """Prints what is missing."""
    prefix = Path(sys.argv[1])
    errors = [error for program in ("tpuc", "tpuboard") for error in page_errors(prefix, program)]
    for words in TYPED:
        script = prefix / "share/bash-completion/completions" / words[0]
        if subprocess.run(["bash", "-c", COMPLETE, "bash", str(script), *words], check=False).returncode:
            errors.append(f"bash does not offer {words[-1]} after {' '.join(words[:-1])!r}")
    errors += value_errors(prefix / "share/bash-completion/completions/tpuboard")
    print("\n".join(errors) if errors else "every option is in the pages and completions")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
