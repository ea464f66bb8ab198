"""A profile as XProf reads it: its tools open, know our operations and lines, and steps take the model's time.

    xprof_test.py TPUC TPUBOARD DATA_FOLDER
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TPUC, TPUBOARD, DATA = sys.argv[1], sys.argv[2], Path(sys.argv[3])
LACKING = "" if importlib.util.find_spec("xprof") else "the package xprof is not installed"
CLOCK_MHZ = 940
STEPS = 4
TOOLS = ("overview_page", "input_pipeline_analyzer", "framework_op_stats", "op_profile", "hlo_stats", "roofline_model",
         "pod_viewer", "trace_viewer")


@unittest.skipIf(bool(LACKING), LACKING)
class Xprof(unittest.TestCase):
    folder: Path
    tools: dict[str, str]
    step_cycles: float

    @classmethod
    def setUpClass(cls) -> None:
        from xprof.convert import raw_to_tool_data

        cls.folder = Path(tempfile.mkdtemp())
        subprocess.run([TPUC, str(DATA / "mlp_sgd.mlirbc"), "-o", str(cls.folder / "p.tpuexe")], check=True)
        subprocess.run([TPUBOARD, "run", str(cls.folder / "p.tpuexe"), "--no-data", "--launches", str(STEPS),
                        "--xprof", str(cls.folder), "--json", str(cls.folder / "run.json")],
                       check=True, stdout=subprocess.DEVNULL)
        (profile,) = cls.folder.glob("plugins/profile/*/*.xplane.pb")
        cls.tools = {}
        for tool in TOOLS:
            data, _ = raw_to_tool_data.xspace_to_tool_data([str(profile)], tool, {})
            cls.tools[tool] = data.decode("utf-8", "replace") if isinstance(data, bytes) else str(data)
        figures = json.loads((cls.folder / "run.json").read_text(encoding="utf-8"))
        cls.step_cycles = sum(figures["sim_cycles_per_core"]) / len(figures["sim_cycles_per_core"]) / STEPS

    def test_every_tool_has_something_to_show(self) -> None:
        for tool in TOOLS:
            with self.subTest(tool):
                self.assertGreater(len(self.tools[tool]), 100)

    def test_operations_have_our_names_and_lines(self) -> None:
        for tool in ("op_profile", "hlo_stats", "roofline_model", "framework_op_stats", "trace_viewer"):
            with self.subTest(tool):
                self.assertIn("dot_general", self.tools[tool])
        self.assertIn(".py:", self.tools["hlo_stats"])

    def test_the_step_takes_what_the_model_says(self) -> None:
        """The overview rounds to 0.1 ms; the trace has every step's length."""
        events = json.loads(self.tools["trace_viewer"])["traceEvents"]
        lines = {(event["pid"], event["tid"]) for event in events
                 if event.get("name") == "thread_name" and event["args"]["name"] == "Steps"}
        steps = [event["dur"] for event in events
                 if event.get("ph") == "X" and (event["pid"], event["tid"]) in lines]
        self.assertEqual(len(steps), 8 * STEPS)
        self.assertAlmostEqual(sum(steps) / len(steps), self.step_cycles / CLOCK_MHZ, delta=1e-3)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
