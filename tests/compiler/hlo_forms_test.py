"""Programs as HLO modules: the graph of each must be that of the StableHLO which XLA's own conversion makes of the
module, and the graph of the module with all arguments in one tuple must be the same.

The programs are those of artifact_forms_test.py. XLA's conversion from StableHLO makes the modules, so that they hold
the instructions, computations and tuples that it writes. Those with shardings are tested in GSPMD's language and in
Shardy's, whose operations are custom calls in HLO; MLIR reads their attributes, which are text.
Usage: hlo_forms_test.py --tool ARTIFACT_PRINT [--sample N] [--only SUBSTRING] [--keep DIR]. Exits with 77 (skipped)
without JAX.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import multiprocessing
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING

import artifact_forms_test as programs
import sharded_programs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jax._src.lib.mlir import ir

SECONDS = 60  # for one conversion
FEWEST = 200  # programs as modules of HLO, of a sample too: fewer mean that the test looks at nothing

# What XLA's conversion from HLO drops: algorithms of products.
LOST = {"dot_algorithm"}

# What StableHLO has no operation for: CHLO has.
CHLO = {"acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "erf", "sinh"}


def varint(value: int) -> bytes:
    """As protocol buffers have it."""
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def with_config(module: bytes, replicas: int, partitions: int) -> bytes:
    """HloModuleProtoWithConfig: the module says nothing of cores."""
    config = b"\x20" + varint(replicas) + b"\x28" + varint(partitions)
    return b"\x0a" + varint(len(module)) + module + b"\x12" + varint(len(config)) + config


def frontend_attribute(op: ir.Operation, name: str) -> ir.Attribute | None:
    """A text in MLIR's syntax."""
    from jax._src.lib.mlir import ir

    if "mhlo.frontend_attributes" not in op.attributes:
        return None
    attributes = ir.DictAttr(op.attributes["mhlo.frontend_attributes"])
    return ir.Attribute.parse(ir.StringAttr(attributes[name]).value) if name in attributes else None


def target_of(op: ir.Operation) -> str:
    from jax._src.lib.mlir import ir

    return ir.StringAttr(op.attributes["call_target_name"]).value if op.name == "stablehlo.custom_call" else ""


def all_ops(block: ir.Block) -> Iterator[ir.Operation]:
    for op in block:
        for region in op.regions:
            for inner in region:
                yield from all_ops(inner)
        yield op.operation


def members(op: ir.Operation) -> dict[int, ir.Value]:
    """The arrays that the op gives, by number: its results, or what is taken from the tuple that is its result."""
    from jax._src.lib.mlir import ir

    takers = [use.owner for use in op.results[0].uses]
    if len(op.results) != 1 or not takers or takers[0].name != "stablehlo.get_tuple_element":
        return dict(enumerate(op.results))
    return {ir.IntegerAttr(taker.attributes["index"]).value: taker.results[0] for taker in takers}


def types_of(op: ir.Operation) -> list[ir.Type]:
    from jax._src.lib.mlir import ir

    first = op.results[0].type
    if isinstance(first, ir.TupleType):
        return [first.get_type(i) for i in range(first.num_types)]
    return [value.type for value in op.results]


def make_manual_computation(leave: ir.Operation) -> None:
    """What lies between two custom calls, as the operation of Shardy."""
    from jax._src.lib.mlir import ir

    call, enter = leave.operands[0].owner, None
    assert call.name == "func.call" and list(leave.operands) == list(call.results)
    if len(call.operands):
        enter = call.operands[0].owner
        enter = enter.operands[0].owner if enter.name == "stablehlo.get_tuple_element" else enter
        assert list(call.operands) == [value for _, value in sorted(members(enter).items())]
    none = ir.Attribute.parse("#sdy.sharding_per_value<[]>")
    with ir.InsertionPoint(leave):
        made = ir.Operation.create(
            "sdy.manual_computation", results=types_of(leave), regions=1,
            operands=[] if enter is None else list(enter.operands), attributes={
                "in_shardings": none if enter is None else frontend_attribute(enter, "xla.sdy.in_shardings"),
                "out_shardings": frontend_attribute(leave, "xla.sdy.out_shardings"),
                "manual_axes": frontend_attribute(leave, "xla.sdy.manual_axes")})
    types = [value.type for value in call.operands]
    block = made.regions[0].blocks.append(*types, arg_locs=[ir.Location.unknown()] * len(types))
    with ir.InsertionPoint(block):
        inner = ir.Operation.create("func.call", results=[value.type for value in call.results],
                                    operands=list(block.arguments), attributes={"callee": call.attributes["callee"]})
        ir.Operation.create("sdy.return", operands=list(inner.results))
    taken = members(leave)
    for number, value in taken.items():
        value.replace_all_uses_with(made.results[number])
    behind = [value.owner for value in taken.values() if value.owner != leave]
    before = [value.owner for value in call.operands if value.owner != enter]
    for op in (*behind, leave, call, *before, enter):
        if op is not None:
            op.erase()


