"""sim_scripts/torch_tests.py: rows of the table, and a run over scripts that pass, fail, crash and hang; without torch.

Usage: torch_tests_test.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "sim_scripts"
sys.path.insert(0, str(SCRIPTS))

import jax_tests  # noqa: E402
import torch_tests  # noqa: E402

PROGRAMS = {
    "test_mp_passes.py": 'import os\nassert os.environ["TPUBOARD_PROCESS_COUNT"] == "8"',
    "test_mp_fails.py": 'raise RuntimeError("f16 is no type of the board; use bfloat16")',
    "test_mp_fails_else.py": "assert 1 == 2",
    "test_mp_crashes.py": "import ctypes\nctypes.string_at(0)",
    "test_train_hangs.py": "import os, time\nos.fork()\nopen(f'pid-{os.getpid()}', 'w')\ntime.sleep(600)",
}
MODULE = """
import os, unittest

class SampleTest(unittest.TestCase):
    def test_one_process(self):
        self.assertNotIn("TPUBOARD_PROCESS_COUNT", os.environ)
    def test_dynamic(self):
        raise RuntimeError("dynamic shapes are not supported")
"""


def lives(process: int) -> bool:
    stat = Path(f"/proc/{process}/stat")
    return stat.exists() and stat.read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"


class TorchTests(unittest.TestCase):
    def test_reasons(self) -> None:
        for text, reason in [
            ("RuntimeError: stablehlo.add: element type f16 is not supported by the TPU", "type"),
            ("dimension 0 of 7 cannot be sharded into 2 equal parts", "unequal shards"),
            ("custom_call target 'tpu_custom_call' is not supported", "custom call"),
            ("program.2284 on the simulated board takes 99 bytes of host memory, 9 are free; use", "host memory"),
            ("ModuleNotFoundError: No module named 'jax'", "package"),
            ("[  FAILED  ] Ddp.test_ddp_correctness_with_gradient_as_bucket_view\n", "PyTorch/XLA"),
            ("AssertionError: Tensor-likes are not close!", "ours"),
        ]:
            self.assertEqual(jax_tests.reason_of(text, torch_tests.REASONS), reason, text)

    def test_rows(self) -> None:
        self.assertEqual([torch_tests.row_of(name) for name in
                          ("test_mp_save.py", "torch_distributed/test_ddp.py", "test_train_mp_mnist.py")],
                         ["test_mp_*.py", "torch_distributed/*.py", "test_train_mp_mnist.py"])

    def test_run(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for program, text in (PROGRAMS | {"sample.py": MODULE}).items():
                (folder / program).write_text(text, encoding="utf-8")
            (folder / "library.so").touch()  # no program of the sample opens it
            command = [sys.executable, str(SCRIPTS / "torch_tests.py"), "--library", str(folder / "library.so"),
                       "--tests", name, "--out", name, "--limit", "2", "--json", str(folder / "r.json"), "sample",
                       *PROGRAMS]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1, done.stderr)  # some are ours
            found = json.loads((folder / "r.json").read_text(encoding="utf-8"))
            started = [int(path.name[4:]) for path in folder.glob("pid-*")]
        self.assertEqual(len(started), 2)
        self.assertFalse([process for process in started if lives(process)])  # a child does not live longer
        rows = {row: [(result["outcome"], result["reason"]) for result in some] for row, some in found.items()}
        self.assertEqual(rows["test_mp_*.py"], [("passed", ""), ("failed", "type"), ("failed", "ours"),
                                                ("crashed", "ours")])
        self.assertEqual(rows["test_train_hangs.py"], [("hung", "ours")])
        self.assertEqual(sorted(rows["sample"]), [("failed", "dynamic shape"), ("passed", "")])


if __name__ == "__main__":
    unittest.main()
