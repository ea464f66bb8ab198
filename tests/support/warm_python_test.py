"""warm_python.py: what a program gets and how it ends in a process with modules imported, against one without."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import warm_python

WARM = Path(__file__).resolve().with_name("warm_python.py")
# Stands for JAX: tells when it is imported, and what is asked of it then.
JAX = """
import os, types
imported_by = os.getpid()
asked = []
config = types.SimpleNamespace(update=lambda *words: asked.append(words))
"""
PROGRAM = """
import atexit, os, signal, sys
print(sys.argv[1:], __name__, sys.path[0], os.getcwd(), os.environ.get("OWN"), "jax" in sys.modules, sys.stdin.read())
print("to stderr", file=sys.stderr)
class Kept: pass
import pickle
assert isinstance(pickle.loads(pickle.dumps(Kept())), Kept)
atexit.register(print, "at exit")
exec(sys.argv[1])
"""
LINE = 'import jax; print(jax.imported_by == os.getpid(), jax.asked, jax.__spec__.origin)'


class WarmPython(unittest.TestCase):
    """Each test has a server. Its modules are one named jax, and one that is not there."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()
        (self.folder / "modules").mkdir()
        (self.folder / "modules/jax.py").write_text(JAX, encoding="utf-8")
        (self.folder / "program.py").write_text(PROGRAM, encoding="utf-8")
        self.variables = {**os.environ, "PYTHONPATH": str(self.folder / "modules"), "OWN": "1"}
        self.variables.pop("JAX_PLATFORMS", None)
        deep = self.folder / ("deep" * 30)  # longer than an address of a socket
        deep.mkdir()
        self.socket = deep / "python"
        started = self.warm("start", "jax", "not_there", python=sys.executable)
        self.assertEqual((started.returncode, started.stderr), (0, ""))
        self.addCleanup(self.warm, "stop")

    def warm(self, verb: str, *words: str, python: str = "python3") -> subprocess.CompletedProcess[str]:
        return subprocess.run([python, WARM, verb, self.socket, *words], capture_output=True, text=True, check=False,
                              env=self.variables)

    def command(self, code: str) -> list[str]:
        return [sys.executable, str(self.folder / "program.py"), code]

    def by_server(self, code: str) -> list[str | Path]:
        return [sys.executable, "-I", "-S", WARM, "run", self.socket, *self.command(code)]

    def run_both(self, code: str, **variables: str) -> tuple[subprocess.CompletedProcess[str], ...]:
        return tuple(subprocess.run(command, input="in", capture_output=True, text=True, check=False, cwd=self.folder,
                                    env=self.variables | variables)
                     for command in (self.command(code), self.by_server(code)))

    def test_ends(self) -> None:
        """Exit codes and signals, output, variables and folder are those of a process of its own."""
        for code in ("pass", "sys.exit(3)", "sys.exit('a text')", "os._exit(5)", "os.kill(os.getpid(), signal.SIGTERM)",
                     "os.kill(os.getpid(), signal.SIGKILL)", "os.abort()"):
            own, warm = self.run_both(code)
            self.assertEqual((warm.returncode, warm.stdout), (own.returncode, own.stdout), code)
            self.assertEqual(warm.stderr, own.stderr, code)
        own, warm = self.run_both("raise ValueError('mine')")
        self.assertEqual((warm.returncode, warm.stdout), (own.returncode, own.stdout))
        self.assertTrue(warm.stderr.endswith("ValueError: mine\n"), warm.stderr)
        self.assertIn('program.py", line 9, in <module>', warm.stderr)

    def test_imported(self) -> None:
        """A program finds JAX imported, and its platforms are those that it has set."""
        own, warm = self.run_both(LINE)
        origin = self.folder / "modules/jax.py"
        self.assertTrue(own.stdout.endswith(f"\nTrue [] {origin}\nat exit\n"), own.stdout)
        self.assertTrue(warm.stdout.endswith(f"\nFalse [] {origin}\nat exit\n"), warm.stdout)
        warm = self.run_both(f"os.environ['JAX_PLATFORMS'] = 'cpu'; {LINE}")[1]
        self.assertIn("False [('jax_platforms', 'cpu')]", warm.stdout)
        self.assertIn("not_there is not there", Path(f"{self.socket}.log").read_text(encoding="utf-8"))

    def test_variables_of_the_import(self) -> None:
        """Others than the server's: a new process if they are there before, an error if the program sets them."""
        warm = self.run_both(LINE, JAX_ENABLE_X64="1")[1]
        self.assertIn("\nTrue [] ", warm.stdout)
        warm = self.run_both(f"os.environ['JAX_ENABLE_X64'] = '1'; {LINE}")[1]
        self.assertEqual(warm.returncode, 1)
        self.assertIn("program.py sets variables for the import of JAX, which has been imported", warm.stderr)

    def test_killed(self) -> None:
        """With who asked for it, a program and its children end; the server goes on."""
        code = "import subprocess; print(subprocess.Popen(['sleep', '100']).pid, flush=True); os.wait()"
        with subprocess.Popen(self.by_server(code), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.DEVNULL, env=self.variables) as process:
            assert process.stdout is not None
            process.stdout.readline()
            child = int(process.stdout.readline())
            self.assertTrue(Path(f"/proc/{child}").exists())
            process.kill()
            self.assertEqual(process.stdout.read(), "")  # nobody holds it any longer
        deadline = time.monotonic() + 20
        while Path(f"/proc/{child}").exists() and "sleep" in Path(f"/proc/{child}/cmdline").read_text():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        self.assertEqual(self.run_both("sys.exit(4)")[1].returncode, 4)

    def test_killed_early(self) -> None:
        """Who asks for a program can be killed at any time: the server goes on."""
        (self.folder / "empty.py").touch()
        text = json.dumps([[str(self.folder / "empty.py")], str(self.folder), self.variables]).encode()
        size = warm_python.NUMBER.pack(len(text))
        with Path(os.devnull).open("r+b") as null:
            for sent in (b"", size[:2], size, size + text[:-1], *(size + text for _ in range(100))):
                connection = warm_python.connect(str(self.socket))
                assert connection is not None, Path(f"{self.socket}.log").read_text(encoding="utf-8")
                with connection:
                    if sent:
                        socket.send_fds(connection, [sent], [null.fileno()] * 3)
        warm = self.run_both(LINE)[1]
        self.assertIn("\nFalse [] ", warm.stdout)

    def test_stop(self) -> None:
        """The server ends when its programs have; programs run without it, too."""
        with subprocess.Popen(self.by_server("sys.exit(6)"), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, env=self.variables) as process:
            assert process.stdin is not None
            while not self.forked():
                time.sleep(0.01)
            with subprocess.Popen([sys.executable, WARM, "stop", self.socket]) as stopping:
                time.sleep(0.2)
                self.assertIsNone(stopping.poll())
                process.stdin.close()
                self.assertEqual(process.wait(), 6)
                self.assertEqual(stopping.wait(), 0)
        self.assertFalse(self.socket.exists())
        self.assertEqual(self.warm("stop").returncode, 0)
        own, warm = self.run_both(LINE)
        self.assertEqual((warm.returncode, warm.stdout), (own.returncode, own.stdout))

    def forked(self) -> bool:
        """Whether a process of this test's server is a program."""
        servers = [entry for entry in Path("/proc").glob("[0-9]*/cmdline") if self.is_server(entry)]
        return len(servers) > 1

    def is_server(self, entry: Path) -> bool:
        try:
            return f"start\0{self.socket}\0".encode() in entry.read_bytes()
        except OSError:
            return False  # it has ended


if __name__ == "__main__":
    signal.alarm(100)
    unittest.main()
