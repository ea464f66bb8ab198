#!/usr/bin/env python3
"""The table of docs/zoo.md: every model of examples/zoo at full size, exported, compiled and timed without data.

Usage: zoo.py [NAME ...] [--all] [--bin DIR] [--python FILE] [--memory GIB] [--check]
  Measures the models with the given names (or all), and keeps their results in tests/data/zoo.json. Then the table is
  written into docs/zoo.md. With --check nothing is measured or written, and the exit code is 1 when the page has
  another table than the kept results give.
  --python: an interpreter with the packages of examples/zoo/requirements.txt. --memory: limit of the address space of
  tpuc and tpuboard, 24 GiB by default.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "tests/data/zoo.json"
PAGE = ROOT / "docs/zoo.md"
BEGIN, END = "<!-- made by sim_scripts/zoo.py -->\n", "<!-- end -->\n"
CORES = 8
HEAD = ("| program | parameters, M | simulated, ms | MXU, % | HBM, GB a core | compile, s | run, s | host, GB |\n"
        "|---|---:|---:|---:|---:|---:|---:|---:|")


class Failed(Exception):
    """Text of a program that failed."""


def call(command: list[str], memory: int = 0) -> tuple[str, dict[str, float]]:
    """Standard output, and seconds of CPU, seconds of wall-clock time and peak memory of a command."""
    def limit() -> None:
        if memory:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=output, stderr=errors, cwd=ROOT, preexec_fn=limit)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - start
        output.seek(0)
        errors.seek(0)
        if process.returncode != 0:
            raise Failed(f"exit code {process.returncode}: {errors.read().strip() or output.read().strip()}")
        return output.read(), {"cpu_seconds": round(usage.ru_utime + usage.ru_stime, 2),
                               "wall_seconds": round(seconds, 2), "bytes": usage.ru_maxrss * 1024}


def measure(name: str, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Results of one model; `error` where a stage failed."""
    graph, program, values = folder / "model.mlirbc", folder / "model.tpuexe", folder / "run.json"
    memory = args.memory << 30
    result: dict[str, Any] = {}
    try:
        text, _ = call([str(args.python), "-m", "examples.zoo", name, "--out", str(graph)])
        result["parameters"] = int(re.findall(r"(\d+) parameters", text)[0])
        _, result["compile"] = call([str(args.bin / "tpuc"), str(graph), "-o", str(program)], memory)
        result["executable_bytes"] = program.stat().st_size
        _, result["run"] = call([str(args.bin / "tpuboard"), "run", str(program), "--no-data", "--time-limit", "0",
                                 "--json", str(values)], memory)
    except Failed as failed:
        return result | {"error": str(failed).replace(str(graph), name).splitlines()[0].rstrip(":")}
    run = json.loads(values.read_text(encoding="utf-8"))
    moved = sum(run["hbm_read_bytes_per_core"]) + sum(run["hbm_written_bytes_per_core"])
    return result | {"sim_seconds": run["sim_seconds"], "mxu_utilization": run["mxu_utilization"],
                     "hbm_bytes_per_core": moved // CORES}


def table(kept: dict[str, Any]) -> str:
    """The text of the page."""
    rows, errors = [HEAD], []
    for name, result in kept.items():
        count = f"{result['parameters'] / 1e6:,.1f}" if "parameters" in result else ""
        start = f"| `{name}` | {count} |"
        if "error" in result:
            rows.append(f"{start} error | | | | | |")
            errors += textwrap.wrap(f"- `{name}`: `{result['error']}`", 120, subsequent_indent="  ",
                                    break_long_words=False, break_on_hyphens=False)
            continue
        peak = max(result[stage]["bytes"] for stage in ("compile", "run")) / 1e9
        rows.append(f"{start} {result['sim_seconds'] * 1e3:,.2f} | {result['mxu_utilization'] * 100:.1f} | "
                    f"{result['hbm_bytes_per_core'] / 1e9:.2f} | {result['compile']['cpu_seconds']:.1f} | "
                    f"{result['run']['cpu_seconds']:.1f} | {peak:.2f} |")
    if errors:
        rows += ["", "Errors of the programs that do not run at full size:", "", *errors]
    return "\n".join(rows) + "\n"


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--bin", type=Path, default=ROOT / "build/release/bin")
    parser.add_argument("--python", type=Path, default=ROOT / "build/venv/bin/python")
    parser.add_argument("--memory", type=int, default=24)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    page = PAGE.read_text(encoding="utf-8")
    before, found, rest = page.partition(BEGIN)
    if not found or END not in rest:
        sys.exit(f"zoo: {PAGE} has no lines {BEGIN.strip()} and {END.strip()}")
    names = [] if args.check else call([str(args.python), "-m", "examples.zoo", "--list"])[0].split()
    unknown = [name for name in args.names if name not in names]
    if unknown and not args.check:
        parser.error(f"unknown model {unknown[0]}: expected one of {', '.join(names)}")
    with tempfile.TemporaryDirectory() as folder:
        for name in names if args.all else args.names:
            kept[name] = measure(name, args, Path(folder))
            print(name, json.dumps(kept[name]), flush=True)
    if not args.check:
        kept = {name: kept[name] for name in names if name in kept}
    made = before + BEGIN + table(kept) + END + rest.partition(END)[2]
    if args.check:
        print("zoo: the table is up to date" if made == page else
              "zoo: docs/zoo.md has another table than tests/data/zoo.json gives: run sim_scripts/zoo.py")
        return 0 if made == page else 1
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
