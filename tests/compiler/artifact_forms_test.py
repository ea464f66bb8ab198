"""One program in every form that the import reads: portable artifacts of StableHLO versions from the oldest on, and
StableHLO's own bytecode in each version of MLIR's bytecode. The graphs of what jaxlib holds to be one program must be
equal.

The programs are those of the matrices of operations (tests/e2e), and a few of operations that JAX does not make.
Usage: artifact_forms_test.py --tool ARTIFACT_PRINT [--sample N] [--only SUBSTRING] [--keep DIR]. Exits with 77
(skipped) without JAX.
"""

from __future__ import annotations

import argparse
import importlib
import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "e2e"), str(TESTS.parent / "compiler" / "import")]

VERSIONS = ("0.9.0", "0.10.0", "0.12.0", "0.14.0", "0.17.0", "0.19.0", "0.20.0", "1.0.0", "1.1.0", "1.4.0", "1.6.0",
            "1.9.0", "1.10.0", "1.12.0", "1.14.0")
BYTECODES = (0, 1, 2, 3, 4, 5, 6)
EVERY = 4  # of the cases that only differ in shapes or types from others
SHAPE_OR_TYPE = re.compile(r"_?(?:bf|f|i|u|ui|int|uint|float|bfloat)\d+|\d+")  # in the name of a case
FEWEST = 100  # programs that can be written in each form: fewer mean that the test looks at nothing

# Operations that none of the modules makes.
HAND = {
    "token": ("%x: tensor<3xf32>", "tensor<3xf32>", """
  %t = stablehlo.create_token : !stablehlo.token
  %u = stablehlo.after_all %t, %t : !stablehlo.token
  %v = "stablehlo.send"(%x, %u) {channel_handle = #stablehlo.channel_handle<handle = 3, type = 2>,
      is_host_transfer = true} : (tensor<3xf32>, !stablehlo.token) -> !stablehlo.token
  %0:2 = "stablehlo.recv"(%v) {channel_handle = #stablehlo.channel_handle<handle = 4, type = 3>,
      is_host_transfer = true} : (!stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)"""),
    "dot": ("%x: tensor<3x4xf32>, %y: tensor<4x5xf32>", "tensor<3x5xf32>", """
  %0 = stablehlo.dot %x, %y, precision = [HIGH, HIGH] : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>"""),
    "dot_algorithm": ("%x: tensor<3x4xf32>, %y: tensor<4x5xf32>", "tensor<3x5xf32>", """
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0], algorithm = <lhs_precision_type = bf16,
      rhs_precision_type = bf16, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1,
      num_primitive_operations = 3, allow_imprecise_accumulation = false>
      : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>"""),
    "rng": ("%a: tensor<f32>, %b: tensor<f32>", "tensor<2x3xf32>", """
  %n = stablehlo.constant dense<[2, 3]> : tensor<2xi64>
  %0 = stablehlo.rng %a, %b, %n, distribution = NORMAL
      : (tensor<f32>, tensor<f32>, tensor<2xi64>) -> tensor<2x3xf32>"""),
    "ids": ("%x: tensor<ui32>", "tensor<ui32>", """
  %p = stablehlo.partition_id : tensor<ui32>
  %r = stablehlo.replica_id : tensor<ui32>
  %0 = stablehlo.add %p, %r : tensor<ui32>"""),
}


def hand_written() -> Iterator[tuple[str, str]]:
    for name, (arguments, result, body) in HAND.items():
        value = "%0#0" if ":2" in body else "%0"
        yield name, (f"func.func public @main({arguments}) -> {result} {{{body}\n  return {value} : {result}\n}}")


def of_chlo() -> Iterator[tuple[str, str]]:
    """Each operation of CHLO that has a meaning in StableHLO."""
    from export_chlo import ONE, TWO

    for kind in ("f32", "bf16", "f64"):
        for name in ONE + TWO:
            count, result = 1 + (name in TWO), "i1" if name.startswith("is_") else kind
            array = f"tensor<4x5x{kind}>"
            arguments = ", ".join(f"%a{i}: {array}" for i in range(count))
            operands, types = ", ".join(f"%a{i}" for i in range(count)), ", ".join([array] * count)
            yield f"chlo.{name}_{kind}", (
                f"func.func public @main({arguments}) -> tensor<4x5x{result}> {{\n"
                f'  %0 = "chlo.{name}"({operands}) : '
                f"({types}) -> tensor<4x5x{result}>\n  return %0 : tensor<4x5x{result}>\n}}")
    for kind in ("f32", "bf16", "i32", "ui8"):
        results = f"tensor<4x3x{kind}>, tensor<4x3xi32>"
        yield f"chlo.top_k_{kind}", (
            f"func.func public @main(%x: tensor<4x10x{kind}>) -> ({results}) {{\n"
            f"  %0:2 = chlo.top_k(%x, k = 3) : tensor<4x10x{kind}> -> ({results})\n  return %0#0, %0#1 : {results}\n}}")


def matrices() -> Iterator[tuple[str, list[str], bool]]:
    """Modules of cases, their groups, and whether they have 64-bit types: what tests/e2e runs on the board."""
    text = (TESTS / "e2e" / "CMakeLists.txt").read_text(encoding="utf-8")
    matrix = r"(?m)^tpu_op_matrix\(\w+ CASES (\w+)\s+GROUPS ([^)]*?)( OPTIONS [^)]*)?\)"
    for module, groups, options in re.findall(matrix, text):
        yield module, groups.split(), "--x64" in options


