"""Table of the MNIST convnet's training step by global batch, 8 to 1,024 images a board: simulated time, use of the
matrix units, images a second. Timing only (--no-data); shows why users of the real board are told "8 a core acceptable,
128 a core best".

Usage: batch_table.py --bin DIR --python FILE [--batches 8,16,...] [--board v3_8] [--tpuc OPTION ...]
`--python`: an interpreter with the packages of tests/requirements.txt.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CORES = 8


def measure(args: argparse.Namespace, batch: int, folder: Path) -> dict:
    """Figures of one launch."""
    graph, program, figures = folder / "step.mlirbc", folder / "step.tpuexe", folder / "run.json"
    subprocess.run([str(args.python), str(HERE / "references.py"), "export-convnet", str(batch), str(graph)],
                   check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run([str(args.bin / "tpuc"), str(graph), "-o", str(program), "--board", args.board, *args.tpuc],
                   check=True)
    subprocess.run([str(args.bin / "tpuboard"), "run", str(program), "--board", args.board, "--no-data", "--json",
                    str(figures)], check=True, stdout=subprocess.DEVNULL)
    return json.loads(figures.read_text(encoding="utf-8"))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--batches", default="8,16,32,64,128,200,256,512,1024", help="images a board")
    parser.add_argument("--board", default="v3_8")
    parser.add_argument("--tpuc", nargs="*", default=[], help="more options of tpuc")
    args = parser.parse_args()
    print("| batch a board | a core | step, ms | images/s | MXU % |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for batch in map(int, args.batches.split(",")):
            run = measure(args, batch, Path(folder))
            seconds = run["sim_seconds"]
            print(f"| {batch} | {batch // CORES} | {seconds * 1e3:.2f} | {batch / seconds:,.0f} | "
                  f"{run['mxu_utilization'] * 100:.1f} |", flush=True)


if __name__ == "__main__":
    main()
