"""What a model of the zoo is: a function with its state and its batch, exported for all eight cores.

A family of models (resnet.py, llama.py, ...) has a dictionary `PROGRAMS` of functions that make a Program for a Size.
Full size is exported from shapes alone. At small size `inputs` gives arrays, so that results can be compared with JAX.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import network

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

AXIS = network.AXIS  # the axis of the mesh: of the batch, or of what a layer shards
CORES = 8
COUNT = 5000  # of steps that an optimizer in `inputs` has done: after its warm-up
SOURCES = r"^.*/(site-packages|benchmarks|examples)/"  # folders that differ by machine, in front of the sources' names
QUICKLY = {"xla_backend_optimization_level": "0", "xla_llvm_disable_expensive_passes": "True"}  # of a program run once
VECTORS = {"bias": (-0.2, 0.2), "mean": (-0.2, 0.2), "scale": (0.5, 1.5), "var": (0.2, 0.6)}  # what `inputs` draws


def drawn(path: tuple, leaf: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A parameter: what starts as zeros or ones, so that its term cannot be seen in results, gets other values."""
    if leaf.ndim > 1 or getattr(path[-1], "key", None) not in VECTORS:
        return leaf
    return rng.uniform(*VECTORS[path[-1].key], leaf.shape).astype(leaf.dtype)


@dataclass(frozen=True)
class Size:
    """`small` is for comparisons of values, the other for times. `dtype` is that of activations."""

    small: bool
    dtype: Any = jnp.bfloat16

    def pick(self, small: Any, full: Any) -> Any:
        """The one of this size."""
        return small if self.small else full


@dataclass(frozen=True)
class Input:
    """An argument after the state. Floats are normal, integers below `below`."""

    shape: tuple[int, ...]
    dtype: Any = jnp.int32
    below: int = 0
    spec: P = P()

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Values."""
        if self.below:
            return rng.integers(0, self.below, self.shape).astype(self.dtype)
        return rng.standard_normal(self.shape, np.float32).astype(self.dtype)


@dataclass(frozen=True)
class Program:
    """`step(*state, *batch)`. `state(key)` makes the state: parameters first, then what training or decoding keeps.

    With `manual` the step is the body of a shard_map, which takes each core's share of the arguments; else it is the
    whole computation, and the compiler partitions it. `spec_of(path, shape)` is the sharding of a leaf of the state."""

    step: Callable
    state: Callable[[jax.Array], tuple]
    batch: tuple[Input, ...]
    manual: bool = True
    donated: tuple[int, ...] = ()
    spec_of: Callable[[str, tuple[int, ...]], P] = lambda path, shape: P()
    results: Callable[[tuple], Any] = lambda specs: P()  # shardings of the results, from those of the state
    moments: int | None = None  # which part of the state is of an optimizer

    def shapes(self) -> tuple:
        """Of the state."""
        return jax.eval_shape(self.state, jax.random.key(0))

    def parameters(self) -> int:
        """How many the model has."""
        return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(self.shapes()[0]))

    def specs(self) -> tuple:
        """Shardings of the arguments."""
        state = jax.tree_util.tree_map_with_path(
            lambda path, leaf: self.spec_of(jax.tree_util.keystr(path, simple=True, separator="/"), leaf.shape),
            self.shapes())
        return *state, *(each.spec for each in self.batch)

    def arguments(self) -> tuple:
        """Shapes and types of all arguments."""
        return *self.shapes(), *(jax.ShapeDtypeStruct(each.shape, each.dtype) for each in self.batch)

    def export(self, platform: str = "tpu") -> jax.export.Exported:
        """The artifact that the compiler takes."""
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:CORES]), (AXIS,))
        specs = self.specs()
        results = self.results(specs)
        jax.config.update("jax_hlo_source_file_canonicalization_regex", SOURCES)
        options: dict[str, Any] = {"donate_argnums": self.donated, "keep_unused": True}
        if self.manual:
            function = jax.shard_map(self.step, mesh=mesh, in_specs=specs, out_specs=results, check_vma=False)
        else:
            function = self.step
            options["in_shardings"], options["out_shardings"] = jax.tree.map(
                lambda spec: NamedSharding(mesh, spec), (specs, results), is_leaf=lambda leaf: isinstance(leaf, P))
        return jax.export.export(jax.jit(function, **options), platforms=[platform])(*self.arguments())

    def whole(self, platform: str = "cpu") -> jax.export.Exported:
        """The same computation on one device, where the compiler partitions it."""
        return self.export(platform) if self.manual else jax.export.export(
            jax.jit(self.step, keep_unused=True), platforms=[platform])(*self.arguments())

    def inputs(self, seed: int = 0) -> tuple:
        """Arrays for all arguments. An optimizer has done COUNT steps, since the first one of Adam takes the sign of a
        gradient alone."""
        rng = np.random.default_rng(seed)
        key = jax.random.key(seed)
        start = jax.jit(self.state).lower(key).compile(compiler_options=QUICKLY)
        state = list(jax.tree.map(np.asarray, start(key)))

        def moment(leaf: np.ndarray) -> np.ndarray:
            if leaf.dtype.kind == "i":
                return np.full(leaf.shape, COUNT, leaf.dtype)
            return rng.uniform(2e-6, 6e-6, leaf.shape).astype(leaf.dtype)

        for i, part in enumerate(state):
            state[i] = (jax.tree.map(moment, part) if i == self.moments else
                        jax.tree_util.tree_map_with_path(lambda path, leaf: drawn(path, leaf, rng), part))
        return *state, *(each.draw(rng) for each in self.batch)


def split(batch: tuple[Input, ...]) -> tuple[Input, ...]:
    """The same inputs, split over the cores."""
    return tuple(replace(each, spec=P(AXIS)) for each in batch)


def training(loss_of: Callable, init: Callable, optimizer: Any, batch: tuple[Input, ...]) -> Program:
    """A data-parallel step of `loss_of(params, key, *batch)`; `init(key)` makes the parameters. Shapes of `batch` are
    those of all cores together. (params, moments, *batch, seed) -> (params, moments, loss)."""

    def state(key: jax.Array) -> tuple:
        params = init(key)
        return params, optimizer.init(params)

    seed = Input((2,), jnp.uint32, 1 << 16)
    return Program(network.make_step(loss_of, optimizer, CORES), state, (*split(batch), seed), donated=(0, 1),
                   moments=1)


def inference(function: Callable, init: Callable, batch: tuple[Input, ...]) -> Program:
    """`function(params, *batch)` with the batch split over the cores and a copy of the parameters in each."""
    return Program(function, lambda key: (init(key),), split(batch), results=lambda specs: P(AXIS))
