"""Programs on some of the board's cores, in any order: meshes of 1, 2, 4 and 8 cores, collectives of every kind,
small and large, and two sums over two axes that are on their way at once. Results are exact and the same on all
choices of cores, the checker finds nothing, and the figures are those of the cores that ran.

Usage: cores_test.py --bin DIR
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402, reads the environment
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import Mesh, PartitionSpec as P  # noqa: E402

PLACES = [[5], [5, 2], [4, 5, 6, 7], [6, 0, 3, 5], [0, 1, 2, 3, 6, 7, 4, 5]]


def collectives(cores: int):
    """Sums below and above the size from which an exchange halves; an all_gather, a ring, an all_to_all."""

    def per_core(x):
        large = jnp.tile(x, (16, 8))
        ring = [(i, (i + 1) % cores) for i in range(cores)]
        return (lax.psum(x, "d"), lax.psum(large, "d"), lax.all_gather(x, "d"), lax.ppermute(x, "d", ring),
                lax.all_to_all(jnp.tile(x, (cores, 1)), "d", 0, 0, tiled=True))

    mesh = Mesh(np.array(jax.devices()[:cores]), ("d",))
    return jax.shard_map(per_core, mesh=mesh, in_specs=P("d"), out_specs=(P(), P(), P(), P("d"), P("d")),
                         check_vma=False)


def two_axes(x):
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))
    large = jnp.tile(x, (4, 4))
    return jax.shard_map(lambda u, v: (lax.psum(u, "a"), lax.psum(v, "b")), mesh=mesh, in_specs=(P(), P()),
                         out_specs=(P(), P()))(large, large + 1)


class Bench:
    def __init__(self, tools: Path, folder: Path) -> None:
        self.tools, self.folder = tools, folder

    def check(self, name: str, function, x: np.ndarray, places: list[list[int]]) -> None:
        f = jax.jit(function)
        want = [np.asarray(v) for v in jax.tree.leaves(f(x))]
        artifact = self.folder / f"{name}.mlirbc"
        artifact.write_bytes(jax.export.export(f, platforms=["tpu"])(x).mlir_module_serialized)
        for cores in places:
            got, figures = self.run(artifact, x, len(want), cores)
            for i, (a, b) in enumerate(zip(want, got, strict=True)):
                assert np.array_equal(a.reshape(b.shape), b), f"{name} on {cores}: result {i} differs"
            assert len(figures["sim_cycles_per_core"]) == len(cores) and all(figures["sim_cycles_per_core"]), figures
            print(f"{name} on {cores}: {max(figures['sim_cycles_per_core'])} cycles")

    def run(self, artifact: Path, x: np.ndarray, results: int, cores: list[int]):
        program, out = self.folder / "p.tpuexe", self.folder / "out"
        np.save(self.folder / "x.npy", x)
        one = len(cores) == 1  # its program runs anywhere
        options = [] if one else ["--cores", ",".join(map(str, cores))]
        subprocess.run([self.tools / "tpuc", artifact, *options, "-o", program], check=True)
        device = ["--device", str(cores[0])] if one else []
        ran = subprocess.run(
            [self.tools / "tpuboard", "run", program, "--in", f"0={self.folder / 'x.npy'}", "--out-dir", out, "--check",
             "--json", "-", *device], check=True, capture_output=True, text=True)
        return [np.load(out / f"{i}.npy") for i in range(results)], json.loads(ran.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=Path, required=True)
    args = parser.parse_args()
    rng = np.random.default_rng(7)

    def integers(*shape: int) -> np.ndarray:
        return rng.integers(-3, 4, shape).astype(np.float32)

    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args.bin, Path(folder))
        for count in (1, 2, 4, 8):
            places = [list(range(count))] + [p for p in PLACES if len(p) == count]
            bench.check(f"collectives_{count}", collectives(count), integers(8 * count, 256), places)
        bench.check("two_axes", two_axes, integers(256, 512), [list(range(8)), PLACES[-1]])


if __name__ == "__main__":
    main()
