"""Notices of what others wrote and tpuboard passes on: licenses and sources of the shared libraries that a wheel
carries, of what is compiled into the programs and the firmware, and of the digits.

Usage: notices.py --build DIR [--compiled-in]
  --compiled-in  without shared libraries, and without the texts of /usr/share/common-licenses: a Debian package
                 depends on both
Prints the text. The notice of a package is the copyright file that Debian installs with it.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from release_sbom import compiled_files, shipped_programs, tensorflow_folders
from target_system import Package, TargetSystem

ROOT = Path(__file__).resolve().parent.parent
COMMON = Path("/usr/share/common-licenses")
COMMON_NAME = re.compile(rf"{COMMON}/([A-Za-z0-9.+-]*[A-Za-z0-9])")
# Where a package leaves a choice: what is chosen here.
CHOICES = {"verilator": "Of the two licenses, Artistic-2.0 is chosen for the runtime that is compiled in, unmodified."}
# Debian's file says nothing of these parts; their first comment does.
PARTS = "/usr/share/verilator/include/gtkwave/"
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def section(title: str, text: str) -> str:
    """A heading and an indented text."""
    lines = [f"    {line}".rstrip() for line in text.strip().splitlines()]
    return "\n".join([f"== {title}", *lines]) + "\n"


def package_sections(packages: set[Package]) -> tuple[list[str], list[str]]:
    """Sections of Debian packages, those with the same notice as one; and the notices."""
    groups: dict[str, list[str]] = {}
    for package in sorted(packages, key=lambda package: (package.plain, package)):
        plain, path = package.plain, package.notice
        version, home = package.field("${Version}\t${Homepage}").split("\t")
        if not path.exists():
            advice = f"make {package.root} again" if package.root else f"apt-get install --reinstall {plain}"
            raise SystemExit(f"notices: {path} does not exist, expected the license of {plain}; {advice}")
        words = [f"{plain} {version}", *([home] if home else []), *([CHOICES[plain]] if plain in CHOICES else [])]
        groups.setdefault(path.read_text("utf-8", errors="replace"), []).append("; ".join(words))
    return [section("\n== ".join(titles), text) for text, titles in groups.items()], list(groups)


def notices(build: Path, compiled_in: bool = False) -> str:
    """The text, for shared libraries too, or for what is compiled in alone."""
    system = TargetSystem(build)
    files = compiled_files(build, system.under("/usr/"))
    shared = set() if compiled_in else system.linked(shipped_programs(build))
    parts, texts = package_sections(system.owners(files) | shared)
    for path in sorted(Path(name) for name in files if name.startswith(PARTS)):
        comment = COMMENT.search(path.read_text("utf-8", errors="replace"))
        if comment and "copyright" in comment[0].lower():
            parts.append(section(f"{path.name}, of verilator", comment[0]))
    if not compiled_in and (inside := tensorflow_folders(build)):
        path = inside[0] / "tensorflow/THIRD_PARTY_NOTICES.txt"
        texts.append(path.read_text("utf-8", errors="replace"))
        parts.append(section("headers of TensorFlow, in libtpuboard_tf", texts[-1]))
    digits = ROOT / "sim_scripts/digits_notice.txt"
    parts.append(section("MNIST digits", digits.read_text("utf-8")))
    if not compiled_in:
        named = {COMMON / match for text in texts for match in COMMON_NAME.findall(text)}
        # GPL is a link to its newest version.
        for path in sorted({path.resolve() for path in named if path.exists()}):
            parts.append(section(str(path), path.read_text("utf-8", errors="replace")))
    head = ("The files have parts that others wrote, under the licenses below. A heading names the Debian package and\n"
            "its version; `apt-get source NAME=VERSION` gets the sources, as does the address behind it.\n")
    return head + "\n" + "\n".join(parts)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--compiled-in", action="store_true")
    options = parser.parse_args()
    sys.stdout.buffer.write(notices(options.build.resolve(), options.compiled_in).encode("utf-8"))


if __name__ == "__main__":
    main()
