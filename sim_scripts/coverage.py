"""Lines that the tests ran, by folder, from a build with --coverage: a table, and the lines that never ran.

Usage: coverage.py --build DIR [--missing FILE] (cmake --workflow --preset coverage calls it)
  --missing FILE  also writes FILE: one line "path:first-last" for each run of lines that no test reached
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SKIPPED = ("tests", "build", "examples", "benchmarks")


def read(data: Path) -> dict[str, dict[int, int]]:
    """Source -> line -> executions, of one .gcda file."""
    run = subprocess.run(["gcov", "--json-format", "--stdout", str(data)], capture_output=True, text=True, check=False,
                         cwd=data.parent)
    counts: dict[str, dict[int, int]] = {}
    for text in filter(None, run.stdout.splitlines()):
        report = json.loads(text)
        for file in report["files"]:
            path = (Path(report["current_working_directory"]) / file["file"]).resolve()
            if not path.is_relative_to(ROOT) or path.relative_to(ROOT).parts[0] in SKIPPED:
                continue
            lines = counts.setdefault(path.relative_to(ROOT).as_posix(), {})
            for line in file["lines"]:
                lines[line["line_number"]] = max(lines.get(line["line_number"], 0), line["count"])
    return counts


def runs(numbers: list[int]) -> list[str]:
    """[3, 4, 5, 9] -> ["3-5", "9-9"]."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return [f"{first}-{last}" for first, last in found]


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--missing", type=Path)
    args = parser.parse_args()
    data = sorted(args.build.resolve().rglob("*.gcda"))
    if not data:
        print(f"{args.build} has no .gcda files: build it with the preset coverage and run its tests first")
        return 1
    total: dict[str, dict[int, int]] = defaultdict(dict)
    with ThreadPoolExecutor() as pool:
        for counts in pool.map(read, data):
            for name, lines in counts.items():
                for number, count in lines.items():
                    total[name][number] = max(total[name].get(number, 0), count)
    if not total:
        print(f"gcov read none of our sources from {len(data)} .gcda files below {args.build}")
        return 1
    folders: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, lines in total.items():
        for folder in ("/".join(name.split("/")[:2]), "all"):
            folders[folder][0] += sum(count > 0 for count in lines.values())
            folders[folder][1] += len(lines)
    for folder, (ran, lines_in) in sorted(folders.items()):
        print(f"{folder:32} {ran:7} of {lines_in:7} lines  {100 * ran / lines_in:5.1f} %")
    if args.missing:
        args.missing.write_text("".join(
            f"{name}:{span}\n" for name, lines in sorted(total.items())
            for span in runs(sorted(number for number, count in lines.items() if not count))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
