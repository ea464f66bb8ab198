"""Random programs with random shardings on random meshes of the board, against the CPU backend: equal to the bit.

Every value is made of small integers, in floats too, so that a sum has the same bits in any order. A program is a list
of random operations, each on earlier values; arguments, some values between and some results have random shardings.
A failure prints the program: `--first SEED --count 1` runs it again. TPU_LIBRARY_PATH names the plugin.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

SIZES = (1, 2, 3, 4, 5, 6, 8, 8, 12, 16)
MESHES = ((2,), (4,), (8,), (2, 2), (2, 4), (4, 2), (2, 2, 2), (8, 1))
MOST = 2048  # elements of a value
CPU = jax.devices("cpu")[0]

Value = jax.ShapeDtypeStruct
Maker = Callable[["Program", Value], Callable[..., jax.Array] | None]
MAKERS: list[Maker] = []


def maker(function: Maker) -> Maker:
    """A kind of operation: for a value the operation on it, or nothing where it does not apply."""
    MAKERS.append(function)
    return function


def small(x: jax.Array) -> jax.Array:
    """Back to small integers."""
    return x if x.dtype == bool else lax.rem(x, jnp.asarray(7, x.dtype))


class Program:
    """A random program; `random` draws all that is random in it."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        shape = MESHES[self.random.integers(len(MESHES))]
        devices = np.array(jax.devices())[self.random.permutation(8)[: np.prod(shape)]]
        self.mesh = Mesh(devices.reshape(shape), tuple("abc"[: len(shape)]))
        self.arguments = [self.array() for _ in range(3)]
        self.specs = [self.spec(a.shape) for a in self.arguments]
        values = [Value(a.shape, a.dtype) for a in self.arguments]
        self.steps: list[tuple] = []
        while len(self.steps) < 5:
            self.add_step(values)
        self.results = self.pick(len(values), 3) + [len(values) - 1]
        self.wanted = [self.spec(values[k].shape) if self.chance(0.4) else None for k in self.results]

    def chance(self, share: float) -> bool:
        """True with this probability."""
        return bool(self.random.random() < share)

    def below(self, end: int, begin: int = 0) -> int:
        """A number."""
        return int(self.random.integers(begin, end))

    def pick(self, count: int, most: int) -> list[int]:
        """Up to `most` of the numbers below `count`, in any order."""
        return [int(i) for i in self.random.permutation(count)[:most]]

    def array(self, shape: tuple[int, ...] | None = None, kind: str | None = None) -> np.ndarray:
        """Small integers, of any type."""
        while shape is None or np.prod(shape, dtype=int) > MOST:
            shape = tuple(int(n) for n in self.random.choice(SIZES, self.below(4)))
        kind = kind or str(self.random.choice(["float32", "float32", "int32", "int32", "bfloat16", "int8", "uint8"]))
        return np.abs(self.random.integers(-4, 5, shape)).astype(jnp.dtype(kind))

    def spec(self, shape: tuple[int, ...]) -> P:
        """Axes of the mesh for dimensions that they divide."""
        dims: list[list[str]] = [[] for _ in shape]
        for name in self.random.permutation(self.mesh.axis_names) if shape else ():
            d = self.below(len(shape))
            parts = np.prod([self.mesh.shape[a] for a in [*dims[d], name]], dtype=int)
            if self.chance(0.7) and shape[d] % parts == 0:
                dims[d].append(str(name))
        return P(*[tuple(d) or None for d in dims])

    def add_step(self, values: list[Value]) -> None:
        """One more operation, on a value that it applies to."""
        make, source = MAKERS[self.below(len(MAKERS))], self.below(len(values))
        function = make(self, values[source])
        if function is None:
            return
        made = jax.eval_shape(lambda x: small(function(x)), values[source])
        if 0 < made.size <= MOST and made.ndim < 6:
            place = self.spec(made.shape) if self.chance(0.3) else None
            self.steps.append((make.__name__, source, function, place))
            values.append(made)

    def run(self, partitioned: bool, *arguments: jax.Array) -> list[jax.Array]:
        """The results, to be traced."""
        values = list(arguments)
        for _, source, function, place in self.steps:
            x = small(function(values[source]))
            if place is not None and partitioned:
                x = lax.with_sharding_constraint(x, NamedSharding(self.mesh, place))
            values.append(x)
        return [values[k] for k in self.results]

    def __str__(self) -> str:
        lines = [f"mesh {dict(self.mesh.shape)} of {[d.id for d in self.mesh.devices.flat]}"]
        lines += [f"{a.dtype}{a.shape} {s}" for a, s in zip(self.arguments, self.specs, strict=True)]
        lines += [f"{name} of {source}, {place}" for name, source, _, place in self.steps]
        return "\n  ".join([*lines, f"results {self.results} {self.wanted}"])


@maker
def unary(p: Program, x: Value) -> Callable | None:
    """Of each element."""
    return [jnp.abs, jnp.square, lambda v: v + 1, lambda v: v.astype(jnp.int32), lambda v: v.astype(jnp.float32),
            lambda v: jnp.where(v > 1, v, v + 2)][p.below(6)]


