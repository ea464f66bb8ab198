"""sim_scripts/tensorflow_tests.py: reasons, rows, and a run over tests that pass, fail, crash and hang, with a package
in TensorFlow's place; sim_scripts/tensorflow_support.py: rows of programs, and the table of docs/tensorflow.md.

Usage: tensorflow_tests_test.py
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
import tensorflow_support  # noqa: E402
import tensorflow_tests  # noqa: E402

FILES = {
    "tensorflow/__init__.py": """
import types
opened = []
class TPUClusterResolver:
    def __init__(self, tpu=None):
        self.tpu = tpu
distribute = types.SimpleNamespace(cluster_resolver=types.SimpleNamespace(TPUClusterResolver=TPUClusterResolver))
config = types.SimpleNamespace(
    experimental_connect_to_cluster=lambda resolver: None,
    experimental=types.SimpleNamespace(enable_tensor_float_32_execution=lambda is_on: opened.append(is_on)))
tpu = types.SimpleNamespace(experimental=types.SimpleNamespace(
    initialize_tpu_system=lambda resolver: opened.append(resolver.tpu)))
""",
    "tensorflow/compiler/tests/xla_test.py": """
from absl import flags
flags.DEFINE_string("test_device", None, "")
flags.DEFINE_string("types", None, "")
""",
    "tensorflow/compiler/tests/sample_test.py": """
import ctypes, time, unittest
import tensorflow
from absl import flags

class SampleTest(unittest.TestCase):
    def test_board(self):
        self.assertEqual(tensorflow.opened, ["local", False])
        self.assertEqual(flags.FLAGS.test_device, "TPU")
        self.assertIn("DT_BFLOAT16", flags.FLAGS.types)
    def test_crash(self):
        ctypes.string_at(0)
    def test_f16(self):
        raise RuntimeError("mhlo.add: element type f16 is not supported by the TPU")
    def test_hang(self):
        time.sleep(600)
    def test_wrong(self):
        self.assertEqual(1, 2)
""",
    "tensorflow/python/distribute/sample_test.py": """
import unittest
import tensorflow as tf
from absl import flags
flags.DEFINE_string("tpu", "", "")

class SampleTest(unittest.TestCase):
    def test_board(self):
        self.assertEqual(tf.distribute.cluster_resolver.TPUClusterResolver(tpu="").tpu, "local")
        self.assertEqual(flags.FLAGS.tpu, "local")
""",
    "tf_keras/src/engine/base.py": "VALUE = []",
    "tf_keras/distribute/sample_test.py": """
import unittest
from tf_keras.engine import base
from tf_keras.src.engine import base as installed

class SampleTest(unittest.TestCase):
    def test_same(self):
        self.assertIs(base, installed)
""",
}
MODULES = ["tensorflow.compiler.tests.sample_test", "tensorflow.python.distribute.sample_test",
           "tf_keras.distribute.sample_test"]


class TensorflowTests(unittest.TestCase):
    def test_reasons(self) -> None:
        for text, reason in [
            ("UnimplementedError: mhlo.add: element type f16 is not supported by the TPU", "type"),
            ("AttributeError: tpu_use_tfrt", "other version"),
            ("AttributeError: module 'tf_keras.optimizers.legacy' has no attribute 'rmsprop'", "package"),
            ("`tf.config.experimental_connect_to_cluster` can only be called in eager mode.", "graph mode"),
            ("No registered 'AsString' OpKernel for XLA_TPU_JIT", "TensorFlow"),
            ("ModuleNotFoundError: No module named 'tensorflow.python.x'", "package"),
            ("UNIMPLEMENTED: an array of element type 23 (number in xla_data.proto): expected one of pred", "type"),
            ("Max relative difference among violations: 1.29416091e-15\n ACTUAL", "precision of f64"),
            ("Max relative difference among violations: 1.29416091e-05\n ACTUAL", "ours"),
            ("UNIMPLEMENTED: Support for TensorList crossing the XLA/TF boundary is not implemented", "TensorFlow"),
            ("AssertionError: 1 != 2", "ours"),
        ]:
            self.assertEqual(jax_tests.reason_of(text, tensorflow_tests.REASONS), reason, text)

    def test_run(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for file, text in FILES.items():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_text(text, encoding="utf-8")
            (folder / "library.so").touch()  # nothing of the sample opens it
            command = [sys.executable, str(SCRIPTS / "tensorflow_tests.py"), "--library", str(folder / "library.so"),
                       "--tests", name, "--out", name, "--limit", "3", "--json", str(folder / "r.json"),
                       "--markdown", str(folder / "r.md"), *MODULES]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1, done.stderr)  # some are ours
            found = json.loads((folder / "r.json").read_text(encoding="utf-8"))
            table = (folder / "r.md").read_text(encoding="utf-8")
        results = {row: {result["test"].partition(".")[2]: (result["outcome"], result["reason"]) for result in some}
                   for row, some in found.items()}
        self.assertEqual(results["tensorflow.compiler.tests.*"], {
            "test_board": ("passed", ""), "test_crash": ("crashed", "ours"), "test_f16": ("failed", "type"),
            "test_hang": ("hung", "ours"), "test_wrong": ("failed", "ours")})
        self.assertEqual(results["tensorflow.python.distribute.sample_test"], {"test_board": ("passed", "")})
        self.assertEqual(results["tf_keras.distribute.sample_test"], {"test_same": ("passed", "")})
        self.assertIn("| `tensorflow.compiler.tests.*` | 5 | 1 | 0 | 1 | 1 | 2 |", table)


class SupportTable(unittest.TestCase):
    def test_rows(self) -> None:
        source = 'import checks\nchecks.x()\nworks("a", "b")\nworks("c" "d", "e")\n'
        self.assertEqual(tensorflow_support.rows_of(source, "p"), [("a", "b"), ("cd", "e")])
        with self.assertRaisesRegex(SystemExit, r"p\.py:2: works\(\) in a branch"):
            tensorflow_support.rows_of('if x:\n    works("a", "b")\n', "p")

    def test_programs(self) -> None:
        listing = "tpu_x(one PROGRAM a)\ntpu_x(two LOWERING PROGRAM together b\n  a)\n# PROGRAM c\n"
        self.assertEqual(tensorflow_support.programs_of(listing, {"a", "b", "c"}), ["a", "b"])

    def test_page(self) -> None:
        page = f"x\n{tensorflow_support.BEGIN}old\n{tensorflow_support.END}y\n"
        self.assertEqual(tensorflow_support.with_table(page, "new\n"), page.replace("old", "new"))
        with self.assertRaises(SystemExit):
            tensorflow_support.with_table("x\n", "new\n")

    def test_is_up_to_date(self) -> None:
        command = [sys.executable, str(SCRIPTS / "tensorflow_support.py"), "--check"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ""))


if __name__ == "__main__":
    unittest.main()
