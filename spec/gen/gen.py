"""The one generator: spec/*.toml -> C++, C and SystemVerilog in a build folder (--out), manual pages in docs/ (--docs).

Standard library only. `--docs --check` writes nothing and fails when a committed page differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import emit_c
import emit_cpp
import emit_md
import options as option_table
import rtl_units
from parse import Pod, SpecError, check_board, parse_block, parse_format, parse_isa, parse_schema, read_pods

SPEC = Path(__file__).resolve().parent.parent
DOCS = SPEC.parent / "docs"


def pod_text(name: str, pod: Pod) -> str:
    """The board file of a pod that is built in."""
    entry = '{name} = {{ value = {value}, unit = "{unit}", origin = "published", source = "{source}" }}'
    values = [entry.format(name=key, value=value, unit="board" if key.startswith("boards") else "-", source=pod.source)
              for key, value in pod.values.items()]
    return "\n".join([f'include = "{pod.include}"', "", "[board]",
                      f'name = {{ value = "{name}", unit = "-", origin = "chosen", source = "spec/board/pods.toml" }}',
                      "", "[pod]", *values, ""])


def read_boards() -> tuple[list, dict, dict, dict]:
    """Schema keys, checked entries of every board file, pods, and texts of all that is built in, by name."""
    folder = SPEC / "board"
    keys = parse_schema(folder / "schema.toml")
    files = [path for path in sorted(folder.glob("*.toml")) if path.stem not in ("schema", "pods")]
    entries = {path.stem: check_board(path, keys) for path in files}
    pods = read_pods(folder / "pods.toml", entries)
    texts = {path.stem: path.read_text() for path in files} | {name: pod_text(name, pod) for name, pod in pods.items()}
    return keys, entries, pods, texts


def emit_all(out: Path) -> None:
    """Writes everything that is compiled into an empty folder."""
    include = out / "include" / "tpu" / "spec"
    include.mkdir(parents=True, exist_ok=True)
    isa = parse_isa(SPEC / "isa")
    emit_cpp.emit_isa(isa, include)
    emit_c.emit_isa(isa, include)
    blocks = [parse_block(path) for path in sorted((SPEC / "regs").glob("*.toml"))]
    for block in blocks:
        emit_cpp.emit_regs(block, include)
        emit_cpp.emit_block_table(block, include)
        emit_c.emit_regs(block, include)
    formats = {path.stem: parse_format(path) for path in sorted((SPEC / "formats").glob("*.toml"))}
    for fmt in formats.values():
        emit_c.emit_format(fmt, include)
    emit_cpp.emit_register_table(include)
    emit_cpp.emit_registers(blocks, formats["hart_map"], include)
    emit_cpp.emit_ring_names(formats["rings"], include)
    keys, entries, _, texts = read_boards()
    emit_cpp.emit_board(keys, texts, include)
    constants, functions = rtl_units.parse_units(SPEC / "rtl" / "units.toml", entries["v3_8"],
                                                 {block.name: block for block in blocks})
    rtl_units.emit_header(constants, functions, include)
    rtl_units.emit_package(constants, functions, out)
    board_options, client_options = option_table.parse_options(SPEC / "sim" / "options.toml")
    option_table.emit_sim_options(board_options, include)
    option_table.emit_option_table(board_options, client_options, include)


def emit_code(out: Path) -> None:
    """As emit_all, but files that do not change keep their time, so that builds compile only what a change reaches."""
    with tempfile.TemporaryDirectory() as folder:
        emit_all(Path(folder))
        for made in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
            target = out / made.relative_to(folder)
            if not target.exists() or target.read_bytes() != made.read_bytes():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(made.read_bytes())
    (out / "stamp").write_text("")


def with_table(page: Path, kind: str, table: str) -> str:
    """The page with `table` between the markers of its kind."""
    begin, end = f"<!-- {kind} table: begin (generated) -->\n", f"<!-- {kind} table: end -->\n"
    text = page.read_text()
    if begin not in text or end not in text:
        raise SpecError(f"{page}: expected the lines '{begin.strip()}' and '{end.strip()}'")
    head, rest = text.split(begin, 1)
    return head + begin + table + end + rest.split(end, 1)[1]


def pages() -> dict[Path, str]:
    """Committed manual pages and the text that they must hold."""
    blocks = [parse_block(path) for path in sorted((SPEC / "regs").glob("*.toml"))]
    formats = [parse_format(path) for path in sorted((SPEC / "formats").glob("*.toml"))]
    keys, entries, pods, _ = read_boards()
    rows, client = option_table.parse_options(SPEC / "sim" / "options.toml")
    result = {DOCS / "isa.md": emit_md.isa_page(parse_isa(SPEC / "isa")),
              DOCS / "registers.md": emit_md.registers_page(blocks, formats),
              DOCS / "board_numbers.md": emit_md.board_page(keys, entries, pods)}
    tables = {"host_driver.md": ("option", option_table.struct_table(rows)),
              "jax.md": ("variable", option_table.variable_table(rows, client))}
    return result | {DOCS / name: with_table(DOCS / name, kind, table) for name, (kind, table) in tables.items()}


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for generated code")
    parser.add_argument("--docs", action="store_true", help="write the pages in docs/")
    parser.add_argument("--check", action="store_true", help="with --docs: compare only")
    args = parser.parse_args()
    try:
        if args.out:
            emit_code(args.out)
        if args.docs:
            stale = [path for path, text in pages().items() if not path.exists() or path.read_text() != text]
            if args.check and stale:
                names = ", ".join(str(path.relative_to(SPEC.parent)) for path in stale)
                print(f"out of date: {names}; run `python3 spec/gen/gen.py --docs`", file=sys.stderr)
                return 1
            for path in stale if not args.check else []:
                path.write_text(pages()[path])
    except SpecError as error:
        print(f"spec: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
