"""Simulated step times against those of boards that existed: one command for all networks of the set.

Exports each graph, compiles it for its board, runs it without data and prints the measured time, the simulated one, the
error, and where the step's time goes by class of operation, beside the measured split where there is one. What is
measured: docs/timing_truth.md; the points of ParaDnn: truth_points.json, which truth_traces.py derives from published
traces. Networks of which no step on one board is known are simulated only, and compared with nothing.

Exports, executables and reports lie in --out and are made again only where a program or a graph has changed, so an
interrupted run goes on. With --set section.key=value a number of all boards is another one. Needs
tests/requirements.txt.
Usage: truth.py --bin BUILD/bin [--only GLOB].. [--style xla2019|best].. [--all] [--json FILE] [--markdown FILE]
       truth.py --bin BUILD/bin --sensitivity [--only GLOB]..
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
BOARDS = HERE.parent / "spec/board"
# (layers, nodes, batch): small and large, deep and wide, bound by weights and by arithmetic.
NAMED = [(32, 1024, 1024), (128, 1024, 16384), (8, 2048, 2048), (16, 2048, 16384), (32, 2048, 512), (4, 4096, 16384),
         (8, 4096, 1024), (32, 4096, 16384), (4, 8192, 16384), (128, 2048, 512), (8, 8192, 16384)]
# By nodes, the layers whose batches make the table of MXU use by rows a core.
BY_ROWS = {1024: 64, 2048: 16, 8192: 4}
CLASSES = ("matmul", "elementwise", "collective", "data formatting", "other", "idle")
PEAK = {"v2_8": 22.9376e12, "v3_8": 61.6038e12}  # of a core, from spec/board
STEP = 0.1  # of --sensitivity
BEGIN, END = "<!-- truth: begin (generated) -->", "<!-- truth: end -->"


@dataclass
class Case:
    """A network on a board."""

    name: str
    board: str
    export: list[str]
    measured_ms: float | None  # None: nobody published a step on this board
    source: str  # of the time, or what is known in its place
    logged_ms: float | None = None  # with what the host adds
    split_ms: dict[str, float] = field(default_factory=dict)
    options: tuple[str, ...] = ()  # of tpuc
    parameters: int = 0
    point: dict = field(default_factory=dict)


def published_cases() -> list[Case]:
    """Networks of which a step's time was published, or that are simulated beside them."""
    mlperf = "MLPerf v0.5"
    on_32 = "149.6 ms on v3-32 (MLPerf v0.6): as much work a core, 32 cores"
    transformer = ["transformer.py", "--batch", "16"]
    resnet, ssd = ["resnet50.py", "--batch", "128", "--recipe", "flax"], ["ssd.py", "--batch", "128"]
    return [
        Case("resnet50-v3_8", "v3_8", resnet, 137.3, mlperf),
        Case("resnet50-v2_8", "v2_8", resnet, 228.9, mlperf),
        Case("flax-imagenet-v3_8", "v3_8", resnet, 126.6, "flax's README, 2021"),
        Case("ssd-resnet34-v3_8", "v3_8", ssd, 453.0, mlperf),
        Case("ssd-resnet34-v2_8", "v2_8", ssd, 785.0, mlperf),
        Case("transformer-v3_8", "v3_8", transformer, None, on_32),
        Case("transformer-sharded-v3_8", "v3_8", transformer, None, on_32, options=("--update-sharding=on",)),
        Case("bert-base-v3_8", "v3_8", ["bert.py", "--batch", "32"], None, "no time of BERT-base"),
    ]


def paradnn_case(point: dict) -> Case:
    """A point of truth_points.json; its classes under our names."""
    times = point["classes_ms"]
    split = {"matmul": times["matmul"], "elementwise": times["loop fusion"] + times["lone elementwise"],
             "collective": times["all-reduce"], "data formatting": times.get("data formatting", 0.0)}
    sizes = {key: point[key] for key in ("layers", "nodes", "batch")}
    export = ["paradnn.py", *(text for key, n in sizes.items() for text in (f"--{key}", str(n)))]
    return Case(f"paradnn-L{sizes['layers']}-N{sizes['nodes']}-B{sizes['batch']}", "v2_8", export, point["device_ms"],
                "trace", point["logged_ms"], split, parameters=point["parameters"], point=point)


def is_named(point: dict) -> bool:
    """In the set without --all."""
    return (point["layers"], point["nodes"], point["batch"]) in NAMED


def is_by_rows(point: dict) -> bool:
    """In the table of MXU use."""
    return BY_ROWS.get(point["nodes"]) == point["layers"]


