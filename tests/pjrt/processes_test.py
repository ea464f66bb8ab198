"""Several processes on one board: JAX with jax.distributed.initialize(), and what happens when one of them ends.

Each case starts the processes, which run code of this file. TPU_LIBRARY_PATH names the plugin.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

LIMIT = 240  # seconds that a case may take

START = """
import sys, time
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
"""
JOIN = """
jax.distributed.initialize(coordinator_address=sys.argv[1], num_processes=int(sys.argv[2]), process_id=int(sys.argv[3]))
"""
# Prints bits, equal in all processes and for any number of them.
TRAIN = """
mesh = Mesh(np.array(jax.devices()), ('data',))
whole, parts = NamedSharding(mesh, P()), NamedSharding(mesh, P('data'))
rng = np.random.default_rng(7)
weights = {'a': rng.standard_normal((24, 40), np.float32), 'b': rng.standard_normal((40, 8), np.float32)}
weights = {k: jax.make_array_from_callback(v.shape, whole, lambda i, v=v: v[i]) for k, v in weights.items()}
@jax.jit
def step(w, x, y):
    def loss(w):
        return jnp.mean((jnp.tanh(x @ w['a']) @ w['b'] - y) ** 2)
    value, gradient = jax.value_and_grad(loss)(w)
    return value, jax.tree.map(lambda p, g: p - 0.05 * g, w, gradient)
share = 64 // jax.process_count()
mine = slice(jax.process_index() * share, (jax.process_index() + 1) * share)
for i in range(6):
    x, y = rng.standard_normal((64, 24), np.float32), rng.standard_normal((64, 8), np.float32)
    x = jax.make_array_from_process_local_data(parts, x[mine])
    y = jax.make_array_from_process_local_data(parts, y[mine])
    value, weights = step(weights, x, y)
    print('loss', i, np.asarray(value.addressable_data(0)).tobytes().hex(), flush=True)
