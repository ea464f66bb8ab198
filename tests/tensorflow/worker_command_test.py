"""`tpuboard tpu-worker` without TensorFlow: what it says where something is missing, and what it passes on.

Usage: worker_command_test.py TPUBOARD COMPILER. In the place of TensorFlow is a package with the few names that
the worker uses, in that of the library that lowers graphs one with a version alone.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TPUBOARD, COMPILER = sys.argv[1:3]
ROOT = Path(__file__).resolve().parents[2]
TENSORFLOW = '''
import ctypes, os, signal, subprocess, threading, time, types
__version__ = "2.20.0"
print("library:", os.environ["TPU_LIBRARY_PATH"])
class errors:
    class OpError(Exception):
        message = "taken"
def server(cluster, **names):
    if cluster["worker"] == ["127.0.0.1:%d" % int(os.environ.get("TAKEN", "0"))] != ["127.0.0.1:0"]:
        raise errors.OpError
    print("serves", names["job_name"])
    # As TensorFlow does with its first program; and threads that could take the signal.
    ctypes.CDLL(None).signal(signal.SIGTERM, ctypes.CDLL(None).getpid)
    threading.Thread(target=time.sleep, args=[1000], daemon=True).start()
    look = ["grep", "SigBlk", "/proc/self/status"]
    child = threading.Thread(target=lambda: print(subprocess.check_output(look, text=True), end=""))
    child.start()
    child.join()
    return types.SimpleNamespace(target="grpc://127.0.0.1:4321")
train = types.SimpleNamespace(ClusterSpec=lambda cluster: cluster)
distribute = types.SimpleNamespace(Server=server)
'''
KERNELS = """
import types
def get_registered_kernels_for_op(name):
    return types.SimpleNamespace(kernel=[name] if RUNTIME else [])
