"""The package without JAX on the board: programs compiled and run on NumPy arrays, events, errors, the board's figures.

One process, one board: the tests run in the order of their names, and leave nothing behind that others would see.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

import tpuboard

import jax
import jax.export
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.sharding import AbstractMesh, PartitionSpec

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def artifact(function, *arguments, **options) -> bytes:
    """What jax.export makes of a function of arrays like `arguments`; no backend of JAX is used."""
    shapes = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in arguments]
    return jax.export.export(jax.jit(function, **options), platforms=["tpu"])(*shapes).mlir_module_serialized


def inputs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of examples/tanh_layer; exact in bf16, so that products are exact."""
    random = np.random.default_rng(1)
    x = random.integers(-8, 9, (32, 200)) / np.float32(64)
    w = random.integers(-8, 9, (200, 96)) / np.float32(32)
    return x.astype(np.float32), w.astype(np.float32), np.arange(96, dtype=np.float32) / 128


class Programs(unittest.TestCase):
    """tpuboard.compile, read, load, run."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.layer = tpuboard.compile((EXAMPLES / "tanh_layer/tanh_layer.mlirbc").read_bytes(), name="layer")

    def test_parameters(self) -> None:
        self.assertEqual(self.layer.name, "layer")
        self.assertEqual(self.layer.partitions, 1)
        self.assertEqual([each.shape for each in self.layer.arguments], [(32, 200), (200, 96), (96,)])
        self.assertEqual(self.layer.results[0].dtype, np.float32)
        self.assertEqual(self.layer.cost["matmul_flops"], 2 * 32 * 200 * 96)

    def test_run_on_a_device(self) -> None:
        x, w, b = inputs()
        before = tpuboard.board().counters().cores[5]["programs"]
        (y,) = self.layer.load([5]).run(x, w, b)
        np.testing.assert_allclose(y, np.tanh(x @ w + b), rtol=1e-5, atol=1e-6)
        self.assertEqual(tpuboard.board().counters().cores[5]["programs"], before + 1)

    def test_views_of_any_stride(self) -> None:
        x, w, b = inputs()
        (expected,) = self.layer.load([0]).run(x, w, b)
        (y,) = self.layer.load([0]).run(np.asfortranarray(x), w[::-1, ::-1].copy()[::-1, ::-1], np.repeat(b, 3)[::3])
        np.testing.assert_array_equal(y, expected)
        (y,) = self.layer.load([0]).run(x, w, np.broadcast_to(np.float32(0.5), (96,)))
        np.testing.assert_allclose(y, np.tanh(x @ w + 0.5), rtol=1e-5, atol=1e-6)

    def test_a_saved_file_takes_the_place_of_the_old_one(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            saved, link = folder / "saved.tpuexe", folder / "link.tpuexe"
            saved.write_bytes(b"old")
            saved.chmod(0o640)
            (folder / "other").hardlink_to(saved)  # who has the old file keeps it
            link.symlink_to(saved)
            self.layer.save(link)
            self.assertTrue(link.is_symlink())
            self.assertEqual((folder / "other").read_bytes(), b"old")
            self.assertEqual(tpuboard.read(saved).name, "layer")
            self.assertEqual(saved.stat().st_mode & 0o777, 0o640)
            fresh = folder / ("n" * 248 + ".tpuexe")
            self.layer.save(fresh)
            self.assertEqual(fresh.read_bytes(), saved.read_bytes())
            with self.assertRaises(OSError):
                self.layer.save(folder)
            with self.assertRaises(FileNotFoundError):
                self.layer.save(folder / "none" / "a.tpuexe")
            taken = folder / "taken"
            (taken / "by_a_folder").mkdir(parents=True)
            with self.assertRaises(OSError):
                self.layer.save(taken)
            self.assertEqual(sorted(each.name for each in folder.iterdir()),
                             ["link.tpuexe", fresh.name, "other", "saved.tpuexe", "taken"])
            self.layer.save("/dev/null")

    def test_file(self) -> None:
        again = tpuboard.read(bytes(self.layer))
        self.assertEqual(bytes(again), bytes(self.layer))
        self.assertEqual(again.arguments, self.layer.arguments)
        with self.assertRaisesRegex(tpuboard.TpuError, "truncated|length|damaged|short") as caught:
            tpuboard.read(bytes(self.layer)[:-1])
        self.assertEqual(caught.exception.code, "InvalidArgument")

    def test_types(self) -> None:
        values = {
            "int8": [-128, 127, 3], "uint8": [0, 255, 3], "int16": [-32768, 32767, 3], "uint16": [0, 65535, 3],
            "int32": [-2**31, 2**31 - 1, 3], "uint32": [0, 2**32 - 1, 3], "bool": [True, False, True],
            "float32": [1.5, -np.inf, 3], "bfloat16": [1.5, -2, 3],
        }
        for name, numbers in values.items():
            given = np.array(numbers, ml_dtypes.bfloat16 if name == "bfloat16" else name)
            with self.subTest(name):
                (y,) = tpuboard.compile(artifact(lambda x: x[::-1], given)).load().run(given)
                self.assertEqual(y.dtype, given.dtype)
                np.testing.assert_array_equal(y, given[::-1])
        with self.assertRaisesRegex(TypeError, "the board has no type float16; use float32 or bfloat16"):
            self.layer.load([0]).put(0, np.zeros((32, 200), np.float16))

    def test_state_is_donated(self) -> None:
        state = np.arange(8, dtype=np.float32)
        step = tpuboard.compile(artifact(lambda s: s + 1, state, donate_argnums=0)).load([2])
        held = step.put(0, state)
        results, _ = step.start(held, keep=[0])
        self.assertTrue(held.live)
        results, done = step.start(held, steps=3)
        done.wait()
        self.assertFalse(held.live)
        np.testing.assert_array_equal(np.asarray(results[0]), state + 3)
        with self.assertRaisesRegex(tpuboard.TpuError, "donated") as caught:
            step.start(held)
        self.assertEqual(caught.exception.code, "FailedPrecondition")

    def sums_over(self, cores: int) -> bytes:
        """Sums of the rows of f32[32,5], which are cut over the cores."""
        mesh = AbstractMesh((cores,), ("data",))

        def total(x):
            return jax.lax.psum(jnp.sum(x, axis=0), "data")

        split = jax.shard_map(total, mesh=mesh, in_specs=PartitionSpec("data"), out_specs=PartitionSpec())
        rows = jax.ShapeDtypeStruct((32, 5), np.float32,
                                    sharding=jax.sharding.NamedSharding(mesh, PartitionSpec("data")))
        return jax.export.export(jax.jit(split), platforms=["tpu"])(rows).mlir_module_serialized

    def test_eight_cores(self) -> None:
        x = np.arange(32 * 5, dtype=np.float32).reshape(32, 5)
        program = tpuboard.compile(self.sums_over(8))
        self.assertEqual(program.partitions, 8)
        self.assertEqual(program.arguments[0].local_shape, (4, 5))
        self.assertEqual([box[0] for box in program.arguments[0].offsets], list(range(0, 32, 4)))
        executable = program.load()
        self.assertEqual(executable.put(0, x).devices, list(range(8)))
        (y,) = executable.run(x)
        np.testing.assert_array_equal(y, x.sum(axis=0))

    def test_some_cores_in_any_order(self) -> None:
        x = np.arange(32 * 5, dtype=np.float32).reshape(32, 5)
        program = tpuboard.compile(self.sums_over(4), cores=[6, 0, 3, 5])
        self.assertEqual((program.partitions, program.cores), (4, [6, 0, 3, 5]))
        executable = program.load()
        self.assertEqual(executable.put(0, x).devices, [6, 0, 3, 5])
        (y,) = executable.run(x)
        np.testing.assert_array_equal(y, x.sum(axis=0))
        self.assertEqual(tpuboard.compile(self.sums_over(4)).cores, [0, 1, 2, 3])
        for cores, text in [([0, 1, 2, 8], "8"), ([0, 1, 1, 2], "1"), ([0, 1], "4"), ([0], "4"), ([3, 1], "4")]:
            with self.subTest(cores), self.assertRaisesRegex(tpuboard.TpuError, text):
                tpuboard.compile(self.sums_over(4), cores=cores)

    def test_the_cache_keeps_what_was_asked_for(self) -> None:
        code = f"""