def of_cases(sample: int, sharded: bool = False) -> Iterator[tuple[str, str]]:
    """Texts of one in `sample` cases, or of those with a mesh; of those with like names, and of those with the same
    operations, one in EVERY."""
    import case_runner

    import jax

    differ = 0
    named: dict[str, int] = {}
    seen: dict[str, int] = {}
    for name, groups, wide in matrices():
        jax.config.update("jax_enable_x64", wide)
        module = importlib.import_module(name)
        for case in (case for group in groups for case in getattr(module, group)()):
            if sharded and not case.mesh:
                continue
            like = f"{name}.{SHAPE_OR_TYPE.sub('', case.name)}"
            named[like] = named.get(like, 0) + 1
            if named[like] % EVERY != 1:  # the export takes longer than all that follows
                continue
            differ += 1
            if differ % sample != 0:
                continue
            text = case.function
            if not isinstance(text, str):
                text = case_runner.export(text, case.inputs, case.mesh, platform=case.platform).mlir_module()
            kind = " ".join(sorted(set(re.findall(r"stablehlo\.(\w+)", text))))
            seen[kind] = seen.get(kind, 0) + 1
            if seen[kind] % EVERY == 1:
                yield f"{name}.{case.name}", text


def forms(text: str) -> Iterator[tuple[str, str, bytes]]:
    """The program in every form that it can be written in, each as group, name and bytes; those of a group must be one
    graph. An old version says some operations by others, so that its artifact is held against what jaxlib reads of
    it."""
    from jax._src.interpreters import mlir
    from jax._src.lib import _jax
    from jax._src.lib.mlir import ir
    from jax._src.lib.mlir.dialects import hlo

    def plain(module: ir.Module, version: int) -> bytes:
        file = io.BytesIO()
        module.operation.write_bytecode(file, version)
        return file.getvalue()

    with mlir.make_ir_context():
        text = str(ir.Module.parse(text))  # without places, which old versions lack
        data = mlir.module_to_bytecode(ir.Module.parse(text))
        newest = hlo.get_current_version()
        for version in (newest, *VERSIONS):
            try:
                artifact = _jax.mlir.serialize_portable_artifact(data, version, True)
            except Exception as error:  # an operation that this version does not have
                assert version != newest, error
                continue
            yield version, version, artifact
            yield version, f"{version}_plain", plain(_jax.mlir.deserialize_portable_artifact(artifact), BYTECODES[-1])
            if version == newest and "chlo." in text:  # an artifact says it by composites
                yield "bytecode", version, artifact
        for version in BYTECODES:
            yield "bytecode", f"bytecode{version}", plain(ir.Module.parse(text), version)


def compare(name: str, text: str, tool: Path, folder: Path, written: dict[str, int]) -> str | None:
    """What differs, or None."""
    groups: dict[str, dict[str, Path]] = {}
    paths: dict[bytes, Path] = {}
    for group, form, data in forms(text):
        if data not in paths:
            paths[data] = folder / f"{re.sub(r'[^0-9A-Za-z_.]', '_', name)}.{form}"
            paths[data].write_bytes(data)
        groups.setdefault(group, {})[form] = paths[data]
        written[form] = written.get(form, 0) + 1
    subprocess.run([str(tool), *map(str, paths.values())], check=True, timeout=60)
    for group in groups.values():
        graphs = {form: Path(f"{path}.txt").read_text(encoding="utf-8") for form, path in group.items()}
        first = next(iter(graphs.values()))
        if first.startswith("error"):
            return first
        for form, graph in graphs.items():
            if graph != first:
                pairs = zip(graph.splitlines(), first.splitlines(), strict=False)
                found = next((f"{ours.strip()!r}, not {theirs.strip()!r}" for ours, theirs in pairs if ours != theirs),
                             "")
                return f"{form}: {found}"
    return None


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", type=Path, required=True)
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="only one in N of the matrices' cases")
    parser.add_argument("--only", default="", help="only programs with this in their names")
    parser.add_argument("--keep", type=Path, help="keep the artifacts and graphs in this folder")
    args = parser.parse_args()
    try:
        import jax  # noqa: F401
    except ImportError:
        print("skipped: jax is not installed")
        return 77
    programs = failed = 0
    written: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in (*hand_written(), *of_chlo(), *of_cases(args.sample)):
            if args.only in name:
                programs += 1
                problem = compare(name, text, args.tool, folder, written)
                if problem:
                    failed += 1
                    print(f"FAILED {name}: {problem}", flush=True)
    counts = ", ".join(f"{form}: {count}" for form, count in written.items() if not form.endswith("plain"))
    print(f"{programs - failed} programs passed, {failed} failed; {counts}")
    few = [form for form in (*VERSIONS, *(f"bytecode{v}" for v in BYTECODES)) if written.get(form, 0) < FEWEST]
    if few and not args.only:
        print(f"fewer than {FEWEST} programs as {', '.join(few)}")
    return 1 if failed or (few and not args.only) else 0


if __name__ == "__main__":
    sys.exit(main())
