"""Made-up boards of tests/data/boards, and pods: programs exported for their number of cores run on them and equal JAX.

The MNIST multilayer perceptron (examples/mnist_mlp) takes two training steps, within the bounds of train_step_test.py:
every output within relative L2 1e-3 of the same graph with dot operands rounded to bf16, the loss within 1e-4. Every
matrix unit of every core must have worked. Collectives of all cores and of groups are exact, and the checker of
unsynchronised accesses finds nothing. From 16 cores on a step with sharded updates gives the same bits as one without.

A core has 25 examples, on many cores 4. In a batch of 1,600 one example has a unit of the second layer so near to zero
that the order of a sum decides whether it is on. The mean of the first layer's gradients differs by that one example
alone, which is more than the bound.

Adam starts from second moments as in the midst of a training: from zero moments its first update is the sign of the
gradient, and where a gradient is next to zero the order of a sum of bf16 products decides that sign.

Usage: boards_test.py --bin DIR --board NAME
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

CORES = {"four_mxus": 4, "sixteen_cores": 16, "thirty_two_cores": 32, "sixty_four_cores": 64, "three_chips": 6,
         "two_boards": 8, "v3_32": 32, "eight_boards": 64}
UNITS = dict.fromkeys(CORES, 2) | {"four_mxus": 4}  # matrix units of a core
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={max(CORES.values())}"

import case_runner  # noqa: E402, reads the environment
import distances  # noqa: E402
import jax_reference as reference  # noqa: E402

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
MANY_CORES, STEPS = 64, 2
SECOND_MOMENT = 1e-6  # of the order of a squared gradient
jax.devices()  # before the example sets another number of them
sys.path.insert(0, str(ROOT / "examples" / "mnist_mlp"))

import export as model  # noqa: E402, EXAMPLE is on the path
import optax  # noqa: E402


class Bench:
    """One board and a folder for its files."""

    def __init__(self, tools: Path, board: str, folder: Path) -> None:
        self.tools, self.name, self.folder = tools, board, folder
        self.cores = CORES[board]
        made_up = ROOT / "tests" / "data" / "boards" / f"{board}.toml"
        self.board = made_up if made_up.exists() else board
        self.compiler_said = ""

    def run(self, exported: jax.export.Exported, inputs: Sequence[np.ndarray], *options: str,
            tpuc_options: Sequence[str] = ()) -> list[np.ndarray]:
        """Compiles the program and runs it with --check."""
        program, exe = self.folder / "p.mlirbc", self.folder / "p.tpuexe"
        program.write_bytes(exported.mlir_module_serialized)
        self.compiler_said = subprocess.run(
            [self.tools / "tpuc", program, "-o", exe, "--board", self.board, "-v", *tpuc_options], check=True,
            stdout=subprocess.PIPE, text=True).stdout
        subprocess.run([self.tools / "tpuboard", "run", exe, "--board", self.board, "--check", "--out-dir", self.folder,
                        *reference.save_inputs(self.folder, inputs), *options],
                       check=True, stdout=subprocess.DEVNULL)
        return [np.load(self.folder / f"{index}.npy") for index in range(len(exported.out_avals))]

    def units_at_work(self) -> set[tuple[int, str]]:
        """Core and queue of every matmul of the last traced run."""
        words = [line.split() for line in (self.folder / "trace.txt").read_text().splitlines()]
        return {(int(w[2]), w[3]) for w in words if w[4] == "matmul"}


def training_step(bench: Bench) -> tuple[jax.export.Exported, list[np.ndarray]]:
    """A step of the perceptron and its arguments: parameters and state, images, labels."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[: bench.cores]), ("data",))
    params = model.init_params(3)
    adam, *others = optax.adam(model.LEARNING_RATE).init(params)
    adam = adam._replace(nu=jax.tree.map(lambda nu: jnp.full_like(nu, SECOND_MOMENT), adam.nu))
    tree = (params, (adam, *others))
    random = np.random.default_rng(5)
    batch = (4 if bench.cores >= MANY_CORES else 25) * bench.cores
    images = random.normal(size=(batch, model.LAYERS[0])).astype(np.float32)
    labels = random.integers(0, model.LAYERS[-1], batch).astype(np.int32)
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (*tree, images, labels))
    step = jax.jit(model.make_train_step(mesh), donate_argnums=(0, 1))
    program = jax.export.export(step, platforms=["cpu"])(*shapes)
    return program, [*(np.asarray(leaf) for leaf in jax.tree.leaves(tree)), images, labels]


