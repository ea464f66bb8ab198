"""What `pip install '.[torch]'` installs is what the tests have: torch and torch_xla fit each other in pairs only.

The extras torch and torch-2-5 of pyproject.toml name both with the versions of tests/requirements_torch_*.txt.
"""

from __future__ import annotations

import sys
import tomllib

from sources import ROOT

PAIRS = {"torch": "tests/requirements_torch_2_9.txt", "torch-2-5": "tests/requirements_torch_2_5.txt"}
NAMES = ("torch", "torch_xla")


def main() -> int:
    """Prints pins that are not in both."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    errors = []
    for extra, requirements in PAIRS.items():
        lines = (ROOT / requirements).read_text(encoding="utf-8").splitlines()
        for name in NAMES:
            tested = [line for line in lines if line.startswith(f"{name}==")]
            if len(tested) != 1 or tested[0] not in extras.get(extra, []):
                errors.append(f"pyproject.toml: the extra {extra} has {extras.get(extra)}; {requirements} has "
                              f"{tested}: {name} has to be the same")
    print("\n".join(errors) if errors else "the extras are what the tests have")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
