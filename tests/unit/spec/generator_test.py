"""Unit tests of spec/gen: what it refuses, how it lays structs out, that it is deterministic."""

from __future__ import annotations

import re
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent.parent
sys.path.insert(0, str(ROOT / "spec" / "gen"))

import emit_md  # noqa: E402
import gen  # noqa: E402
import parse  # noqa: E402
import rtl_units  # noqa: E402

BLOCK = """
[block]
name = "unit"
desc = "A block."
size = 0x100
[[reg]]
name = "CTRL"
offset = 0x00
access = "rw"
desc = "Control."
[[reg.field]]
name = "START"
bits = [0, 0]
desc = "Go."
"""


class ParseBlock(unittest.TestCase):
    """Register files."""

    def parse(self, text: str) -> parse.Block:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "unit.toml"
            path.write_text(text)
            return parse.parse_block(path)

    def test_reads_registers_and_fields(self) -> None:
        block = self.parse(BLOCK)
        self.assertEqual([r.name for r in block.regs], ["CTRL"])
        self.assertEqual((block.regs[0].fields[0].hi, block.regs[0].fields[0].lo), (0, 0))

    def test_refuses_overlapping_registers(self) -> None:
        again = BLOCK + '[[reg]]\nname = "OTHER"\noffset = 0\naccess = "ro"\ndesc = "x"\n'
        with self.assertRaisesRegex(parse.SpecError, "OTHER: overlaps CTRL"):
            self.parse(again)

    def test_refuses_overlapping_fields(self) -> None:
        with self.assertRaisesRegex(parse.SpecError, "STOP overlaps"):
            self.parse(BLOCK + '[[reg.field]]\nname = "STOP"\nbits = [1, 0]\ndesc = "x"\n')

    def test_mask_is_that_of_the_writable_fields(self) -> None:
        block = self.parse(BLOCK + '[[reg.field]]\nname = "NOW"\nbits = [9, 8]\naccess = "w1s"\ndesc = "x"\n')
        self.assertEqual(block.regs[0].mask, 1)

    def test_refuses_behaviour_that_contradicts_the_access(self) -> None:
        for access, line, text in (("ro", 'handlers = ["write"]', "handler for writes, but is ro"),
                                   ("wo", 'handlers = ["value", "write"]', "handler for reads, but is wo"),
                                   ("wo", "", "needs the handler `write`"),
                                   ("rw", 'handlers = ["value"]', "needs the handler `write`"),
                                   ("rw", 'handlers = ["look"]', "handlers must be some of"),
                                   ("rw", 'untimed = ["both"]', "untimed must be some of"),
                                   ("ro", 'untimed = ["write"]', "a direction that the register has not"),
                                   ("rw", "constant = true", "a constant register is ro"),
                                   ("ro", "mask = 1", "a mask for writes, but is ro"),
                                   ("ro", 'handlers = ["value"]\nreset = 1', "no reset value")):
            with self.subTest(access=access, line=line), self.assertRaisesRegex(parse.SpecError, text):
                self.parse(BLOCK.replace('access = "rw"', f'access = "{access}"\n{line}'))

    def test_refuses_register_outside_block(self) -> None:
        with self.assertRaisesRegex(parse.SpecError, "outside"):
            self.parse(BLOCK + '[[reg]]\nname = "FAR"\noffset = 0x100\naccess = "ro"\ndesc = "x"\n')

    def test_refuses_unknown_key_and_missing_description(self) -> None:
        with self.assertRaisesRegex(parse.SpecError, "unknown key"):
            self.parse(BLOCK.replace('access = "rw"', 'access = "rw"\ncolour = "red"'))
        with self.assertRaisesRegex(parse.SpecError, "missing key"):
            self.parse(BLOCK.replace('desc = "Control."', ""))


