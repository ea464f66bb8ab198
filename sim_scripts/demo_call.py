"""Commands of the setup of a demonstration, for sim_scripts/demo_*: their output goes to a log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def call(what: str, command: list[str], log: Path) -> None:
    """Runs a command; the end of its output is shown when it fails, and the demonstration ends."""
    print(f"== {what}", flush=True)
    with log.open("w", encoding="utf-8") as output:
        done = subprocess.run(command, check=False, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT)
    if done.returncode != 0:
        tail = log.read_text(encoding="utf-8").splitlines()[-30:]
        sys.exit("\n".join([*tail, f"{Path(sys.argv[0]).name}: {what}: failed; the log is {log}"]))
