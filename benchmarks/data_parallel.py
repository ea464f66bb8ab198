"""Export of training steps that run on many cores, each with its share of the batch (jax.shard_map)."""

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

COUNT = "--xla_force_host_platform_device_count"
CORES = 8
AXIS = "data"  # of collectives in a step


def devices(cores: int) -> np.ndarray:
    """As many devices of the host, which computes nothing; before anything else asks for them. Other flags of XLA
    stay: a test compares with a JAX that may not skip roundings."""
    others = [flag for flag in os.environ["XLA_FLAGS"].split() if not flag.startswith(f"{COUNT}=")]
    os.environ["XLA_FLAGS"] = " ".join([*others, f"{COUNT}={max(cores, CORES)}"])
    found = jax.devices()
    if len(found) < cores:
        raise SystemExit(f"JAX has started with {len(found)} devices, before {cores} were asked for")
    return np.array(found[:cores])


def export_step(step: Callable, state: tuple, batch: tuple, alike: tuple = (),
                platform: str = "tpu", cores: int = CORES) -> jax.export.Exported:
    """`step(*state, *batch, *alike)` of one core; state (donated) and `alike` are the same on all cores, `batch` holds
    the examples of all. Arguments are shapes."""
    mesh = jax.sharding.Mesh(devices(cores), (AXIS,))
    specs = (*[P()] * len(state), *[P(AXIS)] * len(batch), *[P()] * len(alike))
    cut = jax.shard_map(step, mesh=mesh, in_specs=specs, out_specs=P(), check_vma=False)
    donated = tuple(range(len(state)))
    return jax.export.export(jax.jit(cut, donate_argnums=donated, keep_unused=True), platforms=[platform])(
        *state, *batch, *alike)