@maker
def moved(p: Program, x: Value) -> Callable | None:
    """Other places for the same elements."""
    if x.ndim == 0:
        return None
    d, order = p.below(x.ndim), p.pick(x.ndim, x.ndim)
    cuts = [k for k in range(1, x.shape[d] + 1) if x.shape[d] % k == 0]
    split = x.shape[:d] + (cuts[(len(cuts) - 1) // 2], -1) + x.shape[d + 1:]
    shift = p.below(9)
    return [lambda v: v.transpose(order), lambda v: jnp.flip(v, d), lambda v: jnp.roll(v, shift, d),
            lambda v: v.reshape(split), lambda v: v.reshape(-1), lambda v: jnp.sort(v, d),
            lambda v: jnp.argsort(v, d, stable=True)][p.below(7)]


@maker
def cut(p: Program, x: Value) -> Callable | None:
    """Some of the elements, some twice, and others around them."""
    if x.ndim == 0:
        return None
    d = p.below(x.ndim)
    index, stride, at = p.array((p.below(9, 1),), "int32"), p.below(4, 1), p.below(x.shape[d])
    config = [(p.below(3), p.below(3), p.below(2)) if k == d else (0, 0, 0) for k in range(x.ndim)]
    return [lambda v: jnp.take(v, jnp.asarray(index), d, mode="clip"),
            lambda v: lax.slice_in_dim(v, at, None, stride, d),
            lambda v: lax.pad(v, jnp.asarray(2, v.dtype), config),
            lambda v: jnp.concatenate([v, v * 2], d), lambda v: jnp.repeat(v, 2, d),
            lambda v: lax.dynamic_slice_in_dim(v, jnp.sum(v).astype(jnp.int32) % 3, max(1, v.shape[d] - 1), d),
            lambda v: v.at[(slice(None),) * d + (jnp.asarray(index),)].add(1, mode="drop"),
            lambda v: lax.dynamic_update_slice_in_dim(v, lax.slice_in_dim(v, 0, 1, 1, d) + 1, at, d)][p.below(8)]


@maker
def reduced(p: Program, x: Value) -> Callable | None:
    """Over some dimensions, or along one."""
    if x.ndim == 0:
        return None
    axes, d = tuple(p.pick(x.ndim, x.ndim)[: p.below(x.ndim + 1, 1)]), p.below(x.ndim)
    window = [min(2, n) if k == d else 1 for k, n in enumerate(x.shape)]
    return [lambda v: jnp.sum(v, axes), lambda v: jnp.max(v, axes), lambda v: jnp.min(v, axes),
            lambda v: jnp.argmax(v, d), lambda v: lax.cumsum(v, d), lambda v: lax.cummax(v, d, reverse=True),
            lambda v: lax.reduce_window(v, jnp.asarray(0, v.dtype), lax.add, window, window, "VALID")][p.below(7)]


@maker
def product(p: Program, x: Value) -> Callable | None:
    """With a constant matrix, or with itself."""
    if x.ndim == 0:
        return None
    d, w = p.below(x.ndim), p.array((x.shape[-1], int(p.random.choice(SIZES))), str(x.dtype))
    numbers = ((d,), (d,)), ((), ())
    return [lambda v: jnp.matmul(v, jnp.asarray(w), precision="highest"),
            lambda v: lax.dot_general(v, v, numbers, precision="highest")][p.below(2)]


@maker
def repeated(p: Program, x: Value) -> Callable | None:
    """Loops and branches, with moves inside."""
    if x.ndim == 0 or x.dtype not in (jnp.int32, jnp.float32):
        return None
    n = p.below(4, 1)
    return [lambda v: lax.fori_loop(0, n, lambda i, s: small(jnp.flip(s, 0) + jnp.max(s)), v),
            lambda v: lax.scan(lambda s, row: (small(s + row), s * 2), jnp.zeros(v.shape[1:], v.dtype), v)[1],
            lambda v: lax.cond(jnp.sum(v) > 9, lambda s: jnp.cumsum(s, 0), lambda s: s + 1, v),
            lambda v: lax.while_loop(lambda s: jnp.sum(s) > 0, lambda s: jnp.maximum(s - 1, 0), v)
            + jax.random.randint(jax.random.key(n), v.shape, 0, 5).astype(v.dtype)][p.below(4)]


def check(seed: int) -> None:
    """Compiles, runs and compares one program; every copy of every part."""
    program = Program(seed)
    with jax.default_device(CPU):
        expected = [np.asarray(x) for x in jax.jit(lambda *a: program.run(False, *a))(*program.arguments)]
    placed = [jax.device_put(a, NamedSharding(program.mesh, s))
              for a, s in zip(program.arguments, program.specs, strict=True)]
    wanted = [None if s is None else NamedSharding(program.mesh, s) for s in program.wanted]
    try:
        got = jax.jit(lambda *a: program.run(True, *a), out_shardings=wanted)(*placed)
        for number, x, y in zip(program.results, got, expected, strict=True):
            for part in x.addressable_shards:
                np.testing.assert_array_equal(np.asarray(part.data), y[part.index], f"{number} on {part.device}")
    except Exception:
        print(f"seed {seed}: {program}", file=sys.stderr)
        raise


def main() -> int:
    """Runs programs of consecutive seeds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, required=True)
    args = parser.parse_args()
    for seed in range(args.first, args.first + args.count):
        check(seed)
    print(f"{args.count} programs passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
