"""The checked-in graphs of the examples and of tests/golden are what their export scripts make."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> int:
    """Exports every example again and compares bytes."""
    errors = []
    for script in [*sorted(ROOT.glob("examples/*/export.py")),
                   ROOT / "tests" / "golden" / "graphs" / "export_graphs.py"]:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, str(script), "--out", folder], check=True, stdout=subprocess.DEVNULL)
            made = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
        kept = {path.name: path.read_bytes() for path in script.parent.glob("*.mlirbc")}
        if not made or made.keys() != kept.keys():
            errors.append(f"{script.parent.name}: {sorted(kept)} are checked in, {sorted(made)} were exported")
        errors += [f"{script.parent.name}/{name} differs from its export"
                   for name in made if made[name] != kept.get(name)]
    print("\n".join(errors) if errors else "all equal")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
