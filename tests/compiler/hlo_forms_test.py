"""Programs as HLO modules: the graph of each must be that of the StableHLO which XLA's own conversion makes of the
module, and the graph of the module with all arguments in one tuple must be the same.

The programs are those of artifact_forms_test.py. XLA's conversion from StableHLO makes the modules, so that they hold
the instructions, computations and tuples that it writes.
Usage: hlo_forms_test.py --tool ARTIFACT_PRINT [--only SUBSTRING] [--keep DIR]. Exits with 77 (skipped) without JAX.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import artifact_forms_test as programs

SECONDS = 60  # for one conversion
FEWEST = 400  # programs that become HLO modules and come back: fewer mean that the test looks at nothing

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
            self.pool.shutdown(wait=False, cancel_futures=True)
            self.pool = None
            return f"the conversion ended by {type(error).__name__}"


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
    for form, graph in (("module", own), ("module with a tuple", in_tuple)):
        if graph != theirs:
            pairs = zip(graph.splitlines(), theirs.splitlines(), strict=False)
            first = next((f"{ours.strip()!r}, StableHLO gives {other.strip()!r}" for ours, other in pairs
                          if ours != other), "one is longer")
            return f"{form}: {first}"
    return None


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", type=Path, required=True)
    parser.add_argument("--only", default="", help="only programs with this in their names")
    parser.add_argument("--keep", type=Path, help="keep the programs and graphs in this folder")
    args = parser.parse_args()
    try:
        import jax
    except ImportError:
        print("skipped: jax is not installed")
        return 77
    jax.config.update("jax_use_shardy_partitioner", False)  # of Shardy a module has text that only Shardy reads
    count = failed = 0
    refused: dict[str, int] = {}
    converter = Converter()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in (*programs.hand_written(), *programs.of_chlo(), *programs.of_cases()):
            if args.only in name and name not in LOST:
                count += 1
                problem = compare(name, text, args.tool, folder, converter, refused)
                if problem:
                    failed += 1
                    print(f"FAILED {name}: {problem}", flush=True)
    for reason, times in sorted(refused.items(), key=lambda item: -item[1])[:20]:
        print(f"no HLO module of {times}: {reason}")
    passed = count - failed - sum(refused.values())
    print(f"{passed} programs passed, {failed} failed, {sum(refused.values())} others")
    return 1 if failed or (passed < FEWEST and not args.only) else 0


if __name__ == "__main__":
    sys.exit(main())
