"""Runs a Python program and prints what it did on the board: python -m tpuboard [options] PROGRAM ..

The program need not know of the board. `--ops` lists the N operations that took most of the cores' time; `--figures`
writes the same figures as JSON; `--report` writes a page that says why the longest step waits.
"""

from __future__ import annotations

import argparse
import json
import runpy
import sys
from dataclasses import asdict
from pathlib import Path

from . import measure
from ._files import write_file


def main() -> int:
    """Runs the program in a measured block; its exit code is this one's."""
    parser = argparse.ArgumentParser(prog="python -m tpuboard", description=__doc__)
    parser.add_argument("--figures", type=Path, help="JSON file for the metrics")
    parser.add_argument("--ops", type=int, default=0, help="operations to list, those that took most time first")
    parser.add_argument("--report", type=Path, help="HTML page of the longest step: why it waits")
    parser.add_argument("program", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    sys.argv = [str(options.program), *options.arguments]
    sys.path[0] = str(options.program.parent)
    with measure(options.program.name, output=sys.stderr, ops=options.ops, report=options.report) as figures:
        try:
            runpy.run_path(str(options.program), run_name="__main__")
        except SystemExit as exit_:
            if exit_.code not in (None, 0):
                raise
    if options.figures is not None:
        names = ("cycles", "seconds", "mxu", "idle", "idle_input", "idle_host", "host_seconds", "programs", "cores")
        values = {name: getattr(figures, name) for name in names} | {"ops": [asdict(time) for time in figures.ops]}
        write_file(options.figures, json.dumps(values).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
