"""Two JAX programs that do not know of each other lease two chips each of one `tpuboard serve`, at the same time. Both
have the bits of a board of two chips, and a third program is told who has what it asks for.

TPU_LIBRARY_PATH names the plugin, --tpuboard the program.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT = 100  # seconds that anything here may take
STEPS = 3
# Data parallel training of a small network; then the program keeps its chips until a file is there.
PROGRAM = f"""
import hashlib, pathlib, sys, time
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((jax.device_count(),), ("data",))
@jax.jit
def step(weights, x, y):
    def loss(w):
        return jnp.mean((jnp.tanh(x @ w["a"]) @ w["b"] - y) ** 2)
    value, gradients = jax.value_and_grad(loss)(weights)
    return value, jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients)
rng = np.random.default_rng(int(sys.argv[1]))
draw = lambda *shape: rng.standard_normal(shape, np.float32)
place = lambda array, spec: jax.device_put(array, NamedSharding(mesh, spec))
weights = jax.tree.map(lambda array: place(array, P()), {{"a": draw(32, 64), "b": draw(64, 8)}})
x, y = place(draw(64, 32), P("data")), place(draw(64, 8), P("data"))
losses = []
for _ in range({STEPS}):
    value, weights = step(weights, x, y)
    losses.append(float(value))
assert losses == sorted(losses, reverse=True), losses
digest = hashlib.sha256(b"".join(np.asarray(each).tobytes() for each in jax.tree.leaves(weights))).hexdigest()
print([(d.id, *d.coords) for d in jax.devices()], losses, digest, flush=True)
while len(sys.argv) > 2 and not pathlib.Path(sys.argv[2]).exists():
    time.sleep(0.05)
"""


def start(program: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """A JAX program with these variables."""
    return subprocess.Popen([sys.executable, "-c", program, *arguments], text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, env={**os.environ, "TPUBOARD_CACHE": "off", **variables})


def first_line(program: subprocess.Popen[str]) -> str:
    """What a program prints when its steps are done."""
    assert program.stdout is not None
    assert program.stderr is not None
    line = program.stdout.readline().strip()
    assert line, program.stderr.read()
    return line


def check(tpuboard: str, folder: str) -> None:
    """All of it, on one worker."""
    worker = subprocess.Popen([tpuboard, "serve", "--listen", f"unix:{folder}/board"], text=True,
                              stdout=subprocess.PIPE)
    programs = []
    try:
        assert worker.stdout is not None
        address = worker.stdout.readline().strip()
        end = f"{folder}/end"
        left = start(PROGRAM, "1", end, TPUBOARD_CONNECT=address, TPUBOARD_CHIPS="0,1")
        right = start(PROGRAM, "2", end, TPUBOARD_CONNECT=address, TPU_VISIBLE_CHIPS="2,3")
        programs += [left, right]
        leased = [first_line(left), first_line(right)]
        assert left.poll() is None and right.poll() is None, "they have their chips at the same time"
        third = start("import jax; jax.devices()", JAX_PLATFORMS="tpu", TPUBOARD_CONNECT=address, TPUBOARD_CHIPS="1,3")
        output, errors = third.communicate(timeout=LIMIT)
        assert third.returncode == 1, (output, errors)
        for text in ("chips 1,3 of the board are taken", f"pid {left.pid} ", f"pid {right.pid} ", "with chips 0,1",
                     "with chips 2,3"):
            assert text in errors, (text, errors)
        Path(end).touch()
        for program in programs:
            assert program.wait(LIMIT) == 0, program.communicate()
        for seed, line in enumerate(leased, start=1):
            alone = start(PROGRAM, str(seed), TPUBOARD_SET="board.chips=2;board.torus_x=2")
            assert first_line(alone) == line, (seed, line)
            assert alone.wait(LIMIT) == 0
            print(line)
    finally:
        for program in programs:
            program.kill()
        worker.terminate()
        worker.communicate(timeout=LIMIT)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tpuboard", required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        check(arguments.tpuboard, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
