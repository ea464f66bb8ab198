"""jax.profiler on the plugin: the devices' planes stand beside the host's, with the times of the board's counters."""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
import tpuboard  # noqa: E402

CLOCK_GHZ = 0.94
LACKING = "" if importlib.util.find_spec("xprof") else "the package xprof is not installed"


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


def train_step(w: jax.Array, x: jax.Array) -> jax.Array:
    """One step of eight cores with an all-reduce."""
    loss = lambda w: jnp.mean(jnp.tanh(x @ w) ** 2)  # noqa: E731
    return w - 0.1 * jax.grad(loss)(w)


class Steps(unittest.TestCase):
    """A training of eight cores: each iteration is a step, with one program or with two."""

    RUNS = 4
    FIRST = 10

    def profiled(self, annotated: bool) -> tuple[Path, float]:
        """A profile, and the mean milliseconds in which core 0 ran a program of the training."""
        mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
        spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
        w = jax.device_put(jnp.full((256, 512), 0.01), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))
        x = jax.device_put(jnp.ones((1024, 256)), spread)
        step, after = jax.jit(train_step), jax.jit(lambda w: w * 0.5)
        after(step(w, x)).block_until_ready()
        folder = Path(tempfile.mkdtemp())
        before = tpuboard.board().counters().cores[0]["run_cycles"]
        with jax.profiler.trace(folder):
            for i in range(self.RUNS):
                if annotated:
                    with jax.profiler.StepTraceAnnotation("train", step_num=self.FIRST + i):
                        w = after(step(w, x))
                else:
                    w = step(w, x)
                w.block_until_ready()
        after_all = tpuboard.board().counters().cores[0]["run_cycles"]
        (path,) = folder.glob("plugins/profile/*/*.xplane.pb")
        return path, (after_all - before) / self.RUNS / CLOCK_GHZ / 1e6

    def overview(self, path: Path) -> tuple[list[dict[str, Any]], list[str], dict[str, str]]:
        """XProf's rows of steps, the categories of its operations, and its properties."""
        from xprof.convert import raw_to_tool_data

        data, _ = raw_to_tool_data.xspace_to_tool_data([str(path)], "overview_page", {})
        tables = [table for table in json.loads(data) if "cols" in table]
        rows = {table["cols"][0]["id"]: [{column["id"]: cell["v"] for column, cell in
                                          zip(table["cols"], row["c"], strict=False)} for row in table["rows"]]
                for table in tables}
        properties = {name: value for table in tables for name, value in table.get("p", {}).items()}
        return rows["stepnum"], [row["category"] for row in rows["selfTimePercent"]], properties

    def test_launches_name_the_events_of_the_host_that_made_them(self) -> None:
        path, _ = self.profiled(annotated=True)
        planes = {plane.name: plane for plane in jax.profiler.ProfileData.from_file(str(path)).planes}
        host = [event for line in planes["/host:CPU"].lines for event in line.events]
        trains = [event for event in host if event.name == "train"]
        self.assertEqual([dict(event.stats)["step_num"] for event in trains],
                         [self.FIRST + i for i in range(self.RUNS)])
        made = {dict(event.stats)["_p"]: event.start_ns for event in host
                if event.name == "PJRT_LoadedExecutable_Execute linkage"}
        for core in range(8):
            (steps,) = (line for line in planes[f"/device:TPU:{core}"].lines if line.name == "Steps")
            by_train = [0] * self.RUNS
            for event in steps.events:
                stats = dict(event.stats)
                self.assertEqual(stats["_ct"], 14)  # ContextType::kPjrtLibraryCall
                at = made[stats["_c"]]
                (number,) = (i for i, train in enumerate(trains)
                             if train.start_ns <= at <= train.start_ns + train.duration_ns)
                by_train[number] += 1
            self.assertEqual(by_train, [2] * self.RUNS)

    def test_operations_tell_category_and_bytes(self) -> None:
        path, _ = self.profiled(annotated=False)
        planes = {plane.name: plane for plane in jax.profiler.ProfileData.from_file(str(path)).planes}
        stats = dict(planes["/device:TPU:3"].stats)
        self.assertEqual(stats["device_type_string"], "TPU v3")
        self.assertAlmostEqual(stats["peak_teraflops_per_second"], 61.6, delta=0.1)
        self.assertEqual(stats["peak_hbm_bw_gigabytes_per_second"], 450.0)
        text = path.read_bytes()
        for word in (b"all-reduce", b"jit_train_step/all_reduce:all_reduce", b"bytes_accessed"):
            self.assertIn(word, text)

    @unittest.skipIf(bool(LACKING), LACKING)
    def test_xprof_shows_the_steps_of_the_board(self) -> None:
        for annotated in (False, True):
            with self.subTest(annotated=annotated):
                path, milliseconds = self.profiled(annotated)
                steps, categories, properties = self.overview(path)
                self.assertEqual(len(steps), self.RUNS)
                mean = sum(row["tcComputeTimeMs"] + row["tcIdleTimeMs"] for row in steps) / self.RUNS
                # A step of two programs has the time between them too.
                self.assertGreater(mean, 0.98 * milliseconds)
                self.assertLess(mean, (1.5 if annotated else 1.02) * milliseconds)
                self.assertEqual(properties["device_type"], "TPU v3")
                self.assertIn("all_reduce", categories)
                self.assertIn("dot_general", categories)
                self.assertNotIn("Unknown", categories)

    @unittest.skipIf(bool(LACKING), LACKING)
    def test_xprof_knows_the_categories(self) -> None:
        from xprof.convert import raw_to_tool_data

        path, _ = self.profiled(annotated=False)
        data, _ = raw_to_tool_data.xspace_to_tool_data([str(path)], "hlo_stats", {})
        table = json.loads(data)
        columns = [column["id"] for column in table["cols"]]
        rows = [dict(zip(columns, (cell["v"] for cell in row["c"]), strict=False)) for row in table["rows"]]
        exchanges = [row for row in rows if row["category"] == "all-reduce"]
        self.assertTrue(exchanges)
        self.assertGreater(sum(row["measured_memory_bw"] for row in exchanges), 0)
        self.assertTrue(any(row["category"].startswith("convolution") for row in rows))


if __name__ == "__main__":
    unittest.main()