print('weights', {k: hash(np.asarray(v.addressable_data(0)).tobytes()) for k, v in weights.items()})
"""
COLLECTIVES = """
def summed(x): return jax.lax.psum(x, 'data')
total = jax.jit(jax.shard_map(summed, mesh=mesh, in_specs=P('data'), out_specs=P()))(
    jax.make_array_from_process_local_data(parts, np.arange(8, dtype=np.float32)[
        jax.process_index() * 8 // jax.process_count():(jax.process_index() + 1) * 8 // jax.process_count()]))
print('psum', np.asarray(total.addressable_data(0)))
own = [jax.device_put(np.full(3, d.id, np.int32), d) + 1 for d in jax.local_devices()]
print('own', [int(a[0]) - 1 for a in own] == [d.id for d in jax.local_devices()])
if jax.process_count() > 1:
    from jax.experimental import multihost_utils
    print('gathered', multihost_utils.process_allgather(np.array([jax.process_index()])).ravel().tolist()
          == list(range(jax.process_count())))
    multihost_utils.sync_global_devices('end')
"""
# The same function, called from a line of their own in each process.
LINES = """
mesh = Mesh(np.array(jax.devices()), ('data',))
parts = NamedSharding(mesh, P('data'))
mine = np.arange(8, dtype=np.float32)[jax.process_index() * 4:jax.process_index() * 4 + 4]
x = jax.make_array_from_process_local_data(parts, mine)
@jax.jit
def step(x): return jnp.tanh(x @ x), x * 2
for i in range(3):
    if jax.process_index() == 0:
        value, x = step(x)
        print('first line')
    else:
        value, x = step(x)
    print(i, np.asarray(value.addressable_data(0)).tobytes().hex())
try:
    other = jax.jit(lambda x: (x - 1).sum() if jax.process_index() == 0 else (x + 1).sum())(x)
    print('no error', other.addressable_data(0))
except Exception as error:
    print(error)
print(step(x)[1].addressable_data(0))
"""
# What processes ask of the board beside launches.
CALLS = """
import tempfile
from pathlib import Path
from jax.experimental import multihost_utils
mesh = Mesh(np.array(jax.devices()), ('data',))
whole, parts = NamedSharding(mesh, P()), NamedSharding(mesh, P('data'))
def spread(rows, columns):
    own = np.full((rows // jax.process_count(), columns), jax.process_index() + 1, np.float32)
    return jax.make_array_from_process_local_data(parts, own)
seen = []
def doubled(a):
    seen.append(a.shape)
    return 2 * a
def called(x): return jax.pure_callback(doubled, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
call = jax.jit(jax.shard_map(called, mesh=mesh, in_specs=P('data'), out_specs=P('data')))
out = call(spread(8, 3))
print('called', [np.asarray(s.data).ravel().tolist() for s in out.addressable_shards], len(seen))
try:
    call(spread(8, 5_000_000)).block_until_ready()
    print('no limit')
except Exception as error:
    print('limit', error)
jax._src.dispatch.runtime_tokens.clear()  # else JAX reports the error once more when it ends
out = call(spread(8, 3))
print('again', np.asarray(out.addressable_data(0)).ravel().tolist())
gives = jax.jit(lambda x: x + 1, donate_argnums=0)
x = spread(8, 4)
y = gives(x)
print('donated', x.is_deleted(), np.asarray(y.addressable_data(0)).ravel().tolist())
host = parts.with_memory_kind('pinned_host')
there = jax.jit(lambda x: x * 2, out_shardings=host)(spread(8, 3))
turn = lambda x: jax.device_put(jax.device_put(jax.device_put(x, parts) + 1, host), parts)
back = jax.jit(turn, out_shardings=parts)(there)
first, second = jax.local_devices()[:2]
other = jax.sharding.SingleDeviceSharding(second, memory_kind='pinned_host')
own = jax.device_put(jax.device_put(np.arange(6, dtype=np.float32), other), first)
print('host', there.sharding.memory_kind, np.asarray(back.addressable_data(0)).ravel().tolist(), float(own.sum()))
print('memory', all(d.memory_stats()['bytes_in_use'] > 0 for d in jax.local_devices()))
folder = Path(tempfile.mkdtemp())
step = jax.jit(lambda x: x @ x.T)
step(y).block_until_ready()
multihost_utils.sync_global_devices('before')
with jax.profiler.trace(folder):
    multihost_utils.sync_global_devices('all have begun')
    for i in range(3):
        step(y).block_until_ready()
path, = folder.glob('plugins/profile/*/*.xplane.pb')
planes = list(jax.profiler.ProfileData.from_file(str(path)).planes)
cores = {p.name for p in planes if p.name.startswith('/device:TPU:')}
lines = [line for p in planes if p.name == '/device:TPU:5' for line in p.lines]
print('profile', len(cores), sum(len(list(line.events)) for line in lines if line.name == 'Steps') >= 3)
multihost_utils.sync_global_devices('end')
"""


def free_port() -> int:
    """A port that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Job:
    """Processes of one run."""

    def __init__(self, code: str, count: int, environment: dict[str, str] | None = None) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.processes = []
        address = f"127.0.0.1:{free_port()}"
        for process in range(count):
            own = {**os.environ, "TPUBOARD_PROCESS_DIR": str(Path(self.folder.name) / "meet"), "PYTHONHASHSEED": "0",
                   **{name: text.format(process=process) for name, text in (environment or {}).items()}}
            if count == 1:
                own.pop("TPUBOARD_PROCESS_DIR")
            self.processes.append(subprocess.Popen(
                [sys.executable, "-c", START + code, address, str(count), str(process)], env=own, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE))

    def wait(self) -> list[tuple[int, str, str]]:
        """Exit code, output and errors of each process; none of them may hang, and no server stays."""
        ends = []
        try:
            for process in self.processes:
                output, errors = process.communicate(timeout=LIMIT)
                ends.append((process.returncode, output, errors))
        finally:
            for process in self.processes:
                process.kill()
        wait_until(lambda: not servers(self.folder.name), "the server stays")
        return ends


def wait_until(done: Callable[[], bool], what: str, seconds: float = 20) -> None:
    """Fails when it is not so in time."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def servers(folder: str) -> list[int]:
    """Processes that have the board of this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit():
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if words[0].endswith(b"tpuboard_server") and any(folder.encode() in word for word in words):
                    found.append(int(entry.name))
        except OSError:
            pass
    return found


def outputs(code: str, count: int, environment: dict[str, str] | None = None) -> list[str]:
    """Of processes that must end well."""
    ends = Job(code, count, environment).wait()
    for number, (exit_code, output, errors) in enumerate(ends):
        assert exit_code == 0, f"process {number}: exit code {exit_code}\n{output}\n{errors}"
    return [output for _, output, _ in ends]


def train(count: int) -> None:
    """Training steps give the bits of one process; collectives; arrays and devices of each process."""
    alone, = outputs(TRAIN + COLLECTIVES, 1)
    shape = "print('shape', jax.process_index(), jax.process_count(), len(jax.devices()), len(jax.local_devices()))\n"
    for number, text in enumerate(outputs(JOIN + shape + TRAIN + COLLECTIVES, count)):
        lines = text.splitlines()
        assert f"shape {number} {count} 8 {8 // count}" in lines, text
        assert "gathered True" in lines and "own True" in lines, text
        same = [line for line in lines if not line.startswith(("shape", "gathered"))]
        assert same == alone.splitlines(), f"process {number}:\n{text}\none process:\n{alone}"


def lines() -> None:
    """Processes that trace a function from lines of their own launch one program; others are an error for all."""
    one, two = (text.splitlines() for text in outputs(JOIN + LINES, 2))
    assert [line for line in one if line != "first line"][:3] == two[:3], (one, two)
    for text in (one, two):
        assert any("different" in line and "each process must launch the same programs" in line for line in text), text
    assert one[-1] == "[0. 8.]" or one[-1].startswith("[0."), one
    assert two[-1].startswith("["), two


def calls() -> None:
    """Calls of the host, donated arguments, both memories and a profile, in each of two processes."""
    for number, text in enumerate(outputs(JOIN + CALLS, 2)):
        said = {line.split()[0]: line for line in text.splitlines() if line}
        value = 2.0 * (number + 1)
        assert said["called"] == f"called {[[value] * 3] * 4} 4", text
        assert said["limit"].startswith("limit") and "takes 16777216 at most" in text, text
        assert said["again"] == f"again {[value] * 3}", text
        assert said["donated"] == f"donated True {[number + 2.0] * 4}", text
        assert said["host"] == f"host pinned_host {[value + 1] * 3} 15.0", text
        assert said["memory"] == "memory True", text
        assert said["profile"] == "profile 8 True", text


def variables() -> None:
    """The variables of the real machine, without jax.distributed: each process has its own chip."""
    code = "d = jax.local_devices()\nprint([x.id for x in d], [x.coords for x in d], jax.process_index())\n"
    for process, text in enumerate(outputs(code + "print(jnp.arange(4).sum())", 4, {
            "TPU_PROCESS_BOUNDS": "2,2,1", "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1", "TPU_VISIBLE_CHIPS": "{process}",
            "CLOUD_TPU_TASK_ID": "{process}"})):
        assert text.splitlines()[0].startswith(f"[{2 * process}, {2 * process + 1}]"), text
        assert text.splitlines()[0].endswith(f" {process}") and text.splitlines()[1] == "6", text
    part = {"TPU_PROCESS_BOUNDS": "1,1,1", "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,2,1", "TPU_VISIBLE_CHIPS": "0,2"}
    assert outputs(code + "print(jax.pmap(jnp.sin)(jnp.zeros(4)).shape)", 1, part) == [
        "[0, 1, 2, 3] [[0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 1, 0]] 0\n(4,)\n"]
    (exit_code, _, errors), = Job(code, 1, part | {"TPU_VISIBLE_CHIPS": "0,3"}).wait()
    assert exit_code != 0 and "TPU_VISIBLE_CHIPS '0,3': expected a rectangle of the torus" in errors, errors
    (exit_code, _, errors), = Job(code, 1, part | {"TPU_VISIBLE_CHIPS": "0,1"}).wait()
    assert exit_code != 0 and "TPU_CHIPS_PER_PROCESS_BOUNDS=1,2,1: expected 2,1,1" in errors, errors


def killed() -> None:
    """A process is killed in the middle of training: the others have its number within seconds, and no server stays.

    They leave without JAX's farewell, which waits for the one that is gone (`heartbeat_timeout_seconds`).
    """
    train_on = TRAIN.replace("range(6)", "range(100000)").replace("\n", "\n    ")
    job = Job(JOIN + f"""
import os, time
try:
    {train_on}
except Exception as error:
    print('error', time.monotonic(), error, flush=True)
    os._exit(3)
""", 4)
    for process in job.processes:
        line = process.stdout.readline()
        assert line.startswith("loss"), line + process.stderr.read()
    job.processes[2].send_signal(signal.SIGKILL)
    begin = time.monotonic()
    for number, (exit_code, output, _) in enumerate(job.wait()):
        assert exit_code == (-signal.SIGKILL if number == 2 else 3), (number, exit_code)
        if number != 2:
            _, there, error = output[output.index("error "):].split(maxsplit=2)
            assert "process 2 (pid" in error, output
            assert float(there) - begin < 10, "the others went on too long"


def main() -> int:
    """Runs a case."""
    cases = {"two": lambda: train(2), "four": lambda: train(4), "eight": lambda: train(8), "variables": variables,
             "killed": killed, "lines": lines, "calls": calls}
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", required=True, choices=sorted(cases))
    cases[parser.parse_args().case]()
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
