"""64-bit integers cost what two words cost: each operation against its twin on i32.

Compiles both, runs them without data and compares the cycles of the core that ran longest. The bar is 2.5; operations
that compute more than two words by nature have bars of their own (docs/numerics.md#64-bit-integers), and their list is
part of the test. Updates of donated arrays are done in place: their cycles do not depend on the size of the array.
Usage: wide_time_test.py --bin DIR [--group NAME] [--print] [CASE ...]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import export, lax  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

BAR = 2.5
N = 1 << 20
FLAT, PLANE = (N,), (1024, 1024)


@dataclass
class Twin:
    """An operation on arrays of one integer type."""

    function: Callable
    shapes: tuple[tuple[int, ...], ...]
    donated: tuple[int, ...] = ()
    bar: float = BAR
    cores: int = 1
    specs: tuple = field(default_factory=tuple)


def _one(function: Callable, *shapes: tuple[int, ...], donated: tuple[int, ...] = (), bar: float = BAR) -> Twin:
    return Twin(function, shapes, donated, bar)


def elementwise() -> dict[str, Twin]:
    """Arithmetic, comparisons and conversions."""
    one = {"add_1": lambda x: x + 1, "negate": lambda x: -x, "abs": jnp.abs, "sign": jnp.sign,
           "clamp": lambda x: jnp.clip(x, 3, 77), "shift_left": lambda x: x << 3, "shift_right": lambda x: x >> 3,
           "popcnt": lax.population_count, "clz": lax.clz, "to_f32": lambda x: x.astype(np.float32),
           "to_i8": lambda x: x.astype(np.int8), "to_bool": lambda x: x != 0, "identity": lambda x: x,
           "times_3": lambda x: x * 3}
    two = {"add": lambda x, y: x + y, "subtract": lambda x, y: x - y, "xor": lambda x, y: x ^ y, "maximum": jnp.maximum,
           "less": lambda x, y: x < y, "equal": lambda x, y: x == y, "where": lambda x, y: jnp.where(x > y, x, y),
           "shift_by_array": lax.shift_right_arithmetic, "multiply": lambda x, y: x * y}
    return {**{name: _one(f, FLAT) for name, f in one.items()},
            **{name: _one(f, FLAT, FLAT) for name, f in two.items()},
            "iota": _one(lambda x: x + jnp.arange(N, dtype=x.dtype), FLAT)}


def moves() -> dict[str, Twin]:
    """What only moves elements."""
    return {
        "reshape": _one(lambda x: x.reshape(PLANE), FLAT), "transpose": _one(lambda x: x.T, PLANE),
        "transpose_3": _one(lambda x: x.transpose(1, 0, 2), (64, 128, 128)),
        "slice": _one(lambda x: x[100:900, 200:800], PLANE), "slice_steps": _one(lambda x: x[::2, ::2], PLANE),
        "reverse": _one(lambda x: x[::-1], FLAT), "broadcast": _one(lambda x: jnp.broadcast_to(x, PLANE), (1024,)),
        "concatenate": _one(lambda x, y: jnp.concatenate([x, y]), FLAT, FLAT),
        "stack_last": _one(lambda x, y: jnp.stack([x, y], -1), (1 << 16,), (1 << 16,)),
        "concatenate_columns": _one(lambda x, y: jnp.concatenate([x, y], 1), PLANE, PLANE),
        "pad": _one(lambda x: jnp.pad(x, 3, constant_values=5), PLANE), "tile": _one(lambda x: jnp.tile(x, 3), FLAT),
        "roll": _one(lambda x: jnp.roll(x, 5), FLAT), "triu": _one(jnp.triu, PLANE),
    }


def _set(x: jax.Array, i: jax.Array) -> jax.Array:
    return lax.dynamic_update_slice(x, jnp.full(1, 7, x.dtype), (i,))


def updates() -> dict[str, Twin]:
    """Parts of arrays at places that the program computes; donated arrays are updated in place."""
    here = {"donated": (0,)}
    return {
        "dynamic_slice": _one(lambda x, i: lax.dynamic_slice(x, (i,), (N // 2,)), FLAT, ()),
        "set_1": _one(_set, FLAT, (), **here),
        "set_rows": _one(lambda x, u, i: lax.dynamic_update_slice(x, u, (i, i * 0)), PLANE, (100, 1024), (), **here),
        "set_in_loop": _one(lambda x: lax.fori_loop(0, 20, lambda i, c: _set(c, i), x), FLAT, **here),
        "add_in_place": _one(lambda x: x + 1, FLAT, **here),
        "gather": _one(lambda x, k: x[k], FLAT, (4096,)),
        "gather_rows": _one(lambda x, k: x[k], (8192, 128), (1024,)),
        "scatter": _one(lambda x, k, u: x.at[k].set(u), FLAT, (4096,), (4096,), **here),
        "at_set": _one(lambda x, i: x.at[i].set(7), FLAT, (), **here),
        "at_add": _one(lambda x, i: x.at[i].add(7), FLAT, (), **here),
        "at_rows": _one(lambda x, u: x.at[3:77].set(u), PLANE, (74, 1024), **here),
        "scatter_unique": _one(lambda x, k, u: x.at[k].set(u, unique_indices=True), FLAT, (4096,), (4096,), **here),
    }


def bodies() -> dict[str, Twin]:
    """Operations with regions, and loops."""
    return {
        "sum": _one(jnp.sum, FLAT), "sum_rows": _one(lambda x: jnp.sum(x, 0), PLANE),
        "sum_columns": _one(lambda x: jnp.sum(x, 1), PLANE),
        "xor_columns": _one(lambda x: lax.reduce_xor(x, (1,)), PLANE),
        "loop": _one(lambda x: lax.fori_loop(0, 20, lambda i, c: c + i.astype(c.dtype), x), FLAT),
        "scan": _one(lambda x: lax.scan(lambda c, r: (c + r, c), jnp.zeros(1024, x.dtype), x), (256, 1024)),
        "max": _one(jnp.max, FLAT), "max_rows": _one(lambda x: jnp.max(x, 0), PLANE),
        "max_columns": _one(lambda x: jnp.max(x, 1), PLANE), "min_uneven": _one(jnp.min, (1000, 300)),
        "argmax_columns": _one(lambda x: jnp.argmax(x, 1), PLANE),
        "cumsum_columns": _one(lambda x: jnp.cumsum(x, 1), PLANE),
        "window": _one(lambda x: lax.reduce_window(x, x.dtype.type(0), lax.add, (3, 3), (1, 1), "SAME"), PLANE),
        "sort": _one(jnp.sort, (1 << 16,)), "argsort": _one(jnp.argsort, (1 << 14,)),
        "scatter_add": _one(lambda x, k, u: x.at[k].add(u), FLAT, (4096,), (4096,), donated=(0,)),
        "count": _one(lambda k: jnp.zeros(100, k.dtype).at[k].add(1), (4096,)),
        "count_by_weight": _one(lambda x, k, u: x.at[k].add(u), (256,), (4096,), (4096,)),
    }


def _mapped(function: Callable, shape: tuple[int, ...], result: P, bar: float = BAR) -> Twin:
    return Twin(function, (shape,), (), bar, 8, (P("d"), result))


def collectives() -> dict[str, Twin]:
    """Exchanges between eight cores."""
    whole = (8 * N // 4,)
    return {
        "psum": _mapped(lambda x: lax.psum(x, "d"), whole, P()),
        "pmax": _mapped(lambda x: lax.pmax(x, "d"), whole, P()),
        "all_gather": _mapped(lambda x: lax.all_gather(x, "d", tiled=True), whole, P("d")),
        "all_to_all": _mapped(lambda x: lax.all_to_all(x.reshape(8, -1), "d", 0, 0), whole, P("d")),
        "permute": _mapped(lambda x: lax.ppermute(x, "d", [(i, (i + 1) % 8) for i in range(8)]), whole, P("d")),
        # The pieces of three exchanges share the links: one that starts early takes from the others.
        "psum_scatter": _mapped(lambda x: lax.psum_scatter(x, "d", tiled=True), whole, P("d"), bar=2.8),
    }


IN_PLACE = ("set_1", "set_rows", "set_in_loop", "at_set", "at_add", "at_rows")  # of updates()
GROUPS = {"elementwise": elementwise, "moves": moves, "updates": updates, "bodies": bodies, "collectives": collectives}


def cycles(tools: Path, twin: Twin, dtype: type, scale: int = 1) -> int:
    """Of the core that takes longest; `scale`: of the first dimension of the first array."""
    shapes = [(shape[0] * scale, *shape[1:]) if i == 0 else shape for i, shape in enumerate(twin.shapes)]
    function = twin.function
    if twin.cores > 1:
        mesh = jax.make_mesh((twin.cores,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
        function = jax.shard_map(function, mesh=mesh, in_specs=twin.specs[:-1], out_specs=twin.specs[-1],
                                 check_vma=False)
    jitted = jax.jit(function, donate_argnums=twin.donated, keep_unused=True)
    program = export.export(jitted, platforms=["tpu"])(*[jax.ShapeDtypeStruct(s, dtype) for s in shapes])
    with tempfile.TemporaryDirectory() as folder:
        graph, exe, figures = (Path(folder) / name for name in ("g.mlirbc", "g.tpuexe", "g.json"))
        graph.write_bytes(program.mlir_module_serialized)
        for command in ([tools / "tpuc", graph, "-o", exe],
                        [tools / "tpuboard", "run", exe, "--no-data", "--json", figures]):
            done = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True)
            if done.returncode != 0:
                raise SystemExit(f"{command}: {done.stderr}")
        return max(json.loads(figures.read_text())["sim_cycles_per_core"])


def main() -> int:
    """Prints the cases beyond their bars."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--group", choices=sorted(GROUPS))
    parser.add_argument("--print", action="store_true")
    parser.add_argument("case", nargs="*")
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    groups = [args.group] if args.group else GROUPS
    cases = {name: twin for group in groups for name, twin in GROUPS[group]().items()}
    bad = 0
    for name in args.case or cases:
        twin = cases[name]
        narrow, wide = (cycles(args.bin, twin, dtype) for dtype in (np.int32, np.int64))
        beyond = wide > twin.bar * narrow
        if beyond or args.print:
            print(f"{name:20} {narrow:10} {wide:10} {wide / narrow:6.2f}{f'  beyond {twin.bar}' if beyond else ''}")
        bad += beyond
        if name in IN_PLACE:
            for dtype, small in ((np.int32, narrow), (np.int64, wide)):
                larger = cycles(args.bin, twin, dtype, 4)
                if larger > 1.01 * small:
                    print(f"{name}: {small} cycles, {larger} of an array four times as large: it is not done in place")
                    bad += 1
    print(f"{len(args.case or cases)} operations compared with i32, {bad} beyond the bar")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