UNITS = """
[unit.constant]
ROWS = { board = "mxu.rows", desc = "rows" }
LIMIT = { register = "ctl.LIMIT", desc = "limit" }
DEPTH = { value = 4, desc = "depth" }
[unit.function.latency]
args = ["rows", "skew"]
expr = "(rows / 32 - 1) * skew"
desc = "latency"
"""


class ParseUnits(unittest.TestCase):
    """Constants and formulas of the RTL."""

    def parse(self, text: str) -> tuple[list[rtl_units.Constant], list[rtl_units.Function]]:
        block = parse.Block("ctl", "d", 4096, [], {"LIMIT": (15, "d")})
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "units.toml"
            path.write_text(text)
            return rtl_units.parse_units(path, {"mxu.rows": {"value": 128}}, {"ctl": block})

    def test_both_languages_say_the_same(self) -> None:
        constants, functions = self.parse(UNITS)
        self.assertEqual([(c.name, c.value) for c in constants], [("ROWS", 128), ("LIMIT", 15), ("DEPTH", 4)])
        with tempfile.TemporaryDirectory() as folder:
            rtl_units.emit_package(constants, functions, Path(folder))
            rtl_units.emit_header(constants, functions, Path(folder))
            package = (Path(folder) / "tpu_spec_pkg.sv").read_text()
            header = (Path(folder) / "rtl_units.hpp").read_text()
        for text in (package, header):
            self.assertIn("return (rows / 32 - 1) * skew;", text)
        self.assertIn("localparam int unsigned UNIT_ROWS = 128;", package)
        self.assertIn("kUnitRows = 128;", header)

    def test_refuses_what_the_languages_would_read_differently(self) -> None:
        for expr, text in (("rows ** skew", "Pow"), ("rows + skew / 2.0", "not a whole number"),
                           ("max(rows, skew)", "Call"), ("rows + cols + skew", "uses cols"), ("rows", "does not use"),
                           ("rows +", "expr: ")):
            with self.subTest(expr=expr), self.assertRaisesRegex(parse.SpecError, text):
                self.parse(UNITS.replace("(rows / 32 - 1) * skew", expr))

    def test_refuses_unknown_sources(self) -> None:
        for line, text in (('{ board = "mxu.depth", desc = "d" }', "no board number"),
                           ('{ register = "ctl.SIZE", desc = "d" }', "no value"),
                           ('{ desc = "d" }', "needs one of"),
                           ('{ value = 1, board = "mxu.rows", desc = "d" }', "needs one of"),
                           ('{ value = -1, desc = "d" }', "31 bits")):
            with self.subTest(line=line), self.assertRaisesRegex(parse.SpecError, text):
                self.parse(UNITS.replace('{ value = 4, desc = "depth" }', line))


class Layout(unittest.TestCase):
    """Struct layout."""

    def test_natural_alignment(self) -> None:
        struct = parse.Struct("s", "d", [parse.Field("a", "u32", 1, ""), parse.Field("b", "u16", 2, "")])
        parse.layout(struct, {}, "here")
        self.assertEqual([f.offset for f in struct.fields], [0, 4])
        self.assertEqual(struct.size, 8)

    def test_refuses_hidden_padding(self) -> None:
        struct = parse.Struct("s", "d", [parse.Field("a", "u8", 1, ""), parse.Field("b", "u32", 1, "")])
        with self.assertRaisesRegex(parse.SpecError, "misaligned"):
            parse.layout(struct, {}, "here")


class Flags(unittest.TestCase):
    """Names of flag bits."""

    FIELDS = [parse.Field("flags", "u8", 1, "")]

    def test_bits_follow_the_order(self) -> None:
        flags = parse.parse_flags([{"name": "a", "desc": "x"}, {"name": "b", "desc": "y"}], self.FIELDS, "here")
        self.assertEqual([(f.name, f.bit) for f in flags], [("a", 0), ("b", 1)])

    def test_refuses_taken_names_and_more_than_a_byte(self) -> None:
        with self.assertRaisesRegex(parse.SpecError, "another member"):
            parse.parse_flags([{"name": "flags", "desc": "x"}], self.FIELDS, "here")
        with self.assertRaisesRegex(parse.SpecError, "more than 8"):
            parse.parse_flags([{"name": f"f{i}", "desc": "x"} for i in range(9)], self.FIELDS, "here")


