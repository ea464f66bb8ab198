"""The models of examples/zoo at small size on the board against JAX on the CPU.

With f32 activations and contractions at precision highest only the order of f32 sums and the device's own polynomials
differ. With bf16 activations the roundings of a chain of layers add up: there the board must be as near to the f32
results as JAX with the same roundings (XLA may not skip any), 1.5 times JAX's distance and what so few numbers need
besides (training_step.py).

State that a program takes and gives back is compared by its change: parameters, moments, caches.

Usage: zoo_test.py --bin DIR [--dtype float32|bfloat16] [--only PART-OF-NAME] [--exact NAME ...] [--keep DIR]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 --xla_allow_excess_precision=false"

import jax_reference as reference

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.zoo.models import PROGRAMS, SAME_AT_SMALL_SIZE, Program, Size

BOUND = 1e-4  # of relative L2 in f32: sums in another order, through some ten layers. A wrong term is 1e-2 and more
RATIO, DEVIATIONS = 1.5, 2.5  # of JAX's distance in bf16 (training_step.py)
ROUNDING = 2.0**-8  # of one bf16 number
CANCELED = 0.03


def f64(array: np.ndarray) -> np.ndarray:
    """Of bf16 as raw two-byte items too."""
    return (array.view(jnp.bfloat16) if array.dtype.kind == "V" else array).astype(np.float64)


def unit(array: np.ndarray) -> float:
    """The last place of the largest number of an array of f32. A change from one state to the next is no finer."""
    return float(np.spacing(np.abs(array).max(initial=0))) if array.dtype == np.float32 else 0.0


@dataclass(frozen=True)
class Part:
    """Arrays that are compared together, and how far each may be off without being counted."""

    arrays: list[np.ndarray] = field(default_factory=list)
    units: list[float] = field(default_factory=list)


def changes(program: Program, inputs: tuple, results: list[np.ndarray]) -> dict[str, Part]:
    """Results by part: what replaces a donated argument as a change from there, all else as it is."""
    donated = [leaf for i in program.donated for leaf in jax.tree.leaves(inputs[i])]
    ends = np.cumsum([len(jax.tree.leaves(inputs[i])) for i in program.donated])
    parts: dict[str, Part] = {}
    for i, result in enumerate(results):
        kept = i < len(donated)
        part = parts.setdefault(f"state {int(np.searchsorted(ends, i, 'right'))}" if kept else "results", Part())
        part.arrays.append(f64(result) - f64(donated[i]) if kept else f64(result))
        part.units.append(unit(result) if kept else 0.0)
    return parts


def size_of(arrays: list[np.ndarray]) -> float:
    """Root mean square over the elements of all."""
    return (sum(np.sum(a * a) for a in arrays) / max(1, sum(a.size for a in arrays))) ** 0.5


def distances(ours: Part, theirs: Part) -> list[float]:
    """Relative L2 of each array. An array far below the others of its part counts as CANCELED of them: a gradient that
    cancels (of an attention's key bias) is nothing but rounding."""
    size = CANCELED * size_of(theirs.arrays) or 1.0
    return [size_of([np.maximum(np.abs(a - b) - unit, 0)]) / max(size_of([b]), size)
            for a, b, unit in zip(ours.arrays, theirs.arrays, theirs.units, strict=True)]


def on_board(program: Program, inputs: tuple, tools: Path, folder: Path) -> list[np.ndarray]:
    """Results of the compiled program."""
    exported = program.export("cpu")
    folder.mkdir(parents=True, exist_ok=True)
    failure = reference.compile_and_run(tools, folder, exported, jax.tree.leaves(inputs), "--check")
    assert failure is None, failure
    return [np.load(folder / f"{i}.npy") for i in range(len(exported.out_avals))]


def on_cpu(program: Program, inputs: tuple) -> list[np.ndarray]:
    """Results of JAX."""
    return reference.run(program.whole(), jax.tree.leaves(inputs), round_dots=False)


def worst(name: str, found: list[tuple[float, float]]) -> str:
    """A line of what was found: distance and bound of the array that is nearest to its bound."""
    distance, bound = max(found, key=lambda pair: pair[0] / pair[1])
    assert distance <= bound, f"{name}: relative L2 {distance:.3g}, allowed {bound:.3g}"
    return f"{distance:.2g} of {bound:.2g}"


def check_f32(name: str, tools: Path, folder: Path) -> str:
    """Contractions in full f32, nearly equal results."""
    program = PROGRAMS[name](Size(True, jnp.float32))
    inputs = program.inputs()
    with jax.default_matmul_precision("highest"):
        ours = changes(program, inputs, on_board(program, inputs, tools, folder))
        theirs = changes(program, inputs, on_cpu(program, inputs))
    return worst(name, [(each, BOUND) for part in theirs for each in distances(ours[part], theirs[part])])


def check_bf16(name: str, tools: Path, folder: Path) -> str:
    """As near to f32 as JAX is."""
    program, exact = PROGRAMS[name](Size(True)), PROGRAMS[name](Size(True, jnp.float32))
    inputs = program.inputs()
    ours = changes(program, inputs, on_board(program, inputs, tools, folder))
    theirs = changes(program, inputs, on_cpu(program, inputs))
    wide = jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), inputs, exact.inputs())
    with jax.default_matmul_precision("highest"):
        wanted = changes(exact, wide, on_cpu(exact, wide))
    found = []
    for part, values in wanted.items():
        both = zip(values.arrays, distances(ours[part], values), distances(theirs[part], values), strict=True)
        found += [(mine, max(RATIO * other, ROUNDING) * (1 + DEVIATIONS / value.size**0.5))
                  for value, mine, other in both]
    return worst(name, found)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--only", default="")
    parser.add_argument("--exact", nargs="*", default=[])
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    if unknown := [name for name in args.exact if name not in PROGRAMS]:
        parser.error(f"unknown model {unknown[0]}: expected one of {', '.join(PROGRAMS)}")
    check = check_f32 if args.dtype == "float32" else check_bf16
    names = [name for name in PROGRAMS if args.only in name and (not args.exact or name in args.exact)]
    names = [name for name in names if name not in SAME_AT_SMALL_SIZE]
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            try:
                print(f"ok {name}: {check(name, args.bin, (args.keep or Path(scratch)) / name)}", flush=True)
            except AssertionError as error:
                failed += 1
                print(f"FAILED {name}: {error}", flush=True)
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main())
