"""Simulated step times on pods of TPU v3 against those of MLPerf training logs and papers.

Exports ResNet-50, Transformer (big) and BERT-large for pods from v3_32 to v3_2048, with the same work a core,
compiles them, and runs a step folded (docs/pods.md): one board is simulated for all. Prints the simulated times, the
measured ones where there are any, and the errors. docs/timing_truth_pods.md says what is measured.

Exports and results lie in --out and are made again only where a program or a graph has changed. Needs
tests/requirements.txt.
Usage: truth_pods.py --bin BUILD/bin [--only GLOB].. [--style best|xla2019].. [--exact] [--json FILE] [--markdown FILE]
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import truth

CORES = (32, 128, 512, 2048)
BERT_LARGE = ["--layers", "24", "--features", "1024", "--heads", "16", "--inside", "4096", "--length", "512"]


@dataclass(frozen=True)
class Network:
    """What each core does in a step, and how long steps of real pods took: ms and source by number of cores."""

    name: str
    export: tuple[str, ...]
    measured: dict[int, tuple[float, str]]
    cores: tuple[int, ...] = CORES


NETWORKS = [
    Network("ResNet-50, 128 images", ("resnet50.py", "--batch", "128", "--recipe", "flax"),
            {32: (125.7, "MLPerf v0.7 log, LARS")}),
    Network("ResNet-50, 16 images", ("resnet50.py", "--batch", "16", "--recipe", "flax"),
            {2048: (31.0, "Ying et al. 2018")}),
    Network("Transformer (big), 16 rows", ("transformer.py", "--batch", "16"), {32: (149.6, "MLPerf v0.6 log")}),
    Network("BERT-large, 14 sequences", ("bert.py", "--batch", "14", *BERT_LARGE),
            {32: (460.5, "MLPerf v0.7 log, LAMB")}),
]


def step_ms(bench: truth.Bench, network: Network, cores: int, style: str, exact: bool) -> float:
    """Simulated milliseconds of a step; exact: every board is simulated."""
    case = truth.Case(network.name, f"v3_{cores}", [*network.export, "--cores", str(cores)], None, "")
    graph = bench.exported(case)
    key = hashlib.sha256("|".join([bench.programs, case.board, style, str(exact)]).encode() +
                         graph.read_bytes()).hexdigest()[:20]
    kept = bench.out / f"{graph.stem}.{key}.json"
    if not kept.exists():
        with tempfile.TemporaryDirectory(dir=bench.out) as folder:
            executable, new = Path(folder) / f"{key}.tpuexe", Path(folder) / kept.name
            bench.call("tpuc", graph, "--board", case.board, "--style", style, "-o", executable)
            bench.call("tpuboard", "run", executable, "--board", case.board, "--time-limit", "0", "--json", new,
                       "--no-data" if exact else "--folded")
            new.rename(kept)
    return 1e3 * json.loads(kept.read_text(encoding="utf-8"))["sim_seconds"]


def table(rows: list[dict]) -> str:
    """As Markdown: a line for each network and style, a column for each pod."""
    lines = []
    for key in dict.fromkeys((r["name"], r["style"]) for r in rows):
        found = {r["cores"]: r for r in rows if (r["name"], r["style"]) == key}
        lines.append([*key, *(f"{found[n]['ms']:.1f}" if n in found else "" for n in CORES)])
    return truth.table(["work a core", "style", *(f"v3_{n}" for n in CORES)], lines)


def errors(rows: list[dict]) -> str:
    """As Markdown: where a real step was measured."""
    lines = [[r["name"], f"v3_{r['cores']}", r["source"], r["style"], f"{r['measured']:.1f}", f"{r['ms']:.1f}",
              f"{truth.error(r['ms'], r['measured']):+.1f}"] for r in rows if "measured" in r]
    return truth.table(["work a core", "pod", "source", "style", "measured, ms", "simulated, ms", "error, %"], lines)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True, help="folder of tpuc and tpuboard")
    parser.add_argument("--out", type=Path, default=truth.HERE.parent / "out/truth")
    parser.add_argument("--only", action="append", default=[], metavar="GLOB", help="'NETWORK v3_32'")
    parser.add_argument("--style", action="append", choices=["xla2019", "best"], default=[])
    parser.add_argument("--exact", action="store_true", help="simulate all boards")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path, help="page with the marks of docs/timing_truth_pods.md")
    args = parser.parse_args()
    bench = truth.Bench(args.bin, args.out, ())
    rows = []
    for style in args.style or ["best"]:
        for network in NETWORKS:
            for cores in network.cores:
                name = f"{network.name} v3_{cores}"
                if args.only and not any(fnmatch.fnmatch(name, pattern) for pattern in args.only):
                    continue
                try:
                    row = {"name": network.name, "cores": cores, "style": style,
                           "ms": step_ms(bench, network, cores, style, args.exact)}
                except truth.Refused as error:
                    raise SystemExit(f"truth_pods.py: {name}: {error}") from None
                if cores in network.measured:
                    row["measured"], row["source"] = network.measured[cores]
                print(f"{name:40} {style:8} {row['ms']:8.2f} ms", file=sys.stderr, flush=True)
                rows.append(row)
    if not rows:
        raise SystemExit(f"truth_pods.py: no network and pod has a name like {', '.join(args.only)}")
    text = f"{table(rows)}\n\n{errors(rows)}\n"
    print(text)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    if args.markdown:
        truth.write_markdown(args.markdown, text)


if __name__ == "__main__":
    main()
