"""sim_scripts/demo on two steps of the perceptron: exit code, summary, and every file that it promises.

Usage: demo_test.py --build DIR
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

DEMO = Path(__file__).resolve().parent.parent.parent / "sim_scripts" / "demo"
FILES = ("board.fst", "board.gtkw", "mxu.fst", "checkpoint/step2.safetensors", "train_step.tpuexe", "eval_step.tpuexe")


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True)
    args = parser.parse_args()
    errors = []
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        done = subprocess.run([str(DEMO), "--model", "mlp", "--steps", "2", "--build-dir", str(args.build), "--out",
                               name],
                              capture_output=True, text=True, check=False)
        print(done.stdout, done.stderr, sep="\n")
        if done.returncode != 0:
            errors.append(f"exit code {done.returncode}")
        else:
            run = json.loads((out / "run.json").read_text(encoding="utf-8"))
            if run["steps"] != 2 or len(run["losses"]) != 2:
                errors.append(f"{run['steps']} steps, {len(run['losses'])} losses")
            if run["lockstep"]["tiles"] < 1 or run["lockstep"]["mismatches"] != 0:
                errors.append(f"lockstep {run['lockstep']}")
            if "== done: 2 training steps" not in done.stdout or run["digest"] not in done.stdout:
                errors.append("the summary is not there")
        errors += [f"{file} is missing or empty" for file in FILES
                   if not (out / file).is_file() or (out / file).stat().st_size == 0]
    for error in errors:
        print(f"FAILED {error}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
