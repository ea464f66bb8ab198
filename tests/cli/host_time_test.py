"""What sim_scripts/host_time.py draws: short runs, the pictures in docs/images by the page that has them.

Usage: host_time_test.py --bin DIR [--whole]. --whole draws those pictures again, and they must be the same.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs/images"
SVG = "{http://www.w3.org/2000/svg}"
NAMES = ("steps_per_execution.svg", "input_rate.svg")
Rows = list[list[float]]


def draw(bin_folder: Path, out: Path, *options: str) -> str:
    """What the script prints."""
    command = [sys.executable, str(ROOT / "sim_scripts/host_time.py"), "--bin", str(bin_folder), "--out", str(out)]
    return subprocess.run([*command, *options], check=True, text=True, stdout=subprocess.PIPE).stdout


def tables(text: str) -> tuple[Rows, Rows]:
    """The rows of numbers of steps a launch and of rates."""
    rows = [[float(cell) for cell in line.strip("| ").split("|")] for line in text.splitlines()
            if re.match(r"\| [0-9.]+ \|", line)]
    return [row for row in rows if len(row) == 3], [row for row in rows if len(row) == 4]


def drawn(path: Path) -> list[list[float]]:
    """The values of each curve, as their points tell."""
    root = ET.parse(path).getroot()
    values = [float(title.text or "") for title in root.iter(SVG + "title")]
    curves = sum(1 for line in root.iter(SVG + "path") if line.get("fill") == "none")
    points = len(values) // curves
    return [values[i * points:(i + 1) * points] for i in range(curves)]


def check_pictures(folder: Path, text: str) -> None:
    """A picture shows what the table beside it says."""
    launches, rates = tables(text)
    assert launches and rates, text
    (times,) = drawn(folder / NAMES[0])
    assert times == [row[1] for row in launches], (times, launches)
    for column, values in enumerate(drawn(folder / NAMES[1]), start=2):
        assert len(values) == len(rates), (values, rates)
        assert all(abs(value - row[column]) < 0.06 for value, row in zip(values, rates, strict=True)), (values, rates)


def check_laws(text: str) -> None:
    """Runs of 4 steps: one launch instead of four, 14 ms each; a batch of 628 kB by two rates."""
    (one, four), (slow, fast) = tables(text)
    spared = 14 * 3 / 4
    assert abs(one[1] - four[1] - spared) < 0.01 * spared, (one, four)
    assert slow[1] > 628.0 / 20 and slow[2] < 5 and 75 < slow[3] < 99, slow
    assert fast[1] < 6 and fast[2] > 15 and fast[3] < 25, fast


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--whole", action="store_true")
    args = parser.parse_args()
    page = (ROOT / "docs/timing_model.md").read_text(encoding="utf-8")
    section = page[page.index("\n## Host overhead\n"):page.index("\n## Definitions\n")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.whole:
            text = draw(args.bin, folder)
            assert tables(text) == tables(section), text
            for name in NAMES:
                assert (folder / name).read_bytes() == (IMAGES / name).read_bytes(), f"{name}: draw it again"
        else:
            check_pictures(IMAGES, section)
            text = draw(args.bin, folder, "--steps", "4", "--launches", "1,4", "--rates", "0.02,1")
            check_pictures(folder, text)
            check_laws(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