"""
# A Python that has everything, and prints what it gets.
SHOW_VARIABLES = 'case "$1" in -c) exit 0;; esac; echo "$TPU_LIBRARY_PATH $PYTHONPATH"'


class Worker(unittest.TestCase):
    """In a folder with a library, an interpreter and what its packages are."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()
        self.environment = {name: value for name, value in os.environ.items()
                            if name not in ("PYTHONPATH", "VIRTUAL_ENV") and not name.startswith("TPU_")}
        (self.folder / "libtpuboard_pjrt.so").touch()  # TensorFlow would load it
        self.environment["TPU_LIBRARY_PATH"] = str(self.folder / "libtpuboard_pjrt.so")

    def script(self, text: str) -> Path:
        """An executable file."""
        path = self.folder / "python"
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def tensorflow(self, runtime: bool = True) -> Path:
        """An interpreter that has the package in TensorFlow's place."""
        packages = self.folder / "packages"
        place = packages / "tensorflow/python/framework"
        place.mkdir(parents=True)
        (packages / "tensorflow/__init__.py").write_text(TENSORFLOW, encoding="utf-8")
        (packages / "tensorflow/python/__init__.py").touch()
        (place / "__init__.py").touch()
        (place / "kernels.py").write_text(f"RUNTIME = {runtime}\n{KERNELS}", encoding="utf-8")
        return self.script(f'PYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} "$@"')

    def lowering(self, text: str) -> None:
        """libtpuboard_tf-2.20.so beside the board's library."""
        source = self.folder / "version.c"
        source.write_text(text, encoding="utf-8")
        subprocess.run([COMPILER, "-x", "c", "-shared", "-fPIC", "-o", self.folder / "libtpuboard_tf-2.20.so", source],
                       check=True)

    def run_worker(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([TPUBOARD, "tpu-worker", *words], check=False, capture_output=True, text=True,
                              env=self.environment, timeout=60)

    def fails(self, code: int, texts: tuple[str, ...], *words: str | Path) -> None:
        done = self.run_worker(*words)
        self.assertEqual(done.returncode, code, done.stderr)
        for text in texts:
            self.assertIn(text, done.stderr)
        self.assertNotIn("Traceback", done.stderr)

    def test_interpreters_that_do_not_suffice(self) -> None:
        self.fails(1, ("/nowhere/python: cannot be started: No such file", "--python"), "--python", "/nowhere/python")
        # What the look at an interpreter tells by its exit code; the first one has no packages of the site.
        bare = self.script(f'exec {sys.executable} -S "$@"')
        self.fails(1, ("has no TensorFlow", "sim_scripts/tensorflow_venv"), "--python", bare)
        self.fails(1, ("expected Python 3.11",), "--python", self.script("exit 3"))
        self.fails(1, ("is not a Python that works",), "--python", self.script("exit 7"))

    def test_the_active_environment_comes_first(self) -> None:
        self.environment["VIRTUAL_ENV"] = "/nowhere/active"
        self.fails(1, ("/nowhere/active/bin/python: cannot be started",))

    def test_a_program_outside_of_the_source_tree_needs_the_package(self) -> None:
        copy = self.folder / "tpuboard"
        copy.write_bytes(Path(TPUBOARD).read_bytes())
        copy.chmod(0o755)
        done = subprocess.run([copy, "tpu-worker", "--python", self.tensorflow()], check=False, capture_output=True,
                              text=True, env=self.environment)
        if "numpy" not in done.stderr:  # a Python that has the package installed
            self.assertIn("has no package tpuboard: install it there with pip", done.stderr)

    def test_tensorflow_without_its_tpu_runtime(self) -> None:
        self.fails(1, ("TensorFlow 2.20.0 without its TPU runtime", "tensorflow-tpu"),
                   "--python", self.tensorflow(runtime=False), "--port", "0")

    def test_the_library_that_lowers_graphs(self) -> None:
        python = self.tensorflow()
        words = ("--python", python, "--port", "0")
        self.fails(1, ("libtpuboard_tf-2.20.so: no such file", "TensorFlow 2.20.0", "-DTPU_TENSORFLOW="), *words)
        self.lowering('const char* tpuboard_tf_version() { return "2.20.1"; }')
        self.fails(1, ("is for TensorFlow 2.20.1, found TensorFlow 2.20.0", "install tensorflow-tpu==2.20.1"), *words)
        self.lowering("int other;")
        self.fails(1, ("libtpuboard_tf-2.20.so: not a library that lowers graphs",), *words)

    def test_the_board_s_library(self) -> None:
        (self.folder / "libtpuboard_pjrt.so").unlink()
        self.fails(1, (f"{self.folder}/libtpuboard_pjrt.so does not exist", "TPU_LIBRARY_PATH"),
                   "--python", self.tensorflow(), "--port", "0")

    def test_ports(self) -> None:
        self.fails(2, ("65536",), "--port", "65536")
        self.lowering('const char* tpuboard_tf_version() { return "2.20.0"; }')
        python = self.tensorflow()
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            self.fails(1, (f"port {port}: Address already in use", "--port"), "--python", python, "--port", port)
        self.environment["TAKEN"] = port  # by another process after the look
        self.fails(1, (f"port {port}: TensorFlow's server cannot start: taken", "--port"),
                   "--python", python, "--port", port)

    def test_serves_until_it_is_told_to_end(self) -> None:
        self.lowering('const char* tpuboard_tf_version() { return "2.20.0"; }')
        words = [TPUBOARD, "tpu-worker", "--python", self.tensorflow(), "--port", "0"]
        for number in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env=self.environment) as worker:
                assert worker.stdout is not None and worker.stderr is not None
                printed = [worker.stdout.readline() for _ in range(4)]
                worker.send_signal(number)
                self.assertEqual(worker.wait(60), -number)
                self.assertIn("port 4321 is open on all addresses", worker.stderr.read())
            self.assertEqual(printed[:2], [f"library: {self.folder}/libtpuboard_pjrt.so\n", "serves worker\n"])
            self.assertEqual(printed[2], "SigBlk:\t0000000000000000\n")  # of a child
            self.assertTrue(printed[3].startswith("export TPU_NAME=grpc://127.0.0.1:4321 GRPC_FAIL_FAST=true "))

    def test_takes_the_library_of_its_build(self) -> None:
        self.environment["TPU_LIBRARY_PATH"] = "/usr/lib/libtpu.so"
        done = self.run_worker("--python", self.script(SHOW_VARIABLES))
        self.assertEqual(done.stdout.strip(), f"{Path(TPUBOARD).resolve().parents[1]}/lib/libtpuboard_pjrt.so "
                                              f"{ROOT}/python")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