import sys, tpuboard
artifact = open({str(EXAMPLES / "mnist_mlp/train_step.mlirbc")!r}, "rb").read()
for options in ({{}}, {{"name": "other"}}, {{"update_sharding": "on"}}):
    program = tpuboard.compile(artifact, **options)
    print(program.name, program.partitions, program.cost, program.notes)
"""
        with tempfile.TemporaryDirectory() as folder:
            texts = [subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True,
                                    env=os.environ | {"TPUBOARD_CACHE": folder}).stdout for _ in range(2)]
            self.assertEqual(len(list(Path(folder).glob("*.cached"))), 3)
        self.assertEqual(texts[0], texts[1])
        self.assertEqual([line.split()[0] for line in texts[0].splitlines()], ["main", "other", "main"])

    def test_events(self) -> None:
        executable = self.layer.load([1])
        arguments = [executable.put(i, value) for i, value in enumerate(inputs())]
        results, first = executable.start(*arguments)
        _, done = executable.start(*arguments, after=[first])
        called = threading.Event()
        seen: list[object] = []
        done.on_ready(lambda error: (seen.append(error), called.set()))
        self.assertTrue(called.wait(30))  # nobody waits on the board
        done.wait(timeout=10)
        self.assertTrue(first.ready() and done.ready())
        self.assertEqual(seen, [None])
        self.assertEqual(results[0].devices, [1])

    def test_callbacks_are_made_before_the_process_ends(self) -> None:
        code = f"""
