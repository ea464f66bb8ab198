"""Runs a program of TensorFlow on the board, in an environment that sim_scripts/tensorflow_venv made.

Usage: run.py --venv FOLDER --library LIBRARY [--lowering LIBRARY] [--worker [--client FOLDER]] [--set NAME=VALUE ...]
              PROGRAM [ARGUMENTS ...]
--worker: the board is in a process of its own, a TPU node. The program has no library, and finds the node by TPU_NAME.
--client: the environment of the program, whose TensorFlow has no TPU runtime (sim_scripts/tensorflow_venv --client).
Errors that the plugin could not tell are errors, too: such as memory that is freed twice.
Exits with 77 (skipped) if an environment is not there; with --lowering, if that library was not built. When this
process is killed, those that it started are as well.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77
START_SECONDS = 120.0  # of a node, on a host with much other work
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def end_with_parent() -> None:
    """In a child: ctest kills the process of a test alone when its time is up."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def environment(library: Path) -> dict[str, str]:
    """The variables of the session without those that choose a device."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("TPU_", "TF_", "XLA_", "TPUBOARD_", "KUBE_"))}
    return kept | {"TPU_LIBRARY_PATH": str(library), "PYTHONPATH": str(ROOT / "python"), "TPUBOARD_CACHE": "off",
                   "TF_CPP_MIN_LOG_LEVEL": "1", "TF_ENABLE_ONEDNN_OPTS": "0", "TF_USE_LEGACY_KERAS": "1",
                   "PYTHONUNBUFFERED": "1",
                   "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}  # of tests that run at the same time


def environment_of_client(variables: dict[str, str], line: str) -> dict[str, str]:
    """The variables of a program that has no board of its own. `line`: what a node prints."""
    kept = {name: value for name, value in variables.items() if name != "TPU_LIBRARY_PATH"}
    return kept | dict(word.split("=", 1) for word in line.removeprefix("export ").split())


def first_line(process: subprocess.Popen[str], seconds: float) -> str:
    """What it prints until its first line ends; less if it ends or takes longer."""
    assert process.stdout is not None
    text, deadline = b"", time.monotonic() + seconds
    while not text.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
            break
        byte = os.read(process.stdout.fileno(), 1)
        if not byte:
            break
        text += byte
    return text.decode()


@contextlib.contextmanager
def node(python: Path, variables: dict[str, str], command: list[str] | None = None
         ) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A TPU node and the line that it prints."""
    command = command or [str(python), "-m", "tpuboard.tpu_worker", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables,
                          preexec_fn=end_with_parent) as process:
        try:
            line = first_line(process, START_SECONDS)
            if not line.startswith("export TPU_NAME=grpc://127.0.0.1:"):
                raise RuntimeError(f"the TPU node has not started in {START_SECONDS:.0f} s; it printed '{line}'")
            yield process, line
        finally:
            process.kill()


def skip(text: str) -> NoReturn:
    print(f"skipped: {text}")
    sys.exit(SKIPPED)


def check_environment(venv: Path, lowering: Path | None, client: Path | None) -> None:
    """Skips the test where something was not made."""
    if not (venv / "bin/python").exists():
        skip(f"{venv} has no TensorFlow; make it with sim_scripts/tensorflow_venv")
    if lowering and not lowering.exists():
        skip(f"{lowering} was not built; configure with -DTPU_TENSORFLOW={venv}")
    if client and not (client / "bin/python").exists():
        skip(f"{client} has no TensorFlow; make it with sim_scripts/tensorflow_venv --client, and configure with "
             "-DTPU_TENSORFLOW_CLIENT=FOLDER")


def untold(log: Path) -> int:
    """1, and the lines of the call log about errors that no status had room for, or no log; 0: none."""
    if not log.exists():
        print("the program, or its node, has left no call log")
        return 1
    lines = log.read_text("utf-8", errors="replace").splitlines()
    found = [index for index, line in enumerate(lines) if "has no status for this error" in line]
    for index in found[:10]:
        print("an error that nobody is told:", *lines[max(0, index - 1):index + 1], sep="\n  ")
    return 1 if found else 0


def main() -> int:
    """Exit code of the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", type=Path, required=True)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--lowering", type=Path)
    parser.add_argument("--worker", action="store_true")
    parser.add_argument("--client", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("program", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    check_environment(options.venv, options.lowering, options.client)
    python = options.venv / "bin/python"
    of_program = python if options.client is None else options.client / "bin/python"
    with contextlib.ExitStack() as stack:
        log = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "calls"
        variables = environment(options.library.resolve()) | {"TPUBOARD_LOG": str(log)}
        variables |= dict(entry.split("=", 1) for entry in options.set)
        if options.worker:
            _, line = stack.enter_context(node(python, variables))
            variables = environment_of_client(variables, line)
        command = [of_program, options.program, *options.arguments]
        code = subprocess.run(command, check=False, env=variables, preexec_fn=end_with_parent).returncode
        return code or untold(log)


if __name__ == "__main__":
    sys.exit(main())
