"""Processes that end in the middle of their work: nothing hangs, and a TPU node serves the next program.

Usage: processes_test.py --venv FOLDER [--client FOLDER] --library LIBRARY --lowering LIBRARY --tpuboard PROGRAM
                         [TEST ...]
--client: the environment of programs on a node, if it is there, else that of --venv. Exits with 77 (skipped) without an
environment.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import run

PROGRAM = run.ROOT / "tests/tensorflow/programs/long_run.py"
SECONDS = 120.0  # for what takes seconds on a host that does nothing else
VARIABLE = 4 << 20  # bytes of the program's, on each core
ENDLESS = ("--steps", "100000000")
OPTIONS = argparse.Namespace()


class Program:
    """A process that runs long_run.py."""

    def __init__(self, variables: dict[str, str], errors: IO[str], *words: str) -> None:
        python = OPTIONS.venv if "TPU_LIBRARY_PATH" in variables else OPTIONS.client
        self.errors = errors
        self.process = subprocess.Popen([str(python / "bin/python"), str(PROGRAM), *words], env=variables,
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True,
                                        preexec_fn=run.end_with_parent)

    def wait_for_steps(self) -> None:
        """Until its first step is done."""
        assert run.first_line(self.process, SECONDS) == "ready\n", self.error()

    def end(self) -> tuple[int, str]:
        """Its exit code and what it printed."""
        output, _ = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, output

    def error(self) -> str:
        self.errors.seek(0)
        return self.errors.read()


@contextlib.contextmanager
def program(variables: dict[str, str], *words: str) -> Iterator[Program]:
    with tempfile.TemporaryFile("w+") as errors:
        started = Program(variables, errors, *words)
        try:
            yield started
        finally:
            started.process.kill()
            started.process.communicate()


class Node(unittest.TestCase):
    """On a TPU node of its own."""

    def setUp(self) -> None:
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        variables = run.environment(OPTIONS.library.resolve())
        self.addCleanup(signal.signal, signal.SIGHUP, signal.signal(signal.SIGHUP, signal.SIG_IGN))  # as nohup does
        self.node, line = stack.enter_context(run.node(OPTIONS.venv / "bin/python", variables))
        self.variables = run.environment_of_client(variables, line)

    def check_next(self) -> None:
        """The node serves a program that does all its steps."""
        with program(self.variables) as following:
            self.assertEqual(following.end(), (0, "ready\nsum 4\n"), following.error())

    def memory_in_use(self) -> int:
        """Bytes in the HBM of a core, as the monitor of the node sees them."""
        done = subprocess.run([OPTIONS.tpuboard, "monitor", "--once", "--json", "--pid", str(self.node.pid)],
                              check=True, capture_output=True, text=True)
        return max(core["hbm_used"] for core in json.loads(done.stdout)["cores"])

    def check_memory_is_free(self) -> None:
        """Of variables. The monitor looks once a second, and the node frees what an ended program leaves."""
        deadline = time.monotonic() + SECONDS
        while (used := self.memory_in_use()) >= VARIABLE and time.monotonic() < deadline:
            time.sleep(0.5)
        self.assertLess(used, VARIABLE)

    def test_killed_processes(self) -> None:
        with program(self.variables, *ENDLESS) as killed:
            killed.wait_for_steps()
            killed.process.kill()
        self.check_next()
        self.check_memory_is_free()  # the next program's start has freed what was left
        with program(self.variables, *ENDLESS) as left:
            left.wait_for_steps()
            self.assertIsNone(self.node.poll())
            self.node.kill()
            code, _ = left.end()
            self.assertEqual(code, 1, left.error())
            self.assertIn("UnavailableError", left.error())

    def test_a_second_program_while_one_runs(self) -> None:
        with program(self.variables, *ENDLESS) as first:
            first.wait_for_steps()
            self.check_next()
            code, _ = first.end()
            self.assertEqual(code, 1)
            self.assertIn("was written before the TPU system was initialized again", first.error())
        self.check_next()

    def test_an_interrupt_in_fit(self) -> None:
        with program(self.variables, "--fit") as training:
            training.wait_for_steps()
            training.process.send_signal(signal.SIGINT)
            self.assertEqual(training.end()[0], -signal.SIGINT, training.error())
        self.check_next()

    def test_an_exit_with_work_in_flight(self) -> None:
        with program(self.variables, "--steps", "60", "--leave") as leaving:
            self.assertEqual(leaving.end(), (0, "ready\n"), leaving.error())
        self.check_next()

    def test_a_node_that_is_told_to_end(self) -> None:
        self.node.send_signal(signal.SIGHUP)  # is ignored
        self.check_next()  # TensorFlow has taken SIGTERM by then
        self.node.terminate()
        self.assertEqual(self.node.wait(SECONDS), -signal.SIGTERM)


class Alone(unittest.TestCase):
    """Without a node, or with the board in the process."""

    def test_no_node_at_the_address(self) -> None:
        variables = run.environment(OPTIONS.library.resolve())
        line = "export TPU_NAME=grpc://127.0.0.1:9 GRPC_FAIL_FAST=true"
        with program(run.environment_of_client(variables, line)) as lost:
            self.assertEqual(lost.end()[0], 1, lost.error())
            self.assertIn("failed to connect to all addresses", lost.error())

    def test_an_interrupt_in_fit(self) -> None:
        with program(run.environment(OPTIONS.library.resolve()), "--fit") as training:
            training.wait_for_steps()
            time.sleep(0.5)
            training.process.send_signal(signal.SIGINT)
            self.assertEqual(training.end()[0], -signal.SIGINT, training.error())

    def test_an_exit_with_work_in_flight(self) -> None:
        with program(run.environment(OPTIONS.library.resolve()), "--steps", "60", "--leave") as leaving:
            self.assertEqual(leaving.end(), (0, "ready\n"), leaving.error())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("venv", "library", "lowering", "tpuboard"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--client", type=Path, default=Path("none"))
    parser.add_argument("tests", nargs="*")
    parser.parse_args(namespace=OPTIONS)
    run.check_environment(OPTIONS.venv, OPTIONS.lowering, None)
    if not (OPTIONS.client / "bin/python").exists():
        OPTIONS.client = OPTIONS.venv
    unittest.main(argv=[sys.argv[0], *OPTIONS.tests])


if __name__ == "__main__":
    main()