def import_shardy(module: ir.Module) -> None:
    """As XLA reads such a module: by its pass for attributes, which jaxlib has, and here for the custom calls."""
    from jax._src.lib.mlir import ir, passmanager

    passmanager.PassManager.parse("builtin.module(xla-sdy-round-trip-import-shardy-attrs)").run(module.operation)
    for op in list(all_ops(module.body)):
        if target_of(op) == "Sharding" and "sdy.sharding" in op.attributes:
            sharding = str(op.attributes["sdy.sharding"]).removeprefix("#sdy.sharding_per_value<[")
            with ir.InsertionPoint(op):
                made = ir.Operation.create("sdy.sharding_constraint", results=[op.results[0].type],
                                           operands=[op.operands[0]], attributes={
                    "sharding": ir.Attribute.parse("#sdy.sharding" + sharding.removesuffix("]>"))})
            op.results[0].replace_all_uses_with(made.results[0])
            op.erase()
        elif target_of(op) == "xla.sdy.ShardingGroup":
            with ir.InsertionPoint(op):
                ir.Operation.create("sdy.sharding_group", operands=[op.operands[0]], attributes={
                    "group_id": frontend_attribute(op, "xla.sdy.sharding_group_id")})
            op.erase()
        elif target_of(op) == "xla.sdy.LocalToGlobalShape":
            make_manual_computation(op)


def count_of(text: str, key: str) -> int:
    found = re.search(rf"mhlo\.{key} = (\d+)", text)
    return int(found[1]) if found else 1


def in_stablehlo(text: str, replicas: int, partitions: int) -> str:
    """What XLA's conversion from HLO leaves in MHLO, as CHLO; and the numbers of cores, which it does not know."""
    def unary(found: re.Match) -> str:
        name, value, kind = found.groups()
        return f"= chlo.{name} {value} : {kind} -> {kind}" if name in CHLO else found[0]

    text = re.sub(r"= mhlo\.(\w+) (%\S+) : (\S+)", unary, text)
    text = re.sub(r"= mhlo\.topk\((%\S+), k = (\d+)\)", r"= chlo.top_k(\1, k = \2)", text)
    counts = f"mhlo.num_replicas = {replicas} : i32, mhlo.num_partitions = {partitions} : i32, "
    return re.sub(r"(module [^{]*attributes \{)", rf"\1{counts}", text, count=1)


def pair(text: str) -> list[bytes] | str:
    """The module, the same with its arguments in a tuple, and the StableHLO of it; or why there is none."""
    from jax._src.interpreters import mlir
    from jax._src.lib import _jax
    from jax._src.lib.mlir import ir

    with mlir.make_ir_context():
        try:
            data = mlir.module_to_bytecode(ir.Module.parse(text))
            cores = count_of(text, "num_replicas"), count_of(text, "num_partitions")
            modules = []
            for tuples in (False, True):
                made = _jax.mlir.mlir_module_to_xla_computation(data, use_tuple_args=tuples, return_tuple=False)
                modules.append(made.as_serialized_hlo_module_proto())
            back = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(modules[0]))
            back = ir.Module.parse(in_stablehlo(str(back), *cores))
            if "xla.sdy." in str(back):
                with ir.Location.unknown():
                    import_shardy(back)
        except Exception as error:  # XLA's conversions do not know every operation
            return str(error).splitlines()[0] if str(error) else type(error).__name__
        file = io.BytesIO()
        back.operation.write_bytecode(file)
        return [*(with_config(module, *cores) for module in modules), file.getvalue()]