class Boards(unittest.TestCase):
    """Board files."""

    def check(self, old: str, new: str) -> None:
        keys = parse.parse_schema(ROOT / "spec" / "board" / "schema.toml")
        text = (ROOT / "spec" / "board" / "v3_8.toml").read_text()
        self.assertIn(old, text)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "b.toml"
            path.write_text(text.replace(old, new, 1))
            parse.check_board(path, keys)

    def test_refuses_wrong_unit_range_and_unknown_key(self) -> None:
        with self.assertRaisesRegex(parse.SpecError, "unit must be MHz"):
            self.check('unit = "MHz"', 'unit = "GHz"')
        with self.assertRaisesRegex(parse.SpecError, "value must be in"):
            self.check("value = 940", "value = 0")
        with self.assertRaisesRegex(parse.SpecError, "unknown"):
            self.check("clock_mhz", "clock_ghz")

    def test_refuses_measurements_of_another_generation_as_published(self) -> None:
        with self.assertRaisesRegex(parse.SpecError, "must be measured_v4"):
            self.check('origin = "measured_v4"', 'origin = "published"')

    def test_every_key_is_read_by_code(self) -> None:
        folders = ("spec", "tlm_model", "compiler", "host_driver", "cli")
        text = "".join(path.read_text(encoding="utf-8") for folder in folders
                       for path in sorted((ROOT / folder).rglob("*.[ch]pp")))
        read = set(re.findall(r"(?=\b(\w+\.\w+)\b)", text))
        keys = [f"{key.section}.{key.name}" for key in parse.parse_schema(ROOT / "spec" / "board" / "schema.toml")]
        self.assertEqual([key for key in keys if key not in read], [])


class Generator(unittest.TestCase):
    """The whole output."""

    def test_two_runs_give_the_same_files(self) -> None:
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            gen.emit_code(Path(first))
            gen.emit_code(Path(second))
            names = sorted(p.relative_to(first) for p in Path(first).rglob("*") if p.is_file())
            self.assertGreater(len(names), 4)
            for name in names:
                self.assertEqual((Path(first) / name).read_bytes(), (Path(second) / name).read_bytes(), name)


class Incremental(unittest.TestCase):
    """What a second run touches."""

    def test_unchanged_files_keep_their_time(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            gen.emit_code(Path(folder))
            isa = Path(folder) / "include" / "tpu" / "spec" / "isa.hpp"
            board = isa.with_name("board_params.hpp")
            before = isa.stat().st_mtime_ns
            board.write_text("stale")
            gen.emit_code(Path(folder))
            self.assertEqual(isa.stat().st_mtime_ns, before)
            self.assertNotEqual(board.read_text(), "stale")


class Pages(unittest.TestCase):
    """Manual pages."""

    def test_long_texts_are_notes_below_a_table(self) -> None:
        long = "word " * 20 + "12345 + `a code span` end"
        lines = emit_md.table("| name | text |", [("`A`", "`A`", "short | text"), ("`B`", "`B`", long)])
        note = ["- `B`: " + "word " * 20 + "12345 +", "  `a code span` end"]
        self.assertEqual(lines, ["| name | text |", "|---|---|", "| `A` | short \\| text |",
                                 "| `B` | (note below) |", "", *note, ""])
        for page, text in gen.pages().items():
            wide = [line for line in text.splitlines() if len(line) > emit_md.COLUMNS]
            self.assertEqual(wide, [], page)

    def test_neighbors_with_one_text_share_an_item(self) -> None:
        text = next(text for page, text in gen.pages().items() if page.name == "isa.md")
        self.assertIn("- `add_i`, `sub_i`, `and`, `or`, ", text)


if __name__ == "__main__":
    unittest.main()
