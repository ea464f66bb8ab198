"""sim_scripts/jax_tests.py: classes of failures, the table, and a run over tests that pass, fail, crash and hang.

Usage: jax_tests_test.py
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

SAMPLE = '''
import ctypes, time, unittest

class SampleTest(unittest.TestCase):
    def test_a_passes(self): print("text between")
    def test_b_fails(self): self.assertEqual(1, 2)
    def test_c_crashes(self): ctypes.string_at(0)
    def test_d_hangs(self): time.sleep(600)
    def test_e_is_skipped(self): self.skipTest("only on a GPU")
    def test_f_has_failing_parts(self):
        for i in range(2):
            with self.subTest(i=i): raise RuntimeError("UNIMPLEMENTED: x: element type f16 is not supported")
    @unittest.expectedFailure
    def test_g_fails_as_expected(self): self.fail()

setattr(SampleTest, "test_h_has\\n a line break", lambda self: None)
'''


class JaxTests(unittest.TestCase):
    def test_reasons(self) -> None:
        refused = "jax.errors.JaxRuntimeError: UNIMPLEMENTED: "
        for text, reason in [
            (refused + "a.py:1:2: stablehlo.add: element type complex128 is not supported by the TPU", "type"),
            (refused + "f16 is no type of the board; use bfloat16", "type"),
            (refused + "a.py:1:2: stablehlo.custom_call: custom_call target 'InspectSharding' is not supported",
             "inspection"),
            ("UNKNOWN: a.py:1: error: 'sdy.sharding_constraint' op unsupported op for export to XLA", "text of XLA"),
            ("AssertionError: 'S(5)' not found in 'HloModule jit_f'", "text of XLA"),
            ("AssertionError: Regex didn't match: 'entry_computation_layout=.*S\\\\(5\\\\)}' not found in",
             "text of XLA"),
            ('AssertionError: "Ran out of memory on HBM, the total memory required for HLO temporaries',
             "text of XLA"),
            (refused + "func: result 0: its layout '{1,0:T(8,128)}' has tiles or other marks; arrays", "layout"),
            (refused + "a.py:1:2: stablehlo.custom_call: custom_call target 'lapack_sgeqrf_ffi' is not supported; the",
             "host code"),
            ("AssertionError: \\nNot equal to tolerance rtol=1e-06", "ours"),
            (refused + "a.py:1:2: stablehlo.add: after the pass 'partition': the result must be f32[2]", "ours"),
            ("AssertionError: element type f16 in a test's own text", "ours"),
        ]:
            self.assertEqual(jax_tests.reason_of(text), reason, text)

    def test_table(self) -> None:
        results = [jax_tests.Result("a", "passed"), jax_tests.Result("b", "failed", "type"),
                   jax_tests.Result("c", "failed", "ours"), jax_tests.Result("d", "hung", "ours")]
        self.assertEqual(jax_tests.markdown({"f": results}).splitlines(),
                         ["| file | cases | passed | skipped by JAX | type | ours | crashed or hung |",
                          "|---|---:|---:|---:|---:|---:|---:|", "| `f` | 4 | 1 | 0 | 1 | 1 | 1 |"])

    def test_run(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "sample_test.py").write_text(SAMPLE, encoding="utf-8")
            (folder / "plugin.so").touch()  # no test of the sample uses JAX
            command = [sys.executable, str(SCRIPTS / "jax_tests.py"), "--plugin", str(folder / "plugin.so"), "--tests",
                       name, "--out", name, "--limit", "5", "--json", str(folder / "r.json"), "none_test",
                       "sample_test"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1, done.stderr)  # some are ours
            self.assertIn("no tests in ", done.stderr)
            results = json.loads((folder / "r.json").read_text(encoding="utf-8"))["sample_test"]
        self.assertEqual([(result["test"][16], result["outcome"], result["reason"]) for result in results],
                         [("a", "passed", ""), ("b", "failed", "ours"), ("c", "crashed", "ours"), ("d", "hung", "ours"),
                          ("e", "skipped", ""), ("f", "failed", "type"), ("g", "passed", ""),
                          ("h", "passed", "")])


if __name__ == "__main__":
    unittest.main()
