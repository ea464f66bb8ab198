"""Models of the field at small and at full size (README.md). The import sets up JAX as the benchmarks do."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import network  # noqa: F401
