"""Wall-clock time of an empty jitted function on the plugin, submit to ready, on one core and on eight: least, tenth
percentile and median of thousands of launches, CPU time and context switches of a launch. The figures are those of an
idle host; on a busy one look at the least and at CPU time.

Usage: launch_latency.py [--plugin build/release/lib/libtpuboard_pjrt.so] [--launches 5000]
Needs JAX (tests/requirements.txt).
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from pathlib import Path

BARS_US = {1: 60, 8: 250}
WARM = 200


def measure(cores: int, launches: int) -> str:
    """One line of the table."""
    import jax
    import numpy as np

    mesh = jax.make_mesh((cores,), ("core",), devices=jax.devices()[:cores])
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("core"))
    x = jax.device_put(np.zeros((cores, 8), np.float32), sharding)
    empty = jax.jit(lambda array: array)
    submitted, ready = [], []
    for i in range(WARM + launches):
        if i == WARM:
            before = resource.getrusage(resource.RUSAGE_SELF)
        begin = time.perf_counter_ns()
        result = empty(x)
        middle = time.perf_counter_ns()
        result.block_until_ready()
        ready.append((time.perf_counter_ns() - begin) / 1000)
        submitted.append((middle - begin) / 1000)
    after = resource.getrusage(resource.RUSAGE_SELF)
    submitted, ready = sorted(submitted[WARM:]), sorted(ready[WARM:])
    cpu = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e6 / launches
    switches = (after.ru_nvcsw + after.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw) / launches
    return (f"| {cores} | {submitted[launches // 2]:.0f} | {ready[0]:.0f} | {ready[launches // 10]:.0f} | "
            f"{ready[launches // 2]:.0f} | {BARS_US[cores]} | {cpu:.0f} | {switches:.1f} |")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plugin", type=Path, help="default: TPU_LIBRARY_PATH")
    parser.add_argument("--launches", type=int, default=5000)
    args = parser.parse_args()
    if args.plugin is not None:
        os.environ["TPU_LIBRARY_PATH"] = str(args.plugin.resolve())
    if "TPU_LIBRARY_PATH" not in os.environ:
        parser.error("--plugin is needed where TPU_LIBRARY_PATH is not set")
    if args.launches < 1:
        parser.error("--launches must be at least 1")
    print("| cores | submit, us, median | ready, least | ready, p10 | ready, median | bar | CPU, us | switches |\n"
          "|---|---|---|---|---|---|---|---|", flush=True)
    for cores in BARS_US:
        print(measure(cores, args.launches), flush=True)


if __name__ == "__main__":
    main()
