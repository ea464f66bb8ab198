"""Draws small traces with sim_scripts/timeline.py and reads the SVG back: rows, bars, launches, errors."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ET
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "sim_scripts" / "timeline.py"
SVG = "{http://www.w3.org/2000/svg}"
# Two launches of core 0, one command of core 1.
TRACE = """100 1100 0 dma_in dma op=0 pc=1 step=0 free=101
1100 1600 0 mxu0 matmul op=1 pc=2 step=0 free=1400
1400 1900 0 mxu0 matmul op=2 pc=3 step=0 free=1700
120 900 1 vpu vpu_kernel op=1 pc=2 step=0 free=500
9000 9500 0 xlu transpose op=0 pc=1 step=0 free=9100
"""


class Timeline(unittest.TestCase):
    def draw(self, trace: str, *options: str, clock: str | None = "1000") -> tuple[subprocess.CompletedProcess, Path]:
        folder = Path(tempfile.mkdtemp())
        (folder / "trace.txt").write_text(trace, encoding="utf-8")
        command = [sys.executable, str(SCRIPT), str(folder / "trace.txt"), "-o", str(folder / "t.svg"),
                   *(("--clock-mhz", clock) if clock else ()), *options]
        return subprocess.run(command, capture_output=True, text=True, check=False), folder / "t.svg"

    def test_a_row_a_queue_and_a_bar_a_command(self) -> None:
        done, path = self.draw(TRACE)
        self.assertEqual(done.returncode, 0, done.stderr)
        root = ET.parse(path).getroot()
        texts = [text.text for text in root.iter(SVG + "text")]
        self.assertIn("dma_in", texts)
        self.assertIn("mxu0", texts)
        self.assertNotIn("xlu", texts)  # of the second launch
        self.assertNotIn("vpu", texts)  # of the other core
        self.assertIn("TPU:0, one launch: 3 engine commands, 1.8 us", texts)
        tips = [title.text for title in root.iter(SVG + "title")]
        self.assertEqual(tips, ["dma op=0 pc=1, 1.00 us", "matmul op=1 pc=2, 0.50 us", "matmul op=2 pc=3, 0.50 us"])
        bars = [rect for rect in root.iter(SVG + "rect") if rect.find(SVG + "title") is not None]
        # 1 us of 1.8 us is as wide as two bars of 0.5 us; overlapping commands lie in two halves of the row.
        self.assertAlmostEqual(float(bars[0].get("width")), 2 * float(bars[1].get("width")), delta=0.2)
        self.assertNotEqual(bars[1].get("y"), bars[2].get("y"))

    def test_marks_have_a_row(self) -> None:
        marks = ("50 0 mark begin op=7\n60 0 mark begin op=8\n60 1 mark begin op=9\n"
                 "65 0 hart word=0x01000002\n70 0 mark end op=8\n2000 0 mark end op=7\n")
        done, path = self.draw(marks + TRACE)
        self.assertEqual(done.returncode, 0, done.stderr)
        root = ET.parse(path).getroot()
        self.assertIn("marks", [text.text for text in root.iter(SVG + "text")])
        tips = [title.text for title in root.iter(SVG + "title")]
        self.assertEqual(tips[:2], ["mark op=7, 1.95 us", "mark op=8, 0.01 us"])

    def test_another_launch_and_core(self) -> None:
        done, path = self.draw(TRACE, "--launch", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("transpose op=0", path.read_text(encoding="utf-8"))
        done, path = self.draw(TRACE, "--core", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("vpu_kernel", path.read_text(encoding="utf-8"))

    def test_refuses_what_it_cannot_draw(self) -> None:
        done, _ = self.draw(TRACE, "--launch", "2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("holds 2 launches of core 0", done.stderr)
        done, _ = self.draw("hello world\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("trace.txt:1: not a line of a trace", done.stderr)

    def test_a_text_needs_the_clock(self) -> None:
        for clock, text in ((None, "trace.txt: has no core clock, as texts have none; give that of the board, which "
                                   "`tpuboard devices` prints, by --clock-mhz"),
                            ("0", "--clock-mhz 0: expected a number above 0")):
            done, path = self.draw(TRACE, clock=clock)
            self.assertEqual(done.returncode, 1)
            self.assertIn(text, done.stderr)
            self.assertFalse(path.exists())

    def test_a_damaged_file_is_no_text(self) -> None:
        for clock in (None, "940"):
            done, _ = self.draw("\n\x7fends early", clock=clock)
            self.assertEqual(done.returncode, 1)
            self.assertIn("trace.txt: damaged, or not a file of --timeline", done.stderr)

    def test_a_picture_that_cannot_be_written(self) -> None:
        done, path = self.draw(TRACE, "-o", "nowhere/t.svg")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "timeline: nowhere/t.svg: cannot be written: No such file or directory\n")
        self.assertFalse(path.exists())


if __name__ == "__main__":
    unittest.main()
