"""A training in TensorFlow, as `tpuboard monitor` sees it: in process, and on a TPU node.

Usage: monitor_test.py TPUBOARD VENV LIBRARY LOWERING. Exits with 77 (skipped) without TensorFlow.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import run

sys.path.append(str(Path(__file__).resolve().parents[1] / "monitor"))
import running_jobs
from running_jobs import Monitored

TPUBOARD, VENV, LIBRARY, LOWERING = (Path(word).absolute() for word in sys.argv[1:5])
# Trains until standard input ends; the first line says that the board has run a step.
TRAINING = """
import sys, threading
import numpy as np, tensorflow as tf
from checks import open_board
wanted = True
def end():
    global wanted
    sys.stdin.read()
    wanted = False
threading.Thread(target=end, daemon=True).start()
with tf.distribute.TPUStrategy(open_board()).scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(256, input_shape=(256,)), tf.keras.layers.Dense(8)])
    model.compile('sgd', 'mse')
x, y = np.ones((256, 256), np.float32), np.ones((256, 8), np.float32)
model.fit(x, y, batch_size=256, verbose=0)
print('ready', flush=True)
while wanted:
    model.fit(x, y, batch_size=256, verbose=0)
"""


class TensorFlow(Monitored):
    """A process with a board, and who looks at it."""

    tpuboard = str(TPUBOARD)

    @contextmanager
    def training(self, variables: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
        """Goes on until the end of the block."""
        script = self.folder / "training.py"
        script.write_text(TRAINING)
        with tempfile.TemporaryFile("w+") as errors, subprocess.Popen(
                [VENV / "bin/python", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                env=variables | {"PYTHONPATH": f"{variables['PYTHONPATH']}:{Path(run.__file__).parent / 'programs'}"},
        ) as process:
            try:
                assert process.stdin and process.stdout
                if process.stdout.readline() != "ready\n":
                    errors.seek(0)
                    self.fail(errors.read())
                yield process
                process.stdin.close()
                self.assertEqual(process.wait(), 0)
            finally:
                process.kill()

    def looked_at(self, *, on_a_node: bool) -> None:
        variables = run.environment(LIBRARY) | {"XDG_RUNTIME_DIR": str(self.folder)}
        with ExitStack() as stack:
            if on_a_node:
                _, line = stack.enter_context(run.node(VENV / "bin/python", variables))
                variables = run.environment_of_client(variables, line)
            process = stack.enter_context(self.training(variables))
            (job,) = (self.folder / "tpuboard").glob("*.json")
            pid = int(job.stem)
            self.assertEqual(pid == process.pid, not on_a_node)
            self.wait_for(lambda: (self.report_of(pid) or {"lately": {"mxu": 0}})["lately"]["mxu"] > 0)
            report = json.loads(self.call("monitor", "--once", "--json").stdout)
            self.assertEqual((report["pid"], report["board"]), (pid, "v3_8"))
            self.assertIn("tpu_worker" if on_a_node else "training.py", report["command"])
            self.assertEqual([core["programs"] > 0 for core in report["cores"]], 8 * [True])

    def test_in_process(self) -> None:
        self.looked_at(on_a_node=False)
        self.assertIn("no job is running", self.call("monitor", "--once").stderr)

    def test_on_a_node(self) -> None:
        self.looked_at(on_a_node=True)


if __name__ == "__main__":
    run.check_environment(VENV, LOWERING, None)
    running_jobs.unittest.main(argv=[sys.argv[0], "-v"])
