"""What the plugin does to the process that loads it: exits, signals, forks, threads.

Each case runs JAX in a process of its own, whose exit code and output are looked at. TPU_LIBRARY_PATH names the plugin.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

START = "import jax, jax.numpy as jnp, numpy as np\n"
# f(a) takes some tenths of a second of wall-clock time.
LONG = """
f = jax.jit(lambda a: jax.lax.fori_loop(0, 10, lambda i, s: jnp.tanh(s @ s), a))
a = jnp.ones((1024, 1024))
f(a).block_until_ready()
"""


def run(code: str, environment: dict[str, str] | None = None,
        folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A Python process with JAX imported."""
    return subprocess.run([sys.executable, "-c", START + code], check=False, capture_output=True, text=True,
                          timeout=120, env=environment, cwd=folder)


def expect(done: subprocess.CompletedProcess[str], output: str, code: int = 0) -> None:
    """Exit code, and text on standard output."""
    assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert output in done.stdout, f"{done.stdout}\n{done.stderr}"
    for word in ("terminate called", "Aborted", "Fatal Python error", "exception not rethrown"):
        assert word not in done.stderr, done.stderr


def in_flight() -> None:
    """The interpreter ends with work under way, some of it with transfers behind it."""
    code = "for i in range(20): x = f(a)\nx.copy_to_host_async()\n"
    done = run(LONG + code + "print('submitted, all done:', x.is_ready())")
    expect(done, "submitted")
    assert done.stdout == "submitted, all done: False\n", "the calls waited for the board: " + done.stdout


def fork() -> None:
    """A child made by fork() gets errors; its parent goes on."""
    expect(run("""
import os, warnings
warnings.simplefilter('ignore')
x = jnp.arange(4.0)
child = os.fork()
if child == 0:
    try:
        jax.device_put(np.ones(3))
    except Exception as error:
        os._exit(7 if 'forked' in str(error) else 8)
    os._exit(9)
print('child', os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print('parent', (x * 2).sum())
"""), "child 7\nparent 12.0")


def threads() -> None:
    """Eight threads on eight cores at once, each with programs of its own."""
    expect(run("""
import threading
wrong = []
def work(n):
    device = jax.devices()[n]
    for i in range(25):
        x = np.full((17, n + 3), i + n, np.float32)
        y = jax.jit(lambda a: (a * 2 + n).sum(0))(jax.device_put(x, device))
        if not np.array_equal(np.asarray(y), (x * 2 + n).sum(0)) or y.devices() != {device}:
            wrong.append((n, i))
all_of_them = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for t in all_of_them: t.start()
for t in all_of_them: t.join()
print('wrong', wrong)
"""), "wrong []")


def clear_backends() -> None:
    """A second client in the process, after the first was destroyed."""
    expect(run("""
from jax.extend.backend import clear_backends
print(jnp.arange(4).sum())
clear_backends()
print(jnp.arange(5).sum(), len(jax.devices()))
"""), "6\n10 8")


def interrupt() -> None:
    """SIGINT in the middle of a run ends the program as Python does, when the wait is over at the latest."""
    code = START + LONG + "print('ready', flush=True)\nfor i in range(100): f(a).block_until_ready()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors, (process.returncode, errors)
    assert process.returncode in (1, 130, -signal.SIGINT), process.returncode


def callback_at_exit() -> None:
    """The interpreter waits for the callback that is under way; others are called only if JAX waits for them."""
    queue = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)
under_way = threading.Event()
def slow(a):
    print('begins', flush=True)
    under_way.set()
    time.sleep(0.5)
    print('ends', flush=True)
    return np.asarray(a) * 2
f = jax.jit(lambda a: jax.pure_callback(slow, jax.ShapeDtypeStruct(a.shape, a.dtype), a) + 1)
x = jnp.ones(4)
for i in range(CALLS): x = f(x)
under_way.wait()
"""
    python = Path(__file__).resolve().parents[2] / "python"
    package = f"import sys; sys.path.insert(0, {str(python)!r}); import tpuboard\n"
    effect = "g = jax.jit(lambda a: (jax.debug.print('sum {}', a.sum()), a)[1])\ng(x)\n"
    ends = {"": 0, "sys.exit(3)": 3, "raise ValueError('mine')": 1, "os._exit(5)": 5, effect: 0,
            "signal.raise_signal(signal.SIGINT)": -signal.SIGINT}
    processes = {end: subprocess.Popen(
        [sys.executable, "-c", f"CALLS = {4 if end == effect else 30}\n" + START + package * (end == "") + queue + end],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for end in ends}
    for end, code in ends.items():
        out, errors = processes[end].communicate(timeout=120)
        expect(subprocess.CompletedProcess(end, processes[end].returncode, out, errors), "begins", code)
        calls = out.split("\n")
        if end != "os._exit(5)":
            assert calls.count("begins") == calls.count("ends"), (end, out)
        if end == effect:
            assert calls.count("ends") == 4 and "sum 124.0" in calls, out
        else:
            assert calls.count("begins") < 30, (end, out)


def cache() -> None:
    """The second process takes what the first has kept; a damaged file is made anew; a bad folder is no error."""
    with tempfile.TemporaryDirectory() as folder:
        kept, log = Path(folder) / "kept", Path(folder) / "log"
        environment = {**os.environ, "TPUBOARD_CACHE": str(kept), "TPUBOARD_LOG": str(log)}
        code = """
