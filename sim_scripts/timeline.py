#!/usr/bin/env python3
"""`python -m tpuboard.timeline` of the source tree, which needs neither the package installed nor NumPy."""

from __future__ import annotations

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).resolve().parents[1] / "python/tpuboard/timeline.py"), run_name="__main__")
