"""Writes table.json, the golden digests and simulated cycles, anew and prints what changed. The commit says why.

Refuses where a collective differs from its model (orders.py): then docs/numerics.md and the model change first.
Usage: update.py --bin DIR, with the Python of build/venv
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import golden_test


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    args = parser.parse_args()
    path = golden_test.TABLE
    old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    table: dict[str, dict[str, golden_test.Figures]] = {}
    refused = False
    for group in golden_test.GROUPS:
        table[group] = {}
        for name, figures, errors in golden_test.figures_of(group, args.bin):
            refused = refused or bool(errors)
            table[group][name] = figures
            changed = {key: value
                       for key, value in figures.items() if value != old.get(group, {}).get(name, {}).get(key)}
            print(f"{name}: {changed or 'unchanged'}", *errors, sep="\n  ", flush=True)
    if refused:
        print("nothing was written: results differ from the documented order", file=sys.stderr)
        return 1
    path.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