def update_of_halves(bench: Bench) -> tuple[jax.export.Exported, list[np.ndarray]]:
    """A sum in f32 that updates an array in f32, of which the cores need the bf16 numbers alone."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[: bench.cores]), ("d",))
    every, split = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec("d")

    def body(state: jax.Array, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
        new = state - 0.5 * lax.psum(gradient[0], "d")
        return new, new.astype(jnp.bfloat16)

    mapped = jax.shard_map(body, mesh=mesh, in_specs=(every, split), out_specs=every)
    random = np.random.default_rng(7)
    arrays = [random.normal(size=shape).astype(np.float32) for shape in ((700, 1000), (bench.cores, 700, 1000))]
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays]
    return jax.export.export(jax.jit(mapped, donate_argnums=0), platforms=["cpu"])(*shapes), arrays


def check_training(bench: Bench) -> list[str]:
    """Steps of the perceptron from equal states."""
    program, [*state, images, labels] = training_step(bench)
    wrong = []
    on_cpu = reference.runner(program, round_dots=True)
    for step in range(STEPS):
        arrays = [*state, images, labels]
        theirs = on_cpu(arrays)
        ours = bench.run(program, arrays, "--trace", str(bench.folder / "trace.txt"))
        gap = max(distances.relative_l2(a, b) for a, b in zip(ours[:-1], theirs[:-1], strict=True))
        loss = abs(float(ours[-1]) / float(theirs[-1]) - 1)
        print(f"{bench.name}: step {step}: largest relative L2 {gap:.3g}, loss off by {loss:.3g}")
        if not (gap <= 1e-3 and loss <= 1e-4):
            wrong.append(f"step {step}")
        state = theirs[:-1]
    expected = {(core, f"mxu{unit}") for core in range(bench.cores) for unit in range(UNITS[bench.name])}
    if bench.units_at_work() != expected:
        wrong.append(f"matrix units at work: {sorted(bench.units_at_work())}")
    return wrong


def check_update_sharding(bench: Bench) -> list[str]:
    """The step with sharded updates, and with plain ones."""
    if bench.cores < 16:
        return []
    wrong = []
    for name, (program, arrays) in {"perceptron": training_step(bench), "halves": update_of_halves(bench)}.items():
        plain = bench.run(program, arrays, tpuc_options=["--update-sharding=off"])
        sharded = bench.run(program, arrays, tpuc_options=["--update-sharding=on"])
        said = re.search(r"update sharding of [1-9]\d* gradient bytes", bench.compiler_said) is not None
        different = [i for i, (a, b) in enumerate(zip(plain, sharded, strict=True)) if a.tobytes() != b.tobytes()]
        if different or not said:
            wrong.append(f"sharded updates of {name}: results {different} differ, sharded: {said}")
    return wrong


def collectives(cores: int) -> list[case_runner.Case]:
    """Bodies over one axis of all cores, "d", or over "a" and "b"; sums are of whole numbers, hence exact."""

    def whole(*shape: int) -> np.ndarray:
        return np.random.default_rng(len(shape)).integers(-9, 9, shape).astype(np.float32)

    ring = [(i, (i + 1) % cores) for i in range(cores)]
    x, y, large = whole(2 * cores, 3 * cores), whole(cores, cores, 40), whole(cores, 500, 700)
    cases = [
        case_runner.Case("psum", lambda v: lax.psum(v, "d"), (x,), mesh={"d": cores}),
        case_runner.Case("psum_large", lambda v: lax.psum(v, "d"), (large,), mesh={"d": cores}),
        case_runner.Case("all_gather", lambda v: lax.all_gather(v, "d", axis=1, tiled=True), (x,), mesh={"d": cores}),
        case_runner.Case("all_gather_twice", lambda v: lax.all_gather(v, "d", axis=1, tiled=True) + lax.all_gather(
            jnp.flip(v, 1), "d", axis=1, tiled=True), (x,), mesh={"d": cores}),
        case_runner.Case("psum_scatter", lambda v: lax.psum_scatter(v, "d", scatter_dimension=1, tiled=True), (x,),
                         mesh={"d": cores}),
        case_runner.Case("all_to_all", lambda v: lax.all_to_all(v, "d", 1, 2, tiled=True), (y,), mesh={"d": cores}),
        case_runner.Case("ring", lambda v: lax.ppermute(v, "d", ring), (x,), mesh={"d": cores}),
    ]
    two = {"a": cores // 2, "b": 2}
    back = [(i, (i - 1) % (cores // 2)) for i in range(cores // 2)]
    groups = {
        "psum_a": (lambda v: lax.psum(v, "a"), x), "psum_b": (lambda v: lax.psum(v, "b"), x),
        "psum_a_large": (lambda v: lax.psum(v, "a"), large),
        "all_gather_a": (lambda v: lax.all_gather(v, "a", axis=1, tiled=True), x),
        "psum_scatter_a": (lambda v: lax.psum_scatter(v, "a", scatter_dimension=1, tiled=True), x),
        "all_to_all_a": (lambda v: lax.all_to_all(v, "a", 1, 2, tiled=True), y),
        "all_to_all_b": (lambda v: lax.all_to_all(v, "b", 1, 2, tiled=True), y),
        "ring_a": (lambda v: lax.ppermute(v, "a", back), x),
    }
    return cases + [case_runner.Case(name, function, (value,), mesh=two) for name, (function, value) in groups.items()]


def check_collectives(bench: Bench) -> list[str]:
    """Names of the collectives that differ from JAX."""
    wrong = []
    for case in collectives(bench.cores):
        program = case_runner.export(case.function, case.inputs, case.mesh)
        theirs = reference.run(program, list(case.inputs), round_dots=False)
        for ours, expected in zip(bench.run(program, case.inputs), theirs, strict=True):
            if problem := distances.difference(ours, expected):
                wrong.append(f"{case.name}: {problem}")
    return wrong


def check_verilog(bench: Bench) -> list[str]:
    """The Verilog array is built for some sizes; a unit of another size is refused."""
    if bench.name != "four_mxus":
        return []
    done = subprocess.run([bench.tools / "tpuboard", "devices", "--board", bench.board,
                           "--mxu", "board.chip0.core0.mxu3=rtl"], capture_output=True, text=True, check=False)
    refused = done.returncode != 0 and "no Verilog array of 256x256" in done.stderr
    return [] if refused else [f"Verilog of 256 x 256: {done.stderr}"]


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--board", choices=CORES, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(args.bin, args.board, Path(name))
        wrong = (check_collectives(bench) + check_verilog(bench) + check_training(bench) + check_update_sharding(bench))
    for problem in wrong:
        print(f"FAILED {args.board}: {problem}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
