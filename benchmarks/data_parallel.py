"""Export of training steps that run on 8 cores, each with its share of the batch (jax.shard_map)."""

from __future__ import annotations

import os
from collections.abc import Callable

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
from jax.sharding import PartitionSpec as P

# Source locations in the artifact: names without the folders of one machine.
jax.config.update("jax_hlo_source_file_canonicalization_regex", r"^.*/(site-packages|benchmarks)/")

CORES = 8
AXIS = "data"  # of collectives in a step


def export_step(step: Callable, state: tuple, batch: tuple, alike: tuple = (),
                platform: str = "tpu") -> jax.export.Exported:
    """`step(*state, *batch, *alike)` of one core; state (donated) and `alike` are the same on all cores, `batch` holds
    the examples of all. Arguments are shapes."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:CORES]), (AXIS,))
    specs = (*[P()] * len(state), *[P(AXIS)] * len(batch), *[P()] * len(alike))
    cut = jax.shard_map(step, mesh=mesh, in_specs=specs, out_specs=P(), check_vma=False)
    donated = tuple(range(len(state)))
    return jax.export.export(jax.jit(cut, donate_argnums=donated, keep_unused=True), platforms=[platform])(
        *state, *batch, *alike)