print(jax.jit(lambda a: jnp.tanh(a) + 1)(np.zeros(5)).sum())
doubled = lambda a: np.asarray(a) * 2
print(jax.jit(lambda a: jax.pure_callback(doubled, jax.ShapeDtypeStruct((5,), np.float32), a) + 1)(np.ones(5)).sum())
"""
        expect(run(code, environment=environment), "5.0\n15.0")
        made = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in kept.iterdir()}
        assert len(made) == log.read_text(encoding="utf-8").count("PJRT_Client_Compile"), made.keys()
        expect(run(code, environment=environment), "5.0\n15.0")
        again = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in kept.iterdir()}
        assert again == made, "the second process wrote files again"
        for file, (data, _) in made.items():
            file.write_bytes(data[:-1] + b"?")
        expect(run(code, environment=environment), "5.0\n15.0")
        assert all(file.read_bytes() == data for file, (data, _) in made.items()), "a damaged file is still there"
        names = sorted(kept.iterdir())
        (Path(folder) / "v3_8").mkdir()  # is not the board's file
        expect(run(code, environment=environment, folder=Path(folder)), "5.0\n15.0")
        assert sorted(kept.iterdir()) == names, "the folder that the process runs in has a say"
        assert "PJRT_Client_Compile" in log.read_text(encoding="utf-8")
        expect(run(code, environment={**environment, "TPUBOARD_CACHE": str(log / "none")}), "5.0")


def bad_option() -> None:
    """JAX goes on without a plugin that does not start: the reason is on standard error, once."""
    for variable, text in (("TPUBOARD_BORD", "TPUBOARD_BORD; the closest name is TPUBOARD_BOARD: expected one of "),
                           ("TPUBOARD_SIMD", "TPUBOARD_SIMD: invalid value 'x': expected one of auto"),
                           ("TPUBOARD_BOARD", "x")):
        done = run("print(jax.devices())", environment={**os.environ, variable: "x"})
        expect(done, "CpuDevice")
        said = [line for line in done.stderr.splitlines() if line.startswith("tpuboard: the plugin does not start: ")]
        assert len(said) == 1 and text in said[0], done.stderr


def moved() -> None:
    """The log says what a partitioned program makes the cores exchange."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        code = """
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
place = lambda *axes: NamedSharding(Mesh(np.array(jax.devices()), 'd'), P(*axes))
x, w = jax.device_put(np.ones((16, 8)), place('d')), jax.device_put(np.ones((8, 4)), place())
print(float(jax.jit(lambda x, w: ((x @ w) ** 2).sum())(x, w)))
y = jax.device_put(np.ones((8, 16)), place('d'))
print(jax.jit(lambda y: y, out_shardings=place())(y).sum())
"""
        expect(run(code, environment={**os.environ, "TPUBOARD_LOG": str(log)}), "4096.0\n128.0")
        lines = [line.split("  sharding: ")[1] for line in log.read_text(encoding="utf-8").splitlines()
                 if "  sharding: " in line]
        assert len(lines) == 2 and lines[0] == "1 cross-core reductions, 8 bytes a core", lines
        assert lines[1].startswith("all_gather of f32[1,16], 512 bytes a core"), lines


def text_unasked() -> None:
    """JAX asks for layouts, and not for the text of the program, from which it would have to derive them."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        code = """
y = jax.jit(lambda a: a + 1)(np.ones((2, 3), np.float32))
print(y.format.layout.major_to_minor, y.sum())
"""
        expect(run(code, environment={**os.environ, "TPUBOARD_LOG": str(log)}), "(0, 1) 12.0")
        text = log.read_text(encoding="utf-8")
        assert "GetOutputLayouts" in text and "OptimizedProgram" not in text, text


def long_launch() -> None:
    """A loop that does not end is told of on standard error, one line at a time; with 0 s nothing is."""
    code = """
def spin(a):
    return jax.lax.while_loop(lambda s: s[0] > 0, lambda s: s * 1.0, a)
try:
    jax.jit(spin)(jnp.ones(8)).block_until_ready()
except jax.errors.JaxRuntimeError as error:
    print('ended', 'DEADLINE_EXCEEDED' in str(error))
"""
    environment = {**os.environ, "TPUBOARD_TIME_LIMIT": "3"}
    line = re.compile(r"tpuboard: launch of jit_spin \(id \d+\) has run for \d s \(\S+ s of simulated time\): "
                      r"TPU:0 is at .*, iteration \d+ of while at <string>:\d+( \(\d+(\.\d)? iterations/s\))?")
    for seconds, least, most in ((0.5, 2, 6), (0, 0, 0)):
        done = run(code, environment={**environment, "TPUBOARD_PROGRESS": str(seconds)})
        expect(done, "ended True")
        said = [each for each in done.stderr.splitlines() if each.startswith("tpuboard: launch of")]
        assert least <= len(said) <= most, done.stderr
        assert all(line.fullmatch(each) for each in said), done.stderr
        assert not said or said[-1].endswith("iterations/s)"), done.stderr


CASES = {case.__name__: case
         for case in (in_flight, fork, threads, clear_backends, interrupt, callback_at_exit, cache, bad_option, moved,
                      text_unasked, long_launch)}


def main() -> int:
    """Runs one case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=CASES, required=True)
    CASES[parser.parse_args().case]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
