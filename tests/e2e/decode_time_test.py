"""Products of a few rows take the time of loading their weights: alone, and in a token of Llama-2-7B on eight cores.

Compiles each program, runs it without data, and compares the cycles of the slowest core with those of its HBM traffic
at the sustained rate that it can have (spec/board/v3_8.toml): half of its chip's, or all of it where it is alone. The
bar is the smallest share of that rate. One core alone loads bf16 faster than its matrix units can take it: a tile of
weights each 133 cycles, which is 60 %.
Usage: decode_time_test.py --bin DIR [--print] [CASE ...]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax import export  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


def chain(rows: int, dtype: type, transposed: bool = False) -> Callable[[], bytes]:
    """Eight layers on one core: more than the latency of the first load."""
    def make() -> bytes:
        def layers(x: jax.Array, weights: list) -> jax.Array:
            for w in weights:
                x = jnp.tanh(x @ (w.T if transposed else w))
            return x

        shapes = (jax.ShapeDtypeStruct((rows, 4096), dtype), [jax.ShapeDtypeStruct((4096, 4096), dtype)] * 8)
        return export.export(jax.jit(layers), platforms=["tpu"])(*shapes).mlir_module_serialized
    return make


def zoo(name: str) -> Callable[[], bytes]:
    """A program of examples/zoo at full size, on eight cores."""
    def make() -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "g.mlirbc"
            subprocess.run([sys.executable, "-m", "examples.zoo", name, "--out", path], cwd=ROOT, check=True,
                           capture_output=True)
            return path.read_bytes()
    return make


# Program, and its bar.
CASES: dict[str, tuple[Callable[[], bytes], float]] = {
    "f32_1": (chain(1, jnp.float32), 0.88), "bf16_1": (chain(1, jnp.bfloat16), 0.55),
    "bf16_8": (chain(8, jnp.bfloat16), 0.55), "bf16_1_transposed": (chain(1, jnp.bfloat16, True), 0.55),
    "llama2_7b_decode": (zoo("llama2_7b_decode"), 0.88), "llama2_7b_decode_8": (zoo("llama2_7b_decode_8"), 0.86),
}


def bytes_per_cycle(cores: int) -> float:
    """Sustained HBM rate of a core."""
    board = tomllib.loads((ROOT / "spec/board/v3_8.toml").read_text(encoding="utf-8"))
    hbm, core = board["hbm"], board["core"]
    rate = hbm["gbps_per_chip"]["value"] * hbm["efficiency_percent"]["value"] / 100
    shared = min(cores, board["board"]["cores_per_chip"]["value"])
    return rate * 1e9 / shared / (core["clock_mhz"]["value"] * 1e6)


def share(tools: Path, graph: bytes) -> float:
    """Of the HBM rate."""
    with tempfile.TemporaryDirectory() as folder:
        source, exe, figures = (Path(folder) / name for name in ("g.mlirbc", "g.tpuexe", "g.json"))
        source.write_bytes(graph)
        for command in ([tools / "tpuc", source, "-o", exe],
                        [tools / "tpuboard", "run", exe, "--no-data", "--json", figures]):
            done = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True)
            if done.returncode != 0:
                raise SystemExit(f"{command}: {done.stderr}")
        run = json.loads(figures.read_text(encoding="utf-8"))
    moved = max(map(sum, zip(run["hbm_read_bytes_per_core"], run["hbm_written_bytes_per_core"], strict=True)))
    cycles = run["sim_cycles_per_core"]
    return moved / bytes_per_cycle(len(cycles)) / max(cycles)


def main() -> int:
    """Prints the cases below their bars."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--print", action="store_true")
    parser.add_argument("case", nargs="*")
    args = parser.parse_args()
    bad = 0
    for name in args.case or CASES:
        make, bar = CASES[name]
        reached = share(args.bin, make())
        if reached < bar or args.print:
            below = f", below {bar * 100} %" if reached < bar else ""
            print(f"{name:20} {reached * 100:6.1f} % of the HBM rate{below}")
        bad += reached < bar
    print(f"{len(args.case or CASES)} programs, {bad} below their bars")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