import os, sys, time, numpy as np, tpuboard
layer = tpuboard.compile(open({str(EXAMPLES / "tanh_layer/tanh_layer.mlirbc")!r}, "rb").read()).load()
arguments = [np.zeros(each.shape, each.dtype) for each in layer.program.arguments]
def called(error):
    time.sleep(0.3)
    print("called", error, flush=True)
    raise ValueError("of the callback")
layer.start(*arguments)[1].on_ready(called)
if os.fork() == 0:
    sys.exit()  # has no callback to wait for
os.wait()
layer.start(*arguments)[1].on_ready(called)
"""
        done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, "called None\n" * 2), done.stderr)
        self.assertEqual(done.stderr.count("ValueError: of the callback"), 2, done.stderr)

    def test_wrong_arguments(self) -> None:
        executable = self.layer.load([0])
        x, w, b = inputs()
        for arguments, text in [((x, w), "argument"), ((x, w, b[:-1]), r"f32\[95\]"), ((w, w, b), r"f32\[200,96\]")]:
            with self.subTest(text), self.assertRaisesRegex(tpuboard.TpuError, text) as caught:
                executable.run(*arguments)
            self.assertEqual(caught.exception.code, "InvalidArgument")
        with self.assertRaisesRegex(tpuboard.TpuError, "no argument 3"):
            executable.put(3, x)
        with self.assertRaises(tpuboard.TpuError):
            self.layer.load([8])
        with self.assertRaises(tpuboard.TpuError):
            self.layer.load([0, 1])

    def test_unloaded(self) -> None:
        executable = self.layer.load([0])
        executable.unload()
        with self.assertRaises(tpuboard.TpuError) as caught:
            executable.run(*inputs())
        self.assertEqual(caught.exception.code, "FailedPrecondition")

    def test_refused_program(self) -> None:
        with self.assertRaises(tpuboard.TpuError) as caught:
            tpuboard.compile(artifact(lambda x: jnp.sin(x), np.zeros(4, np.float16)))
        self.assertEqual(caught.exception.code, "Unimplemented")
        self.assertIn(Path(__file__).name, str(caught.exception))
        with self.assertRaises(tpuboard.TpuError) as caught:
            tpuboard.compile(b"ML\xefRno program")
        self.assertEqual(caught.exception.code, "InvalidArgument")
        with self.assertRaisesRegex(tpuboard.TpuError, "textual MLIR is not read"):
            tpuboard.compile(b"module {}")
        with self.assertRaisesRegex(ValueError, "auto, off, on"):
            tpuboard.compile(b"", update_sharding="maybe")  # type: ignore[arg-type]


class BoardOfTheProcess(unittest.TestCase):
    """tpuboard.board(), configure() and measure()."""

    def test_describes_itself(self) -> None:
        board = tpuboard.board()
        self.assertEqual((board.name, board.file, board.waves, board.lockstep), ("v3_8", "v3_8", None, None))
        self.assertEqual(board.clock_hz, 940e6)
        self.assertEqual([(d.chip, d.core) for d in board.devices], [(i // 2, i % 2) for i in range(8)])
        self.assertEqual(board.devices[7].hbm_bytes, 16 << 30)
        self.assertGreater(board.seconds, 0)
        self.assertEqual(board.counters().checks, tpuboard.Checks(0, 0, 0))

    def test_measure(self) -> None:
        program = tpuboard.compile((EXAMPLES / "tanh_layer/tanh_layer.mlirbc").read_bytes())
        executable = program.load([6])
        arguments = [executable.put(i, value) for i, value in enumerate(inputs())]
        text = io.StringIO()
        with tpuboard.measure("layer", output=text) as figures:
            for _ in range(4):
                executable.start(*arguments)
        self.assertEqual((figures.programs, figures.cores), (4, [6]))
        self.assertGreaterEqual(figures.cycles, 4 * program.cost["estimated_cycles"] * 0.9)
        done = 4 * program.cost["matmul_flops"]
        self.assertAlmostEqual(figures.mxu, done / (figures.cycles * tpuboard.board().peak_flops_per_cycle))
        self.assertTrue(0 < figures.idle < 1)
        self.assertIn("ms simulated on 1 core", text.getvalue())
        self.assertRegex(text.getvalue(), r"idle [\d.]+ % \(input 0\.0 %, host [\d.]+ %\), wall clock ")
        self.assertEqual((figures.idle_input, figures.idle_host), (0, figures.idle))
        with tpuboard.measure(output=None) as nothing:
            pass
        self.assertEqual((nothing.programs, nothing.mxu, nothing.idle), (0, 0, 1 if nothing.cycles else 0))


if __name__ == "__main__":
    unittest.main()
