"""Programs of several replicas, each of several partitions, through the client as frameworks that do not shard use it.

Every collective in every way of naming its groups, against the specification of StableHLO written in NumPy. JAX's own
programs have one replica; these are text. TPU_LIBRARY_PATH names the plugin.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import jax
import numpy as np
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxlib import _jax as jaxlib

ROWS = 120  # divided by all sizes of groups
DEVICES = jax.devices("tpu")
Process = tuple[int, int]  # replica and partition


@dataclass(frozen=True)
class Ids:
    """A way of naming groups: what the ids are, and how an op says so."""

    name: str
    channel: bool = False
    everywhere: bool = False

    def attributes(self) -> str:
        text = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, " if self.channel else ""
        return text + ("use_global_device_ids, " if self.everywhere else "")

    def processes(self, rows: list[list[int]], replicas: int, partitions: int) -> list[list[Process]]:
        """Section "Process ids" of the specification."""
        match self.name:
            case "cross_replica":
                return [[(r, p) for r in row] for row in rows for p in range(partitions)]
            case "cross_partition":
                return [[(r, p) for p in row] for row in rows for r in range(replicas)]
            case "cross_replica_and_partition":
                return [[(r, p) for p in range(partitions) for r in row] for row in rows]
            case _:
                return [[divmod(i, partitions) for i in row] for row in rows]

    def count(self, replicas: int, partitions: int) -> int:
        return {"cross_partition": partitions, "flattened_ids": replicas * partitions}.get(self.name, replicas)


REDUCING = [Ids("cross_replica"), Ids("cross_replica_and_partition", True), Ids("flattened_ids", True, True)]
MOVING = [Ids("cross_replica"), Ids("cross_partition", True)]


def padded(rows: list[list[int]]) -> str:
    most = max(map(len, rows))
    full = [row + [-1] * (most - len(row)) for row in rows]
    return f"dense<{full}> : tensor<{len(full)}x{most}xi64>"


ADD = """ ({
^bb0(%a: tensor<f32>, %b: tensor<f32>):
%s = stablehlo.add %a, %b : tensor<f32>
stablehlo.return %s : tensor<f32>
})"""


def statement(kind: str, ids: Ids, rows: list[list[int]], size: int) -> tuple[str, str]:
    """The op without its result's name, and the type of that."""
    attributes = ids.attributes()
    if kind == "collective_permute":
        attributes += f"source_target_pairs = {padded(rows)}"
    else:
        attributes += f"replica_groups = {padded(rows)}"
    shape = [ROWS, 2]
    if kind == "all_gather":
        attributes += ", all_gather_dim = 0 : i64"
        shape = [ROWS * size, 2]
    elif kind == "reduce_scatter":
        attributes += ", scatter_dimension = 0 : i64"
        shape = [ROWS // size, 2]
    elif kind == "all_to_all":
        attributes += f", split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = {size} : i64"
        shape = [ROWS // size, 2 * size]
    result = f"tensor<{shape[0]}x{shape[1]}xf32>"
    region = ADD if "reduce" in kind else ""
    return f'"stablehlo.{kind}"(%x){region} {{{attributes}}} : (tensor<{ROWS}x2xf32>) -> {result}', result


def expected(kind: str, groups: list[list[Process]], x: dict[Process, np.ndarray]) -> dict[Process, np.ndarray]:
    """What every process has after the op."""
    out = {}
    if kind in ("collective_permute", "collective_broadcast"):
        out = {process: np.zeros_like(value) for process, value in x.items()}
    for group in groups:
        parts = [x[process] for process in group]
        for place, process in enumerate(group):
            match kind:
                case "all_reduce":
                    out[process] = sum(parts)
                case "reduce_scatter":
                    out[process] = np.split(sum(parts), len(group))[place]
                case "all_gather":
                    out[process] = np.concatenate(parts)
                case "all_to_all":
                    out[process] = np.concatenate([np.split(part, len(group))[place] for part in parts], axis=1)
                case "collective_broadcast":
                    out[process] = parts[0]
                case _:  # a pair
                    if place == 1:
                        out[process] = parts[0]
    return out


def compiled(text: str, replicas: int, partitions: int, devices: list, said: bool = True) -> object:
    """`said`: the module too has the numbers of both, as XLA's frameworks write them; else the options alone."""
    options = jaxlib.CompileOptions()
    build = options.executable_build_options
    build.num_replicas, build.num_partitions = replicas, partitions
    ids = np.array([d.id for d in devices]).reshape(replicas, partitions)
    build.device_assignment = jaxlib.DeviceAssignment.create(ids)
    counts = f"mhlo.num_partitions = {partitions} : i32, mhlo.num_replicas = {replicas} : i32" if said else ""
    with mlir.make_ir_context():
        module = ir.Module.parse(f"module @grid attributes {{{counts}}} {{\n{text}\n}}")
        code = mlir.module_to_bytecode(module)
    return DEVICES[0].client.compile_and_load(code, devices, options)


def run(program: object, devices: list, *arguments: list[np.ndarray]) -> list[list[np.ndarray]]:
    """By result and device; arguments by device."""
    sharding = NamedSharding(Mesh(np.array(devices), "d"), PartitionSpec("d"))
    arrays = []
    for parts in arguments:
        flat = [jax.device_put(part, device) for part, device in zip(parts, devices, strict=True)]
        shape = (len(parts) * parts[0].shape[0], *parts[0].shape[1:])
        arrays.append(jax.make_array_from_single_device_arrays(shape, sharding, flat))
    results = program.execute_sharded(arrays).disassemble_into_single_device_arrays()
    return [[np.asarray(part) for part in parts] for parts in results]


def partings(count: int) -> list[list[list[int]]]:
    """Ways of making groups of one size of ids 0 .. count-1: all of them, out of order, and pairs."""
    pairs = [[[i, count - 1 - i] for i in range(count // 2)]] if count % 2 == 0 and count > 2 else []
    return [[list(range(count))[::-1]], *pairs]


def statements(replicas: int, partitions: int) -> list[tuple[str, Ids, list[list[int]]]]:
    cases = []
    for kind in ("all_reduce", "all_gather", "reduce_scatter"):
        cases += [(kind, ids, rows) for ids in REDUCING for rows in partings(ids.count(replicas, partitions))]
    for kind in ("all_to_all", "collective_broadcast"):
        cases += [(kind, ids, rows) for ids in MOVING for rows in partings(ids.count(replicas, partitions))]
    for ids in MOVING:
        count = ids.count(replicas, partitions)
        cases.append(("collective_permute", ids, [[i, (i + 1) % count] for i in range(count)]))
        if count > 2:  # groups of several sizes, and processes in none
            cases.append(("collective_permute", ids, [[2, 0]]))
            cases.append(("collective_broadcast", ids, [[2, 1]]))
    for ids in REDUCING:
        count = ids.count(replicas, partitions)
        if count > 2:
            cases.append(("all_reduce", ids, [[count - 1], list(range(count - 1))]))
    return cases


def collectives(replicas: int, partitions: int, order: list[int], said: bool = True) -> None:
    """All of them in one program, with both ids of every process."""
    devices = [DEVICES[i] for i in order]
    cases = statements(replicas, partitions)
    lines, names, types = [], [], []
    for i, (kind, ids, rows) in enumerate(cases):
        size = len(ids.processes(rows, replicas, partitions)[0])
        line, result = statement(kind, ids, rows, size)
        lines.append(f"%{i} = {line}")
        names.append(f"%{i}")
        types.append(result)
    lines += ["%r = stablehlo.replica_id : tensor<ui32>", "%p = stablehlo.partition_id : tensor<ui32>"]
    names, types = [*names, "%r", "%p"], [*types, "tensor<ui32>", "tensor<ui32>"]
    listed = ", ".join(types)
    text = (f"func.func @main(%x: tensor<{ROWS}x2xf32>) -> ({listed}) {{\n" + "\n".join(lines) +
            f"\nreturn {', '.join(names)} : {listed}\n}}")
    program = compiled(text, replicas, partitions, devices, said)
    processes = [divmod(i, partitions) for i in range(replicas * partitions)]
    rng = np.random.default_rng(replicas)
    x = {process: rng.integers(-9, 9, (ROWS, 2)).astype(np.float32) for process in processes}
    results = run(program, devices, [x[process] for process in processes])
    for (kind, ids, rows), parts in zip(cases, results, strict=False):
        want = expected(kind, ids.processes(rows, replicas, partitions), x)
        for process, part in zip(processes, parts, strict=True):
            np.testing.assert_array_equal(part, want[process], err_msg=f"{kind} {ids.name} {rows} on {process}")
    for process, replica, partition in zip(processes, *results[-2:], strict=True):
        assert (int(replica), int(partition)) == process, (replica, partition, process)


def grid() -> None:
    """Grids of replicas and partitions, on devices in order and not."""
    collectives(2, 4, list(range(8)))
    collectives(4, 2, [0, 1, 2, 3, 6, 7, 4, 5])
    collectives(2, 3, [7, 1, 2, 5, 4, 3], said=False)
    collectives(5, 1, [0, 1, 2, 3, 4])
    collectives(1, 8, list(range(8)))


def sharded() -> None:
    """A layer whose weights are cut over the partitions of each replica, and a gradient summed over the replicas."""
    text = """sdy.mesh @mesh = <["model"=4]>
    func.func @main(%w: tensor<8x12xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>,
                                          tf.aliasing_output = 0 : i32}, %x: tensor<6x8xf32>)
        -> (tensor<8x12xf32>, tensor<f32>) {
      %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST]
          : (tensor<6x8xf32>, tensor<8x12xf32>) -> tensor<6x12xf32>
      %g = stablehlo.dot_general %x, %y, contracting_dims = [0] x [0], precision = [HIGHEST, HIGHEST]
          : (tensor<6x8xf32>, tensor<6x12xf32>) -> tensor<8x12xf32>
      %s = "stablehlo.all_reduce"(%g) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %c = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %c : tensor<f32>
      }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<8x12xf32>) -> tensor<8x12xf32>
      %n = stablehlo.subtract %w, %s : tensor<8x12xf32>
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %l = stablehlo.reduce(%y init: %z) applies stablehlo.add across dimensions = [0, 1]
          : (tensor<6x12xf32>, tensor<f32>) -> tensor<f32>
      return %n, %l : tensor<8x12xf32>, tensor<f32>
    }"""
    program = compiled(text, 2, 4, DEVICES)
    tiles = [list(sharding.tile_assignment_dimensions) for sharding in program.get_output_shardings()]
    assert tiles == [[1, 4, 2], []], tiles  # replicas as copies
    rng = np.random.default_rng(1)
    w = rng.integers(-3, 3, (8, 12)).astype(np.float32)
    x = rng.integers(-3, 3, (2, 6, 8)).astype(np.float32)
    new, loss = run(program, DEVICES, [np.split(w, 4, axis=1)[p] for _ in range(2) for p in range(4)],
                    [x[r] for r in range(2) for _ in range(4)])
    want = w - sum(x[r].T @ (x[r] @ w) for r in range(2))
    for r in range(2):
        for p in range(4):
            np.testing.assert_array_equal(new[4 * r + p], np.split(want, 4, axis=1)[p])
            np.testing.assert_array_equal(loss[4 * r + p], (x[r] @ w).sum())


def refused(text: str, *parts: str, replicas: int = 2, partitions: int = 1, **more: object) -> None:
    try:
        compiled(text, replicas, partitions, DEVICES[:replicas * partitions], **more)
    except jax.errors.JaxRuntimeError as error:
        for part in parts:
            assert part in str(error), f"'{part}' is not in\n{error}"
    else:
        raise AssertionError(f"no error: {parts}")


def errors() -> None:
    """Groups that the program does not have, and numbers that contradict each other."""
    def one(kind: str, ids: Ids, rows: list[list[int]], size: int = 2) -> str:
        line, result = statement(kind, ids, rows, size)
        return f"func.func @main(%x: tensor<{ROWS}x2xf32>) -> {result} {{\n%0 = {line}\nreturn %0 : {result}\n}}"

    refused(one("all_reduce", REDUCING[0], [[0, 1, 2]]), "names replica 2, the program has 2")
    refused(one("all_reduce", REDUCING[0], [[0, 1, 2, 3]]), "names replica 1, the program has 1", "jax.shard_map",
            replicas=1, partitions=4)
    refused(one("all_to_all", MOVING[1], [[0, 1]]), "names partition 1, the program has 1")
    refused(one("all_reduce", REDUCING[0], [[0, 1]]), "every core must be in a group", "2 of 3", replicas=3)
    text = one("all_reduce", REDUCING[0], [[0, 1]])
    options = jaxlib.CompileOptions()
    options.executable_build_options.num_replicas = 4
    with mlir.make_ir_context():
        code = mlir.module_to_bytecode(ir.Module.parse(f"module attributes {{mhlo.num_replicas = 2 : i32}} {{{text}}}"))
    try:
        DEVICES[0].client.compile_and_load(code, DEVICES[:4], options)
    except jax.errors.JaxRuntimeError as error:
        assert "INVALID_ARGUMENT" in str(error) and "mhlo.num_replicas = 2" in str(error), error
    else:
        raise AssertionError("two numbers of replicas")


CASES = {"grid": grid, "sharded": sharded, "errors": errors}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=CASES, required=True)
    CASES[parser.parse_args().case]()