def cases(everything: bool) -> list[Case]:
    """The set, the short ones first."""
    points = json.loads((HERE / "truth_points.json").read_text(encoding="utf-8"))
    chosen = [paradnn_case(p) for p in points if everything or is_named(p) or is_by_rows(p)]
    chosen.sort(key=lambda case: case.measured_ms)
    return [*chosen, *published_cases()]


class Refused(Exception):
    """A tool does not take a network or a number of a board."""


class Bench:
    """Runs cases; results of the same programs and graphs are taken from the folder."""

    def __init__(self, tools: Path, out: Path, overrides: tuple[str, ...]) -> None:
        """Both programs must be there."""
        self.tools, self.out, self.overrides = tools, out, overrides
        for name in ("tpuc", "tpuboard"):
            if not (tools / name).is_file():
                raise SystemExit(f"truth.py: --bin {tools}: there is no {name}")
        out.mkdir(parents=True, exist_ok=True)
        programs = b"".join((tools / name).read_bytes() for name in ("tpuc", "tpuboard"))
        self.programs = hashlib.sha256(programs).hexdigest()

    def exported(self, case: Case) -> Path:
        """The graph."""
        path = self.out / ("-".join([Path(case.export[0]).stem, *case.export[2::2]]) + ".mlirbc")
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=self.out) as folder:  # another process may do the same
                new = Path(folder) / path.name
                subprocess.run([sys.executable, HERE / case.export[0], *case.export[1:], "--out", new], check=True,
                               stdout=subprocess.DEVNULL)
                new.rename(path)
        return path

    def call(self, tool: str, *arguments: str | Path) -> None:
        """Its error text in a Refused."""
        done = subprocess.run([self.tools / tool, *arguments], check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise Refused(done.stderr.strip())

    def report(self, case: Case, style: str, changes: tuple[str, ...] = ()) -> dict:
        """The report of a step."""
        overrides = (*self.overrides, *changes)
        graph = self.exported(case)
        key = hashlib.sha256("|".join([self.programs, case.board, style, *case.options, *overrides]).encode() +
                             graph.read_bytes()).hexdigest()[:20]
        kept = self.out / f"{graph.stem}.{case.board}.{style}.{key}.json"
        if not kept.exists():
            board = ["--board", case.board, *(text for change in overrides for text in ("--set", change))]
            with tempfile.TemporaryDirectory(dir=self.out) as folder:
                executable, new = Path(folder) / f"{key}.tpuexe", Path(folder) / kept.name
                self.call("tpuc", graph, *board, "--style", style, *case.options, "-o", executable)
                self.call("tpuboard", "report", executable, *board, "--changes", "0", "--json", new)
                new.write_text(json.dumps(summary(json.loads(new.read_text(encoding="utf-8")))), encoding="utf-8")
                new.rename(kept)
        return json.loads(kept.read_text(encoding="utf-8"))


def summary(report: dict) -> dict:
    """What is kept of a report."""
    ms = 1e3 * report["seconds"] / report["cycles"]
    by_class: dict[str, dict] = {}
    for op in report["ops"]:
        entry = by_class.setdefault(op["class"], {"flops": 0.0, "hbm_bytes": 0.0})
        entry["flops"] += op["flops"]
        entry["hbm_bytes"] += op["hbm_read_bytes"] + op["hbm_written_bytes"]
    return {"ms": report["seconds"] * 1e3, "work": by_class,
            "classes_ms": {name: each["cycles"] * ms for name, each in report["classes"].items()}}


def error(simulated: float, measured: float) -> float:
    """In percent."""
    return 100 * (simulated / measured - 1)


def pause_rate(case: Case, points: list[dict]) -> float:
    """Milliseconds between the steps, a million parameters: median of the networks with other widths."""
    others = [p["pause_ms"] / p["parameters"] * 1e6 for p in points if p["nodes"] != case.point["nodes"]]
    return statistics.median(others)


def row_of(case: Case, style: str, got: dict, points: list[dict]) -> dict:
    """One line of the results."""
    row = {"name": case.name, "board": case.board, "style": style, "source": case.source,
           "measured_ms": case.measured_ms, "simulated_ms": got["ms"], "split_ms": got["classes_ms"],
           "measured_split_ms": case.split_ms}
    if case.measured_ms is not None:
        row["error"] = error(got["ms"], case.measured_ms)
    if case.point:
        pause = pause_rate(case, points) * case.parameters / 1e6
        matmul = got["classes_ms"]["matmul"] / 1e3
        row |= {"logged_ms": case.logged_ms, "error_logged": error(got["ms"], case.logged_ms),
                "pause_ms": pause, "error_with_pause": error(got["ms"] + pause, case.logged_ms),
                "mxu": got["work"]["matmul"]["flops"] / (matmul * PEAK[case.board]), "measured_mxu": case.point["mxu"],
                "parameters": case.parameters, "nodes": case.point["nodes"], "layers": case.point["layers"],
                "rows": case.point["batch"] // 8, "named": is_named(case.point), "by_rows": is_by_rows(case.point),
                "bytes": {name: each["hbm_bytes"] / case.parameters for name, each in got["work"].items()},
                "measured_bytes": case.point["bytes"]}
    return row


def table(head: list[str], rows: list[list[str]]) -> str:
    """As Markdown."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows])


def steps_table(rows: list[dict]) -> str:
    """Measured and simulated steps, and the mean of the errors by style."""
    lines = []
    for r in [r for r in rows if "error" in r]:
        logged = [f"{r['logged_ms']:.2f}", f"{r['error_with_pause']:+.1f}"] if "logged_ms" in r else ["", ""]
        lines.append([r["name"], r["board"], r["source"], r["style"], f"{r['measured_ms']:.2f}",
                      f"{r['simulated_ms']:.2f}", f"{r['error']:+.1f}", *logged])
    text = table(["network", "board", "source", "style", "measured, ms", "simulated, ms", "error, %", "logged, ms",
                  "error with pause, %"], lines)
    for style in sorted({r["style"] for r in rows}):
        for what, key in (("measured", "error"), ("logged, without pause", "error_logged"),
                          ("logged, with pause", "error_with_pause")):
            errors = [abs(r[key]) for r in rows if r["style"] == style and key in r and "logged_ms" in r]
            if errors:
                text += (f"\n\nParaDnn, {style}, against the {what} time: mean absolute error "
                         f"{statistics.mean(errors):.1f} %, largest {max(errors):.1f} % ({len(errors)} networks).")
    return text


def unmeasured_table(rows: list[dict]) -> str:
    """Steps that nobody published for this board."""
    lines = [[r["name"], r["board"], r["style"], f"{r['simulated_ms']:.2f}", r["source"]]
             for r in rows if "error" not in r]
    return table(["network", "board", "style", "simulated, ms", "known"], lines)


def split_table(rows: list[dict]) -> str:
    """Milliseconds a class: simulated, and measured in brackets."""
    lines = []
    for r in rows:
        cells = [f"{r['split_ms'].get(c, 0):.2f}" +
                 (f" ({r['measured_split_ms'][c]:.2f})" if c in r["measured_split_ms"] else "") for c in CLASSES]
        lines.append([r["name"], r["style"], *cells])
    return table(["network", "style", *CLASSES], lines)


def rate_table(rows: list[dict]) -> str:
    """What the classes cost a parameter."""
    lines = []
    for r in rows:
        if "parameters" in r:
            sim, real, p = r["split_ms"], r["measured_split_ms"], r["parameters"] / 1e6
            reduce = error(sim["collective"], real["collective"])
            lines.append([r["name"], r["style"], f"{p:.1f}",
                          f"{sim['collective'] / p:.4f} ({real['collective'] / p:.4f})",
                          f"{reduce:+.1f}", f"{r['bytes']['elementwise']:.1f} (40.0)",
                          f"{r['bytes']['matmul']:.1f} ({r['measured_bytes']['matmul']:.1f})",
                          f"{error(sim['elementwise'], real['elementwise']):+.1f}",
                          f"{error(sim['matmul'], real['matmul']):+.1f}"])
    note = "M: million parameters. B/p: bytes a parameter. The last two columns are errors of the time.\n\n"
    return note + table(["network", "style", "M", "all-reduce, ms/M", "error, %", "elementwise, B/p", "matmul, B/p",
                         "elementwise, %", "matmul, %"], lines)


def mxu_table(rows: list[dict]) -> str:
    """Use of the matrix units by rows a core: simulated, and measured in brackets."""
    found = {(r["nodes"], r["rows"]): r for r in rows if r.get("by_rows") and r["style"] == "xla2019"}
    counts = sorted({count for _, count in found})
    lines = []
    for nodes in sorted({n for n, _ in found}):
        cells = [found.get((nodes, count)) for count in counts]
        uses = [f"{100 * r['mxu']:.0f} ({100 * r['measured_mxu']:.0f})" if r else "" for r in cells]
        lines.append([str(nodes), *uses])
    return table(["nodes", *(f"{count} rows" for count in counts)], lines)


def show(rows: list[dict], everything: bool) -> str:
    """All tables."""
    listed = [r for r in rows if everything or r.get("named", True)]
    parts = [("Steps", steps_table(listed)), ("Steps without a measurement", unmeasured_table(listed)),
             ("Milliseconds by class, measured in brackets", split_table(listed)),
             ("Rates by class, measured in brackets", rate_table(listed)),
             ("MXU use in % by rows a core, style xla2019, measured in brackets", mxu_table(rows))]
    return "\n\n".join(f"### {title}\n\n{text}" for title, text in parts) + "\n"


def write_markdown(path: Path, text: str) -> None:
    """In place of what stands between the marks of a page, or as a file of its own."""
    page = path.read_text(encoding="utf-8") if path.exists() else ""
    if BEGIN in page and END in page:
        text = page[:page.index(BEGIN)] + f"{BEGIN}\n{text}" + page[page.index(END):]
    path.write_text(text, encoding="utf-8")


def changed_numbers(board: str) -> list[tuple[str, int, int]]:
    """Every number of the board that 10 % can change: key, its value less and more them."""
    numbers = []
    for section, entries in tomllib.loads((BOARDS / f"{board}.toml").read_text(encoding="utf-8")).items():
        for key, entry in entries.items() if isinstance(entries, dict) else []:
            value = entry.get("value") if isinstance(entry, dict) else entry
            if isinstance(value, int) and value >= 1 and section not in ("board", "mgmt", "host", "pcie"):
                less, more = (max(1, round(value * (1 + sign * STEP))) for sign in (-1, 1))
                if less != more:
                    numbers.append((f"{section}.{key}", less, more))
    return numbers


def sensitivity(bench: Bench, chosen: list[Case]) -> str:
    """The ten numbers that move the steps most when 10 % smaller or larger; what the board refuses is left out."""
    effects: dict[str, dict[str, tuple[float, float]]] = {}
    for case in chosen:
        base = bench.report(case, "xla2019")["ms"]
        for key, less, more in changed_numbers(case.board):
            try:
                low, high = (bench.report(case, "xla2019", (f"{key}={value}",))["ms"] for value in (less, more))
            except Refused:
                continue
            effects.setdefault(key, {})[case.name] = (error(low, base), error(high, base))
    weight = {key: max(max(map(abs, pair)) for pair in found.values()) for key, found in effects.items()}
    names = [case.name for case in chosen]
    lines = [[f"`{key}`", *("{:+.1f} / {:+.1f}".format(*effects[key][n]) if n in effects[key] else "" for n in names)]
             for key in sorted(weight, key=lambda k: -weight[k])[:10]]
    return table(["number, -10 % / +10 %", *names], lines)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True, help="folder of tpuc and tpuboard")
    parser.add_argument("--out", type=Path, default=HERE.parent / "out/truth")
    parser.add_argument("--only", action="append", default=[], metavar="GLOB", help="names of networks")
    parser.add_argument("--style", action="append", choices=["xla2019", "best"], default=[])
    parser.add_argument("--all", action="store_true", help="every point of truth_points.json")
    parser.add_argument("--set", action="append", default=[], metavar="section.key=value", dest="overrides")
    parser.add_argument("--sensitivity", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path, help="a page with the marks of docs/timing_truth.md, or a new file")
    args = parser.parse_args()
    chosen = [c for c in cases(args.all) if not args.only or any(fnmatch.fnmatch(c.name, g) for g in args.only)]
    if not chosen:
        raise SystemExit(f"truth.py: no network has a name like {', '.join(args.only)}")
    bench = Bench(args.bin, args.out, tuple(args.overrides))
    if args.sensitivity:
        print(sensitivity(bench, chosen))
        return
    points = json.loads((HERE / "truth_points.json").read_text(encoding="utf-8"))
    rows = []
    for case in chosen:
        for style in args.style or ["xla2019"]:
            try:
                row = row_of(case, style, bench.report(case, style), points)
            except Refused as error:
                raise SystemExit(f"truth.py: {case.name}: {error}") from None
            rows.append(row)
            compared = (f"measured {row['measured_ms']:8.2f} ms  {row['error']:+6.1f} %" if "error" in row
                        else row["source"])
            print(f"{case.name:32} {style:8} simulated {row['simulated_ms']:8.2f} ms  {compared}", file=sys.stderr,
                  flush=True)
    text = show(rows, args.all or bool(args.only))
    print(text)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    if args.markdown:
        write_markdown(args.markdown, text)


if __name__ == "__main__":
    main()
