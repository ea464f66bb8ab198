"""A training step of a network of convolutions and batch norms on the board against JAX on the CPU.

Two programs. With f32 activations and contractions at precision highest only the order of f32 sums differs, and the
bounds are a test's own. With bf16 activations rounding alone moves gradients by up to a half: relus and maxima of
windows flip. So the board must be as near to the f32 results as JAX is with the same roundings (XLA may not skip any):
1.5 times JAX's distance for every array, 1.1 times in the mean over all arrays of a kind. Small arrays have more room:
JAX sums in another order on each kind of CPU, and where the two distances are those of n independent errors each, the
logarithm of their ratio has a standard deviation of 1 / sqrt(n). 2.5 of these are allowed, which is more than 1.5 times
for fewer than 38 numbers.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 --xla_allow_excess_precision=false"

import distances
import jax_reference as reference

import jax
import jax.numpy as jnp
import numpy as np

WORST_RATIO, MEAN_RATIO, DEVIATIONS = 1.5, 1.1, 2.5


@dataclass(frozen=True)
class TrainingStep:
    """What a test compares: results are the parts of the state in their order, then the loss."""

    export: Callable[[jnp.dtype], jax.export.Exported]  # for activations of a type
    state: tuple  # arrays, in parts
    batch: Callable[[jnp.dtype], list[np.ndarray]]  # the other arguments
    bounds: dict[str, float]  # of relative L2 with f32 activations, by part of the state and for "loss"
    loss_from: str  # the part whose error bounds that of the loss with bf16: one number, whose error may cancel


def draw(shapes: object, rng: np.random.Generator) -> object:
    """He-normal kernels, all else around its usual start."""
    def leaf(path: tuple, shape: jax.ShapeDtypeStruct) -> np.ndarray:
        kind = path[-1].key
        if kind == "kernel":
            return rng.normal(0, (2 / np.prod(shape.shape[:-1])) ** 0.5, shape.shape).astype(np.float32)
        low, high = {"scale": (0.5, 1.5), "var": (0.5, 1.5)}.get(kind, (-0.2, 0.2))
        return rng.uniform(low, high, shape.shape).astype(np.float32)
    return jax.tree_util.tree_map_with_path(leaf, shapes)


def _by_part(step: TrainingStep, results: list[np.ndarray]) -> dict[str, list[np.ndarray]]:
    counts = [*(len(jax.tree.leaves(part)) for part in step.state), 1]
    ends = np.cumsum(counts)
    assert len(results) == ends[-1]
    return {part: results[end - count : end] for part, end, count in zip(step.bounds, ends, counts, strict=True)}


def _run_both(step: TrainingStep, tools: Path, folder: Path, dtype: jnp.dtype, precision: str) -> tuple[dict, dict]:
    """Results of the board and of JAX, by part."""
    with jax.default_matmul_precision(precision):
        program = step.export(dtype)
    arrays = [*jax.tree.leaves(step.state), *step.batch(dtype)]
    folder.mkdir()
    failure = reference.compile_and_run(tools, folder, program, arrays)
    if failure:
        raise SystemExit(f"{np.dtype(dtype).name}: {failure}")
    theirs = reference.run(program, arrays, round_dots=False)
    ours = [np.load(folder / f"{index}.npy") for index in range(len(theirs))]
    return _by_part(step, ours), _by_part(step, theirs)


def _relative(ours: list[np.ndarray], theirs: list[np.ndarray]) -> np.ndarray:
    """Relative L2 of every array."""
    return np.array([distances.relative_l2(a, b) for a, b in zip(ours, theirs, strict=True)])


def _share(board: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """board / scale; what the board has exactly, as a count of steps, needs no room."""
    return np.divide(board, scale, out=np.zeros_like(board), where=board > 0)


def compare(step: TrainingStep, tools: Path) -> bool:
    """Runs both programs on both and prints how far they lie apart. True if all is within its bounds."""
    with tempfile.TemporaryDirectory() as name:
        ours, exact = _run_both(step, tools, Path(name) / "f32", jnp.float32, "highest")
        rounded, reference_rounded = _run_both(step, tools, Path(name) / "bf16", jnp.bfloat16, "default")
    passed = True
    for part, bound in step.bounds.items():
        worst = _relative(ours[part], exact[part]).max()
        board, jax_bf16 = (_relative(results[part], exact[part]) for results in (rounded, reference_rounded))
        scale = jax_bf16
        if part == "loss":
            scale = _relative(reference_rounded[step.loss_from], exact[step.loss_from]).max()
        sizes = np.array([array.size for array in exact[part]])
        room = WORST_RATIO if part == "loss" else np.maximum(WORST_RATIO, np.exp(DEVIATIONS / np.sqrt(sizes)))
        ratio, mean = (_share(board, scale) / room).max(), board.mean() / np.mean(scale)
        print(f"{part}: f32 {worst:.3g} (at most {bound:g}); bf16 {board.max():.3g}, at most {ratio:.3g} of what JAX's "
              f"error allows, in the mean {mean:.3g} times JAX's (at most {MEAN_RATIO})", flush=True)
        passed &= bool(worst <= bound and ratio <= 1 and mean <= MEAN_RATIO)
    return passed
