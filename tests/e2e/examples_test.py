"""The checked-in example graphs are what their export scripts make."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"


def main() -> int:
    """Exports every example again and compares bytes."""
    errors = []
    for script in sorted(EXAMPLES.glob("*/export.py")):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, str(script), "--out", folder], check=True, stdout=subprocess.DEVNULL)
            made = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
        kept = {path.name: path.read_bytes() for path in script.parent.glob("*.mlirbc")}
        if not made or made.keys() != kept.keys():
            errors.append(f"{script.parent.name}: {sorted(kept)} are checked in, {sorted(made)} were exported")
        errors += [f"{script.parent.name}/{name} differs from its export" for name in made if made[name] != kept.get(name)]
    print("\n".join(errors) if errors else "examples: all equal")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
