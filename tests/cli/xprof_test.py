"""A profile as XProf reads it: its tools open, know our operations and lines, and steps take the model's time.

    xprof_test.py TPUC TPUBOARD DATA_FOLDER
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

TPUC, TPUBOARD, DATA = sys.argv[1], sys.argv[2], Path(sys.argv[3])
LACKING = "" if importlib.util.find_spec("xprof") else "the package xprof is not installed"
CLOCK_MHZ = 940
STEPS = 4
TOOLS = ("overview_page", "input_pipeline_analyzer", "framework_op_stats", "op_profile", "hlo_stats", "roofline_model",
         "pod_viewer", "trace_viewer", "memory_viewer")


def tools_of(profile: Path, names: tuple[str, ...]) -> dict[str, str]:
    """What the tools show of a profile of one program."""
    from xprof.convert import raw_to_tool_data

    raw_to_tool_data.xspace_to_tool_names([str(profile)])  # as the server does: finds the programs
    (program,) = profile.parent.glob("*.hlo_proto.pb")
    shown = {}
    for tool in names:
        module = {"module_name": program.name.removesuffix(".hlo_proto.pb")} if tool == "memory_viewer" else {}
        data, _ = raw_to_tool_data.xspace_to_tool_data([str(profile)], tool, module)
        shown[tool] = data.decode("utf-8", "replace") if isinstance(data, bytes) else str(data)
    return shown


def bytes_of(listing: str) -> tuple[int, int]:
    """Of a program in HBM: what it has all the time, and the most of its temporaries at a time."""
    kept = 0
    changes: dict[int, int] = {}
    for line in listing.splitlines():
        words = dict(re.findall(r"(\w+)=(-?\d+)", line))
        if line.startswith(".slot ") and not line.startswith(".slot scratch"):
            kept += int(words["bytes"])
        if line.startswith(".temporary "):
            changes[int(words["from"])] = int(words["bytes"])
            changes[int(words["to"])] = -int(words["bytes"])
    return kept, max(itertools.accumulate(changes[time] for time in sorted(changes)))


@unittest.skipIf(bool(LACKING), LACKING)
class Xprof(unittest.TestCase):
    folder: Path
    tools: dict[str, str]
    step_cycles: float

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = Path(tempfile.mkdtemp())
        subprocess.run([TPUC, str(DATA / "mlp_sgd.mlirbc"), "-o", str(cls.folder / "p.tpuexe")], check=True)
        subprocess.run([TPUBOARD, "run", str(cls.folder / "p.tpuexe"), "--no-data", "--launches", str(STEPS),
                        "--xprof", str(cls.folder), "--json", str(cls.folder / "run.json")],
                       check=True, stdout=subprocess.DEVNULL)
        (profile,) = cls.folder.glob("plugins/profile/*/*.xplane.pb")
        cls.tools = tools_of(profile, TOOLS)
        figures = json.loads((cls.folder / "run.json").read_text(encoding="utf-8"))
        cls.step_cycles = sum(figures["sim_cycles_per_core"]) / len(figures["sim_cycles_per_core"]) / STEPS

    def test_every_tool_has_something_to_show(self) -> None:
        for tool in TOOLS:
            with self.subTest(tool):
                self.assertGreater(len(self.tools[tool]), 100)

    def test_the_overview_has_the_steps_and_kinds_of_work(self) -> None:
        tables = {table["cols"][0]["id"]: table for table in json.loads(self.tools["overview_page"]) if "cols" in table}
        steps = tables["stepnum"]
        columns = [column["id"] for column in steps["cols"]]
        self.assertEqual(len(steps["rows"]), STEPS)
        for row in steps["rows"]:  # a step is what its last core takes
            of = dict(zip(columns, (cell["v"] for cell in row["c"]), strict=False))
            longest = max(event["dur"] for event in self.steps() if event["name"] == of["stepnum"])
            self.assertAlmostEqual((of["tcComputeTimeMs"] + of["tcIdleTimeMs"]) * 1e3, longest, delta=1e-3)
        categories = {row["c"][2]["v"] for row in tables["selfTimePercent"]["rows"]}
        self.assertIn("dot_general", categories)
        self.assertNotIn("Unknown", categories)

    def test_operations_have_our_names_and_lines(self) -> None:
        for tool in ("op_profile", "hlo_stats", "roofline_model", "framework_op_stats", "trace_viewer"):
            with self.subTest(tool):
                self.assertIn("dot_general", self.tools[tool])
        self.assertIn(".py:", self.tools["hlo_stats"])

    def test_the_memory_viewer_shows_arguments_and_temporaries(self) -> None:
        """The guide's convnet: its temporaries are in HBM."""
        exe = self.folder / "convnet.tpuexe"
        subprocess.run([TPUC, str(DATA.parent.parent / "examples/mnist_convnet/train_step.mlirbc"), "-o", str(exe)],
                       check=True)
        subprocess.run([TPUBOARD, "run", str(exe), "--no-data", "--xprof", str(self.folder / "convnet")],
                       check=True, stdout=subprocess.DEVNULL)
        (profile,) = (self.folder / "convnet").glob("plugins/profile/*/*.xplane.pb")
        memory = json.loads(tools_of(profile, ("memory_viewer",))["memory_viewer"])
        listing = subprocess.run([TPUBOARD, "objdump", str(exe)], check=True, stdout=subprocess.PIPE, encoding="utf-8")
        kept, temporary = bytes_of(listing.stdout)
        self.assertAlmostEqual(memory["peakHeapMib"] * 2**20, kept + temporary, delta=1)
        shown = {buffer["label"]: buffer["groupName"] for buffer in memory["maxHeap"] if "groupName" in buffer}
        self.assertIn(("parameter.5: f32[147456,256]{1,0} # params[2]['w']", "Parameter"), shown.items())
        self.assertTrue(any(group == "Temporary" and label.startswith("dot_general.") and "f32[147456,256]" in label
                            for label, group in shown.items()), shown)

    def steps(self) -> list[dict[str, Any]]:
        """Those of all cores, in the trace."""
        events = json.loads(self.tools["trace_viewer"])["traceEvents"]
        lines = {(event["pid"], event["tid"]) for event in events
                 if event.get("name") == "thread_name" and event["args"]["name"] == "Steps"}
        return [event for event in events if event.get("ph") == "X" and (event["pid"], event["tid"]) in lines]

    def test_the_step_takes_what_the_model_says(self) -> None:
        """The overview rounds to 0.1 ms; the trace has every step's length."""
        steps = [event["dur"] for event in self.steps()]
        self.assertEqual(len(steps), 8 * STEPS)
        self.assertAlmostEqual(sum(steps) / len(steps), self.step_cycles / CLOCK_MHZ, delta=1e-3)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
