"""The runs that the golden table holds: every collective between cores, and short training runs.

A collective has a model (orders.py) of the bits that it must give; a training run has its digest and cycles alone,
since its parts are compared with JAX elsewhere (tests/e2e).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orders
import values

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
GRAPHS = Path(__file__).resolve().parent / "graphs"
EXAMPLE = ROOT / "examples" / "mnist_mlp"

ALL = [list(range(8))]
ODD_GROUPS = [[0, 1, 3, 6], [2, 4, 5, 7]]
MINOR_OF_FOUR = [[0, 1, 2, 3], [4, 5, 6, 7]]  # the axis of 4 in a mesh of 2 x 4
MAJOR_OF_FOUR = [[0, 2, 4, 6], [1, 3, 5, 7]]  # the axis of 4 in a mesh of 4 x 2
MINOR_OF_TWO = [[0, 1], [2, 3], [4, 5], [6, 7]]

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Collective:
    """A graph of tests/golden/graphs, its values (elements a core and type) and the model of its results.

    `other`: the model with another order of sums; None where no sum is rounded.
    """

    name: str
    inputs: Sequence[tuple[int, str]]
    model: Callable[[Arrays], Arrays]
    other: Callable[[Arrays], Arrays] | None = None

    def arrays(self) -> Arrays:
        """Rows are cores; bf16 as bits."""
        make = {"f32": values.floats, "bf16": values.bfloats, "i64": values.integers}
        return [make[dtype](1 + index, (8, count)) for index, (count, dtype) in enumerate(self.inputs)]


def _sums(name: str, inputs: Sequence[tuple[int, str]], groups: Sequence[Sequence[int]]) -> Collective:
    serial = orders.one_by_one
    return Collective(name, inputs, lambda v: orders.all_reduce(v, groups),
                      lambda v: orders.all_reduce(v, groups, serial, serial))


def _moves(arrays: Arrays) -> Arrays:
    """all_gather, all_to_all and a ring that skips two cores, of every value."""
    out = []
    for v in arrays:
        out += [np.tile(v.reshape(1, -1), (8, 1)),
                v.reshape(8, 8, -1).transpose(1, 0, 2).reshape(8, -1), np.roll(v, 3, axis=0)]
    return out


def _scattered(groups: Sequence[Sequence[int]], order: orders.Order) -> Callable[[Arrays], Arrays]:
    return lambda arrays: [orders.reduce_scatter(v, groups, order) for v in arrays]


def collectives() -> list[Collective]:
    """One for every graph; sizes as in export_graphs.py."""
    small, halves, pieces = 1021, 30011, 300007
    pairs, serial = orders.in_pairs, orders.one_by_one
    return [
        _sums("sum_small", [(small, "f32")], ALL),
        _sums("sum_halves", [(halves, "f32")], ALL),
        _sums("sum_pieces", [(pieces, "f32"), (small, "f32"), (halves, "f32")], ALL),
        _sums("sum_bf16_small", [(small, "bf16")], ALL),
        _sums("sum_bf16_pieces", [(pieces, "bf16")], ALL),
        Collective("sum_i64", [(small, "i64"), (halves, "i64")],
                   lambda arrays: [orders.gathered_sum(v, ALL) for v in arrays]),
        Collective("sum_odd_groups", [(small, "f32")], lambda arrays: [orders.gathered_sum(arrays[0], ODD_GROUPS)],
                   lambda arrays: [orders.gathered_sum(arrays[0], ODD_GROUPS, serial)]),
        _sums("sum_minor_small", [(small, "f32")], MINOR_OF_FOUR),
        _sums("sum_minor_halves", [(halves, "f32")], MINOR_OF_FOUR),
        _sums("sum_major_small", [(small, "f32")], MAJOR_OF_FOUR),
        _sums("sum_major_pieces", [(pieces, "f32")], MAJOR_OF_FOUR),
        _sums("sum_both_axes", [(halves, "f32")], ALL),
        Collective("sums_of_two_axes", [(small, "f32")],
                   lambda v: orders.all_reduce(v, MAJOR_OF_FOUR) + orders.all_reduce(v, MINOR_OF_TWO),
                   lambda v: orders.all_reduce(v, MAJOR_OF_FOUR, serial) + orders.all_reduce(v, MINOR_OF_TWO)),
        Collective("scatter", [(8 * 129, "f32"), (8 * 2003, "bf16"), (8 * 17, "i64")], _scattered(ALL, pairs),
                   _scattered(ALL, serial)),
        Collective("scatter_minor", [(4 * 1033, "f32")], _scattered(MINOR_OF_FOUR, pairs),
                   _scattered(MINOR_OF_FOUR, serial)),
        Collective("moves", [(8 * 131, "f32"), (8 * 257, "bf16"), (8 * 33, "i64")], _moves),
    ]


@dataclass(frozen=True)
class Training:
    """Launches of a training step from a fixed state; results take the place of donated arguments."""

    name: str
    graph: Path
    shapes: Sequence[tuple[int, ...]]  # of weights and biases, without the optimizer's state
    moments: int  # copies of them in the optimizer's state
    counter: bool  # an i32 step counter in front of the state
    batch: int
    image: tuple[int, ...]
    classes: int
    launches: int
    options: Sequence[str] = field(default_factory=tuple)  # of tpuc

    def arrays(self) -> Arrays:
        """Arguments of the first launch: uniform weights, state of zeros."""
        leaves = [values.uniform(11 + i, shape, -0.1, 0.1) for i, shape in enumerate(self.shapes)]
        state = [np.zeros(shape, np.float32) for _ in range(self.moments) for shape in self.shapes]
        labels = (values.words(2, self.batch) % np.uint64(self.classes)).astype(np.int32)
        counter = [np.zeros((), np.int32)] if self.counter else []
        return [*leaves, *counter, *state, values.uniform(1, (self.batch, *self.image), 0.0, 1.0), labels]


def _layers(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    return [shape for m, n in zip(sizes[:-1], sizes[1:], strict=True) for shape in ((n,), (m, n))]


def trainings() -> list[Training]:
    """Step graphs of tests/data, of the perceptron example, and a small convnet with sharded updates and without."""
    tiny, data = _layers((12, 10, 6, 4)), ROOT / "tests" / "data"
    convnet = [(24,), (3, 3, 1, 24), (40,), (3, 3, 24, 40), (120,), (1200, 120), (20,), (120, 20), (10,), (20, 10)]

    def small(name: str, *optimizer: int | bool) -> Training:
        return Training(name, data / f"{name}.mlirbc", tiny, *optimizer, 16, (12,), 4, 20)

    def cnn(mode: str) -> Training:
        return Training(f"convnet_update_sharding_{mode}", GRAPHS / "convnet_step.mlirbc", convnet, 2, True, 16,
                        (9, 10, 1), 10, 3, (f"--update-sharding={mode}",))

    return [small("mlp_sgd", 0, False), small("mlp_momentum", 1, False), small("mlp_adam", 2, True), cnn("off"),
            cnn("on"),
            Training("mnist_mlp_step", EXAMPLE / "train_step.mlirbc", _layers((784, 512, 256, 10)), 2, True, 200,
                     (784,),
                     10, 3)]


def _call(*command: str | Path) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{Path(command[0]).name} exited {done.returncode}: {(done.stderr or done.stdout)[-400:]}")


def _figures(path: Path) -> dict[str, str | int]:
    run = json.loads(path.read_text(encoding="utf-8"))
    return {"digest": run["digest"], "sim_cycles": run["sim_cycles"]}


def launch(tools: Path, folder: Path, graph: Path, arrays: Arrays, launches: int = 1,
           options: Sequence[str] = ()) -> dict[str, str | int]:
    """Compiles and runs; results lie in `folder` as 0.npy, 1.npy, ... then. Digest and simulated cycles."""
    inputs = []
    for index, array in enumerate(arrays):
        path = folder / f"in{index}.npy"
        np.save(path, array.view("V2") if array.dtype == np.uint16 else array)
        inputs += ["--in", f"{index}={path}"]
    program, figures = folder / "program.tpuexe", folder / "run.json"
    _call(tools / "tpuc", graph, "-o", program, *options)
    _call(tools / "tpuboard", "run", program, *inputs, "--launches", str(launches), "--out-dir", folder, "--json",
          figures)
    return _figures(figures)


def train_epochs(tools: Path, folder: Path) -> dict[str, str | int]:
    """`tpuboard train` of the perceptron example with Adam on made-up digits: two epochs of three steps, evaluation of
    a batch that is not full; the state that the board itself draws."""
    count = 1000
    np.save(folder / "images.npy", values.uniform(1, (count, 784), 0.0, 1.0))
    np.save(folder / "labels.npy", (values.words(2, count) % np.uint64(10)).astype(np.int32))
    for step in ("train_step", "eval_step"):
        _call(tools / "tpuc", EXAMPLE / f"{step}.mlirbc", "-o", folder / f"{step}.tpuexe")
    text = (EXAMPLE / "train.toml.in").read_text(encoding="utf-8").replace("@OUT@", str(folder))
    text = text.replace("@DATA@", str(folder)).replace("eval_count = 1000", "eval_count = 330")
    (folder / "train.toml").write_text(text, encoding="utf-8")
    _call(tools / "tpuboard", "train", folder / "train.toml", "--epochs", "2", "--out", folder)
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    return _figures(folder / "run.json") | {"test_accuracy": run["test_accuracy"], "steps": run["steps"]}
