"""Cycles and bits do not depend on the order in which the SystemC kernel keeps events of one cycle: a module that does
not belong to the board (order_run.cpp) has random events in the same kernel. Of two steps of the perceptron of
examples/mnist_mlp and of a small convnet, and of all kinds of collectives, with 20 seeds each. XLA_FLAGS has to give
JAX as many devices as the collectives have cores.

Usage: order_test.py --bin DIR --run PROGRAM --program NAME [--board BOARD] [--cores CORES]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import determinism_test

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

CORES, SEEDS = 8, 20
WORKERS = 2  # the test's PROCESSORS: other tests run beside it
FEWEST_EVENTS = 1000  # of the module while a program runs


def collectives(cores: int = CORES) -> tuple[bytes, list[np.ndarray]]:
    """Every kind over all cores, and sums of groups."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:cores]).reshape(cores // 2, 2), ("a", "b"))
    parts = jax.sharding.PartitionSpec(("a", "b"))

    def body(x: jax.Array, y: jax.Array) -> tuple[jax.Array, ...]:
        both = ("a", "b")
        return (lax.psum(x, both), lax.psum(y, both), lax.psum(x, "a"), lax.psum(x, "b"),
                lax.all_gather(x, both, axis=1, tiled=True), lax.psum_scatter(x, both, scatter_dimension=1, tiled=True),
                lax.all_to_all(x, both, 1, 0, tiled=True),
                lax.ppermute(x, both, [(i, (i + 3) % cores) for i in range(cores)]))

    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((8 * cores, 64), (cores, 300, 200))]
    mapped = jax.shard_map(body, mesh=mesh, in_specs=parts, out_specs=parts)
    program = jax.export.export(jax.jit(mapped), platforms=["cpu"])(*shapes)
    random = np.random.default_rng(3)
    return program.mlir_module_serialized, [random.random(s.shape, dtype=np.float32) for s in shapes]


PROGRAMS = {"mlp": determinism_test.mlp_step, "convnet": determinism_test.convnet_step, "collectives": collectives}


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--board", default="v3_8")
    parser.add_argument("--cores", type=int, default=CORES, help="of the collectives")
    parser.add_argument("--program", choices=PROGRAMS, required=True)
    parser.add_argument("--run", type=Path, required=True, help="the program of order_run.cpp")
    args = parser.parse_args()
    graph, arrays = collectives(args.cores) if args.program == "collectives" else PROGRAMS[args.program]()
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(WORKERS) as pool:
        folder = Path(name)
        (folder / "p.mlirbc").write_bytes(graph)
        subprocess.run([args.bin / "tpuc", folder / "p.mlirbc", "-o", folder / "p.tpuexe", "--board", args.board],
                       check=True)
        files = [folder / f"{index}.bin" for index in range(len(arrays))]
        for file, array in zip(files, arrays, strict=True):
            file.write_bytes(np.asarray(array).tobytes())

        def run(seed: int) -> list[str]:
            return subprocess.run([args.run, args.board, folder / "p.tpuexe", str(seed), *files], check=True,
                                  stdout=subprocess.PIPE, text=True).stdout.split()

        first, *others = pool.map(run, range(SEEDS + 1))
    events = [int(other[2]) for other in others]
    print(f"{args.program}: values {first[0]}, cycles {first[1]}, {min(events)} to {max(events)} foreign events")
    wrong = [f"seed {seed}: {other}, alone {first}" for seed, other in enumerate(others, 1) if other[:2] != first[:2]]
    if min(events) < FEWEST_EVENTS or len(set(events)) < 2:
        wrong.append(f"foreign events {events}")
    for problem in wrong:
        print(f"FAILED {args.program}: {problem}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