class Converter:
    """Another process, which XLA's conversions may bring down."""

    def __init__(self) -> None:
        self.pool: ProcessPoolExecutor | None = None

    def pair(self, text: str) -> list[bytes] | str:
        self.pool = self.pool or ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        try:
            return self.pool.submit(pair, text).result(timeout=SECONDS)
        except (BrokenProcessPool, TimeoutError) as error:
            for process in multiprocessing.active_children():  # one that hangs
                process.kill()
            self.pool.shutdown(cancel_futures=True)
            self.pool = None
            return f"the conversion ended by {type(error).__name__}"

    def close(self) -> None:
        if self.pool is not None:
            self.pool.shutdown()


def same_terms(graph: str) -> str:
    """Without what HLO does not say: names, and the type of a comparison where it is that of the operands."""
    graph = re.sub(r' "[^"\n]*"', "", graph)
    graph = re.sub(r"(compare .*)type=(FLOAT|SIGNED|UNSIGNED|NOTYPE)", r"\1", graph)
    return graph


def compare(name: str, text: str, tool: Path, folder: Path, converter: Converter,
            refused: dict[str, int]) -> str | None:
    """What differs, or None."""
    made = converter.pair(text)
    if isinstance(made, str):
        refused[made] = refused.get(made, 0) + 1
        return None
    stem = folder / re.sub(r"[^0-9A-Za-z_.]", "_", name)
    paths = [Path(f"{stem}.{form}") for form in ("hlo.pb", "tuple.hlo.pb", "mlirbc")]
    for path, data in zip(paths, made, strict=True):
        path.write_bytes(data)
    subprocess.run([str(tool), *map(str, paths)], check=True, timeout=60)
    own, in_tuple, theirs = (same_terms(Path(f"{path}.txt").read_text(encoding="utf-8")) for path in paths)
    if own.startswith("error") and theirs.startswith("error"):
        refused["refused in both forms"] = refused.get("refused in both forms", 0) + 1
        return None
    graphs = {"module": own}
    # Of arguments in a tuple all have a sharding in HLO, or none has.
    if not re.search(r"%\w+: tensor<[^>]*> \{[^}]*\.sharding =", text):
        graphs["module with a tuple"] = in_tuple
    for form, graph in graphs.items():
        if graph != theirs:
            pairs = zip(graph.splitlines(), theirs.splitlines(), strict=False)
            first = next((f"{ours.strip()!r}, StableHLO gives {other.strip()!r}" for ours, other in pairs
                          if ours != other), "one is longer")
            return f"{form}: {first}"
    return None


def all_programs(sample: int) -> Iterator[tuple[str, str]]:
    import jax

    jax.config.update("jax_use_shardy_partitioner", False)
    yield from programs.hand_written()
    yield from programs.of_chlo()
    yield from programs.of_cases(sample)
    yield from sharded_programs.sharded(shardy=False)
    yield "manual_part", sharded_programs.MANUAL_PART
    jax.config.update("jax_use_shardy_partitioner", True)
    for name, text in (*programs.of_cases(sample, sharded=True), *sharded_programs.sharded(shardy=True)):
        assert "sdy.mesh" in text, name
        yield f"{name}.shardy", text


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", type=Path, required=True)
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="only one in N of the matrices' cases")
    parser.add_argument("--only", default="", help="only programs with this in their names")
    parser.add_argument("--keep", type=Path, help="keep the programs and graphs in this folder")
    args = parser.parse_args()
    if importlib.util.find_spec("jax") is None:
        print("skipped: jax is not installed")
        return 77
    count = failed = 0
    refused: dict[str, int] = {}
    converter = Converter()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in all_programs(args.sample):
            if args.only in name and name not in LOST:
                count += 1
                problem = compare(name, text, args.tool, folder, converter, refused)
                if problem:
                    failed += 1
                    print(f"FAILED {name}: {problem}", flush=True)
    converter.close()
    for reason, times in sorted(refused.items(), key=lambda item: -item[1])[:20]:
        print(f"no HLO module of {times}: {reason}")
    passed = count - failed - sum(refused.values())
    print(f"{passed} programs passed, {failed} failed, {sum(refused.values())} others")
    return 1 if failed or (passed < FEWEST and not args.only) else 0


if __name__ == "__main__":
    sys.exit(main())
