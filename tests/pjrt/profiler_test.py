"""jax.profiler on the plugin: the devices' planes stand beside the host's, with the times of the board's counters."""

from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path

import jax
import jax.numpy as jnp

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
import tpuboard  # noqa: E402

CLOCK_GHZ = 0.94


@jax.jit
def layer(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.tanh(x @ w)


class Profiler(unittest.TestCase):
    def profiled(self, runs: int) -> tuple[jax.profiler.ProfileData, int]:
        """A profile of that many programs, and the cycles in which core 0 ran them."""
        x, w = jnp.ones((64, 256)), jnp.ones((256, 128))
        layer(x, w).block_until_ready()
        folder = Path(tempfile.mkdtemp())
        before = tpuboard.board().counters().cores[0]["run_cycles"]
        with jax.profiler.trace(folder):
            for _ in range(runs):
                layer(x, w).block_until_ready()
        after = tpuboard.board().counters().cores[0]["run_cycles"]
        (path,) = folder.glob("plugins/profile/*/*.xplane.pb")
        return jax.profiler.ProfileData.from_file(str(path)), after - before

    def test_devices_stand_beside_the_host_twice(self) -> None:
        for runs in (3, 2):  # the second session begins anew
            profile, cycles = self.profiled(runs)
            planes = {plane.name: plane for plane in profile.planes}
            self.assertIn("/host:CPU", planes)
            lines = {line.name: list(line.events) for line in planes["/device:TPU:0"].lines}
            steps = lines["Steps"]
            self.assertEqual(len(steps), runs)
            self.assertAlmostEqual(sum(event.duration_ns for event in steps), cycles / CLOCK_GHZ, delta=runs)
            self.assertTrue(all("layer" in event.name for event in lines["XLA Modules"]))
            names = {event.name for event in lines["XLA Ops"]}
            self.assertTrue(any("dot_general" in name for name in names), names)
            busy = sum(event.duration_ns for event in lines["XLA Ops"])
            self.assertLessEqual(busy, sum(event.duration_ns for event in steps) + runs)
            self.assertGreater(busy, 0)

    def test_a_session_without_programs_has_no_devices(self) -> None:
        profile, cycles = self.profiled(0)
        self.assertEqual(cycles, 0)
        self.assertFalse([plane.name for plane in profile.planes if plane.name.startswith("/device:TPU")])


if __name__ == "__main__":
    unittest.main()
