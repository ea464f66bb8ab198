"""A user whose compile cache cannot be looked into compiles and runs all the same, and is told once.

Usage: cache_denied_test.py PROGRAM ARTIFACT: of c_api.tanh_layer. As root the program runs as another user, since root
looks into every folder. Exit code 77, "skipped", where that user cannot start it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
NOBODY = 65534


def main() -> int:
    """A cache below a closed folder, and one whose folder is a link to itself."""
    program, artifact = (Path(word).resolve() for word in sys.argv[1:])
    other = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        closed = folder / "closed"
        closed.mkdir(mode=0)
        loop = folder / "loop"
        loop.symlink_to("loop")
        inherited = {key: value for key, value in os.environ.items()
                     if key not in ("XDG_CACHE_HOME", "TPUBOARD_CACHE", "XDG_RUNTIME_DIR")}
        for variables, reason in (({"HOME": str(closed)}, "Permission denied"),
                                  ({"TPUBOARD_CACHE": str(loop)}, "Too many levels of symbolic links")):
            try:
                done = subprocess.run([program, artifact], env={**inherited, **variables, "TPUBOARD_MONITOR": "0"},
                                      cwd=folder, capture_output=True, text=True, timeout=50, check=False, **other)
            except PermissionError as error:
                print(f"another user cannot start the program: {error}")
                return SKIPPED
            said = [line for line in done.stderr.splitlines() if line.startswith("tpuboard: compile cache: ")]
            assert done.returncode == 0, (variables, done.stderr)
            assert len(said) == 1 and reason in said[0], (variables, done.stderr)
        closed.chmod(0o755)
    return 0


if __name__ == "__main__":
    sys.exit(main())
