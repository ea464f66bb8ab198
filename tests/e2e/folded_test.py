"""--folded: one board simulated for all of v3_32 and v3_128 takes as many cycles as all boards, within 2 % in a step of
a small convnet, within 5 % in collectives alone, whose bytes pass several boards; report and bench take it too. Boards
and programs that one board cannot stand for are rejected in words.

Usage: folded_test.py --bin DIR
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=128"

import convnet_step_test as convnet  # sets up JAX

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

PODS = {"v3_32": 32, "v3_128": 128}
VALUES = 1 << 18  # a core


def exported(function: Callable, cores: int) -> bytes:
    """Over the devices in order, on f32[cores * VALUES]."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:cores]), ("data",))
    cut = jax.shard_map(function, mesh=mesh, in_specs=P("data"), out_specs=P("data"), check_vma=False)
    x = jax.ShapeDtypeStruct((cores * VALUES,), jnp.float32)
    return jax.export.export(jax.jit(cut), platforms=["tpu"])(x).mlir_module_serialized


def step(cores: int) -> bytes:
    """Of the convnet, 8 images a core."""
    return convnet.model.export_train_step(cores, "tpu", shapes=convnet.SHAPES, image=convnet.IMAGE,
                                           batch=8 * cores).mlir_module_serialized


def summed(cores: int) -> bytes:
    """An all-reduce."""
    return exported(lambda x: lax.psum(x, "data"), cores)


def gathered(cores: int) -> bytes:
    """An all-gather of a part of what each core has."""
    return exported(lambda x: lax.all_gather(x[:512], "data").reshape(-1), cores)


MOST_OFF = {step: 0.02, summed: 0.05, gathered: 0.05}


def rotated(cores: int) -> bytes:
    """What each core has goes to one that is in the next row of boards for some of them."""
    return exported(lambda x: lax.ppermute(x, "data", [(i, (i + 8) % cores) for i in range(cores)]), cores)


def one_way(cores: int) -> bytes:
    """One core sends, one receives."""
    return exported(lambda x: lax.ppermute(x, "data", [(0, cores - 1)]), cores)


def between(cores: int) -> bytes:
    """One core of a board in the middle sends to its neighbor."""
    return exported(lambda x: lax.ppermute(x, "data", [(36, 40)]), cores)


class Bench:
    """Programs for pods, run in both ways."""

    def __init__(self, tools: Path, folder: Path) -> None:
        self.tools, self.folder = tools, folder

    def compiled(self, graph: bytes, board: str) -> Path:
        """The executable."""
        source, program = self.folder / "p.mlirbc", self.folder / "p.tpuexe"
        source.write_bytes(graph)
        subprocess.run([self.tools / "tpuc", source, "--board", board, "-o", program], check=True)
        return program

    def call(self, *arguments: str | Path) -> subprocess.CompletedProcess:
        """A command of tpuboard."""
        return subprocess.run([self.tools / "tpuboard", *arguments], check=False, capture_output=True, text=True)

    def cycles(self, program: Path, board: str, option: str) -> int:
        """Simulated, of a launch."""
        done = self.call("run", program, "--board", board, option, "--json", "-")
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        return json.loads(done.stdout)["sim_cycles"]

    def compare(self, make: Callable[[int], bytes], board: str) -> list[str]:
        """What is wrong with a folded run."""
        program = self.compiled(make(PODS[board]), board)
        exact, folded, again = (self.cycles(program, board, option)
                                for option in ("--no-data", "--folded", "--folded"))
        off = folded / exact - 1
        print(f"{make.__name__} on {board}: {exact} cycles, {folded} folded, {off:+.2%}", flush=True)
        wrong = [] if folded == again else [f"{make.__name__} on {board}: {folded} and {again} cycles, folded"]
        return wrong if abs(off) <= MOST_OFF[make] else [*wrong, f"{make.__name__} on {board}: off by {off:.2%}"]

    def others(self) -> list[str]:
        """What is wrong with the other commands that take the option."""
        program = self.compiled(summed(32), "v3_32")
        report = self.folder / "report.json"
        runs = {"report": self.call("report", program, "--board", "v3_32", "--folded", "--json", report),
                "bench": self.call("bench", program, "--board", "v3_32", "--folded", "--launches", "5")}
        wrong = [f"{name}: {run.stderr}" for name, run in runs.items() if run.returncode != 0]
        if not wrong and len(json.loads(report.read_text())["cores"]) != 8:
            wrong.append("the report has not the cores of one board")
        return wrong

    def refused(self, words: str, *arguments: str | Path, command: str = "run") -> list[str]:
        """What is wrong with an error."""
        done = self.call(command, *arguments, "--folded")
        return [] if done.returncode != 0 and words in done.stderr else [f"{arguments}: {done.stderr}; wanted {words}"]


def check(bench: Bench) -> list[str]:
    """All that is wrong."""
    wrong = [text for board in PODS for make in MOST_OFF for text in bench.compare(make, board)]
    wrong += bench.others()
    program = bench.compiled(rotated(128), "v3_128")
    wrong += bench.refused("neither a shift nor a mirror image", program, "--board", "v3_128")
    program = bench.compiled(between(128), "v3_128")
    wrong += bench.refused("do not all do the same", program, "--board", "v3_128")
    program = bench.compiled(one_way(32), "v3_32")
    wrong += bench.refused("do not all do the same", program, "--board", "v3_32")
    wrong += bench.refused("compile it again", program, "--board", "v3_64")
    wrong += bench.refused("is a board alone", program, "--board", "v3_8")
    wrong += bench.refused("leave out --processes", program, "--board", "v3_32", "--processes", "4")
    wrong += bench.refused("leave out --save-snapshot", program, "--board", "v3_32", "--save-snapshot",
                           bench.folder / "snapshot")
    wrong += bench.refused("leave out --with-data", program, "--board", "v3_32", "--with-data", command="bench")
    return wrong + bench.refused("--check", program, "--board", "v3_32", "--check")


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        wrong = check(Bench(args.bin, Path(name)))
    for problem in wrong:
        print(f"FAILED {problem}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
