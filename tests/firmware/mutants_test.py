"""Mutants of the firmware: each line of mutants.toml is applied to a copy of its file, and a host test must fail.

A mutant that no test notices is a rule of the firmware that nothing checks. The mutated file is compiled with the
flags of the host library and linked with the objects of the host tests, which run until the first failure.

Usage: mutants_test.py --compiler CC --linker CXX --flags=... --tests OBJECT ... --libraries FILE ...
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "firmware"
SECONDS = 60  # of the host tests; a mutant may wait for ever


def arguments() -> argparse.Namespace:
    """Command line, as CMake writes it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--linker", required=True)
    parser.add_argument("--flags", required=True, help="of the host library, separated by spaces")
    parser.add_argument("--tests", nargs="+", required=True, help="objects of the host tests")
    parser.add_argument("--libraries", nargs="+", required=True)
    return parser.parse_args()


class Builder:
    """Compiles the firmware once, and each mutant of a file in its place."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.args = args
        self.folder = folder
        self.objects = {source: self._compile(source, source.stem)
                        for part in ("dev", "rt") for source in sorted((SOURCES / part).glob("*.c"))}

    def _compile(self, source: Path, name: str) -> Path:
        target = self.folder / f"{name}.o"
        subprocess.run([self.args.compiler, *self.args.flags.split(), "-c", str(source), "-o", str(target)], check=True)
        return target

    def passes(self, changed: Path | None, text: str) -> bool:
        """Whether the host tests pass with `text` in place of the file `changed`."""
        objects = dict(self.objects)
        if changed is not None:
            mutated = self.folder / "mutant.c"
            mutated.write_text(text, encoding="utf-8")
            objects[changed] = self._compile(mutated, "mutant")
        program = self.folder / "tests"
        subprocess.run([self.args.linker, *self.args.tests, *map(str, objects.values()), *self.args.libraries,
                        "-o", str(program)], check=True)
        try:
            run = subprocess.run([program, "--gtest_brief=1", "--gtest_fail_fast"], capture_output=True, check=False,
                                 timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return run.returncode == 0


def main() -> int:
    """Command line."""
    args = arguments()
    mutants = tomllib.loads((Path(__file__).with_name("mutants.toml")).read_text(encoding="utf-8"))["mutant"]
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        builder = Builder(args, Path(folder))
        if not builder.passes(None, ""):
            print("the host tests fail without a mutant")
            return 1
        for mutant in mutants:
            source = SOURCES / "rt" / mutant["file"]
            text = source.read_text(encoding="utf-8")
            what = f"{mutant['file']}: {mutant['old'].strip()!r} -> {mutant['new'].strip()!r}"
            if mutant["old"] not in text:
                wrong.append(f"not in the file any more, write it anew in mutants.toml: {what}")
            elif builder.passes(source, text.replace(mutant["old"], mutant["new"], 1)):
                wrong.append(f"no test notices: {what}")
    print(*wrong, sep="\n")
    print(f"{len(mutants)} mutants, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
